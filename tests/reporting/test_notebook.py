"""Results in a notebook: short, escaped, and the page in a frame that cannot reach the notebook."""

import html
import re
from pathlib import Path

import pytest

from support.page_material import NASTY, made_claim, write_claims, write_probe, write_runs, write_text_run
from topicscope.commands.report import report, show
from topicscope.errors import InputError
from topicscope.measure.run import read_run
from topicscope.records import read_probe
from topicscope.reporting.notebook import claims_html, curve_svg, live_html, probe_html
from topicscope.training.folder import cut


def test_a_run_while_it_is_trained_shows_its_loss_and_norms(tmp_path: Path) -> None:
    run = read_run(write_runs(tmp_path / "runs", seeds=1) / "seed-0")
    shown = live_html(run, 12)
    assert shown.startswith("<p>step 12 of 12</p>")
    assert f"{run.metrics['loss'][0, -1]:.4g}" in shown
    assert shown.count("<polyline") == 4
    assert live_html(cut(run, 2), 12) == "<p>step 0 of 12</p>"
    assert repr(run) == f"<run {run.name}: seeds 0, step 12 of 12>"


def test_a_run_on_text_is_shown_like_any_other(tmp_path: Path) -> None:
    assert "Norm of W^K, by layer" in show(write_text_run(tmp_path / "text")).page


def test_claims_show_verdicts_and_escape_words() -> None:
    claims = [made_claim("a/b", "Figure 2", 1.0, statement=NASTY), made_claim("a/c", "Figure 2", None)]
    shown = claims_html(claims, "results")
    assert "1 holds, 1 was not run" in shown
    assert "1.0067 [0.97798, 1.0354]" in shown
    assert NASTY not in shown
    assert html.escape(NASTY) in shown


def test_a_probe_shows_ratios_and_escapes_names(tmp_path: Path) -> None:
    shown = probe_html(read_probe(write_probe(tmp_path / "probe") / "probe.json"), "probe")
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


@pytest.mark.parametrize("name", ["metrics.csv", "README.md", "report", "mine.html"])
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
