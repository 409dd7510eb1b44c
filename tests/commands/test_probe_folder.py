"""The folder of a study: one process and one set of settings, topics from elsewhere, and what is found again."""

import contextlib
import csv
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from support.small_probe import OF_LABELS, OF_LDA, SMALL, WORDS, rows, run, without
from topicscope.cli import main
from topicscope.commands.folders import locked
from topicscope.errors import InputError
from topicscope.probing import study
from topicscope.probing.folder import Measured, MeasuredGroup, ProbeFolder
from topicscope.probing.models import HuggingFaceModel
from topicscope.probing.packing import unpacked
from topicscope.probing.settings import Record
from topicscope.probing.statistics.resampling import Comparable
from topicscope.probing.study import fitted_on
from topicscope.probing.topics import SavedTopics
from topicscope.records import PassagesFile, ProbeRow
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import Passages

WITHOUT_FIGURES = pytest.mark.usefixtures("without_figures")


def record(seed: int) -> Record:
    return {"seed": seed}


def test_an_open_folder_is_closed_to_others_and_to_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "out"
    folder, other = ProbeFolder(path), ProbeFolder(path)
    with (
        folder.opened(record(0), locked(path)),
        pytest.raises(InputError, match="is being written by another process: wait for it"),
        other.opened(record(0), locked(path)),
    ):
        pass
    # Nothing was measured, so that the settings may change.
    with other.opened(record(9), locked(path)):
        other.add(ProbeRow, probe_rows("a", 0.1))

    @contextlib.contextmanager
    def begins_meanwhile() -> Iterator[None]:
        with locked(path):
            (path / "probe-settings.json").write_bytes(before)
            yield

    before = (path / "probe-settings.json").read_bytes()
    (path / "probe-settings.json").unlink()
    # Between the check and the lock another process may begin and end: the check is made again under the lock.
    with pytest.raises(InputError, match="seed 9 there, 1 here"), folder.opened(record(1), begins_meanwhile()):
        pass
    with folder.opened(record(9), locked(path)):
        pass


def probe_rows(model: str, *fractions: float) -> list[ProbeRow]:
    return [
        ProbeRow(model=model, revision="", assignment="one", embedding="matrix", fraction=each) for each in fractions
    ]


def test_rows_replace_those_of_the_same_model_where_these_were_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    folder = ProbeFolder(tmp_path)
    folder.add(ProbeRow, [*probe_rows("a", 0.2), *probe_rows("b", 0.2), *probe_rows("c", 0.2)])
    folder.add(ProbeRow, [*probe_rows("d", 0.1, 0.3), *probe_rows("b", 0.3)])
    found = [(row.model, row.fraction) for row in folder.read(ProbeRow)]
    assert found == [("a", 0.2), ("d", 0.1), ("d", 0.3), ("b", 0.3), ("c", 0.2)]
    (tmp_path / "probe.json").write_text('[{"model": "a", "words": -1}]')
    with pytest.raises(InputError, match=r"probe\.json .*: remove it and run topicscope probe again"):
        folder.add(ProbeRow, probe_rows("c", 0.1))


def test_a_model_is_compared_with_the_first_on_the_same_passages_also_if_it_is_added_later(tmp_path: Path) -> None:
    group = MeasuredGroup(0.1, "one", {"cosine matrix": Comparable(*[np.ones(3)] * 4)})

    def add(**plans: str) -> None:
        for model, plan in plans.items():
            folder.keep(Measured(model, plan, [group]))
        folder.add(ProbeRow, [row for model in plans for row in probe_rows(model, 0.1)])

    def pairs(*titles: str, against: str | None = None) -> list[tuple[str, str]]:
        return [(row.model, row.against) for row in folder.comparisons(titles, against)]

    folder = ProbeFolder(tmp_path)
    (tmp_path / "compared").mkdir()
    add(a="x", b="x", c="y", d="y")
    # Those with another tokenizer are compared among themselves.
    assert pairs("a", "b", "c", "d") == [("b", "a"), ("d", "c")]
    assert pairs("a", "b", "c", "d", against="b") == [("a", "b"), ("d", "c")]
    with pytest.raises(InputError, match="a and c were not measured on the same passages and topics"):
        folder.compare("a", "c")
    add(e="x", f="x")
    assert pairs("e", "f") == [("e", "a"), ("f", "a")]
    assert pairs("e", "f", against="f") == [("e", "f")]
    # A model that is measured again keeps its place.
    add(a="x")
    assert pairs("a") == []


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    whole = HuggingFaceModel.run

    def counted(self: HuggingFaceModel, passages: Any) -> Any:
        calls.append(len(passages))
        return whole(self, passages)

    monkeypatch.setattr(HuggingFaceModel, "run", counted)
    monkeypatch.setattr(study, "PASSAGES", 16)
    return calls


@WITHOUT_FIGURES
def test_nothing_is_measured_twice_and_a_lost_shard_alone_again(
    finished: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls, before = count_calls(monkeypatch), rows(finished)
    monkeypatch.setattr("joblib.externals.loky.ProcessPoolExecutor", None)
    # Where all is there, no worker is started either.
    assert run(tiny, finished, str(tiny / "bert"), "--json", "--workers", "2") == 0
    assert not calls
    # Of one model only, but the folder keeps the others.
    assert {row["model"] for row in json.loads(capsys.readouterr().out)} == {str(tiny / "bert")}
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))
    measured = finished / "work" / "measured"
    shard = sorted(measured.glob("*bert-attention-1-*.safetensors"))[0]
    content = shard.read_bytes()
    for path in (shard, *measured.glob("*summary*")):
        path.unlink()
    assert run(tiny, finished, str(tiny / "bert"), f"random:{tiny / 'bert'}", str(tiny / "gpt2")) == 0
    assert sum(calls) == 16
    assert shard.read_bytes() == content
    assert sorted(map(str, before)) == sorted(map(str, rows(finished)))


@WITHOUT_FIGURES
def test_other_settings_and_a_corpus_that_changed_are_refused_once_something_was_measured(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, out = tmp_path / "corpus.txt", tmp_path / "out"
    given = ["probe", str(tiny / "bert"), "--corpus", str(corpus), "--out", str(out), *SMALL, "--json"]
    corpus.write_text("")
    assert main(given) == 2, "nothing was measured, and the folder is left to the corrected command"
    corpus.write_bytes((tiny / "corpus.txt").read_bytes())
    assert main(given) == 0
    before = rows(out)
    # The content counts in rows, wherever it is.
    assert {row["corpus_digest"] for row in [*before, *rows(finished)]} == {open_corpus(str(corpus)).digest}
    capsys.readouterr()
    for changed, message in (
        (["--seed", "1"], "--seed 0 there, 1 here"),
        (["--fractions", "0.1"], "--fractions [0.1, "),
    ):
        assert main([*without(given, {changed[0]}), *changed]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    corpus.write_text(corpus.read_text() + "frog toad lizard\n")
    assert main(given) == 2
    assert f"holds a study of other settings (--corpus {corpus} (" in " ".join(capsys.readouterr().err.split())
    assert rows(out) == before


@WITHOUT_FIGURES
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
    assert run(tiny, tmp_path / "own", *given, leave_out=(*OF_LDA, *OF_LABELS)) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert {(row["fraction"], row["topics"], row["words"]) for row in found} == {(None, 4, len(WORDS))}
    assert found[0]["cosine"]["same"] != first["cosine"]["same"]
    # Nothing is fitted, so that all articles can be measured on.
    assert {(row["articles"], row["fitted_on"]) for row in found} == {(40, None)}
    assert first["articles"] == 20
    note = "splits these words, which are left out (--several-tokens measures them too): frogs."
    assert note in " ".join(printed.err.split())
    with (tmp_path / "own" / "topics.csv").open() as file:
        listed = {row["word"]: row["topic"] for row in csv.DictReader(file)}
    assert listed == {word: names[place % 4] for place, word in enumerate(WORDS)}
    assert "animals" in (tmp_path / "own" / "report.html").read_text()
    # The control: LDA's topics have numbers.
    with (tmp_path / "reused" / "topics.csv").open() as file:
        assert {row["topic"] for row in csv.DictReader(file)} == {"0", "1", "2"}


@WITHOUT_FIGURES
def test_own_words_that_never_meet_have_no_attention_and_those_that_the_corpus_lacks_are_named(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, corpus, said = tmp_path / "own.csv", tmp_path / "corpus.txt", []
    own.write_text("word,topic\n" + "".join(f"{word},{place // 2}\n" for place, word in enumerate(WORDS[:6])))
    options = ["probe", str(tiny / "bert"), "--corpus", str(corpus), "--word-topics", str(own), "--json"]
    pairs = []
    # So many of the words are there, and so many in one passage, which is a document.
    for there, together in ((0, 0), (4, 4), (6, 1), (6, 6)):
        lines = [" ".join([*np.roll(WORDS[:there], place)[:together], *WORDS[10:20]]) for place in range(12)]
        corpus.write_text("\n".join(lines) + "\n")
        out = ["--out", str(tmp_path / f"probe-{there}-{together}"), *without(SMALL, {*OF_LDA, *OF_LABELS})]
        assert main([*options, *out]) == (0 if there else 2)
        printed = capsys.readouterr()
        said.append(" ".join(printed.err.split()))
        if there:
            first = json.loads(printed.out)[0]
            assert first["cosine"]["same"] is not None
            found = (first["attention"], first["top_co_occurring"]["attention"], first["matched"]["attention"])
            pairs.append([each["same"] is not None for each in found])
    assert f"none of the words of --word-topics {own} is in a passage of corpus" in said[0]
    assert f"2 of 6 words are in no passage that is measured, and have no attention: {WORDS[4]}, {WORDS[5]}." in said[1]
    assert pairs[1] == [False] * 3
    # The control: in one passage, they attend to each other (few words have no pairs that match).
    assert pairs[2][:2] == [True] * 2
    assert "own topics" not in said[3]


def test_topics_fitted_on_what_would_be_measured_or_on_another_corpus_need_no_halves(
    finished: Path, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [saved] = finished.glob("topics-*")
    given = [str(tiny / "bert"), "--topics-from", str(saved), "--no-halves"]
    assert run(tiny, tmp_path / "first", *given, leave_out=OF_LDA) == 2
    assert "was fitted on one half of the articles, and --no-halves asks for all" in capsys.readouterr().err
    fits = unpacked(saved / "topics.safetensors", SavedTopics).fits
    empty, corpus = np.zeros(0, dtype=np.int32), fits[0].about.corpus
    about = PassagesFile(source="", corpus=corpus, problems=[])
    passages = Passages(empty, empty, np.zeros(1, dtype=np.int64), empty, about)

    def text(*, halves: bool, **changes: Any) -> str:
        """What rows say that topics with such descriptions were fitted on, if they are not refused."""
        other = [replace(each, about=msgspec.structs.replace(each.about, **changes)) for each in fits]
        return fitted_on(other, passages, halves=halves, folder=None)

    assert text(halves=True) == "the other half of the articles"
    with pytest.raises(InputError, match="was fitted on all articles, so that none is left to measure on"):
        text(halves=True, split=False)
    assert text(halves=False, split=False) == "the same articles"
    with pytest.raises(InputError, match="was fitted on another corpus, so no half of this one is known to be new"):
        text(halves=True, corpus="another")
    assert text(halves=False, corpus="another") == "another corpus"
