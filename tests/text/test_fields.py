"""JSON lines whose text is in another field than the one asked for: what is said names the fields that are there."""

import json
from pathlib import Path

import pytest

from topicscope.cli import main
from topicscope.errors import InputError
from topicscope.text.corpora import open_corpus
from topicscope.text.formats import MOST_FIELDS, Problems


def write_lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_lines_that_all_lack_the_field_are_refused_with_the_fields_they_have(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", {"id": 1, "{body}": "frog toad"}, {"{body}": "lizard"})
    with pytest.raises(InputError) as error:
        list(open_corpus(str(path)).documents())
    assert str(error.value) == (
        f'corpus = "{path}" has no document (2 lines were left out, for they lack the field "text"; the first of them '
        "has id, {body}): name the field that holds the text by --field (of `topicscope train`: --data.field)."
    )
    # The control: with the field named, there is nothing to say.
    corpus = open_corpus(str(path), field="{body}")
    assert [each.text for each in corpus.documents()] == ["frog toad", "lizard"]
    assert corpus.problems.sentences() == []


def test_lines_that_lack_the_field_are_told_from_broken_ones_and_survived(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "texts.jsonl", {"text": "frog"}, {"body": "toad"}, {"text": 7}, [1], {}, {"text": ""})
    corpus = open_corpus(str(path))
    assert [each.text for each in corpus.documents()] == ["frog", ""]
    assert (corpus.problems.broken_lines, corpus.problems.lines_without_field) == (2, 2)
    assert corpus.problems.sentences() == [
        "2 broken lines were left out",
        '2 lines were left out, for they lack the field "text"; the first of them has body',
    ]
    # As a folder of passages keeps them.
    assert Problems(**json.loads(json.dumps(corpus.problems.table()))) == corpus.problems


def test_names_of_fields_are_few_and_can_be_printed(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    names = [r"\ud800", *(f"field-{number}" for number in range(2 * MOST_FIELDS))]
    path.write_text("{" + ", ".join(f'"{name}": 0' for name in names) + "}\n")
    with pytest.raises(InputError, match=rf"has \ufffd, field-0, .*, field-{MOST_FIELDS - 2}\)") as error:
        list(open_corpus(str(path)).documents())
    str(error.value).encode()
    assert f"field-{MOST_FIELDS - 1}" not in str(error.value)


def test_training_on_such_lines_names_its_own_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    path = write_lines(tmp_path / "texts.jsonl", *({"body": "frog toad"} for _ in range(3)))
    assert main(["train", "--data.corpus", str(path), "--out", str(tmp_path / "run"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "the first of them has body" in said
    assert "--data.field" in said
