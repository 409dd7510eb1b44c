"""The page in a browser: nothing goes to the network, keys are enough, all sizes fit, and print is whole."""

import base64
import re
from pathlib import Path

import pytest

from support.browser import Browser
from support.page_seen import colours_of, look_at_everything, open_training
from topicscope.reporting.page import page_html

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
    chromium.value("$('frame').focus()")
    place = chromium.value("training.frame")
    press(Keys.ARROW_LEFT)
    chromium.wait(f"training.frame === {place - 1}")
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
    chromium.value("(document.querySelector('#loss .plot').style.visibility = 'hidden', 0)")
    assert colours_of(chromium, "loss") < 4


def test_words_that_look_like_scripts_are_shown_as_text(page: Path, chromium: Browser) -> None:
    chromium.open(page)
    look_at_everything(chromium)
    assert "<script>alert" in chromium.value("document.querySelector('.topics').textContent")
    assert "<script>alert" in chromium.value("document.querySelector('.claims tbody').textContent")
    ticks = "[...document.querySelectorAll('#probe-0 .xtick text')].map((each) => each.textContent)"
    assert "<script>" in chromium.value(ticks)
    assert chromium.value("document.querySelectorAll('body script').length") == 2
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
    chromium.wait("document.querySelector('#loss .xtick text').style.fill === 'rgb(27, 31, 36)'")
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
