"""The documentation as a site."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]


def test_the_navigation_lists_every_page_and_no_other() -> None:
    navigation = str(load_config(str(ROOT / "mkdocs.yml"))["nav"])
    assert set(re.findall(r"[\w-]+\.md", navigation)) == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_for_nothing_from_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Getting started" in start
    assert not re.findall(r'"http[^"]*\.(?:js|css|woff2)"', start)
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "theorem2" in reference
    assert "read_run" in reference
