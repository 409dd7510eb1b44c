"""``topicscope probe`` with topics that are there already: those of an earlier probe, or the user's own."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.small_probe import OF_LDA, SMALL, WORDS, rows, run, without
from topicscope.cli import main
from topicscope.errors import InputError
from topicscope.probing.study import check_fitted_text, fitted_on
from topicscope.probing.topics import FittedTopics
from topicscope.text.corpora import open_corpus
from topicscope.text.tokens import Passages


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
    # The control: nothing is said where all are there.
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
    passages = Passages(empty, empty.astype(bool), np.zeros(1, dtype=np.int64), empty, "", {"corpus": digest})
    check_fitted_text(fits, passages, halves=halves, folder=folder)
    return fitted_on(fits, passages)
