"""Training runs in a browser: one slider moves every panel, and layers, seeds and steps are chosen."""

from pathlib import Path

import pytest

from support.browser import Browser
from support.page_material import write_runs
from support.page_seen import open_training, still
from topicscope.reporting.page import write_report

pytestmark = pytest.mark.slow


def test_the_slider_moves_every_panel(page: Path, chromium: Browser) -> None:
    open_training(chromium, page)
    assert still(chromium) == []
    assert chromium.value("$('step').textContent").startswith("0 of")
    # Theory does not move, and the table of averages is that of step 0.
    assert chromium.value("short(numbers(DATA.runs[0].matrices[0].classes)[0])") in chromium.value(
        "$('averages-0').textContent"
    )
    # What the library draws when the slider rests is what was painted.
    chromium.run("await new Promise((done) => setTimeout(done, 1500));")
    drawn = "document.querySelector('#map-0-trained .plot').data[0].z.map((line) => Array.from(line))"
    assert chromium.value(drawn) == chromium.value(
        "frame(DATA.runs[0].matrices[0].frames, 0).map((line) => Array.from(line))"
    )


def test_each_layer_can_be_looked_at_alone(page: Path, chromium: Browser) -> None:
    open_training(chromium, page)
    assert chromium.value("$('layer').parentElement.hidden")
    chromium.value("chooseRun(DATA.runs.findIndex((run) => run.matrices.length > 1))")
    shown = "[...document.querySelectorAll('#maps figcaption')].map((each) => each.textContent)"
    assert chromium.value(shown) == ["W^V, layer 1, trained", "W^V, layer 2, trained"]
    assert not chromium.value("$('layer').parentElement.hidden")
    said = "document.querySelector('#attention .said').textContent"
    whole = chromium.value(said)
    chromium.value("(() => { $('layer').value = 1; $('layer').dispatchEvent(new Event('change')); })()")
    assert chromium.value(shown) == ["W^V, layer 2, trained"]
    assert chromium.value(said) != whole
    # Attention of all is the average of each.
    both = [chromium.value(f"(training.layer = {layer}, attentionAt(0, 2))") for layer in (0, 1)]
    average = chromium.value("(training.layer = -1, attentionAt(0, 2))")
    assert average == pytest.approx([sum(pair) / 2 for pair in zip(*both, strict=True)])
    assert both[0] != both[1]


def test_another_seed_is_shown_by_its_averages(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.scroll_to("training")
    chromium.wait("document.querySelector('#map-0-trained .heatmaplayer image')")
    chromium.value("(() => { const seed = $('seed'); seed.value = 1; seed.dispatchEvent(new Event('change')); })()")
    z = chromium.value("SPECS.get($('map-0-trained')).traces[0].z.map((line) => Array.from(line))")
    classes = chromium.value("Array.from(entry(DATA.runs[0].matrices[0].classes, 1, training.frame))")
    assert (z[1][1], z[1][2], z[1][3], z[1][0], z[0][1]) == pytest.approx(tuple(classes))
    assert "Averages" in chromium.value("document.querySelector('#map-0-trained .said').textContent")


def test_play_goes_on_and_pause_stops(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.scroll_to("training")
    chromium.wait("document.querySelector('#map-0-trained .heatmaplayer image')")
    chromium.value("$('play').click()")
    assert chromium.value("$('play').textContent") == "Pause"
    chromium.wait("training.frame === 2")
    chromium.value("$('play').click()")
    assert chromium.value("training.timer === null && $('play').textContent === 'Play'")


def test_without_snapshots_there_is_nothing_to_play_and_no_empty_panel(
    page: Path, chromium: Browser, tmp_path: Path
) -> None:
    open_training(chromium, page)
    seen = "['play', 'frame', 'attention'].map((id) => $(id).checkVisibility())"
    assert chromium.value(seen) == [True, True, True]
    run = write_runs(tmp_path / "runs", seeds=1) / "seed-0"
    (run / "snapshots.safetensors").unlink()
    chromium.open(write_report([run], tmp_path / "report.html"))
    chromium.scroll_to("training")
    chromium.wait("SPECS.has($('loss'))")
    assert chromium.value(seen) == [False, False, False]
    assert "no snapshots" in chromium.value("$('described').textContent")
    assert chromium.value("$('step').textContent") == "12 of 12"
    assert chromium.value("document.querySelector('#loss .said').textContent").startswith("Step 12:")
    assert chromium.console_errors() == []
