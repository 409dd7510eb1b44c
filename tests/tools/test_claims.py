"""The lines and tables for README and docs, from a made-up claims.json."""

import json
import subprocess
import sys
from pathlib import Path

from topicscope.paper import registry
from topicscope.paper.claim import PRESETS, exact, row

TOOL = Path(__file__).parents[2] / "tools" / "claims.py"


def printed(folder: Path, *options: str) -> str:
    return subprocess.run(
        [sys.executable, str(TOOL), str(folder), *options], check=True, capture_output=True, text=True
    ).stdout


def test_the_readmes_lines_and_the_tables_are_printed(tmp_path: Path) -> None:
    chosen = [claim for claim in registry(PRESETS["quick"]).claims if claim.source in ("Theorem 2", "Figure 2")]
    rows = [row(claim, exact(0.6), "holds") for claim in chosen]
    (tmp_path / "claims.json").write_text(json.dumps(rows))
    lines = printed(tmp_path).splitlines()
    assert lines[0].startswith("- Lemma 1, Theorems 1 to 3")
    assert lines[1].startswith("- Figures 2 and 10 (W^V): of the paper's claims ")
    assert lines[-1].startswith("In all: Of the paper's claims ")
    # 0.6 is above a half, and not above three quarters.
    assert "| `figure2/squared-adam/uniform` | 0.6 | > 0.5 | holds | holds | fails |" in printed(
        tmp_path, "--sensitivity"
    )
