"""Results in a notebook: short, escaped, and the page in a frame that cannot reach the notebook."""

import html
import json
import re
from pathlib import Path

import pytest

from support.page_material import NASTY, write_claims, write_probe, write_runs, write_text_run
from topicscope.commands.report import report, show
from topicscope.errors import InputError
from topicscope.reporting.notebook import claims_html, curve_svg, probe_html, run_html
from topicscope.training.runs import RunFolder


def test_a_run_shows_its_last_numbers_and_its_loss(tmp_path: Path) -> None:
    run = RunFolder(write_runs(tmp_path / "runs", seeds=1) / "seed-0")
    shown = run._repr_html_()
    assert "12 of 12" in shown
    assert f"{run.metrics()[-1]['loss']:.5g}" in shown
    assert "<polyline" in shown
    assert "nothing is logged yet" in run_html("somewhere", [], 12)


def test_a_run_on_text_is_shown_like_any_other(tmp_path: Path) -> None:
    run = RunFolder(write_text_run(tmp_path / "text"))
    assert "2 of 14" in run._repr_html_()
    assert "Norm of W^K by layer" in show(run).page


def test_claims_show_verdicts_and_escape_words() -> None:
    row = {"verdict": "holds", "id": "a", "statement": NASTY, "expected": 1.0, "measured": 1.0, "low": 0.9, "high": 1.1}
    shown = claims_html([row, {**row, "low": None, "measured": None}], "results")
    assert "2 holds" in shown
    assert "1 [0.9, 1.1]" in shown
    assert NASTY not in shown
    assert html.escape(NASTY) in shown


def test_a_probe_shows_ratios_and_escapes_names(tmp_path: Path) -> None:
    rows = json.loads((write_probe(tmp_path / "probe") / "probe.json").read_text())
    shown = probe_html(rows, "probe")
    assert "2.00 [1.90, 2.10] *" in shown
    assert "no ratio; difference 0.5" in shown
    assert NASTY not in shown


def test_a_curve_goes_from_its_largest_to_its_least() -> None:
    points = re.findall(r"([\d.]+),([\d.]+)", curve_svg([3.0, 2.0, 1.0], "loss"))
    heights = [float(y) for _, y in points]
    assert heights == sorted(heights)
    assert heights[0] < heights[-1]


def test_show_puts_the_whole_page_in_a_frame(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    shown = show(folder)._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown
    assert len(repr(show(folder))) < 100
    assert "allow-same-origin" not in shown
    inside = html.unescape(re.findall(r'srcdoc="(.*?)" sandbox', shown, re.DOTALL)[0])
    assert inside.startswith("<!doctype html>")
    with pytest.raises(InputError, match="what is of type int"):
        show(3)
    with pytest.raises(InputError, match="nothing to show"):
        show()


def test_report_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no folder"):
        report([])
    with pytest.raises(InputError, match="is a folder"):
        report([tmp_path], tmp_path)


@pytest.mark.parametrize("name", ["metrics.jsonl", "README.md", "report", "mine.html"])
def test_report_overwrites_nothing_but_its_own_page(tmp_path: Path, name: str) -> None:
    folder = write_claims(tmp_path / "results")
    file = tmp_path / name
    file.write_text("<title>mine</title>")
    with pytest.raises(InputError, match=r"ends in \.html" if file.suffix != ".html" else "not a page of topicscope"):
        report([folder], file)
    assert file.read_text() == "<title>mine</title>"
    page = report([folder], tmp_path / "look.html")
    before = page.stat().st_mtime_ns
    assert report([folder], page).stat().st_mtime_ns > before
