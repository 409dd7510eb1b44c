"""Headless Chromium for tests and benchmarks of the page: console, requests and sizes."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
)
PATIENCE = 120.0
READY = "document.documentElement.dataset.ready === 'yes'"


def missing() -> str | None:
    """Why there can be no browser here."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "chromium or chromedriver is not installed (apt-get install chromium chromium-driver)"
    return None if find_spec("selenium") else "selenium is not installed (pip install selenium)"


class Browser:
    """A page that is open, and what happened in it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, file: Path, hash_: str = "", *, width: int = 1600, dark: bool = False, ready: str = READY) -> float:
        """Open a file from disk and wait until the page is ready; how many seconds it took."""
        self.resize(width)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.get("about:blank")
        # What came before is another page's.
        self.console_errors()
        self.requests()
        began = time.perf_counter()
        self.driver.get(file.resolve().as_uri() + hash_)
        self.wait(ready)
        return time.perf_counter() - began

    def resize(self, width: int, height: int = 1000) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def run(self, script: str) -> Any:
        """A script's value; promises are waited for."""
        asynchronous = "const done = arguments[arguments.length - 1]; (async () => { %s })().then(done);"
        return self.driver.execute_async_script(asynchronous % script)

    def value(self, expression: str) -> Any:
        return self.driver.execute_script(f"return ({expression});")

    def wait(self, condition: str) -> None:
        end = time.perf_counter() + PATIENCE
        while not self.value(condition):
            assert time.perf_counter() < end, f"waited in vain for {condition}"
            time.sleep(0.02)

    def scroll_to(self, identifier: str) -> None:
        self.value(f"document.getElementById('{identifier}').scrollIntoView({{behavior: 'instant'}})")

    def console_errors(self) -> list[str]:
        """Errors of the console since they were last asked for, the policy's refusals among them."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """Addresses that were asked for since this was last called; the page itself and the browser's own left out."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("file:", "data:", "blob:", "chrome"))]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a fresh profile, closed afterwards."""
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(PATIENCE)
    try:
        yield Browser(driver)
    finally:
        driver.quit()


def require_browser() -> None:
    """Skip, with the reason, where there is no browser."""
    reason = missing()
    if reason:
        pytest.skip(reason)
