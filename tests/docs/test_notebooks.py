"""Notebooks are kept with their outputs, and running them again gives the same."""

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem: path for path in (ROOT / "docs" / "tutorial.ipynb", ROOT / "examples" / "classroom.ipynb")}
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
POWER = re.compile("(?:([\\d.]+)·)?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
LOW = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
# Other processors round otherwise, and training carries it on; what the notebooks say does not depend on it.
RELATIVE, ABSOLUTE = 0.05, 5e-3


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def said(cell: Any) -> list[str]:
    """What a cell printed or showed as text, pictures by their kind alone."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        text = "".join(data.get("text/html", data.get("text/plain", "")))
        found.append(" ".join([*sorted(data), text]))
    return found


def same(first: str, second: str) -> bool:
    """The same words, and numbers close to each other."""
    first, second = (
        POWER.sub(lambda found: f"{found[1] or 1}e{found[2].translate(LOW)}", text) for text in (first, second)
    )
    if NUMBER.sub("#", first) != NUMBER.sub("#", second):
        return False
    pairs = zip(map(float, NUMBER.findall(first)), map(float, NUMBER.findall(second)), strict=True)
    return all(abs(one - other) <= ABSOLUTE + RELATIVE * abs(one) for one, other in pairs)


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_notebooks_are_kept_with_outputs_that_can_be_read_anywhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text) < 500_000
    assert not re.search(r"/(?:home|tmp|work|root|Users)/", text)
    assert '"output_type": "error"' not in text
    # Every cell that prints or ends with a value has what it gave.
    speaking = [cell for cell in cells(path) if re.search(r"print\(|\n[a-z]+$", "".join(cell["source"]))]
    assert len(speaking) >= 2
    assert all(cell["outputs"] for cell in speaking)
    assert any("image/png" in output.get("data", {}) for cell in cells(path) for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS)
def test_running_a_notebook_again_gives_what_it_was_kept_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nbclient")
    monkeypatch.syspath_prepend(ROOT / "tools")
    notebooks = importlib.import_module("notebooks")
    again = [cell for cell in notebooks.run(path).cells if cell["cell_type"] == "code"]
    for kept, new in zip(cells(path), again, strict=True):
        before, now = said(kept), said(new)
        assert len(before) == len(now), "".join(kept["source"])
        assert all(map(same, before, now)), (before, now)
