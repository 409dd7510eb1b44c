"""The page in a browser: no error and no request, keys alone, small screens, print, saved figures, and what moves."""

import base64
import csv
import io
import json
import math
import re
from pathlib import Path

import pytest

from support.browser import Browser
from support.page_material import NASTY, write_probe, write_runs
from support.page_seen import CATCH, colours_of, cut_off, look_at_everything, open_training, still
from topicscope.reporting.page import page_html, write_report

pytestmark = pytest.mark.slow
# Every element with text of its own, and its contrast with what is behind it.
CONTRASTS = r"""
const linear = (share) => (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
const luminance = (colour) => {
  const [red, green, blue] = colour.match(/[\d.]+/g).slice(0, 3).map((each) => linear(each / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/rgba\(.*, 0\)|transparent/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
const written = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
const seen = [...document.querySelectorAll("body *:not(script):not(style)")].filter((element) =>
  element.checkVisibility() && !element.closest(".heatmaplayer") && !element.disabled && written(element));
return seen.map((element) => {
  const style = getComputedStyle(element), ink = element.closest("svg") ? style.fill : style.color;
  const pair = [luminance(ink), luminance(behind(element))].sort((a, b) => b - a);
  return [(pair[0] + 0.05) / (pair[1] + 0.05), element.tagName + ": " + element.textContent.trim().slice(0, 40)];
});"""
FILTER = """(() => {
  const box = document.querySelector("[data-filter=verdict]");
  box.value = "fails";
  box.dispatchEvent(new Event("input"));
})()"""


def test_no_error_and_no_request(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.console_errors()
    look_at_everything(chromium)
    assert chromium.console_errors() == []
    assert chromium.requests() == []


def test_a_page_that_asked_for_something_would_be_found_out(page: Path, chromium: Browser, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt.html"
    text = page.read_text(encoding="utf-8")
    spoilt.write_text(text.replace("<main", '<img src="https://example.invalid/x.png"><main', 1), encoding="utf-8")
    chromium.open(spoilt)
    assert any("Content Security Policy" in message for message in chromium.console_errors())
    free = tmp_path / "free.html"
    free.write_text(re.sub(r"<meta http-equiv[^>]*>", "", spoilt.read_text(encoding="utf-8")), encoding="utf-8")
    chromium.open(free)
    assert "https://example.invalid/x.png" in chromium.requests()


def test_a_script_that_is_not_the_pages_does_not_run(page: Path, chromium: Browser, tmp_path: Path) -> None:
    spoilt = tmp_path / "spoilt.html"
    text = page.read_text(encoding="utf-8")
    spoilt.write_text(text.replace("<main", "<script>window.broken = true</script><main", 1), encoding="utf-8")
    chromium.open(spoilt)
    assert chromium.value("window.broken === undefined")
    chromium.console_errors()


def test_keys_alone_reach_every_control_in_order_and_the_focus_is_seen(page: Path, chromium: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    chromium.open(page)
    look_at_everything(chromium)
    # Tabs go on from where the page was last looked at: begin at its top.
    chromium.value("(() => { document.body.tabIndex = -1; document.body.focus(); })()")
    # Each thing that can be used gets a number, in the order of the page.
    controls = chromium.value(
        "(() => { let count = 0; const all = 'a[href], button, select, input, summary, [tabindex=\"0\"]';"
        " for (const each of document.querySelectorAll(all))"
        " if (each.checkVisibility() && !each.disabled) each.dataset.place = count++;"
        " return count; })()"
    )
    reached, unseen = [], []
    for _ in range(controls + 40):
        ActionChains(chromium.driver).send_keys(Keys.TAB).perform()
        place, outline, name = chromium.value(
            "[document.activeElement.dataset.place, getComputedStyle(document.activeElement).outlineStyle,"
            " document.activeElement.outerHTML.slice(0, 80)]"
        )
        if place is not None:
            reached.append(int(place))
            unseen += [name] if outline == "none" else []
        if len(reached) >= controls:
            break
    assert reached == list(range(controls))
    assert unseen == []


def test_keys_alone_move_the_slider_open_a_claim_and_sort(page: Path, chromium: Browser) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(key: str) -> None:
        ActionChains(chromium.driver).send_keys(key).perform()

    open_training(chromium, page)
    chromium.value("PLAYERS.runs.part('frame').focus()")
    place = chromium.value("PLAYERS.runs.frame")
    press(Keys.ARROW_LEFT)
    chromium.wait(f"PLAYERS.runs.frame === {place - 1}")
    chromium.value("document.querySelector('a[href=\"#claim-0-0\"]').focus()")
    press(Keys.ENTER)
    chromium.wait("document.getElementById('claim-0-0').open")
    chromium.value("document.querySelector('.claims th button').focus()")
    press(Keys.ENTER)
    assert chromium.value("document.querySelector('.claims th').getAttribute('aria-sort')") == "ascending"
    verdicts = "[...document.querySelectorAll('.claims tbody tr:not([hidden])')].map((row) => row.dataset.verdict)"
    upwards = chromium.value(verdicts)
    press(Keys.ENTER)
    assert chromium.value(verdicts) == upwards[::-1] != upwards
    chromium.value(FILTER)
    assert chromium.value(verdicts) == ["fails"]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_is_wider_than_the_window_all_text_has_contrast_and_every_panel_is_drawn(
    page: Path, chromium: Browser, width: int, dark: bool
) -> None:
    chromium.open(page, width=width, dark=dark)
    look_at_everything(chromium)
    assert chromium.value("document.documentElement.scrollWidth") <= width
    seen = chromium.run(CONTRASTS)
    assert [text for ratio, text in seen if ratio < 4.5] == []
    # Text of the page and of its figures, whose axes have names and numbers.
    assert sum(text.startswith("text:") for _, text in seen) > 50
    paper = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is not dark
    # An empty panel has its paper, its frame and little else.
    panels = chromium.value("[...SPECS.keys()].filter((panel) => panel.isConnected).map((panel) => panel.id)")
    assert len(panels) > 10
    bare = {panel: colours_of(chromium, panel) for panel in panels}
    assert {panel: count for panel, count in bare.items() if count < 4} == {}
    # The control: with its drawing hidden a panel has as few.
    chromium.value("(document.querySelector('#runs-loss .plot').style.visibility = 'hidden', 0)")
    assert colours_of(chromium, "runs-loss") < 4


def test_words_that_look_like_scripts_are_shown_as_text(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    look_at_everything(chromium)
    assert "<script>alert" in chromium.value("document.querySelector('.topics').textContent")
    assert "<script>alert" in chromium.value("document.querySelector('.claims tbody').textContent")
    ticks = "[...document.querySelectorAll('#probe-0 .xtick text')].map((each) => each.textContent)"
    assert "<script>" in chromium.value(ticks)
    assert chromium.value("document.querySelectorAll('body script:not([type])').length") == 2
    assert chromium.console_errors() == []


def test_print_is_on_white_with_everything_drawn_and_open(page: Path, chromium: Browser) -> None:
    chromium.open(page, dark=True)
    waiting = chromium.value("WAITING.size")
    printed = chromium.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    # Drawn figures make pages: nothing but the tables would be two or three.
    assert base64.b64decode(printed).count(b"/Type /Page\n") >= 6
    assert waiting > 0
    assert chromium.value("WAITING.size") == 0
    assert chromium.value("document.querySelector('.claim').open")
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    # A sheet of paper cannot be scrolled.
    chromium.resize(760)
    chromium.wait("document.documentElement.scrollWidth <= 760")
    assert chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert chromium.value("getComputedStyle(document.querySelector('.controls')).display") == "none"
    chromium.wait("document.querySelector('#runs-loss .xtick text').style.fill === 'rgb(27, 31, 36)'")
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("kind", ["empty", "nothing"])
def test_pages_of_nothing_say_so_without_error(chromium: Browser, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if kind == "nothing":
        (folder / "claims.json").write_text("[]")
    (tmp_path / "report.html").write_text(page_html([folder]), encoding="utf-8")
    chromium.console_errors()
    chromium.open(tmp_path / "report.html")
    assert "nothing to show" in chromium.value("document.body.textContent")
    assert chromium.console_errors() == []


def test_figures_are_saved_as_drawings_and_numbers(page: Path, chromium: Browser) -> None:
    chromium.open(page, dark=True)
    look_at_everything(chromium)
    chromium.value(CATCH)
    # A file's name says of which run, seed, step and matrix it is.
    name = f"{page.parent.name}-runs-seed-0-step-12-W-V-trained"
    for kind in ("svg", "png", "csv"):
        chromium.value(f"(document.querySelector('#runs-map-0-trained [data-save={kind}]').click(), 0)")
        chromium.wait(f"saved['{name}.{kind}'] !== undefined")
    assert chromium.value(f"saved['{name}.svg']").startswith("data:image/svg+xml")
    assert chromium.value(f"saved['{name}.png']").startswith("data:image/png")
    lines = chromium.value(f"saved['{name}.csv']").splitlines()
    assert lines[0] == "trace,x,y,z"
    assert len(lines) == 1 + 7 * 7
    # Ratios have their intervals, heads their descriptions.
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
    # One scale for both models, to which the one extreme head of four times is cut: its log₂ is 2.
    high, same = chromium.value(scales)
    assert high == same
    assert math.log2(1.12) < high < 2
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
    # A surface without a graphics card takes its time.
    for _ in range(30):
        if colours_of(chromium, "surface") >= 6:
            break
        chromium.run("await new Promise((done) => setTimeout(done, 1000));")
    assert not cut_off(chromium, "surface")
    # The control: what is drawn, made larger than its frame.
    chromium.value(
        "(() => { const plot = document.querySelector('#surface .plot'); plot.style.overflow = 'hidden';"
        " plot.firstElementChild.style.transform = 'scale(3)'; return 0; })()"
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


def test_the_slider_moves_every_panel(page: Path, chromium: Browser) -> None:
    open_training(chromium, page)
    assert still(chromium) == []
    assert chromium.value("PLAYERS.runs.part('step').textContent").startswith("0 of")
    # Theory does not move, and the table of averages is that of step 0.
    assert chromium.value("short(numbers(DATA.runs[0].matrices[0].classes)[0])") in chromium.value(
        "$('runs-averages-0').textContent"
    )
    # What the library draws when the slider rests is what was painted.
    chromium.run("await new Promise((done) => setTimeout(done, 1500));")
    drawn = "document.querySelector('#runs-map-0-trained .plot').data[0].z.map((line) => Array.from(line))"
    assert chromium.value(drawn) == chromium.value(
        "frame(DATA.runs[0].matrices[0].frames, 0).map((line) => Array.from(line))"
    )


def test_each_layer_can_be_looked_at_alone(page: Path, chromium: Browser) -> None:
    open_training(chromium, page)
    assert chromium.value("PLAYERS.runs.part('layer').parentElement.hidden")
    chromium.value("PLAYERS.runs.show(DATA.runs.findIndex((run) => run.matrices.length > 1))")
    shown = "[...document.querySelectorAll('#runs .maps figcaption')].map((each) => each.textContent)"
    assert chromium.value(shown) == ["WV, layer 1, trained", "WV, layer 2, trained"]
    assert not chromium.value("PLAYERS.runs.part('layer').parentElement.hidden")
    said = "document.querySelector('#runs-attention .said').textContent"
    whole = chromium.value(said)
    chromium.value(
        "(() => { const box = PLAYERS.runs.part('layer'); box.value = 1; box.dispatchEvent(new Event('change')); })()"
    )
    assert chromium.value(shown) == ["WV, layer 2, trained"]
    assert chromium.value(said) != whole
    # Attention of all is the average of each.
    both = [chromium.value(f"(PLAYERS.runs.layer = {layer}, PLAYERS.runs.attentionAt(0, 2))") for layer in (0, 1)]
    average = chromium.value("(PLAYERS.runs.layer = -1, PLAYERS.runs.attentionAt(0, 2))")
    assert average == pytest.approx([sum(pair) / 2 for pair in zip(*both, strict=True)])
    assert both[0] != both[1]


def test_another_seed_is_shown_by_its_averages(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.scroll_to("training")
    chromium.wait("document.querySelector('#runs-map-0-trained .heatmaplayer image')")
    chromium.value(
        "(() => { const seed = PLAYERS.runs.part('seed'); seed.value = 1; seed.dispatchEvent(new Event('change')); })()"
    )
    z = chromium.value("SPECS.get($('runs-map-0-trained')).traces[0].z.map((line) => Array.from(line))")
    classes = chromium.value("Array.from(entry(DATA.runs[0].matrices[0].classes, 1, PLAYERS.runs.frame))")
    assert (z[1][1], z[1][2], z[1][3], z[1][0], z[0][1]) == pytest.approx(tuple(classes))
    assert "Averages" in chromium.value("document.querySelector('#runs-map-0-trained .said').textContent")


def test_play_goes_on_and_pause_stops(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.scroll_to("training")
    chromium.wait("document.querySelector('#runs-map-0-trained .heatmaplayer image')")
    # Within the page, so that a slow machine misses no frame.
    began, ended = chromium.run(
        "const player = PLAYERS.runs, button = player.part('play');"
        " const state = () => [player.frame, player.timer === null, button.textContent];"
        " button.click(); const began = state();"
        " while (player.frame < 2) await new Promise((done) => setTimeout(done, 10));"
        " button.click(); const paused = state();"
        " await new Promise((done) => setTimeout(done, 1000));"
        " return [began, [...paused, player.frame]];"
    )
    assert began == [0, False, "Pause"]
    assert ended == [2, True, "Play", 2]


def test_without_snapshots_there_is_nothing_to_play_and_no_empty_panel(chromium: Browser, tmp_path: Path) -> None:
    player = "PLAYERS['film-player']"
    seen = (
        f"[{player}.part('play'), {player}.part('frame'), {player}.panel('loss')].map((each) => each.checkVisibility())"
    )
    run = write_runs(tmp_path / "runs", seeds=1) / "seed-0"
    chromium.open(write_report([run], tmp_path / "whole.html"))
    chromium.wait("SPECS.has($('film-player-loss'))")
    assert chromium.value(seen) == [True, True, True]
    (run / "snapshots.safetensors").unlink()
    chromium.open(write_report([run], tmp_path / "report.html"))
    chromium.wait("SPECS.has($('film-player-loss'))")
    assert chromium.value(seen) == [False, False, True]
    # Attention is frozen, and without snapshots there is none.
    assert not chromium.value(f"{player}.panel('attention').checkVisibility()")
    assert "no snapshots" in chromium.value(f"{player}.part('described').textContent")
    assert chromium.value(f"{player}.part('step').textContent") == "12 of 12"
    assert chromium.value(f"{player}.panel('loss').querySelector('.said').textContent").startswith("Step 12:")
    assert chromium.console_errors() == []


@pytest.mark.parametrize(
    ("vary", "chosen"),
    [
        ({"training.learning_rate": ["0.01", "0.1"]}, ["training.learning_rate", "excess_over_optimum", "seed"]),
        ({"training.optimizer": ["adam", "sgd"]}, ["training.optimizer", "excess_over_optimum", "seed"]),
        (
            {"data.topic_words": ["/far/away/one.csv", "/far/away/two.csv"], "data.words": ["5", "10"]},
            ["data.words", "excess_over_optimum", "data.topic_words"],
        ),
        ({}, ["loss", "excess_over_optimum", "seed"]),
    ],
)
def test_a_sweep_opens_on_the_excess_over_the_optimum_against_what_was_varied(
    vary: dict[str, list[str]], chosen: list[str], chromium: Browser, tmp_path: Path
) -> None:
    names = [*vary, "seed", "loss", "excess_over_optimum", "run"]
    rows = [
        [
            *(values[place] for values in vary.values()),
            seed,
            0.5 + place + seed / 9,
            0.1 + place + seed / 7,
            f"r{place}{seed}",
        ]
        for place in range(2 if vary else 1)
        for seed in range(2)
    ]
    (tmp_path / "sweep").mkdir()
    with (tmp_path / "sweep" / "sweep.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    page = write_report([tmp_path / "sweep"], tmp_path / "report.html")
    chromium.open(page, width=390)
    chromium.wait("SPECS.has($('sweep-0-figure'))")
    assert (
        chromium.value("['x', 'y', 'colour'].map((axis) => document.querySelector(`[data-axis=${axis}]`).value)")
        == chosen
    )
    # Files have short names where they are shown, and whole ones in the CSV of the table.
    assert "/far/away" not in chromium.value("document.body.innerText")
    assert ("/far/away/one.csv" in page.read_text(encoding="utf-8")) == ("data.topic_words" in vary)
    assert chromium.console_errors() == []
