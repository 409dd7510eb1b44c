"""``topicscope report`` and ``ts.show``, and report.html beside what other commands write."""

import html
import json
import re
from pathlib import Path

import pytest

from support.page_material import NASTY, made_claim, write_claims, write_probe
from topicscope.cli import main
from topicscope.commands.report import report, show
from topicscope.commands.reproduce import Reproduction
from topicscope.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_claims(tmp_path / "results")


def test_report_writes_one_file_and_says_where_and_overwrites_its_own_page_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "look.html"
    for _ in range(2):
        assert main(["report", str(folder), "--out", str(out), "--json"]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out) == {"file": str(out), "bytes": out.stat().st_size}
        assert printed.err == ""
    assert main(["report", str(folder), "--out", str(out)]) == 0
    assert "open it in any browser" in capsys.readouterr().out
    for name in ("metrics.csv", "README.md", "report", "mine.html"):
        (tmp_path / name).write_text("<title>mine</title>")
        with pytest.raises(InputError, match=r"not a page of topicscope" if "html" in name else r"ends in \.html"):
            report([folder], tmp_path / name)
        assert (tmp_path / name).read_text() == "<title>mine</title>"


def test_bad_words_are_refused_in_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "look.html"
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    refused = {
        "nowhere": "does not exist: give a folder that reproduce, train, landscape,",
        "notes/mine.txt": "is a file: give the folder that it is in.",
        "empty": "is empty: give a folder that reproduce, train, landscape, probe or sweep wrote.",
        "notes": "holds nothing to show: give a folder that reproduce, train, landscape, probe or sweep wrote.",
    }
    for name, sentence in refused.items():
        assert main(["report", str(tmp_path / name), "--out", str(out)]) == 2
        error = capsys.readouterr().err
        assert f"{tmp_path / name} {sentence}" in error
        assert error.count("\n") == 1
        assert not out.exists()
        with pytest.raises(InputError, match=re.escape(sentence)):
            show(tmp_path / name)
    assert main(["report", "--out", str(out)]) == 2
    with pytest.raises(InputError, match="no folder"):
        report([])
    with pytest.raises(InputError, match="is a folder"):
        report([tmp_path], tmp_path)


def test_what_the_page_says_is_missing_is_logged_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (folder / "claims.json").write_text("[{")
    out = tmp_path / "look.html"
    assert main(["report", str(folder), str(tmp_path / "empty"), "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["file"] == str(out)
    assert "claims.json cannot be read" in printed.err
    assert f"{tmp_path / 'empty'} is empty." in printed.err


def test_a_finished_run_has_its_page(tmp_path: Path) -> None:
    words = ["--data.topics", "3", "--data.words", "2", "--data.length", "4", "9", "--training.steps", "4", "--quiet"]
    assert main(["train", "--out", str(tmp_path / "run"), *words]) == 0
    assert "W^V" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_show_puts_the_whole_page_in_a_frame(folder: Path) -> None:
    page = show(folder)
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
    assert "allow-same-origin" not in shown
    assert len(repr(page)) < 100
    inside = html.unescape(re.findall(r'srcdoc="(.*?)" sandbox', shown, re.DOTALL)[0])
    assert inside.startswith("<!doctype html>")
    with pytest.raises(InputError, match="what is of type int"):
        show(3)
    with pytest.raises(InputError, match="nothing to show"):
        show()


def test_claims_and_probes_are_tables_in_a_notebook_with_words_escaped(tmp_path: Path) -> None:
    claims = [made_claim("a/b", "Figure 2", 1.0, statement=NASTY), made_claim("a/c", "Figure 2", None)]
    shown = Reproduction(claims, [], [])._repr_html_()
    assert "1 holds, 1 was not run" in shown
    assert "1.0067 [0.97798, 1.0354]" in shown
    assert html.escape(NASTY) in shown
    assert NASTY not in shown + show(write_probe(tmp_path / "probe")).page
