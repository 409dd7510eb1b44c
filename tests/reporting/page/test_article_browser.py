"""The article in a browser: links lead where they say, filters act on all lists, stages play, present mode."""

import json
from pathlib import Path

import pytest

from support.browser import Browser, require_browser
from support.page_material import write_article, write_runs
from support.page_seen import look_at_everything
from topicscope.commands.report import show
from topicscope.files import Row
from topicscope.reporting.page import write_report

pytestmark = pytest.mark.slow

# How far from the top of the window, less what the style sheet keeps free, each link's target is after a click.
OFF = """
const off = [];
for (const link of document.querySelectorAll("a[href^='#']")) {
  if (!link.checkVisibility() || link.classList.contains("skip")) continue;
  link.click();
  await new Promise((done) => setTimeout(done, 60));
  const target = document.getElementById(decodeURIComponent(link.hash.slice(1)));
  const free = parseFloat(getComputedStyle(document.documentElement).scrollPaddingTop);
  const end = scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  const top = target.getBoundingClientRect().top - free;
  // Near the page's end a target cannot come to the top of the window.
  if (Math.abs(top) > 20 && !(end && top > 0)) off.push([link.hash, Math.round(top)]);
}
return off;
"""
BROAD = """[...document.querySelectorAll(".panel, .player, .picture, .plot, table")]
  .filter((each) => each.checkVisibility() && !each.closest(".scroll, .sideways"))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.id || each.className)"""


@pytest.fixture(scope="module")
def article(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    folder = tmp_path_factory.mktemp("article")
    return write_report([write_article(folder / "results")], folder / "report.html")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1600])
def test_every_link_lands_on_its_target_and_no_figure_is_broader_than_the_page(
    article: Path, chromium: Browser, width: int, dark: bool
) -> None:
    chromium.open(article, width=width, dark=dark)
    chromium.console_errors()
    assert chromium.value("document.querySelectorAll('a[href^=\"#\"]').length") > 20
    assert chromium.run(OFF) == []
    look_at_everything(chromium)
    assert chromium.value(BROAD) == []
    assert chromium.value("document.documentElement.scrollWidth") <= width
    assert chromium.console_errors() == []
    assert chromium.requests() == []
    # The control: were a figure to grow after the links were followed, they would be found out.
    chromium.run(
        "document.documentElement.style.overflowAnchor = 'none';"
        " addEventListener('hashchange', () => setTimeout(() => { const box = document.querySelector('.document');"
        " box.style.height = (box.clientHeight + 300) + 'px'; }, 20));"
    )
    assert chromium.run(OFF) != []


def test_it_opens_on_theory_beside_training_and_plays(article: Path, chromium: Browser) -> None:
    chromium.open(article)
    shown = "[...document.querySelectorAll('#film-player figcaption')].map((each) => each.textContent)"
    chromium.wait("document.querySelectorAll('#film-player .heatmaplayer image').length === 3")
    assert chromium.value(shown) == ["WV, trained", "WV, theory", "WV, trained − theory"]
    # All of it is on the first screen.
    assert chromium.value("document.querySelector('#film-player .plot').getBoundingClientRect().bottom < innerHeight")
    chromium.wait("PLAYERS['film-player'].timer !== null")
    first = chromium.value("PLAYERS['film-player'].frame")
    chromium.wait(f"PLAYERS['film-player'].frame !== {first}")
    chromium.value("PLAYERS['film-player'].part('play').click()")
    assert chromium.value("PLAYERS['film-player'].timer === null && !PLAYERS['film-player'].alone")
    assert chromium.value("document.querySelector('header a[href^=\"https://arxiv.org\"]') !== null")


def test_two_stages_are_at_the_transition_on_a_log_axis_with_its_end_marked(article: Path, chromium: Browser) -> None:
    chromium.open(article)
    chromium.scroll_to("stages-player")
    chromium.wait("SPECS.has($('stages-player-gain')) && document.querySelector('#stages-player .now')")
    player = "PLAYERS['stages-player']"
    assert chromium.value(f"{player}.step") == 1200
    assert chromium.value("$('stages-player-norms').querySelector('.plot')._fullLayout.yaxis.type") == "log"
    marks = "SPECS.get($('stages-player-norms')).layout.shapes.map((each) => [each.x0, each.label.text])"
    assert chromium.value(marks) == [[1200, "stage 1 ends"]]
    names = (
        "SPECS.get($('stages-player-norms')).traces.filter((each) => each.visible === true).map((each) => each.meta)"
    )
    assert set(chromium.value(names)) == {
        f"{name}, seed 0" for name in ("‖W^V‖", "W^K: topics", "W^Q: topics", "W^K: [MASK]", "W^Q: [MASK]")
    }
    # It plays from where it is, and evenly through the steps where that is asked for.
    chromium.value(f"({player}.part('play').click(), 0)")
    chromium.wait(f"{player}.step > 1300")
    chromium.value(f"({player}.part('play').click(), 0)")
    chromium.value(
        f"(() => {{ const even = {player}.part('even'), frame = {player}.part('frame'); even.click();"
        " frame.value = 640; frame.dispatchEvent(new Event('input')); })()"
    )
    chromium.wait(f"{player}.step === 600")
    assert chromium.console_errors() == []


def test_predicted_stages_are_a_dashed_line_and_thin_norms_with_their_names(chromium: Browser, tmp_path: Path) -> None:
    stages = {"take_off": 7, "steps": [0, 6, 12], "norms": {"value": [0.1, 0.4, 0.9]}, "note": "Of two modes."}
    run = write_runs(tmp_path / "runs", seeds=1) / "seed-0"
    plain = json.loads((run / "reference.json").read_text())
    plain.pop("stages", None)
    seen = (
        "(() => { const { layout, traces } = SPECS.get($('film-player-norms')); return ["
        "layout.shapes.map((each) => [each.x0, each.line.dash, each.label.text]),"
        " traces.filter((each) => /predicted/.test(each.name)).map((each) => [each.meta, each.y]),"
        " $('film-player-norms').querySelector('.said').textContent.replace(/^Step [^.]*\\.\\d+\\. ?/, '')]; })()"
    )
    found = []
    none: Row = {"take_off": None, "steps": [], "norms": {"value": []}, "note": "There is no prediction."}
    for reference in (plain, plain | {"stages": stages}, plain | {"stages": none}):
        (run / "reference.json").write_text(json.dumps(reference))
        chromium.open(write_report([run], tmp_path / "run.html"))
        chromium.scroll_to("film-player-norms")
        chromium.wait("SPECS.has($('film-player-norms')) && document.querySelector('#film-player-norms .now')")
        found.append(chromium.value(seen))
    assert found[0] == found[2] == [[], [], ""]
    assert found[1] == [
        [[7, "dash", "predicted"]],
        [["‖W^V‖, predicted", [0.1, 0.4, 0.9]]],
        "Thin dashed lines are predicted; attention should take off at step 7. Of two modes.",
    ]
    assert chromium.console_errors() == []


def test_runs_can_be_laid_over_each_other(article: Path, chromium: Browser) -> None:
    chromium.open(article)
    chromium.scroll_to("runs")
    chromium.wait("SPECS.has($('runs-loss'))")
    lines = "SPECS.get($('runs-loss')).traces.filter((each) => /beside/.test(each.name)).length"
    assert chromium.value(lines) == 0
    chromium.value(
        "(() => { const box = PLAYERS.runs.part('beside'); box.value = 1; box.dispatchEvent(new Event('change')); })()"
    )
    assert chromium.value(lines) == 1


def test_filters_change_the_table_the_claims_and_the_figures(article: Path, chromium: Browser) -> None:
    chromium.open(article)
    counts = (
        "['#claims-0 tbody tr', '#claims-0 .claim', '#claims-0 .drawn']"
        ".map((each) => [...document.querySelectorAll(each)].filter((one) => !one.hidden).length)"
    )
    assert chromium.value(counts) == [7, 7, 3]
    choose = (
        "(() => { const box = document.querySelector('[data-filter=%s]'); box.value = '%s';"
        " box.dispatchEvent(new Event('input')); })()"
    )
    chromium.value(choose % ("verdict", "undecided"))
    assert chromium.value(counts) == [1, 1, 1]
    chromium.value(choose % ("verdict", ""))
    chromium.value(choose % ("source", "Figure 2"))
    assert chromium.value(counts) == [2, 2, 1]
    # A link to a claim that a filter hides shows it all the same.
    chromium.value("document.querySelector('#findings a.to-claim').click()")
    chromium.wait("document.querySelector('#claims-0 .claim[open]')?.checkVisibility()")
    assert chromium.value(counts) == [7, 7, 3]


def test_present_mode_shows_figures_and_sliders_alone_in_large_type(
    article: Path, chromium: Browser, tmp_path: Path
) -> None:
    chromium.open(article)
    seen = (
        "['h1', '.lede', '#claims-0', '.findings', '#film-player .plot', '#film-player input[type=range]']"
        ".map((each) => document.querySelector(each).checkVisibility())"
    )
    assert chromium.value(seen) == [True, True, True, True, True, True]
    size = "parseFloat(getComputedStyle(document.querySelector('#film-player figcaption')).fontSize)"
    small = chromium.value(size)
    chromium.value("scrollTo({top: 800, behavior: 'instant'})")
    chromium.value("(location.hash = '#present', 0)")
    chromium.wait("document.documentElement.classList.contains('present')")
    assert chromium.value(seen) == [False, False, False, False, True, True]
    # It begins with the first figure, whose slider has the arrow keys; the playground is not a figure of the results.
    assert chromium.value("scrollY") == 0
    assert chromium.value("document.activeElement === document.querySelector('#film-player input[type=range]')")
    assert not chromium.value("document.querySelector('#try')?.checkVisibility() ?? false")
    assert chromium.value("document.documentElement.scrollWidth") <= 1600
    chromium.value("$('whole-page').click()")
    assert chromium.value(seen) == [True, True, True, True, True, True]
    # A notebook shows it so from the start.
    (tmp_path / "shown.html").write_text(show(article.parent / "results").page, encoding="utf-8")
    chromium.open(tmp_path / "shown.html")
    assert chromium.value(seen) == [False, False, False, False, True, True]
    assert small > 0
    assert chromium.value("parseFloat(getComputedStyle(document.body).fontSize)") >= 20
    assert chromium.console_errors() == []
