"""``topicscope probe`` on small models and a small corpus."""

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_models import SPECIAL, VOCABULARY, save_tiny, save_tokenizer
from topicscope import scale
from topicscope.cli import main
from topicscope.commands import probe as command
from topicscope.errors import InputError
from topicscope.probe import study
from topicscope.probe.ground import check_fitted_text, fitted_on
from topicscope.probe.models import HuggingFaceModel
from topicscope.probe.topics import FittedTopics
from topicscope.text import hub
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import Passages

WORDS = [first + rest for first in "bdgfklm" for rest in ("ana", "ene", "iri", "olo", "usu", "aza", "ete")]
WORDS = [*WORDS, "frog", "toad", "lizard", "mozart", "algebra"][: VOCABULARY - len(SPECIAL)]
SMALL = [
    *("--topics", "3", "--fractions", "0.1", "0.2", "--fits", "2", "--iterations", "20", "--length", "20"),
    *("--replicates", "20", "--permutations", "19", "--head-permutations", "19", "--workers", "1", "--device", "cpu"),
]
OF_LDA = ("--topics", "--fits", "--iterations")
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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of three topics and two models that share a tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    draw = np.random.default_rng(0)
    topics = np.array_split(np.array(WORDS), 3)
    # Each document has words of two topics, so that passages have pairs of both kinds.
    pools = [np.concatenate([topics[first], topics[first - 1]]) for first in draw.integers(3, size=40)]
    lines = [" ".join(draw.choice(pool, size=60)) for pool in pools]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    for kind in ("bert", "gpt2"):
        save_tiny(kind, folder / kind)
        save_tokenizer(folder / kind, WORDS)
    return folder


def run(tiny: Path, out: Path, *words: str, leave_out: tuple[str, ...] = ()) -> int:
    small = without(SMALL, set(leave_out))
    return main(["probe", *words, "--corpus", str(tiny / "corpus.txt"), "--out", str(out), *small])


@pytest.fixture(scope="module")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "probe"
    with pytest.MonkeyPatch.context() as patch:
        # Small shards, so that there are several.
        patch.setattr(study, "PASSAGES", 16)
        assert run(tiny, out, str(tiny / "bert"), f"random:{tiny / 'bert'}", str(tiny / "gpt2"), "--json") == 0
    return out


def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "probe.json").read_text())
    return found


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


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time of a small probe: they are drawn once, above."""
    monkeypatch.setattr(command, "draw", lambda *_: [])


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    attention = HuggingFaceModel.attention

    def counted(self: HuggingFaceModel, passages: Any) -> Any:
        calls.append(len(passages))
        return attention(self, passages)

    monkeypatch.setattr(HuggingFaceModel, "attention", counted)
    monkeypatch.setattr(study, "PASSAGES", 16)
    return calls


@pytest.mark.usefixtures("without_figures")
def test_nothing_is_measured_twice(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = count_calls(monkeypatch)
    before = (finished / "probe.json").read_bytes()
    assert run(tiny, finished, str(tiny / "bert"), "--json") == 0
    assert not calls
    # Of one model only, but the folder keeps the others.
    assert {row["model"] for row in json.loads(capsys.readouterr().out)} == {str(tiny / "bert")}
    assert sorted(map(str, json.loads(before))) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_a_lost_shard_alone_is_measured_again(finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    measured = finished / "work" / "measured"
    shards = sorted(measured.glob("*bert-attention-1-*.bin"))
    content = shards[0].read_bytes()
    shards[0].write_bytes(content[:-1])
    for summary in measured.glob("*summary*"):
        summary.unlink()
    before = rows(finished)
    models = [str(tiny / "bert"), f"random:{tiny / 'bert'}", str(tiny / "gpt2")]
    assert run(tiny, finished, *models) == 0
    assert sum(calls) == 16
    assert shards[0].read_bytes() == content
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_another_version_of_a_library_measures_anew(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count_calls(monkeypatch)
    before = rows(finished)
    assert run(tiny, finished, str(tiny / "bert")) == 0
    assert not calls, "the control: nothing is measured with the same libraries"
    versions = scale.versions()
    monkeypatch.setattr(scale, "versions", lambda: versions | {"torch": "0.1"})
    assert run(tiny, finished, str(tiny / "bert")) == 0
    assert sum(calls) == before[0]["passages"]
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))


@pytest.mark.usefixtures("without_figures")
def test_new_weights_in_a_folder_are_measured_in_the_same_process(tiny: Path, tmp_path: Path) -> None:
    def cosine(model: Path, out: str) -> float:
        assert run(tiny, tmp_path / "out" / out, str(model), "--fits", "1") == 0
        return float(rows(tmp_path / "out" / out)[0]["cosine"]["same"])

    for name, seed in (("model", 3), ("other", 9)):
        save_tiny("bert", tmp_path / name, seed=seed)
        save_tokenizer(tmp_path / name, WORDS)
    expected = cosine(tmp_path / "other", "other")
    before = cosine(tmp_path / "model", "model")
    save_tiny("bert", tmp_path / "model", seed=9)
    assert cosine(tmp_path / "model", "model") == expected != before


@pytest.mark.usefixtures("without_figures")
def test_a_corpus_that_changed_is_refused_in_the_same_folder(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_bytes((tiny / "corpus.txt").read_bytes())
    given = ["probe", str(tiny / "bert"), "--corpus", str(corpus), "--out", str(tmp_path / "out"), *SMALL]
    assert main(given) == 0
    assert main(given) == 0, "the control: the same corpus is taken"
    before = rows(tmp_path / "out")
    # The content counts in rows, wherever it is.
    assert {row["corpus_digest"] for row in [*before, *rows(finished)]} == {open_corpus(str(corpus)).digest}
    corpus.write_text(corpus.read_text() + "frog toad lizard\n")
    given[1] = str(tiny / "gpt2")
    capsys.readouterr()
    assert main(given) == 2
    assert f"holds a study of other settings (text.corpus {corpus} (" in " ".join(capsys.readouterr().err.split())
    assert rows(tmp_path / "out") == before


@pytest.mark.usefixtures("without_figures")
def test_topics_of_two_passage_lengths_are_kept_apart(tiny: Path, tmp_path: Path) -> None:
    save_tiny("bert", tmp_path / "short", max_position_embeddings=14)
    save_tokenizer(tmp_path / "short", WORDS)
    out = tmp_path / "out"
    kept: list[dict[str, set[tuple[str, ...]]]] = []
    for model in (tiny / "bert", tmp_path / "short"):
        assert run(tiny, out, str(model), "--fits", "1") == 0
        with (out / "topics.csv").open() as file:
            table = list(csv.DictReader(file))
        kept.append({})
        for row in table:
            kept[-1].setdefault(row["length"], set()).add(tuple(row.values()))
    assert [set(each) for each in kept] == [{"18"}, {"18", "12"}]
    assert kept[0]["18"] == kept[1]["18"]
    saved = {path.name.rpartition("-")[2]: path / "topics.safetensors" for path in out.glob("topics-*")}
    assert set(saved) == {"18", "12"}
    assert saved["18"].read_bytes() != saved["12"].read_bytes()
    lengths = {(Path(row["model"]).name, row["length"], row["tokenizer"]) for row in rows(out)}
    [tokenizer] = {each for _, _, each in lengths}
    assert lengths == {("bert", 18, tokenizer), ("short", 12, tokenizer)}


@pytest.mark.usefixtures("without_figures")
def test_progress_names_what_is_being_done(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    states: list[str] = []

    @contextmanager
    def recorded(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
        yield lambda done, total, state: states.append(state)

    monkeypatch.setattr("topicscope.cli.probe.progress_bar", recorded)
    monkeypatch.setattr(study, "PASSAGES", 16)
    assert run(tiny, finished, str(tiny / "bert"), "--json") == 0
    phases = [f"loading {tiny / 'bert'}", f"{tiny / 'bert'}: tests and intervals", "figures and page"]
    assert [state for state in states if state in phases] == phases
    # The control: pieces of work have names of their own.
    assert len(set(states)) > len(phases)


def test_other_settings_in_the_same_folder_are_refused(
    finished: Path, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (finished / "probe.json").read_bytes()
    assert run(tiny, finished, str(tiny / "bert"), "--seed", "1") == 2
    assert "seed 0 there, 1 here" in capsys.readouterr().err
    assert (finished / "probe.json").read_bytes() == before


@pytest.mark.usefixtures("without_figures")
def test_a_refused_study_leaves_its_folder_to_the_corrected_one(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").write_text("")
    options = [*without(SMALL, {"--fits"}), "--fits", "1", "--out", str(tmp_path / "out"), "--json"]
    assert main(["probe", str(tiny / "bert"), "--corpus", str(tmp_path / "empty.txt"), *options]) == 2
    corrected = ["probe", str(tiny / "bert"), "--corpus", str(tiny / "corpus.txt"), *options]
    assert main(corrected) == 0
    capsys.readouterr()
    # The control: what is measured belongs to its settings.
    assert main([*corrected, "--seed", "1"]) == 2
    assert "seed 0 there, 1 here" in capsys.readouterr().err


@pytest.mark.usefixtures("without_figures")
def test_topics_are_reused_and_own_topics_replace_them(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [saved] = finished.glob("topics-*")
    given = [str(tiny / "bert"), "--topics-from", str(saved), "--json"]
    assert run(tiny, tmp_path / "reused", *given, leave_out=OF_LDA) == 0
    reused = json.loads(capsys.readouterr().out)
    [first] = [row for row in rows(finished) if row["model"] == str(tiny / "bert")][:1]
    assert reused[0]["cosine"]["same"] == first["cosine"]["same"]
    assert {row["fitted_on"] for row in [*reused, first]} == {"the other half of the articles"}
    own = tmp_path / "own.csv"
    names = ("animals", "arts", "science", "war")
    lines = [f"{word},{names[place % 4]}\n" for place, word in enumerate([*WORDS, "frogs"])]
    own.write_text("".join(["word,topic\n", *lines]))
    given = [str(tiny / "bert"), "--word-topics", str(own), "--json"]
    assert run(tiny, tmp_path / "own", *given, leave_out=(*OF_LDA, "--fractions")) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert {(row["fraction"], row["topics"], row["words"]) for row in found} == {(None, 4, len(WORDS))}
    assert found[0]["cosine"]["same"] != first["cosine"]["same"]
    # Nothing is fitted, so that all articles can be measured on.
    assert {(row["articles"], row["fitted_on"]) for row in found} == {(40, None)}
    assert first["articles"] == 20
    assert "splits these words, which are left out: frogs." in " ".join(printed.err.split())
    with (tmp_path / "own" / "topics.csv").open() as file:
        listed = {row["word"]: row["topic"] for row in csv.DictReader(file)}
    assert listed == {word: names[place % 4] for place, word in enumerate(WORDS)}
    assert "animals" in (tmp_path / "own" / "report.html").read_text()
    # The control: LDA's topics have numbers.
    with (tmp_path / "reused" / "topics.csv").open() as file:
        assert {row["topic"] for row in csv.DictReader(file)} == {"0", "1", "2"}


@pytest.mark.usefixtures("without_figures")
def test_own_words_that_never_meet_in_a_passage_have_similarity_and_no_attention(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.csv"
    own.write_text("word,topic\n" + "".join(f"{word},{place // 2}\n" for place, word in enumerate(WORDS[:6])))
    notes = []
    for together in (1, 6):
        # A document is one passage, with as many of the words.
        lines = [" ".join([*np.roll(WORDS[:6], place)[:together], *WORDS[10:20]]) for place in range(12)]
        corpus = tmp_path / f"corpus-{together}.txt"
        corpus.write_text("\n".join(lines) + "\n")
        options = ["--corpus", str(corpus), "--word-topics", str(own), "--out", str(tmp_path / corpus.stem), "--json"]
        assert main(["probe", str(tiny / "bert"), *options, *without(SMALL, {*OF_LDA, "--fractions"})]) == 0
        first = json.loads(capsys.readouterr().out)[0]
        assert first["cosine"]["same"] is not None
        found = (first["attention"], first["top_co_occurring"]["attention"], first["matched"]["attention"])
        notes.append([each["ratio_note"] for each in found])
    assert notes[0] == ["no pair to average over"] * 3
    # The control: in one passage, they attend to each other (few words have no pairs that match).
    assert "no pair to average over" not in notes[1][:2]


def test_topics_fitted_on_what_would_be_measured_are_refused(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [saved] = finished.glob("topics-*")
    given = [str(tiny / "bert"), "--topics-from", str(saved)]
    assert run(tiny, tmp_path / "first", *given, "--no-halves", leave_out=OF_LDA) == 2
    assert "was fitted on one half of the articles, and --no-halves asks for all" in capsys.readouterr().err
    everything = json.loads((saved / "topics.json").read_text())
    for fit in everything["fits"]:
        fit["split"] = False
    copied = tmp_path / "fitted-on-all"
    copied.mkdir()
    (copied / "topics.safetensors").write_bytes((saved / "topics.safetensors").read_bytes())
    (copied / "topics.json").write_text(json.dumps(everything))
    given = [str(tiny / "bert"), "--topics-from", str(copied)]
    assert run(tiny, tmp_path / "second", *given, leave_out=OF_LDA) == 2
    assert "was fitted on all articles, so that none is left to measure on" in capsys.readouterr().err
    # The control: with --no-halves, all are measured.
    assert fitted_text(everything, tiny, copied, halves=False) == "the same articles"


def test_topics_of_another_corpus_are_taken_if_no_half_is_promised(finished: Path, tiny: Path) -> None:
    [saved] = finished.glob("topics-*")
    about = json.loads((saved / "topics.json").read_text())
    assert fitted_text(about, tiny, saved, halves=True) == "the other half of the articles"
    for fit in about["fits"]:
        fit["corpus"] = "another"
    assert fitted_text(about, tiny, saved, halves=False) == "another corpus"
    with pytest.raises(InputError, match="was fitted on another corpus, so no half of this one is known to be new"):
        fitted_text(about, tiny, saved, halves=True)


def fitted_text(about: dict[str, Any], tiny: Path, folder: Path, *, halves: bool) -> str:
    """What rows say that topics with these descriptions were fitted on, if they are not refused."""
    array = np.zeros((2, 2), dtype=np.float32)
    tokens = np.arange(2, dtype=np.int32)
    fits = [FittedTopics(tokens, array, np.ones(2, dtype=np.int64), each) for each in about["fits"]]
    digest = open_corpus(str(tiny / "corpus.txt")).digest
    empty = np.zeros(0, dtype=np.int32)
    passages = Passages(empty, empty.astype(bool), np.zeros(1, dtype=np.int64), empty, "", {"corpus": digest})
    check_fitted_text(fits, passages, halves=halves, folder=folder)
    return fitted_on(fits, passages)


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


def without(words: list[str], names: set[str]) -> list[str]:
    """Options without those that a test gives itself."""
    kept: list[str] = []
    skipping = False
    for word in words:
        if word.startswith("--"):
            skipping = word in names
        if not skipping:
            kept.append(word)
    return kept
