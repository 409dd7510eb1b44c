"""Work killed before or after any call that brings a file to disk, renames or removes it ends as if it was not."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support import kills
from support.helpers import start_python

pytestmark = pytest.mark.skipif(not hasattr(sys, "_getframe") or sys.platform == "win32", reason="it takes forks")

LONGEST_WAIT = 900.0


def check(work: str, folder: Path, *beginnings: str) -> dict[str, Any]:
    program = start_python(kills.__file__, work, str(folder), *beginnings)
    try:
        output, errors = program.communicate(timeout=LONGEST_WAIT)
    finally:
        program.kill()
    assert program.returncode == 0, errors
    found: dict[str, Any] = json.loads(output)
    assert found["different"] == {}
    assert found["kills"] >= 2
    return found


def test_a_run_killed_at_some_calls_ends_as_if_it_was_not(tmp_path: Path) -> None:
    # What was logged is brought to disk; an old checkpoint goes.
    found = check("train", tmp_path, "fsync < training/runs.py", "unlink < training/checkpoints.py")
    assert found["kills"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("work", kills.WORKS)
def test_work_killed_at_any_call_ends_as_if_it_was_not(work: str, tmp_path: Path, record_property: Any) -> None:
    if work in ("probe", "text"):
        pytest.importorskip("transformers")
    found = check(work, tmp_path)
    # Every file is written under another name, and then renamed.
    assert sum(place.startswith("replace < files.py") for place in found["places"]) >= 5
    record_property("killed", json.dumps({"places": len(found["places"]), "kills": found["kills"]}))
