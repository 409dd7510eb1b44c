"""A probe of a second or two: words, options, and how it is called, for tests of the command."""

import json
from pathlib import Path
from typing import Any

from support.tiny_models import SPECIAL, VOCABULARY
from topicscope.cli import main

WORDS = [first + rest for first in "bdgfklm" for rest in ("ana", "ene", "iri", "olo", "usu", "aza", "ete")]
WORDS = [*WORDS, "frog", "toad", "lizard", "mozart", "algebra"][: VOCABULARY - len(SPECIAL)]
SMALL = [
    *("--topics", "3", "--fractions", "0.1", "0.2", "--fits", "2", "--iterations", "20", "--length", "20"),
    *("--replicates", "20", "--permutations", "19", "--head-permutations", "19", "--workers", "1", "--device", "cpu"),
]
OF_LDA = ("--topics", "--fits", "--iterations")


def run(tiny: Path, out: Path, *words: str, leave_out: tuple[str, ...] = ()) -> int:
    small = without(SMALL, {*leave_out, *words})
    return main(["probe", *words, "--corpus", str(tiny / "corpus.txt"), "--out", str(out), *small])


def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / "probe.json").read_text())
    return found


def without(words: list[str], names: set[str]) -> list[str]:
    """Options without those that a test gives itself."""
    kept: list[str] = []
    skipping = False
    for word in words:
        if word.startswith("--"):
            skipping = word in names
        if not skipping:
            kept.append(word)
    return kept
