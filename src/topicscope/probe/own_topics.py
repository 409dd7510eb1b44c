"""A user's own words and topics, from a CSV file, in place of LDA."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np

from topicscope.errors import InputError
from topicscope.probe.labels import Labels
from topicscope.text.tokens import Tokenizer

COLUMNS = ("word", "topic")


class OwnTopics(NamedTuple):
    """Labels, and what could not be labelled."""

    labels: Labels
    topics: list[str]
    """Names of the topics, in the order of the labels' columns."""

    split_words: list[str]
    """Words that the tokenizer does not keep whole: left out."""


def read_own_topics(path: Path, tokenizer: Tokenizer) -> OwnTopics:
    """A CSV file with columns ``word`` and ``topic``; a word on several lines has several topics."""
    pairs = read_pairs(path)
    tokens = {word: tokenizer.token(word) for word, _ in pairs}
    topics = list(dict.fromkeys(topic for _, topic in pairs))
    kept = sorted({token for token in tokens.values() if token is not None})
    membership = np.zeros((len(kept), len(topics)), dtype=bool)
    for word, topic in pairs:
        token = tokens[word]
        if token is not None:
            membership[kept.index(token), topics.index(topic)] = True
    _check(path, topics, membership, tokenizer)
    assignment = "one" if (membership.sum(axis=1) == 1).all() else "several"
    labels = Labels(
        name=f"own/{assignment}",
        tokens=np.array(kept, dtype=np.int32),
        membership=membership,
        fraction=None,
        assignment=assignment,  # type: ignore[arg-type]
        seed=None,
        topic_names=tuple(topics),
    )
    return OwnTopics(labels, topics, sorted(word for word, token in tokens.items() if token is None))


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Words and topics, line by line."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = reader.fieldnames or ()
            if not set(COLUMNS) <= set(names):
                raise InputError(
                    f"{path} has the columns {', '.join(names) or 'none'}: "
                    "give a CSV file with word and topic in its first line."
                )
            rows = [((row["word"] or "").strip(), (row["topic"] or "").strip()) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}): give a CSV file with the columns word and topic.") from None
    for number, (word, topic) in enumerate(rows, start=2):
        if not word or not topic:
            raise InputError(
                f"{path}, line {number}, has no {'topic' if word else 'word'}: give both, or remove the line."
            )
    return rows


def _check(path: Path, topics: list[str], membership: np.ndarray, tokenizer: Tokenizer) -> None:
    empty = np.flatnonzero(~membership.any(axis=0))
    if len(empty):
        raise InputError(
            f'Topic "{topics[empty[0]]}" of {path} has no word that the tokenizer of "{tokenizer.name}" keeps whole: '
            "add words to it or remove it."
        )
    if len(topics) < 2:
        raise InputError(
            f"{path} has {len(topics)} topic{'' if len(topics) == 1 else 's'}: "
            "give two or more, to compare words of the same with others."
        )
    if membership.sum(axis=0).max() < 2:
        raise InputError(f"{path} has no topic with two words that the tokenizer keeps whole: add words.")
