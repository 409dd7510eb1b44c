"""The page in a browser: no error and no request, keys alone, small screens, print, saved figures, and what moves."""

import base64
import io
import re
from pathlib import Path

import pytest

from support.browser import Browser, require_browser
from support.page_material import NASTY, write_article, write_everything
from topicscope.commands.report import show
from topicscope.reporting.page import write_report

# How many different colours, nearly equal ones counted once, each canvas shows: an empty one has none or its paper.
COLOURS = """
const shown = [...PANELS].filter((panel) => panel.element.checkVisibility());
return Object.fromEntries(shown.map(({ canvas, element }) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = new Set();
  for (let at = 0; at < data.length; at += 16)
    if (data[at + 3]) seen.add([0, 1, 2].map((i) => data[at + i] >> 5).join());
  return [element.id, seen.size];
}));"""
# What a reader sees of the panels that the slider drives.
SEEN = """Object.fromEntries([...PANELS].filter(({ element }) => /^runs-(?!.*theory)/.test(element.id))
  .map((panel) => [panel.element.id, panel.canvas.toDataURL()]))"""
# Files that would be saved, by name.
CATCH = """(window.saved = {}, download = (name, content) => {
  saved[name] = typeof content === "string" ? content : "bytes";
}, 0)"""
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    folder = tmp_path_factory.mktemp("page")
    return write_report(write_everything(folder), folder / "report.html")


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    folder = tmp_path_factory.mktemp("article")
    return write_report([write_article(folder / "results")], folder / "report.html")


def change(chromium: Browser, element: str, value: object, event: str = "change") -> None:
    """Choose a value, as a reader does."""
    chromium.value(
        f"(() => {{ const box = {element}; box.value = {value!r}; box.dispatchEvent(new Event({event!r})); }})()"
    )
    # What many events ask for is drawn with the next frame.
    chromium.run("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));")


def still(chromium: Browser) -> list[str]:
    """Panels that the slider drives and that do not change between its two ends."""
    seen = []
    for place in ("PLAYERS.runs.slider.max", "0"):
        change(chromium, "PLAYERS.runs.slider", chromium.value(place), "input")
        seen.append(chromium.value(SEEN))
    return [name for name in seen[0] if seen[0][name] == seen[1][name]]


def press(chromium: Browser, key: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(chromium.driver).send_keys(key).perform()


def test_the_page_opens_without_error_or_request_and_its_slider_moves_every_panel(
    page: Path, chromium: Browser
) -> None:
    chromium.open(page, width=390)
    # Nothing else moves.
    chromium.value("(PLAYERS['film-player'].play(), 0)")
    chromium.value(OPEN_ALL)
    assert still(chromium) == []
    # Were the panels not drawn anew, they would be found out.
    chromium.value("(() => { Panel.prototype.draw = () => {}; })()")
    assert len(still(chromium)) >= 4
    assert chromium.value("document.documentElement.scrollWidth") <= 390
    assert chromium.console_errors() == []
    assert chromium.requests() == []


@pytest.mark.slow
def test_a_page_that_asked_for_something_or_ran_another_script_would_be_found_out(
    page: Path, chromium: Browser, tmp_path: Path
) -> None:
    text = page.read_text(encoding="utf-8")
    spoilt, free = tmp_path / "spoilt.html", tmp_path / "free.html"
    foreign = '<img src="https://example.invalid/x.png"><script>window.broken = true</script><main'
    spoilt.write_text(text.replace("<main", foreign, 1), encoding="utf-8")
    chromium.open(spoilt)
    assert any("Content Security Policy" in message for message in chromium.console_errors())
    assert chromium.value("window.broken === undefined")
    free.write_text(re.sub(r"<meta http-equiv[^>]*>", "", spoilt.read_text(encoding="utf-8")), encoding="utf-8")
    chromium.open(free)
    assert "https://example.invalid/x.png" in chromium.requests()
    assert chromium.value("window.broken")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(390, True), (1600, False)])
def test_nothing_is_wider_than_the_window_and_every_panel_and_drawing_is_drawn(
    page: Path, article: Path, chromium: Browser, width: int, dark: bool
) -> None:
    for file in (page, article):
        chromium.open(file, width=width, dark=dark)
        chromium.value(OPEN_ALL)
        chromium.run("await new Promise((done) => setTimeout(done, 500));")
        assert chromium.value("document.documentElement.scrollWidth") <= width
        assert (chromium.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)") is not dark
        drawn = chromium.run(COLOURS)
        assert len(drawn) >= 7
        assert {panel: count for panel, count in drawn.items() if count < 4} == {}
        drawings = "[...document.querySelectorAll('[data-drawing] img')]"
        assert all(chromium.value(f"{drawings}.map((each) => each.complete && each.naturalWidth)"))
        assert chromium.console_errors() == []
        assert chromium.requests() == []
        # The control: an empty canvas.
        chromium.value("[...PANELS].forEach(({ canvas }) => { canvas.width = canvas.width; })")
        assert set(chromium.run(COLOURS).values()) == {0}


@pytest.mark.slow
def test_keys_alone_reach_every_control_in_order_move_the_slider_open_a_claim_and_sort(
    page: Path, chromium: Browser
) -> None:
    from selenium.webdriver.common.keys import Keys

    chromium.open(page)
    chromium.value("(() => { document.body.tabIndex = -1; document.body.focus(); })()")
    # Each thing that can be used gets a number, in the order of the page.
    controls = chromium.value(
        "(() => { let count = 0; const all = 'a[href], button, select, input, summary, [tabindex=\"0\"]';"
        " for (const each of document.querySelectorAll(all))"
        " if (each.checkVisibility() && !each.disabled) each.dataset.place = count++;"
        " return count; })()"
    )
    reached = list[int]()
    while len(reached) < controls:
        press(chromium, Keys.TAB)
        reached.append(chromium.value("Number(document.activeElement.dataset.place ?? -1)"))
    assert reached == list(range(controls))
    chromium.value(OPEN_ALL)
    chromium.value("PLAYERS.runs.slider.focus()")
    place = chromium.value("PLAYERS.runs.place")
    press(chromium, Keys.ARROW_LEFT)
    chromium.wait(f"PLAYERS.runs.place === {place - 1}")
    chromium.value("(document.querySelector('#claims-0 details').open = false, 0)")
    chromium.value("document.querySelector('#claims-0 summary').focus()")
    press(chromium, Keys.ENTER)
    chromium.wait("$('claim-0-figure2/a').checkVisibility()")
    column = "[...document.querySelectorAll('#sweep-0 tbody tr')].map((line) => line.cells[0].textContent)"
    chromium.value("document.querySelector('#sweep-0 th button').focus()")
    press(chromium, Keys.ENTER)
    press(chromium, Keys.ENTER)
    assert chromium.value(column) == ["0.1", "0.001", "0.001"]


@pytest.mark.slow
def test_claims_are_folded_until_a_link_or_a_filter_wants_them(article: Path, chromium: Browser) -> None:
    chromium.open(article)
    link = "document.querySelector('#value a.to-claim')"
    claim = f"$(decodeURIComponent({link}.hash.slice(1)))"
    assert not chromium.value(f"{claim}.checkVisibility()")
    chromium.value(f"({link}.click(), 0)")
    chromium.wait(f"{claim}.open && {claim}.checkVisibility()")
    shown = "[...document.querySelectorAll('#claims-0 .claim')].filter((each) => !each.hidden).length"
    every = chromium.value(shown)
    assert every > 5
    change(chromium, "document.querySelector('[data-filter=verdict]')", "undecided", "input")
    assert chromium.value(shown) == 1
    assert chromium.value("document.querySelector('[data-count]').textContent") == f"1 of {every} claims"
    # A link to a claim that a filter hides shows it all the same.
    chromium.value(f"(location.hash = '', {link}.click(), 0)")
    chromium.wait(f"{claim}.checkVisibility()")
    assert chromium.value(shown) == every
    off = chromium.run(
        "const off = []; for (const link of document.querySelectorAll('a[href^=\"#\"]')) {"
        " if (!link.checkVisibility() || link.classList.contains('skip')) continue; link.click();"
        " await new Promise((done) => setTimeout(done, 60));"
        " const box = $(decodeURIComponent(link.hash.slice(1))).getBoundingClientRect();"
        " if (box.bottom < 0 || box.top > innerHeight) off.push(link.hash); } return off;"
    )
    assert off == []


@pytest.mark.slow
def test_it_opens_on_theory_beside_training_and_plays_and_stages_stand_at_the_transition(
    article: Path, chromium: Browser
) -> None:
    chromium.open(article)
    film = "PLAYERS['film-player']"
    titles = "[...document.querySelectorAll('#film-player figcaption')].map((each) => each.textContent)"
    assert chromium.value(titles) == ["WV, trained", "WV, theory", "WV, trained − theory"]
    chromium.scroll_to("film-player")
    chromium.wait(f"{film}.timer !== null")
    first = chromium.value(f"{film}.place")
    chromium.wait(f"{film}.place !== {first}")
    chromium.value(f"({film}.playButton.click(), 0)")
    assert chromium.value(f"{film}.timer === null && !{film}.alone")
    stages = "PLAYERS['stages-player']"
    assert chromium.value(f"{stages}.step") == 1200
    assert chromium.value(f"{stages}.charts.map(({{ chart }}) => chart.id)") == ["growth", "progress", "attention"]
    chromium.value(f"({stages}.playButton.click(), 0)")
    chromium.wait(f"{stages}.step > 1300")
    chromium.value(f"({stages}.playButton.click(), 0)")
    # A pointer that is pressed in a chart moves the step there.
    chromium.value(
        f"(() => {{ const {{ spec, frame }} = {stages}.charts[0].panel;"
        " spec.seen(frame, frame.x.at(620), 50, true); })()"
    )
    chromium.wait(f"{stages}.step === 600")
    assert "600" in chromium.value("document.querySelector('#stages-player .bar output').textContent")


@pytest.mark.slow
def test_runs_are_chosen_laid_over_each_other_and_shown_by_layer_and_seed(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    chromium.value(OPEN_ALL)
    player, controls = "PLAYERS.runs", "PLAYERS.runs.controls"
    lines = f"{player}.charts.find(({{ chart }}) => chart.id === 'loss').panel.spec.table().length"
    alone = chromium.value(lines)
    change(chromium, f"{controls}.beside.input", 1)
    assert chromium.value(lines) > alone
    # Another seed has no frames: it is shown by its averages.
    change(chromium, f"{controls}.seed.input", 1)
    entries = (
        f"(() => {{ const {{ trained }} = {player}.entries({player}.run.matrices[0]);"
        " return [[1, 1], [1, 2], [1, 3], [1, 0], [0, 1]].map(([i, j]) => trained(i, j)); })()"
    )
    averages = f"Array.from(row({player}.run.matrices[0].classes, 1, {player}.place))"
    assert chromium.value(entries) == pytest.approx(chromium.value(averages))
    change(chromium, f"{controls}.run.input", chromium.value("DATA.runs.findIndex((run) => run.matrices.length > 1)"))
    titles = f"{player}.maps.map(({{ matrix }}) => matrix.label)"
    assert chromium.value(titles) == ["W^V, layer 1", "W^V, layer 2"]
    change(chromium, f"{controls}.layer.input", 1)
    assert chromium.value(titles) == ["W^V, layer 2"]
    # A run without snapshots has its curves alone.
    change(chromium, f"{controls}.run.input", chromium.value("DATA.runs.findIndex((run) => !run.matrices.length)"))
    assert chromium.value(f"[{player}.maps.length, {player}.steps.length]") == [0, 3]
    assert min(chromium.run(COLOURS).values()) >= 4
    assert chromium.console_errors() == []


@pytest.mark.slow
def test_figures_are_saved_as_pictures_on_white_numbers_and_drawings_and_printed_with_everything_open(
    page: Path, chromium: Browser
) -> None:
    from PIL import Image

    chromium.open(page, dark=True)
    chromium.value(OPEN_ALL)
    chromium.value(CATCH)
    # A file's name says of which run, seed, step and matrix it is.
    name = f"{page.parent.name}-runs-seed-0-W-V-trained-step-12"
    chromium.value("(document.querySelectorAll('#runs-0-trained .save button').forEach((each) => each.click()), 0)")
    lines = chromium.value(f"saved['{name}.csv']").splitlines()
    assert (lines[0], len(lines)) == ("token i,token j,value", 1 + 7 * 7)
    picture = chromium.value(f"saved['{name}.png']")
    with Image.open(io.BytesIO(base64.b64decode(picture.partition(",")[2]))) as image:
        assert image.convert("RGB").getpixel((2, 2)) == (255, 255, 255)
    chromium.value("(document.querySelector('[data-drawing] button').click(), 0)")
    assert "bytes" in chromium.value("Object.values(saved)")
    # A word of another's text is no formula for a spreadsheet, and no markup.
    assert chromium.value("csv([['=1+1', 2], ['-3', -3]])") == "'=1+1,2\n-3,-3\n"
    assert NASTY in chromium.value("document.querySelector('.claim').textContent")
    chromium.value("(document.querySelectorAll('details').forEach((each) => { each.open = false; }), 0)")
    printed = chromium.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": False})["data"]
    assert base64.b64decode(printed).count(b"/Type /Page\n") >= 5
    assert chromium.value("document.querySelector('.claim').open")
    assert chromium.console_errors() == []


@pytest.mark.slow
def test_landscapes_follow_their_sliders_and_the_pointer(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    inputs = "document.querySelectorAll('#landscape input')"
    for place, words in ((0, "T = 20"), (1, "τ = 4")):
        change(chromium, f"{inputs}[{place}]", 1, "input")
        assert words in chromium.value("document.querySelector('#landscape figcaption').textContent")
    panel = "[...PANELS].find((each) => each.element.id === 'landscape-map')"
    point = f"{panel}.parts.said.textContent"
    change(chromium, f"{inputs}[2]", 0, "input")
    low = chromium.value(point)
    assert low.startswith("Your point: loss")
    chromium.value(
        f"(() => {{ const {{ spec, frame }} = {panel}; spec.seen(frame, frame.x.at(100), frame.y.at(1), true); }})()"
    )
    assert chromium.value(point) != low
    # The grid is the exact loss: its least is near the optimum's.
    least = chromium.value("Math.min(...numbers(DATA.landscapes[2].grid)) - DATA.landscapes[2].loss")
    assert least == pytest.approx(0, abs=5e-3)


@pytest.mark.slow
def test_present_mode_shows_figures_and_sliders_alone_in_large_type(
    article: Path, chromium: Browser, tmp_path: Path
) -> None:
    chromium.open(article)
    seen = (
        "['h1', '.lede', '#claims-0', '.findings', '#film-player canvas', '#film-player input[type=range]', '#try']"
        ".map((each) => document.querySelector(each).checkVisibility())"
    )
    assert chromium.value(seen) == [True] * 7
    chromium.value("(location.hash = '#present', 0)")
    chromium.wait("document.documentElement.classList.contains('present')")
    assert chromium.value(seen) == [False] * 4 + [True] * 2 + [False]
    assert chromium.value("document.activeElement === document.querySelector('#film-player input[type=range]')")
    chromium.value("$('whole-page').click()")
    assert chromium.value(seen) == [True] * 7
    # A notebook shows it so from the start.
    (tmp_path / "shown.html").write_text(show(article.parent / "results").page, encoding="utf-8")
    chromium.open(tmp_path / "shown.html")
    assert chromium.value(seen) == [False] * 4 + [True] * 2 + [False]
    assert chromium.value("parseFloat(getComputedStyle(document.body).fontSize)") >= 20
    assert chromium.console_errors() == []
