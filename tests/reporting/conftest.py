from collections.abc import Iterator
from pathlib import Path

import pytest

from support.browser import Browser, browser, require_browser
from support.page_material import write_everything
from topicscope.reporting.page import write_report


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    folder = tmp_path_factory.mktemp("page")
    return write_report(write_everything(folder), folder / "report.html")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require_browser()
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
