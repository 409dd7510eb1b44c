"""Claims on language models turn when they are broken on purpose; the probe's rows are made by hand."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from support.probes import fabricated, head, numbers, words
from support.runs import PAPER, SEEDS, TOPICS, decide, made_up, settings_of
from topicscope.measure.run import Run
from topicscope.measure.uncertainty import Interval
from topicscope.papers.needs import PRESETS, Probing
from topicscope.papers.paper import paper
from topicscope.papers.topic_structure import language
from topicscope.papers.topic_structure.experiments import BERT, PAPER_MODELS
from topicscope.records import ProbeResult

SYNTHETIC = ("figure10/joint/cross-entropy-adam", "figure1/cross-entropy-adam")
CLAIMS = {claim.id: claim for claim in PAPER.claims if claim.quantity.startswith("language.")}


def synthetic(contrast: float = 0.5, ratio: float = 3.0) -> dict[str, Run]:
    """Models of synthetic documents with this difference of cosines, and this ratio of attention."""
    # Unit vectors: a common direction for each topic, and one of its own for each word.
    own, attention = np.eye(len(TOPICS)), np.ones((SEEDS, 5))
    embedding = np.concatenate([np.sqrt(1 - contrast) * own, np.sqrt(contrast) * own[TOPICS]], axis=1)
    attention[:, 1] = ratio * (1 + 0.001 * np.arange(SEEDS))
    weights, final = {"embedding": np.stack([embedding] * SEEDS)}, {"attention": attention}
    return {name: made_up(settings_of(name), weights=weights, final=final) for name in SYNTHETIC}


def verdicts(trained: ProbeResult, untrained: ProbeResult, **made: float) -> dict[str, str]:
    groups = {"trained": trained, "paper-trained": trained, "untrained": untrained, "paper-untrained": untrained}
    results: dict[str, Any] = {f"probe/{group}/*": result for group, result in groups.items()} | synthetic(**made)
    return {id_: decide(id_, {name: results[name] for name in claim.needs}) for id_, claim in CLAIMS.items()}


UNTRAINED = fabricated(1.0, model="random:minilm")


def test_every_claim_holds_for_a_model_with_topics_and_fails_when_it_is_broken() -> None:
    assert {name for name, decided in verdicts(fabricated(1.5), UNTRAINED).items() if decided != "holds"} == set()
    broken = fabricated(0.7, top=1.3, matched=0.8)
    broken = msgspec.structs.replace(broken, maps=[words(np.tile(np.arange(3), 3))])
    decided = verdicts(broken, fabricated(1.2, model="random:minilm"), contrast=0.0, ratio=0.6)
    # The words of one topic are less similar in the broken model than those of different topics.
    assert {name for name, each in decided.items() if each != "fails"} <= {"section1/embeddings"}
    assert verdicts(fabricated(1.5), UNTRAINED, contrast=0.0)["section1/embeddings"] == "fails"


def test_an_untrained_model_passes_no_claim_on_a_trained_one() -> None:
    even = fabricated(1.0, top=1.0, matched=1.0)
    even = msgspec.structs.replace(even, maps=[words(np.zeros(9, dtype=int))])
    decided = verdicts(even, UNTRAINED)
    about_trained = {claim.id for claim in CLAIMS.values() if "probe/trained/*" in claim.needs}
    # A synthetic model has more than one without any.
    assert {name for name in about_trained if decided[name] == "holds"} == {"section1/attention", "section1/embeddings"}


def without(name: str) -> ProbeResult:
    """A model with one number of every comparison missing."""
    model = fabricated(1.5)

    def bare(comparison: Any) -> Any:
        return msgspec.structs.replace(comparison, **{name: None})

    rows = [
        msgspec.structs.replace(
            row,
            **{measure: bare(getattr(row, measure)) for measure in language.MEASURES},
            attention_by_layer_head=[[bare(one) for one in layer] for layer in row.attention_by_layer_head],
        )
        for row in model.rows
    ]
    return msgspec.structs.replace(model, rows=rows)


@pytest.mark.parametrize("name", ["p", "low", "high", "ratio"])
def test_nothing_is_decided_without_its_test_or_its_interval(name: str) -> None:
    decided = verdicts(without(name), UNTRAINED)
    judged = ("table1/paper-models", "table1/embeddings", "table1/attention", "table5/ratios", "table1/heads")
    assert {decided[claim] for claim in judged} == {"undecided"}
    assert decided["table1/attention-falls"] == "holds"


def test_an_effect_that_a_permutation_explains_is_not_taken_for_one() -> None:
    lucky = fabricated(1.5, attention=numbers(0.015, 0.01, p=0.3))
    decided = verdicts(lucky, UNTRAINED)
    assert decided["table1/attention"] == "undecided"
    assert decided["table1/embeddings"] == "holds"


def test_a_row_is_a_model_a_measure_and_a_threshold_beside_what_the_paper_prints() -> None:
    results = {"a": fabricated(1.5), "b": fabricated(1.4, model=BERT)}
    rows = language.ratios(results)
    assert len(rows) == 2 * 3 * 3
    assert rows["minilm, attention, 0.0005"].details["the_paper_prints_for_Bert"] == 1.32
    assert rows[f"{BERT}, cosine, 0.002"].details["the_paper_prints_for_this_model"] == 1.11
    assert language.printed("random:minilm", 0.001, "dot") == 1.00036


def test_some_head_is_the_most_significant_with_more_attention_within_topics() -> None:
    clear, doubtful, less = head(2.0, p=0.001), head(3.0, p=0.04), head(0.5, p=0.001)
    (measured,) = language.some_head({"a": fabricated(1.5, attention_by_layer_head=[[doubtful, clear, less]])}).values()
    assert (measured.value, measured.p, measured.details["head"]) == (2.0, 0.001, 2)
    assert (measured.details["more"], measured.details["less"]) == (2, 1)
    # A head with less attention within topics is no such head, however significant.
    (measured,) = language.some_head(
        {"a": fabricated(1.5, attention_by_layer_head=[[less, head(1.01, p=0.6)]])}
    ).values()
    assert measured.p == 0.6


def test_heads_without_a_significant_one_are_not_yet_heads_without_an_effect() -> None:
    even = head(1.0, p=1.0)
    wide = msgspec.structs.replace(even, low=0.9, high=1.1)
    for heads, expected in (([even, even], "holds"), ([even, wide], "undecided"), ([even, head(1.2)], "fails")):
        decided = verdicts(fabricated(1.5), fabricated(1.0, model="random:minilm", attention_by_layer_head=[heads]))
        assert decided["table1/untrained-heads"] == expected


def test_the_difference_of_independent_numbers_is_that_of_normal_ones() -> None:
    one, other = Interval(3.0, 3.0 - 1.96 * 0.3, 3.0 + 1.96 * 0.3), Interval(1.0, 1.0 - 1.96 * 0.4, 1.0 + 1.96 * 0.4)
    found = language.independent_difference(one, other)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0 - 1.96 * 0.5, 2.0 + 1.96 * 0.5))
    # The control: adding widths would be too careful.
    assert found.high - found.low < (one.high - one.low) + (other.high - other.low)


def test_cosines_are_compared_without_mask_and_without_a_word_and_itself() -> None:
    topics = np.array([0, 1, 1, 2, 2])
    table = np.array([[9.0, 9.0], [1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    assert language.cosine_contrast(table, topics) == pytest.approx(1.0)


def test_models_that_are_named_are_probed_and_the_papers_own_among_them_get_the_papers_claims(tmp_path: Any) -> None:
    def probes(*models: str) -> dict[str, str]:
        needs = paper(preset=replace(PRESETS["quick"], models=models)).experiments
        return {name: need.unavailable for name, need in needs.items() if isinstance(need, Probing)}

    named = probes(str(tmp_path), BERT)
    assert list(named) == [
        f"probe/trained/{tmp_path}",
        f"probe/trained/{BERT}",
        f"probe/paper-trained/{BERT}",
        f"probe/paper-untrained/random:{BERT}",
    ]
    assert "has no config.json" in named[f"probe/trained/{tmp_path}"]
    assert "among --models" in named[f"probe/paper-untrained/random:{BERT}"]
    assert probes()["probe/trained/minilm"] == ""
    assert set(PAPER_MODELS.values()) == set(language.TABLE_1)
