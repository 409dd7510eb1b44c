"""Figures in a browser: they follow their controls and the window, and are saved as drawings and numbers."""

import csv
import io
import json
import math
from pathlib import Path

import pytest

from support.browser import Browser
from support.page_material import NASTY, write_probe
from support.page_seen import CATCH, cut_off, look_at_everything
from topicscope.reporting.page import write_report

pytestmark = pytest.mark.slow


def test_figures_are_saved_as_drawings_and_numbers(page: Path, chromium: Browser) -> None:
    chromium.open(page, dark=True)
    look_at_everything(chromium)
    chromium.value(CATCH)
    # A file's name says of which run, seed, step and matrix it is.
    name = f"{page.parent.name}-runs-seed-0-step-12-W-V-trained"
    for kind in ("svg", "png", "csv"):
        chromium.value(f"(document.querySelector('#map-0-trained [data-save={kind}]').click(), 0)")
        chromium.wait(f"saved['{name}.{kind}'] !== undefined")
    assert chromium.value(f"saved['{name}.svg']").startswith("data:image/svg+xml")
    assert chromium.value(f"saved['{name}.png']").startswith("data:image/png")
    lines = chromium.value(f"saved['{name}.csv']").splitlines()
    assert lines[0] == "trace,x,y,z"
    assert len(lines) == 1 + 7 * 7
    # Ratios have their intervals, heads what is said of them.
    chromium.value("(document.querySelector('#probe-0-figure-0 [data-save=csv]').click(), 0)")
    ratios = list(csv.reader(io.StringIO(chromium.value("saved['probe-0-figure-0.csv']"))))
    assert ratios[0] == ["trace", "x", "y", "z", "low", "high"]
    assert [float(number) for number in (ratios[1][1], *ratios[1][4:])] == pytest.approx([2.0, 1.9, 2.1])
    heads = chromium.value("DATA.figures.find((each) => /by layer and head/.test(each.title)).id")
    chromium.value(f"(document.querySelector('#{heads} [data-save=csv]').click(), 0)")
    said = list(csv.reader(io.StringIO(chromium.value(f"saved['{heads}.csv']"))))
    assert said[2] == ["minilm", "2", "1", "0.01436", "layer 1, head 2 ratio 1.01 [0.91, 1.11] p = 0.2"]
    # Of a layer's attention too, whose intervals are not drawn.
    layers = chromium.value("DATA.figures.find((each) => /in attention, by layer/.test(each.title)).id")
    chromium.value(f"(document.querySelector('#{layers} [data-save=csv]').click(), 0)")
    line = list(csv.reader(io.StringIO(chromium.value(f"saved['{layers}.csv']"))))[1]
    assert line[:2] == ["layer 1", "0"]
    assert [float(number) for number in (line[2], *line[4:])] == pytest.approx([0, -math.log(2), math.log(2)])
    # On paper the ink is dark, whatever the reader's theme.
    assert "rgb(230%2C%20237%2C%20243)" not in chromium.value(f"saved['{name}.svg']")
    chromium.value("(document.querySelector('[data-image] [data-save=csv]').click(), 0)")
    drawn = list(csv.reader(io.StringIO(chromium.value("saved['figure2.csv']"))))
    assert drawn[0] == ["quantity", "threshold", "setting", "run", "value"]
    # The points that were drawn, as they are; the word of another's text is no markup.
    assert [line[4] for line in drawn if line[2] == "squared loss"] == ["1", "1.1", "1.2"]
    assert any(line[2] == NASTY and line[4] == "0.5" for line in drawn)
    assert chromium.console_errors() == []


def test_maps_of_heads_follow_the_threshold_and_share_a_scale(chromium: Browser, tmp_path: Path) -> None:
    folder = write_probe(tmp_path / "probe")
    rows = json.loads((folder / "probe.json").read_text())
    wider = [{**row, "fraction": 0.002} for row in rows]
    wider[1]["attention_by_layer_head"] = [[{"ratio": 4.0, "low": 3.0, "high": 5.0, "p": 0.01}]]
    (folder / "probe.json").write_text(json.dumps([*rows, *wider]))
    chromium.open(write_report([folder], tmp_path / "report.html"))
    chromium.wait("document.querySelector('[data-thresholds]').value === '0.002'")
    chromium.value("[...WAITING.keys()].forEach(drawWaiting)")
    scales = "DATA.figures.filter((each) => each.views).map((each) => SPECS.get($(each.id)).traces[0].zmax)"
    said = "DATA.figures.filter((each) => each.views).map((each) => $(each.id).querySelector('.said').textContent)"
    assert chromium.value(scales) == [2, 2]
    assert all("Threshold 0.002," in text for text in chromium.value(said))
    chromium.value(
        "(() => { const select = document.querySelector('[data-thresholds]');"
        " select.value = '0.001'; select.dispatchEvent(new Event('change')); })()"
    )
    assert chromium.value(scales) == pytest.approx([math.log2(1.12)] * 2)
    assert all("Threshold 0.001," in text for text in chromium.value(said))
    assert chromium.console_errors() == []


def test_a_short_page_is_drawn_at_once_and_its_charts_follow_the_window(chromium: Browser, tmp_path: Path) -> None:
    chromium.open(write_report([write_probe(tmp_path / "probe")], tmp_path / "report.html"))
    assert chromium.value("WAITING.size") == 0
    assert chromium.value("document.querySelectorAll('.js-plotly-plot').length === DATA.figures.length")
    wide = chromium.value("document.querySelector('#probe-0-figure-0 .plot').clientHeight")
    chromium.resize(450)
    # Names go above their points, which need more height; every chart is as wide as its place.
    chromium.wait("document.querySelectorAll('#probe-0-figure-0 .annotation').length === 2")
    chromium.wait(f"document.querySelector('#probe-0-figure-0 .main-svg').clientHeight > {wide}")
    chromium.wait(
        "[...document.querySelectorAll('.plot')]"
        ".every((plot) => plot.querySelector('.main-svg').clientWidth === plot.clientWidth)"
    )
    chromium.resize(1600)
    chromium.wait("document.querySelectorAll('#probe-0-figure-0 .annotation').length === 0")
    assert chromium.console_errors() == []


def test_landscapes_follow_their_sliders(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.scroll_to("landscape")
    chromium.wait("SPECS.has($('contour'))")
    first = chromium.value("$('landscape-said').textContent")
    chromium.value("(() => { $('topics').value = 1; $('topics').dispatchEvent(new Event('input')); })()")
    chromium.wait("$('topics-shown').textContent === '20'")
    assert chromium.value("$('landscape-said').textContent") != first
    chromium.value("(() => { $('per-document').value = 1; $('per-document').dispatchEvent(new Event('input')); })()")
    chromium.wait("landscape.now.perDocument === 4")
    # Both figures show it: the surface, which takes longer, once the slider rests.
    shown = "Array.from(SPECS.get($('{}')).traces[0].x) + '' === Array.from(numbers(landscape.now.weights)) + ''"
    assert chromium.value(shown.format("contour"))
    chromium.wait(shown.format("surface"))
    names = "SPECS.get($('{}')).traces.filter((each) => each.showlegend !== false).map((each) => each.name)"
    for panel in ("contour", "surface"):
        drawn = chromium.value(names.format(panel))
        assert {"optimum", "uniform attention"} < set(drawn)
        assert any("lower bound" in name for name in drawn)
    # The drawn grid is the exact loss, packed: its least is near the optimum's.
    assert chromium.value("Math.min(...numbers(landscape.now.grid)) - landscape.now.loss") == pytest.approx(0, abs=5e-3)


def test_a_surface_is_whole_on_a_small_screen(page: Path, chromium: Browser) -> None:
    chromium.open(page, width=360)
    chromium.scroll_to("surface")
    chromium.wait("SPECS.has($('surface'))")
    chromium.run("await new Promise((done) => setTimeout(done, 1500));")
    assert not cut_off(chromium, "surface")
    # The control: what is drawn, made larger than its frame.
    chromium.value(
        "(() => { const plot = document.querySelector('#surface .plot'); plot.style.overflow = 'hidden';"
        " plot.firstElementChild.style.transform = 'scale(1.6)'; return 0; })()"
    )
    assert cut_off(chromium, "surface")
    # Numbers along the map's axis stand upright, and the axis' name is above the legend.
    low, legend, *turns = chromium.value(
        "[document.querySelector('#contour .xtitle').getBoundingClientRect().bottom,"
        " document.querySelector('#contour .legend').getBoundingClientRect().top,"
        " ...[...document.querySelectorAll('#contour .xtick text')].map((each) => each.getAttribute('transform'))]"
    )
    assert low <= legend
    assert turns
    assert not any("rotate" in (turn or "") for turn in turns)


def test_a_sweeps_scatter_has_log_axes_colours_by_name_and_a_table_with_all_settings(
    page: Path, chromium: Browser
) -> None:
    chromium.open(page)
    look_at_everything(chromium)
    spec = "SPECS.get($('sweep-0-figure'))"
    assert chromium.value(f"[{spec}.layout.xaxis.type, {spec}.layout.yaxis.type]") == ["log", None]
    assert chromium.value(f"{spec}.title") == "excess_loss against training.learning_rate, coloured by data.topics"
    assert chromium.value(f"{spec}.traces.map((each) => each.name)") == ["data.topics 10", "data.topics 20"]
    choose = "(() => { const box = document.querySelector('#sweep-0 [data-axis=colour]'); box.value = '%s';"
    chromium.value(choose % "training.optimizer" + " box.dispatchEvent(new Event('change')); })()")
    names = chromium.value(f"{spec}.traces.map((each) => each.name)")
    assert names == ["training.optimizer adam", "training.optimizer sgd"]
    chromium.value(CATCH)
    chromium.value("(document.querySelector('#sweep-0-figure [data-save=csv]').click(), 0)")
    lines = list(csv.reader(io.StringIO(chromium.value("saved['sweep-excess_loss-by-training.learning_rate.csv']"))))
    assert lines[0] == ["training.learning_rate", "data.topics", "training.optimizer", "seed", "excess_loss", "run"]
    assert lines[3] == ["0.1", "20", "sgd", "1", "0.21", "c"]
