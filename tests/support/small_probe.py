"""A probe of a second or two: words, options, and how it is called, for tests of the command."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from support.tiny_models import SPECIAL, VOCABULARY, save_tiny, save_tokenizer
from topicscope.cli import main

WORDS = [first + rest for first in "bdgfklm" for rest in ("ana", "ene", "iri", "olo", "usu", "aza", "ete")]
WORDS = [*WORDS, "frog", "toad", "lizard", "mozart", "algebra"][: VOCABULARY - len(SPECIAL)]
SMALL = [
    *("--topics", "3", "--fractions", "0.1", "0.2", "--fits", "2", "--iterations", "20", "--length", "20"),
    *("--assignments", "one", "--replicates", "20", "--permutations", "19", "--head-permutations", "19"),
    *("--workers", "1", "--device", "cpu"),
]
OF_LDA, OF_LABELS = ("--topics", "--fits", "--iterations"), ("--fractions", "--assignments")


def write_tiny(folder: Path) -> None:
    """A corpus of three topics, and two models that share a tokenizer."""
    folder.mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    topics = np.array_split(np.array(WORDS), 3)
    # Each document has words of two topics, so that passages have pairs of both kinds.
    pools = [np.concatenate([topics[first], topics[first - 1]]) for first in draw.integers(3, size=40)]
    lines = [" ".join(draw.choice(pool, size=60)) for pool in pools]
    (folder / "corpus.txt").write_text("\n".join(lines) + "\n")
    for kind in ("bert", "gpt2"):
        save_tiny(kind, folder / kind)
        save_tokenizer(folder / kind, WORDS)


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
