"""The tutorial's cells run, and what it says is so."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_tutorial_runs_with_few_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in code_cells():
        small = cell.replace("STEPS = 600", "STEPS = 40").replace("tempfile.mkdtemp()", f"{str(tmp_path)!r}")
        exec(small, names)
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
    assert names["best"].weighted_average > 1
    averages = names["averages"]
    assert averages.same_topic > averages.different_topic
    # Even in few steps W^V grows first.
    first, last = (names["rows"][place]["norm"] for place in (0, -1))
    assert last["value"][0] / first["value"][0] > 2 > last["key"][0] / first["key"][0]
    assert {row["verdict"] for row in names["claims"].rows} <= {"holds", "fails"}
