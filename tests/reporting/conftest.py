from collections.abc import Iterator

import pytest

from support.browser import Browser, browser, require_browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    require_browser()
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
