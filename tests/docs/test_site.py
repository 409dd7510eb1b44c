"""The documentation as a site."""

import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.config import load_config

ROOT = Path(__file__).parents[2]


def _listed(entries: list[object]) -> set[str]:
    """All pages that a part of the navigation names."""
    pages: set[str] = set()
    for entry in entries:
        assert isinstance(entry, dict)
        for value in entry.values():
            pages |= _listed(value) if isinstance(value, list) else {value}
    return pages


def test_the_navigation_lists_every_page_and_no_other() -> None:
    listed = _listed(load_config(str(ROOT / "mkdocs.yml"))["nav"])
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_asks_for_nothing_from_the_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Getting started" in start
    fetched = [
        part for part in start.split('"') if part.startswith("http") and part.endswith((".js", ".css", ".woff2"))
    ]
    assert fetched == []
    reference = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    assert "theorem2" in reference
    assert "read_run" in reference
