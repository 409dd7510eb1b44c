"""``topicscope probe`` on small models and a small corpus: what it writes and says, and what it refuses."""

import csv
import gzip
import html
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.small_probe import OF_LDA, SMALL, WORDS, rows, run, without
from support.tiny_models import save_tiny, save_tokenizer
from topicscope.cli import main
from topicscope.probing import study
from topicscope.text import hub

CONTRAST = {
    "same",
    "different",
    "ratio",
    "low",
    "high",
    "difference",
    "difference_low",
    "difference_high",
    "auc",
    "auc_low",
    "auc_high",
    "p",
    "ratio_note",
    "replicates_left_out",
}


def test_every_row_has_what_the_design_says(finished: Path, tiny: Path) -> None:
    found = rows(finished)
    # Models × thresholds × assignments × embeddings × centred or not.
    assert len(found) == 3 * 2 * 2 * 2 * 2
    for row in found:
        for name in ("cosine", "dot", "attention"):
            assert set(row[name]) >= CONTRAST
            assert row[name]["difference"] == pytest.approx(row[name]["same"] - row[name]["different"])
            assert row[name]["ratio"] is not None or row[name]["ratio_note"]
            assert row[name]["low"] is not None or row[name]["ratio_note"]
        assert len(row["attention_by_layer_head"]) == 2
        assert {len(layer) for layer in row["attention_by_layer_head"]} == {2}
        assert row["lda_seeds"] == 2
        heads = [head["same"] for layer in row["attention_by_layer_head"] for head in layer]
        assert row["attention"]["same"] == pytest.approx(np.mean(heads))
    sinks = {Path(row["model"]).name: row["sink"] for row in found}
    assert sinks["bert"] is None
    assert np.shape(sinks["gpt2"]) == (2, 2)
    with (finished / "probe.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(found)
    assert float(table[0]["attention.same"]) == found[0]["attention"]["same"]
    # With three topics, some replicates draw but one of them; articles always have pairs.
    assert {row["attention.ratio_note"] for row in table} == {""}
    assert {row["attention.replicates_left_out"] for row in table} == {"0"}
    assert all(0 < int(row["cosine.replicates_left_out"]) <= 10 for row in table)
    assert all(row["cosine.difference_low"] for row in table)
    with (finished / "topics.csv").open() as file:
        words = list(csv.DictReader(file))
    assert {row["word"] for row in words} <= set(WORDS)
    assert {row["topic"] for row in words} == {"0", "1", "2"}


def test_figures_are_written(finished: Path) -> None:
    names = {path.name for path in (finished / "figures").iterdir()}
    assert {"ratios-one-matrix.png", "ratios-one-matrix.txt", "ratios-several-layer.svg", "heads-0.1.png"} <= names
    assert {"words.png", "words.svg"} <= names
    assert "checkpoints.png" not in names
    assert "0.2" in (finished / "figures" / "ratios-one-matrix.txt").read_text()


@pytest.mark.usefixtures("without_figures")
def test_progress_names_what_is_being_done(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states: list[str] = []

    @contextmanager
    def recorded(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, state: states.append(state)

    monkeypatch.setattr("topicscope.commands.probe.progress_bar", recorded)
    monkeypatch.setattr(study, "PASSAGES", 16)
    assert run(tiny, finished, str(tiny / "bert"), "--json") == 0
    phases = [f"loading {tiny / 'bert'}", f"{tiny / 'bert'}: tests and intervals", "figures and page"]
    assert [state for state in states if state in phases] == phases
    # The control: pieces of work have names of their own.
    assert len(set(states)) > len(phases)


def as_cached(tiny: Path, cache: Path, revisions: list[str]) -> None:
    """A repository of the hub as its cache has it, with checkpoints."""
    repository = cache / "models--someone--bert"
    for number, revision in enumerate(revisions):
        commit = f"{number:040x}"
        snapshot = repository / "snapshots" / commit
        save_tiny("bert", snapshot, seed=number)
        save_tokenizer(snapshot, WORDS)
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / revision).write_text(commit)


def revisions_of(found: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["revision"] for row in found))


def test_revisions_of_one_model_give_topic_structure_over_training(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    as_cached(tiny, tmp_path / "cache", ["step1", "step20"])
    out = tmp_path / "out"
    assert run(tiny, out, "someone/bert", "--revision", "step20", "step1", "--fits", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert revisions_of(found) == revisions_of(rows(out)) == ["step20", "step1"]
    # A checkpoint that is measured already is finished first, but stays in its place.
    as_cached(tiny, tmp_path / "cache", ["step1", "step20", "step300"])
    assert run(tiny, out, "someone/bert", "--revision", "step300", "step20", "step1", "--fits", "1", "--json") == 0
    assert (
        revisions_of(json.loads(capsys.readouterr().out)) == revisions_of(rows(out)) == ["step300", "step20", "step1"]
    )
    assert found[0]["cosine"]["same"] != found[len(found) // 2]["cosine"]["same"]
    assert (out / "figures" / "checkpoints.png").exists()


def test_a_model_that_is_added_leaves_topics_words_and_figures_of_the_others(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_tiny("bert", tmp_path / "other")
    save_tokenizer(tmp_path / "other", WORDS[::-1])
    tokenizers = []
    for model in (tiny / "bert", tmp_path / "other"):
        assert run(tiny, tmp_path / "out", str(model), "--fits", "1", "--json") == 0
        with (tmp_path / "out" / "topics.csv").open() as file:
            tokenizers.append({row["tokenizer"] for row in csv.DictReader(file)})
    assert tokenizers[0] < tokenizers[1]
    assert len(tokenizers[1]) == 2
    models = [str(tiny / "bert"), str(tmp_path / "other")]
    assert [each["model"] for each in json.loads((tmp_path / "out" / "words.json").read_text())] == models
    table = (tmp_path / "out" / "figures" / "ratios-one-matrix.txt").read_text()
    assert all(model in table for model in models)
    assert {about["tokenizer"] for about in json.loads((tmp_path / "out" / "corpus.json").read_text())} == tokenizers[1]


def test_what_could_not_be_read_of_the_corpus_is_said(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = gzip.compress((tiny / "corpus.txt").read_bytes() * 2)
    (tmp_path / "cut.txt.gz").write_bytes(packed[: len(packed) - 200])
    given = [str(tiny / "bert"), "--fits", "1", *without(SMALL, {"--fits"}), "--corpus", str(tmp_path / "cut.txt.gz")]
    # The second time passages are found, not read; with --json, notes are beside the JSON.
    for more in ([], ["--json"]):
        assert main(["probe", *given, "--out", str(tmp_path / "out"), *more]) == 0
        printed = capsys.readouterr()
        said = " ".join((printed.err if more else printed.out).split())
        assert "what comes before is used" in said
        assert not more or json.loads(printed.out)
    # It stays with the results, in a file and on the page.
    [about] = json.loads((tmp_path / "out" / "corpus.json").read_text())
    [problem] = about["problems"]
    assert "what comes before is used" in problem
    assert {"c_npmi", "c_v", "diversity"} <= {name for name, value in about["topic_quality"].items() if value}
    page = (tmp_path / "out" / "report.html").read_text()
    for said in (problem, f"topics: c_npmi {about['topic_quality']['c_npmi']:.3f}"):
        assert html.escape(said) in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No model is given"),
        (["no-such/model"], "is not in the local cache and the hub cannot be reached: give minilm or a local folder"),
        (["BERT", "BERT"], "given twice"),
        (["BERT", "GPT2", "--revision", "a"], "--revision goes with one model, and 2 are given"),
        (["BERT", "--revision", "step1"], "--revision step1 is no folder in"),
        (["BERT", "--show-words", "frog", "unheardof"], '--show-words "unheardof" is not one token of'),
        (["BERT", "--device", "cuda"], "--device cuda is not available here"),
        (["BERT", "--device", "abacus"], "--device abacus is not allowed: give one of auto, cpu, cuda, mps"),
        (["BERT", "--engine", "cloud"], '--engine = "cloud" is not allowed'),
        (["BERT", "--address", "auto"], '--address = "auto" is not allowed with --engine local: add --engine ray'),
        (["BERT", "--timeout", "0"], "--timeout = 0.0 is not allowed: give seconds, above 0"),
        (["BERT", "--workers", "0"], "--workers = 0 is not allowed"),
        (["BERT", "--fractions", "2"], "fractions = [2.0] is not allowed"),
        (["BERT", "--fractions", "0"], "fractions = [0.0] is not allowed: give numbers above 0 and below 1"),
        (["BERT", "--fractions", "0.1", "1"], "fractions = [0.1, 1.0] is not allowed"),
        (["BERT", "--fractions", "0.1", "0.1"], "give each value once"),
        (["BERT", "--topics", "1000"], "topics = 1000 is not allowed with"),
        (["BERT", "--fits", "0"], "fits = 0 is not allowed"),
        (["BERT", "--fits", "1001"], "fits = 1001 is not allowed: give at most 1000"),
        (["BERT", "--length", "2"], "length = 2 is not allowed"),
        (["BERT", "--batch", "0"], "batch = 0 is not allowed"),
        (["BERT", "--corpus", "/no/such/file.txt"], "does not exist"),
        (["BERT", "--word-topics", "/no/such/file.csv"], "cannot be read"),
        (["BERT", "--word-topics", "own.csv", "--fits", "5"], "fits = 5 is not allowed: --word-topics brings topics"),
        (["BERT", "--word-topics", "own.csv", "--fractions", "0.1"], "fractions = [0.1] is not allowed: --word-topics"),
        (["BERT", "--topics-from", "/no/such/folder"], "cannot be read"),
        (
            ["BERT", "--topics-from", "saved", "--topics", "77"],
            "topics = 77 is not allowed: --topics-from brings topics",
        ),
        (
            ["BERT", "--topics-from", "saved", "--stop-words", "none"],
            '--stop-words = "none" is not allowed: --topics-from',
        ),
        (["BERT", "--stop-words", "/no/such/list"], "cannot be read: give gensim, none"),
        (["EMPTY"], "has no config.json"),
        (["PICKLED"], "--allow-bin"),
        (["WORDLESS"], "has no tokenizer: its folder must hold tokenizer.json"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str],
    said: str,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(hub, "reachable", lambda: False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    places = {"BERT": tiny / "bert", "GPT2": tiny / "gpt2"}
    for name in ("EMPTY", "PICKLED", "WORDLESS"):
        if name in words:
            places[name] = tmp_path / name.lower()
            places[name].mkdir()
    if "PICKLED" in words:
        (places["PICKLED"] / "config.json").write_text((tiny / "bert" / "config.json").read_text())
        (places["PICKLED"] / "pytorch_model.bin").write_bytes(b"")
    if "WORDLESS" in words:
        save_tiny("bert", places["WORDLESS"])
    given = [str(places.get(word, word)) for word in words]
    corpus = [] if "--corpus" in words else ["--corpus", str(tiny / "corpus.txt")]
    names = {word for word in words if word.startswith("--")}
    if names & {"--topics-from", "--word-topics"}:
        names |= {*OF_LDA, "--fractions"}
    assert main(["probe", *given, *without(SMALL, names), *corpus, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1, "one sentence"
    assert not printed.out
