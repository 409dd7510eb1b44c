"""``topicscope report``, and report.html beside what other commands write."""

import json
from pathlib import Path

import pytest

from support.page_material import write_claims
from topicscope.cli import main
from topicscope.commands.report import show
from topicscope.errors import InputError


def test_report_writes_one_file_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_claims(tmp_path / "results")
    out = tmp_path / "look.html"
    assert main(["report", str(folder), "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"file": str(out), "bytes": out.stat().st_size}
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert "open it in any browser" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [(["nowhere"], "does not exist: give a folder that reproduce, train, landscape,"), ([], "no folder is given")],
)
def test_bad_words_are_refused_in_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    error = capsys.readouterr().err
    assert said in error.lower()
    assert error.count("\n") == 1


def test_folders_without_results_are_refused_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "look.html"
    for folder, said in ((tmp_path / "empty", "is empty"), (tmp_path / "notes", "holds nothing that a page can show")):
        folder.mkdir()
        if said != "is empty":
            (folder / "mine.txt").write_text("mine")
        assert main(["report", str(folder), "--out", str(out)]) == 2
        printed = capsys.readouterr()
        assert f"{folder} {said}: give a folder that reproduce, train, landscape, probe or sweep wrote." in printed.err
        assert printed.err.count("\n") == 1
        assert not out.exists()
        with pytest.raises(InputError, match=said):
            show(folder)


def test_what_the_page_says_is_missing_is_said_on_standard_error_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_claims(tmp_path / "results")
    out = tmp_path / "look.html"
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "empty").mkdir()
    (folder / "claims.json").write_text("[{")
    assert main(["report", str(folder), str(tmp_path / "empty"), "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["file"] == str(out)
    assert "claims.json cannot be read" in printed.err
    assert f"{tmp_path / 'empty'} is empty." in printed.err


def test_a_page_does_not_overwrite_what_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_claims(tmp_path / "results")
    assert main(["report", str(folder), "--out", str(folder / "claims.json")]) == 2
    assert "give one that ends in .html" in capsys.readouterr().err
    assert json.loads((folder / "claims.json").read_text())


def test_a_finished_run_has_its_page(tmp_path: Path) -> None:
    words = ["--data.topics", "3", "--data.words", "2", "--data.length", "4", "9", "--training.steps", "4", "--quiet"]
    assert main(["train", "--out", str(tmp_path / "run"), *words]) == 0
    assert "W^V" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
