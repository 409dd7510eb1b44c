"""The folder of a study: one process and one set of settings, topics from elsewhere, and what is found again."""

import contextlib
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.page_material import CORPUS_ROW
from support.small_probe import OF_LDA, SMALL, WORDS, rows, run, without
from support.tiny_models import save_tiny, save_tokenizer
from topicscope import scale
from topicscope.cli import main
from topicscope.commands import probe as command
from topicscope.commands.folders import locked
from topicscope.commands.probe import ProbeFolder, probe
from topicscope.errors import InputError
from topicscope.probing import study
from topicscope.probing.models import HuggingFaceModel
from topicscope.probing.rows import packed, said_of
from topicscope.probing.study import fitted_on
from topicscope.probing.topics import FittedTopics
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import Passages


def measured(folder: ProbeFolder, settings: dict[str, int]) -> None:
    """A study that has measured something."""
    with folder.opened(settings):
        folder.settings.write_text(json.dumps(settings))
        folder.write("probe.json", [])


def test_an_open_folder_is_closed_to_others_until_it_is_left(tmp_path: Path) -> None:
    folder, other = ProbeFolder(tmp_path / "out"), ProbeFolder(tmp_path / "out")
    said = "is being written by another process: wait for it"
    with folder.opened({"seed": 0}), pytest.raises(InputError, match=said), other.opened({}):
        pass
    with other.opened({"seed": 0}):
        pass


def test_an_odd_row_of_probe_json_costs_no_other_and_an_unreadable_file_is_set_aside(tmp_path: Path) -> None:
    folder, path = ProbeFolder(tmp_path), tmp_path / "probe.json"
    sound, odd = {"model": "sound", "revision": ""}, {"model": "odd", "revision": "", "words": -1}
    path.write_text(json.dumps([sound, odd, 3]))
    folder.write("probe.json", [{"model": "new", "revision": ""}])
    assert [row["model"] for row in json.loads(path.read_text())] == ["sound", "odd", "new"]
    assert "odd" not in [row["model"] for row in folder.rows()]
    path.write_text("[{")
    folder.write("probe.json", [sound])
    assert json.loads(path.read_text()) == [sound]
    assert (tmp_path / "probe.json.damaged").read_text() == "[{"


def probe_rows(model: str, *fractions: float) -> list[dict[str, Any]]:
    about = {"model": model, "revision": "", "assignment": "one", "embedding": "matrix"}
    return [about | {"fraction": each} for each in fractions]


def test_rows_of_one_model_stand_together_by_threshold(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    folder.write("probe.json", [*probe_rows("a", 0.2), *probe_rows("b", 0.2)])
    folder.write("probe.json", probe_rows("a", 0.1, 0.3))
    found = [(row["model"], row["fraction"]) for row in folder.rows()]
    assert found == [("b", 0.2), ("a", 0.1), ("a", 0.2), ("a", 0.3)]


def test_a_model_is_compared_with_the_first_on_the_same_passages_also_if_it_is_added_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(one: Path, other: Path) -> list[dict[str, str]]:
        return [{"model": said_of(one)["model"], "against": said_of(other)["model"]}]

    def add(**plans: str) -> None:
        for model, plan in plans.items():
            folder.compared(model).write_bytes(packed({"model": model, "plan": plan}, {}))
        folder.write("probe.json", [row for model in plans for row in probe_rows(model, 0.1)])

    def pairs(*titles: str, against: str | None = None) -> list[tuple[str, str]]:
        return [(row["model"], row["against"]) for row in folder.comparisons(titles, against)]

    monkeypatch.setattr(command, "compare_stored", compared)
    folder = ProbeFolder(tmp_path)
    (tmp_path / "compared").mkdir()
    add(a="x", b="x", c="y", d="y")
    # Those with another tokenizer are compared among themselves.
    assert pairs("a", "b", "c", "d") == [("b", "a"), ("d", "c")]
    assert pairs("a", "b", "c", "d", against="b") == [("a", "b")]
    folder.write("comparisons.json", folder.comparisons(("a", "b", "c", "d"), None))
    add(e="x", f="x")
    assert pairs("e", "f") == [("e", "a"), ("f", "e")]
    assert pairs("e", "f", against="f") == [("e", "f")]
    # A model that is measured again comes last, and is not compared with what was compared with it.
    add(a="x")
    assert folder.titles[-1] == "a"
    folder.write("comparisons.json", [{"model": each, "against": "a"} for each in "ef"])
    assert pairs("a") == []
    # Of what is damaged nothing is compared.
    folder.compared("a").write_bytes(b"nothing")
    assert pairs("e", "a") == [("e", "b")]


def test_a_row_of_topics_csv_that_was_cut_short_costs_no_other(tmp_path: Path) -> None:
    folder, path = ProbeFolder(tmp_path), tmp_path / "topics.csv"
    row = {"tokenizer": "t", "length": "16", "fraction": "0.1", "topic": "0", "word": "frog"}
    folder.write_topics([row, row])
    path.write_text(path.read_text() + "t,16\n")
    folder.write_topics([row | {"tokenizer": "other"}])
    assert [each["tokenizer"] for each in csv.DictReader(path.read_text().splitlines())] == ["t", "t", "other"]


@pytest.mark.parametrize("spoilt", ["{", "1", '"text"', "[1]", '[{"other": 1}]'])
def test_what_is_spoilt_in_corpus_json_stops_no_study(tmp_path: Path, spoilt: str) -> None:
    folder, row = ProbeFolder(tmp_path), CORPUS_ROW | {"tokenizer": "a"}
    path = tmp_path / "corpus.json"
    path.write_text(spoilt)
    folder.write("corpus.json", [row])
    assert row in json.loads(path.read_text())
    # The control: rows of another tokenizer stay.
    folder.write("corpus.json", [CORPUS_ROW | {"tokenizer": "b"}])
    assert row in json.loads(path.read_text())


def test_a_study_that_begins_while_another_does_is_refused_if_its_settings_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the lock another process may begin and end: the check is made again under the lock."""
    folder = ProbeFolder(tmp_path / "out")

    def begin_first(path: Path) -> contextlib.AbstractContextManager[None]:
        monkeypatch.setattr("topicscope.commands.probe.locked", locked)
        measured(ProbeFolder(path), {"seed": 9})
        return locked(path)

    monkeypatch.setattr("topicscope.commands.probe.locked", begin_first)
    with pytest.raises(InputError, match="seed 9 there, 1 here"), folder.opened({"seed": 1}):
        pass
    # The control: the same settings go on.
    measured(folder, {"seed": 9})


def test_a_folder_that_fills_with_something_else_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ProbeFolder(tmp_path / "out")

    def fill_first(path: Path) -> contextlib.AbstractContextManager[None]:
        path.mkdir()
        (path / "notes.txt").touch()
        return locked(path)

    monkeypatch.setattr("topicscope.commands.probe.locked", fill_first)
    with pytest.raises(InputError, match="is not empty and holds no study"), folder.opened({"seed": 0}):
        pass
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_without_a_model_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No model is given"):
        probe([], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    whole = HuggingFaceModel.run

    def counted(self: HuggingFaceModel, passages: Any) -> Any:
        calls.append(len(passages))
        return whole(self, passages)

    monkeypatch.setattr(HuggingFaceModel, "run", counted)
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
    passages = before[0]["passages"]
    # And once more those of which the mean is taken.
    assert sum(calls) == passages + len(range(0, passages, -(-passages // study.CENTRED)))
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
    assert f"holds a study of other settings (--corpus {corpus} (" in " ".join(capsys.readouterr().err.split())
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
def test_other_thresholds_go_on_in_the_same_folder_beside_those_that_are_there(tiny: Path, tmp_path: Path) -> None:
    found, tables = [], []
    # The first again at the end: its rows are replaced and those of the other stay.
    for fraction in ("0.1", "0.2", "0.1"):
        assert run(tiny, tmp_path / "out", str(tiny / "bert"), "--fits", "1", "--fractions", fraction) == 0
        found.append(rows(tmp_path / "out"))
        with (tmp_path / "out" / "topics.csv").open() as file:
            tables.append([tuple(row.values()) for row in csv.DictReader(file)])
    assert [{row["fraction"] for row in each} for each in found] == [{0.1}, {0.1, 0.2}, {0.1, 0.2}]
    assert found[1][: len(found[0])] == found[0]
    assert set(tables[0]) < set(tables[1]) == set(tables[2])
    assert len(tables[1]) == len(tables[2])


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


@pytest.mark.usefixtures("without_figures")
def test_own_words_that_the_corpus_lacks_are_named_and_refused_if_it_lacks_all(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, corpus = tmp_path / "own.csv", tmp_path / "corpus.txt"
    own.write_text("word,topic\n" + "".join(f"{word},{place // 2}\n" for place, word in enumerate(WORDS[:6])))
    options = ["probe", str(tiny / "bert"), "--corpus", str(corpus), "--word-topics", str(own), "--json"]
    said = []
    for there in (0, 4, 6):
        corpus.write_text((" ".join([*WORDS[:there], *WORDS[10:20]]) + "\n") * 12)
        out = ["--out", str(tmp_path / f"probe-{there}"), *without(SMALL, {*OF_LDA, "--fractions"})]
        assert main([*options, *out]) == (0 if there else 2)
        said.append(capsys.readouterr().err)
    assert f"none of the words of --word-topics {own} is in a passage of corpus" in said[0]
    assert said[0].count("\n") == 1
    note = "2 of 6 words are in no passage that is measured, and have no attention:"
    assert f"{note} {WORDS[4]}, {WORDS[5]}." in " ".join(said[1].split())
    # The control: where all are there, there is no such message.
    assert "own topics" not in said[2]


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


def fitted_text(about: dict[str, Any], tiny: Path, folder: Path, *, halves: bool) -> str | None:
    """What rows say that topics with these descriptions were fitted on, if they are not refused."""
    array = np.zeros((2, 2), dtype=np.float32)
    tokens = np.arange(2, dtype=np.int32)
    fits = [FittedTopics(tokens, array, np.ones(2, dtype=np.int64), each) for each in about["fits"]]
    digest = open_corpus(str(tiny / "corpus.txt")).digest
    empty = np.zeros(0, dtype=np.int32)
    passages = Passages(empty, empty, np.zeros(1, dtype=np.int64), empty, "", {"corpus": digest})
    return fitted_on(fits, passages, halves=halves, folder=folder)
