"""``topicscope probe`` on small models and a small corpus: what it writes, says and prints, and what it refuses."""

import csv
import html
import itertools
import json
import re
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch

from support.made_up_tokenizers import byte_level
from support.small_probe import OF_LABELS, OF_LDA, SMALL, WORDS, rows, run, without
from support.tiny_models import SPECIAL, VOCABULARY, save_tiny, save_tokenizer
from topicscope.cli import main
from topicscope.commands.probe import Probed, print_table, probe, ratio_text
from topicscope.errors import InputError
from topicscope.probing import study
from topicscope.probing.models import Outputs
from topicscope.probing.settings import CorpusSettings, Machine, MeasureSettings, ProbeSettings, TopicOptions
from topicscope.records import COMPARISONS, PROBE, Comparison, ProbeRow
from topicscope.text import hub

WITHOUT_FIGURES = pytest.mark.usefixtures("without_figures")


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_tables_figures_and_the_page_have_what_the_design_says(finished: Path) -> None:
    found = rows(finished)
    # Models × thresholds × embeddings × centred or not.
    assert len(found) == 3 * 2 * 2 * 2
    for row in found:
        for name in ("cosine", "dot", "attention"):
            assert set(row[name]) >= set(Comparison.__struct_fields__)
            assert row[name]["difference"] == pytest.approx(row[name]["same"] - row[name]["different"])
        heads = [head for layer in row["attention_by_layer_head"] for head in layer]
        assert [(head["layer"], head["head"]) for head in heads] == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert [layer["layer"] for layer in row["attention_by_layer"]] == [1, 2]
        assert row["attention"]["same"] == pytest.approx(np.mean([head["same"] for head in heads]))
    sinks = {Path(row["model"]).name: row["sink"] for row in found}
    assert (sinks["bert"], np.shape(sinks["gpt2"])) == (None, (2, 2))
    flat = table(finished / "probe.csv")
    assert len(flat) == len(found)
    assert float(flat[0]["attention.same"]) == found[0]["attention"]["same"]
    # With three topics, some replicates draw but one of them; articles always have pairs.
    assert {row["attention.replicates_left_out"] for row in flat} == {"0"}
    assert all(0 < int(row["cosine.replicates_left_out"]) <= 10 and row["cosine.difference_low"] for row in flat)
    words = table(finished / "topics.csv")
    assert {row["word"] for row in words} <= set(WORDS)
    assert {row["topic"] for row in words} == {"0", "1", "2"}
    heads = table(finished / "heads.csv")
    assert set(heads[0]) >= {"layer", "p", "p_single", "q", "distance_matched_ratio", "sink", "examples"}
    assert (finished / "probe.tex").read_text().startswith("% Written by topicscope probe")
    names = {path.name for path in (finished / "figures").iterdir()}
    assert {f"{name}.svg" for name in ("ratios-one", "heads", "words", "depth")} <= names
    assert "checkpoints-1.svg" not in names
    page = html.unescape((finished / "report.html").read_text())
    assert re.search(r"gpt2 against \S*bert\. Attention: (more|less|not told apart), ", page)
    assert '<table class="sortable" data-name="comparisons">' in page
    assert page.count("<td>Hidden states, layer 2</td>") == 2


def news(folder: Path, documents: int, words: list[str]) -> Path:
    """Articles with a headline and a body, each mostly of one topic out of four, as people have them."""
    draw, path = np.random.default_rng(4), folder / "news.jsonl"
    topics, lines = np.array_split(np.array(words), 4), []
    for number, topic in enumerate(draw.integers(4, size=documents)):
        chosen = [str(draw.choice(topics[topic] if draw.random() < 0.8 else words)) for _ in range(40)]
        lines.append(json.dumps({"headline": f"number {number}", "body": " ".join(chosen) + "."}))
    path.write_text("\n".join([*lines, "{"]))
    return path


@WITHOUT_FIGURES
def test_news_run_to_the_end_by_default_say_what_is_being_done_and_short_ones_lack_all_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stems = ["".join(each) for each in itertools.product("bdgklmnp", "aeiou", "rstvz", "o")][:200]
    words = [f"{stem}{end}" for stem in stems for end in ("n", "m")]
    save_tiny("bert", tmp_path / "model", vocab_size=len(SPECIAL) + len(words) + 1)
    save_tokenizer(tmp_path / "model", [*words, "."])
    few = without(SMALL, {"--topics", "--fractions", "--fits"})
    given = ["probe", str(tmp_path / "model"), "--field", "body", *few, "--fits", "1"]
    # The second time nothing is read or measured; with --json, notes are beside the JSON.
    for more in ([], ["--json"]):
        assert main([*given, "--corpus", str(news(tmp_path, 120, words)), "--out", str(tmp_path / "out"), *more]) == 0
        printed = capsys.readouterr()
        said = " ".join((printed.err if more else printed.out).split())
        assert re.search(r"\d topics at thresholds 0\.01\d*, 0\.0\d+, 0\.0\d+, which keep 5, 10, 20 words", said)
        assert "120 articles" in said
        assert "1 broken lines were left out" in said
        assert not more or json.loads(printed.out)
        assert more or f"loading {tmp_path / 'model'}" in printed.err
    # It stays with the results, in a file and on the page.
    [about] = json.loads((tmp_path / "out" / "corpus.json").read_text())
    assert {"c_npmi", "diversity"} <= {name for name, value in about["topic_quality"].items() if value}
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(html.escape(problem) in page for problem in about["problems"])
    short = news(tmp_path, 30, words[:9])
    assert main([*given, "--corpus", str(short), "--out", str(tmp_path / "short")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    for missing in ("15 articles to fit topics on", "15 articles to measure on", "9 different words to fit"):
        assert missing in said
    assert not (tmp_path / "short").exists()


def as_cached(cache: Path, revisions: list[str]) -> None:
    """A repository of the hub as its cache has it, with checkpoints."""
    repository = cache / "models--someone--bert"
    for number, revision in enumerate(revisions):
        commit = f"{number:040x}"
        save_tiny("bert", repository / "snapshots" / commit, seed=number)
        save_tokenizer(repository / "snapshots" / commit, WORDS)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub cannot be reached, and its cache is empty."""
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@WITHOUT_FIGURES
def test_revisions_of_one_model_stay_in_the_order_given(
    tiny: Path, tmp_path: Path, offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, small = tmp_path / "out", ("--fits", "1", "--fractions", "0.2", "--json")

    def revisions(found: list[dict[str, Any]]) -> list[str]:
        return list(dict.fromkeys(row["revision"] for row in found))

    # A checkpoint that is measured already is finished first, but stays in its place.
    for given in (["step20", "step1"], ["step300", "step20", "step1"]):
        as_cached(offline, ["step1", "step20", "step300"])
        assert run(tiny, out, "someone/bert", "--revision", *given, *small) == 0
        found = json.loads(capsys.readouterr().out)
        assert revisions(found) == revisions(rows(out)) == given
    assert found[0]["cosine"]["same"] != found[-1]["cosine"]["same"]
    # The first checkpoint is the one that is compared, if none is named.
    compared = Probed(PROBE.read(out), [], [], out).compare("someone/bert step1")
    assert {(row.model, row.against) for row in compared} == {("someone/bert step300", "someone/bert step1")}


@WITHOUT_FIGURES
def test_a_model_that_is_added_leaves_topics_and_words_of_the_others(tiny: Path, tmp_path: Path) -> None:
    """Of other tokenizers, and of other passage lengths."""
    save_tiny("bert", tmp_path / "other", max_position_embeddings=14)
    save_tokenizer(tmp_path / "other", WORDS[::-1])
    out, models = tmp_path / "out", [str(tiny / "bert"), str(tmp_path / "other")]
    kept: list[set[tuple[str, ...]]] = []
    for model in models:
        assert run(tiny, out, model, "--fits", "1", "--fractions", "0.2") == 0
        kept.append({tuple(row.values()) for row in table(out / "topics.csv")})
    assert kept[0] < kept[1]
    assert {(row[0], row[1]) for row in kept[1]} == {(row["tokenizer"], str(row["length"])) for row in rows(out)}
    assert {row["length"] for row in rows(out)} == {18, 12}
    assert len(list(out.glob("topics-*/topics.safetensors"))) == 2
    for name in ("words.json", "corpus.json"):
        assert len(json.loads((out / name).read_text())) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No model is given"),
        (["no-such/model"], "is not in the local cache, and the hub does not have it or cannot be reached: check"),
        (["BERT", "BERT"], "given twice"),
        (["BERT", "BERT2", "--revision", "a"], "--revision goes with one model, and 2 are given"),
        (["BERT", "--revision", "step1"], "--revision step1 is no folder in"),
        (["BERT", "--show-words", "frog", "unheardof"], '--show-words "unheardof" is not one token of'),
        (["BERT", "--device", "cuda"], "--device cuda is not available here"),
        (["BERT", "--engine", "cloud"], '--engine = "cloud" is not allowed'),
        (["BERT", "--address", "auto"], '--address = "auto" is not allowed with --engine local: add --engine ray'),
        (["BERT", "--fractions", "0.1", "1"], "fractions = [0.1, 1.0] is not allowed: give numbers above 0 and below"),
        (["BERT", "--fractions", "0.1", "0.1"], "give each value once"),
        (["BERT", "--topics", "1000"], "topics = 1000 is not allowed with"),
        (["BERT", "--fits", "1001"], "fits = 1001 is not allowed: give a whole number of at most 1,000"),
        (["BERT", "--word-topics", "own.csv", "--fractions", "0.1"], "fractions = [0.1] is not allowed: --word-topics"),
        (["BERT", "--word-topics", "o.csv", "--most-tokens", "5"], "--most-tokens = 5 is not allowed: --word-topics"),
        (["BERT", "--topics-from", "saved", "--topics", "7"], "topics = 7 is not allowed: --topics-from brings topics"),
        (["BERT", "--stop-words", "/no/such/list"], "cannot be read: give auto, gensim, none"),
        (["BERT", "--topics-from", "/no/such"], "--topics-from /no/such has no topics.safetensors: give a folder"),
        (["BERT", "--word-topics", "/no/such"], "--word-topics /no/such is no file: give a CSV file"),
        (["EMPTY"], "has no config.json"),
        (["WORDLESS"], "has no tokenizer: its folder must hold tokenizer.json"),
        *(
            (["BERT", f"--{name}", "0"], f"--{name} = 0 is not allowed")
            for name in ("every", "fits", "batch", "workers")
        ),
        *((["BERT", f"--{name}", "1"], f"--{name} = 1 is not allowed") for name in ("length", "topics", "replicates")),
        (["BERT", "--head-permutations", "0"], "--head-permutations = 0 is not allowed"),
        (["BERT", "--seed", "-1"], "--seed = -1 is not allowed"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], said: str, tiny: Path, tmp_path: Path, offline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"BERT": tiny / "bert", "EMPTY": tmp_path / "empty", "WORDLESS": tmp_path / "wordless"}
    places["EMPTY"].mkdir()
    if "WORDLESS" in words:
        save_tiny("bert", places["WORDLESS"])
    given = [str(places.get(word, word)) for word in words]
    names = {word for word in words if word.startswith("--")}
    if names & {"--topics-from", "--word-topics"}:
        names |= {*OF_LDA, *OF_LABELS}
    corpus = ["--corpus", str(tiny / "corpus.txt"), "--out", str(tmp_path / "out")]
    # Progress would depend on how fast the machine is.
    assert main(["probe", *given, *without(SMALL, names), *corpus, "--quiet"]) == 2
    printed = capsys.readouterr()
    [sentence] = printed.err.splitlines()
    assert said in sentence
    assert not printed.out
    assert not (tmp_path / "out").exists(), "nothing is left of what was refused"


def test_half_precision_that_the_processor_cannot_run_falls_back_with_one_sentence(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("topicscope.precision.works_on_processor", lambda dtype: False)
    given = [str(tiny / "bert"), "--device", "cpu", "--stop-words", "/no/such/list"]
    assert run(tiny, tmp_path / "out", *given, "--dtype", "bfloat16") == 2
    assert "bfloat16 does not work on this processor" in capsys.readouterr().err
    # The control: full precision needs no word.
    assert run(tiny, tmp_path / "out", *given) == 2
    assert "does not work" not in capsys.readouterr().err


RATIO = Comparison(
    ratio=1.5167, low=1.402, high=1.633, difference=0.112, difference_low=0.09, difference_high=0.134, p=0.2
)


def printed_row(embedding: str, **comparisons: Comparison) -> ProbeRow:
    numbers = {"cosine": RATIO, "dot": RATIO, "attention": RATIO} | comparisons
    about = {"model": "tiny", "revision": "", "assignment": "one", "embedding": embedding}
    return msgspec.convert(about | msgspec.to_builtins(numbers), ProbeRow)


def printed(capsys: pytest.CaptureFixture[str], *rows: ProbeRow) -> str:
    print_table(Probed(list(rows), [Path("a.png")], ["a note"], Path("out")))
    return " ".join(capsys.readouterr().out.split())


def test_a_cell_has_the_ratio_or_the_difference_and_a_star_where_it_is_significant() -> None:
    none = msgspec.structs.replace(RATIO, ratio=None, low=None, high=None, p=0.01)
    bare = msgspec.structs.replace(RATIO, low=None, high=None)
    texts = [ratio_text(each) for each in (none, RATIO, bare, Comparison(p=0.01))]
    assert texts == ["Δ 0.112* [0.090, 0.134]", "1.52 [1.40, 1.63]", "1.517 (no interval)", "–"]


def test_attention_stands_once_for_all_embeddings(capsys: pytest.CaptureFixture[str]) -> None:
    other = msgspec.structs.replace(RATIO, ratio=2.0, low=1.9, high=2.1)
    both = [printed_row(embedding, attention=other) for embedding in ("matrix", "layer")]
    assert printed(capsys, *both).count("2.00 [1.90, 2.10]") == 1
    # The control: of another assignment it is another number.
    several = msgspec.structs.replace(both[0], assignment="several")
    assert printed(capsys, both[0], several).count("2.00 [1.90, 2.10]") == 2


PYTHON: dict[str, Any] = {
    **{"topics": 3, "fractions": [0.1, 0.2], "fits": 2, "iterations": 20, "length": 20, "replicates": 20},
    **{"permutations": 19, "head_permutations": 19, "workers": 1, "device": "cpu", "assignments": ["one"]},
}


@WITHOUT_FIGURES
def test_from_python_options_are_keywords_and_the_answer_is_an_object(finished: Path, tiny: Path) -> None:
    models = [str(tiny / "bert"), f"random:{tiny / 'bert'}"]
    found = probe(models, corpus=tiny / "corpus.txt", out=str(finished), label=["mine", "untrained"], **PYTHON)
    assert found.summary.splitlines()[0].startswith("mine. Embeddings: ")
    assert found.summary.splitlines()[-1].startswith("“Yes” means that p < 0.05")
    assert [layer.layer for layer in found.rows[0].hidden_by_layer or []] == [0, 1, 2]
    # Compared with the first, and the other way round with the signs turned.
    assert {(row.model, row.against) for row in found.comparisons} == {(models[1], models[0])}
    assert {row.measure for row in found.comparisons} >= {"attention", "cosine matrix", "hidden centred_cosine"}
    turned = found.compare(models[1])
    assert turned[0].difference == pytest.approx(-(found.comparisons[0].difference or 0))
    assert (len(turned), turned[0].p) == (len(found.comparisons), found.comparisons[0].p)
    assert found.comparisons[0] in COMPARISONS.read(finished)
    with pytest.raises(InputError, match=r"other was not probed into .*: name one of .*bert, random:.*bert, "):
        found.compare("other")
    # Without thousands of numbers.
    assert len(repr(found)) < 10_000 < len(repr(found.rows))
    assert "<caption>same- over different-topic averages" in found._repr_html_()
    with pytest.raises(InputError, match=r"probe has no option corpos\. Did you mean corpus\?"):
        probe(models, out=finished, corpos=3)
    with pytest.raises(InputError, match="--against other is none of the models given"):
        probe(models, out=finished, against="other")
    with pytest.raises(InputError, match="--label names 1 models"):
        probe(models, out=finished, label=["one"])
    with pytest.raises(InputError, match="No model is given"):
        probe([], out=finished)


class OwnNetwork(torch.nn.Module):
    """A plain module with one layer of attention, as docs/probe.md has it: nothing of transformers."""

    name, layers, heads, causal, first = "own", 1, 1, False, 0

    def __init__(self, tokenizer: str, tokens: int, width: int = 8) -> None:
        super().__init__()
        self.tokenizer, self.words = tokenizer, torch.nn.Embedding(tokens, width)
        self.attend = torch.nn.MultiheadAttention(width, 1, batch_first=True)

    def embedding_matrix(self) -> Any:
        return self.words.weight.detach().numpy()

    def embedding_layer(self, tokens: Any) -> Any:
        return self.embedding_matrix()[tokens]

    @torch.no_grad()
    def run(self, passages: Any) -> Outputs:
        longest = max(map(len, passages))
        tokens = torch.zeros(len(passages), longest, dtype=torch.int64)
        for place, passage in enumerate(passages):
            tokens[place, : len(passage)] = torch.as_tensor(np.array(passage))
        padding = torch.arange(longest) >= torch.tensor([[len(passage)] for passage in passages])
        states = self.words(tokens)
        mixed, weights = self.attend(states, states, states, key_padding_mask=padding, average_attn_weights=False)
        return Outputs([weights], [states, states + mixed])


def test_topics_in_case_variants_alone_are_found_without_merging_and_not_with_it(tmp_path: Path) -> None:
    names = [first + rest for first in "bdgfklmnprst" for rest in ("ana", "olo")]
    spellings = [*names, *(name.capitalize() for name in names)]
    tokenizer, draw = byte_level(*(f" {each}" for each in spellings)), np.random.default_rng(2)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.engine.save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("\n".join(" " + " ".join(draw.choice(spellings, 40)) for _ in range(20)))
    topics = [f"{each},{names.index(each.lower()) % 6}" for each in spellings]
    (tmp_path / "topics.csv").write_text("\n".join(["word,topic", *topics]))
    torch.manual_seed(3)
    network = OwnNetwork(str(tmp_path / "tokenizer"), tokenizer.size, 48).eval()
    # Both spellings of a word have one vector; words of a topic have nothing in common.
    one, other = np.array([tokenizer.engine.token_to_id(f"Ġ{each}") for each in spellings]).reshape(2, -1)
    network.words.weight.data[other] = network.words.weight.data[one]
    options = TopicOptions(word_topics=tmp_path / "topics.csv")
    for merged in (True, False):
        text = CorpusSettings(corpus=str(tmp_path / "text.txt"), merge_words=merged)
        measures = MeasureSettings(replicates=20, permutations=99, head_permutations=9)
        settings = ProbeSettings(text=text, topics=options, measures=measures)
        machine = Machine(device="cpu")
        found = study.probe([network], settings, machine=machine, work=tmp_path / f"{merged}", detailed=False)
        [row] = [row for row in found.rows if row.embedding == "matrix" and not row.centred]
        assert row.words == len(names) * (1 if merged else 2)
        assert row.cosine is not None
        assert (cast(float, row.cosine.p) <= 0.05) == (not merged)


@WITHOUT_FIGURES
def test_anything_with_embeddings_attention_and_hidden_states_can_be_probed(tiny: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = OwnNetwork(str(tiny / "bert"), VOCABULARY).eval()
    small = PYTHON | {"fractions": (0.2,), "fits": 1}
    found = probe(network, corpus=tiny / "corpus.txt", out=tmp_path / "out", **small)
    assert {row.model for row in found.rows} == {"own"}
    assert found.summary.startswith("own. Embeddings: ")
    assert len(found.rows[0].hidden_by_layer or []) == 2
    [[head]] = found.rows[0].attention_by_layer_head
    attention = found.rows[0].attention
    assert attention is not None
    assert head.same == pytest.approx(attention.same)
