"""A small corpus of two topics, its settings, and passages without a tokenizer, for tests of training."""

import copy
from pathlib import Path
from typing import Any

import numpy as np

from support.helpers import overlay
from topicscope.settings import Settings
from topicscope.settings.toml import settings_from_table
from topicscope.training.batches import Specials, Text

TOPICS = (
    ("frog", "toad", "lizard", "pond", "newt", "snake"),
    ("mozart", "opera", "violin", "piano", "sonata", "choir"),
)
COMMON = ("the", "and", "of", "in")
SMALL_TEXT: dict[str, Any] = {
    "data": {"corpus": "corpus.txt", "vocabulary": 80, "length": 12, "held_out": 0.1},
    "masking": {"mask": 0.3},
    "model": {"layers": 2, "heads": 2, "dimension": 8, "feed_forward": 12},
    "training": {
        "batch": 6,
        "steps": 14,
        "log_every": 1,
        "validate_every": 7,
        "checkpoint_every": 4,
        "validation_documents": 8,
        "threads": 1,
    },
}


def small_text_settings(corpus: Path | str = "corpus.txt", **changes: Any) -> Settings:
    """A run of a second on a corpus."""
    table = overlay(copy.deepcopy(SMALL_TEXT), {"data": {"corpus": str(corpus)}})
    return settings_from_table(overlay(table, changes))


def write_corpus(folder: Path, articles: int = 40, seed: int = 0) -> Path:
    """Articles, a line each: mostly one topic's words, some of the other's, and common ones."""
    draw = np.random.default_rng(seed)
    lines = []
    for article in range(articles):
        words = TOPICS[article % 2] * 4 + TOPICS[1 - article % 2] + COMMON
        lines.append(" ".join(draw.choice(words, size=draw.integers(10, 60))))
    path = folder / "corpus.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def small_text(passages: int = 60, vocabulary: int = 30, seed: int = 0) -> Text:
    """Passages of random tokens, several an article."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, 13, size=passages)
    specials = Specials(before=1, after=2, mask=3, padding=0, words=np.arange(5, vocabulary), vocabulary=vocabulary)
    return Text(
        tokens=draw.integers(5, vocabulary, size=lengths.sum(), dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        articles=np.arange(passages, dtype=np.int32) // 3,
        specials=specials,
    )
