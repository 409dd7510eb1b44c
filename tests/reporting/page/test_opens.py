"""One look at the page in a browser, short enough for every run of the tests."""

from pathlib import Path

from support.browser import browser, require_browser
from support.page_material import write_everything
from support.page_seen import PANELS, colours_of, open_training, still
from topicscope.reporting.page import write_report


def test_the_page_opens_without_error_or_request_and_its_slider_moves_every_panel(tmp_path: Path) -> None:
    require_browser()
    page = write_report(write_everything(tmp_path), tmp_path / "report.html")
    with browser(tmp_path / "profile") as chromium:
        open_training(chromium, page)
        assert still(chromium) == []
        # Were the panels not redrawn, they would be found out.
        chromium.value("(() => { Player.prototype.updateMaps = Player.prototype.updateCurves = () => {}; })()")
        assert still(chromium) == list(PANELS)
        assert min(colours_of(chromium, panel) for panel in PANELS) >= 4
        assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
        assert chromium.console_errors() == []
        assert chromium.requests() == []
