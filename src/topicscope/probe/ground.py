"""What models with one tokenizer are measured on: passages, topics, and the plan that follows from them."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from topicscope import scale
from topicscope.errors import InputError
from topicscope.measure.cooccurrence import count_pairs
from topicscope.measure.pair_table import PairTable
from topicscope.probe.labels import Labels
from topicscope.probe.own_topics import read_own_topics
from topicscope.probe.plan import Plan, places, vocabulary
from topicscope.probe.settings import ProbeSettings
from topicscope.probe.topics import FittedTopics, TopicSettings, fit_topics, labels, load_topics
from topicscope.text.corpora import Corpus
from topicscope.text.tokens import Passages, Tokenizer, write_passages

# Passages whose pairs are counted at once.
COUNTED = 4_096
# Seeds of one ``seed`` are shared with no other.
MOST_SEEDS = 1_000


@dataclass(frozen=True, eq=False)
class Ground:
    """What models with one tokenizer and length are measured on."""

    passages: Passages
    folder: Path
    """Where the passages are."""

    chosen: Int[np.ndarray, " chosen"]
    """The passages that are measured: not those that topics are fitted on, unless the user wants it so."""

    plan: Plan
    plan_file: Path
    fits: Sequence[FittedTopics]
    """LDA's; empty if the user brought topics."""

    tokenizer: Tokenizer


def prepare_ground(
    corpus: Corpus,
    tokenizer: Tokenizer,
    length: int,
    settings: ProbeSettings,
    work: Path,
    workers: int,
    report: scale.Report | None = None,
) -> Ground:
    """Passages, topics and plan for models with one tokenizer and length.

    What is in the folder is used: another process that prepares the same ground there is waited for.
    """
    with _alone_in(work):
        return _prepare(corpus, tokenizer, length, settings, work, workers, report)


def _prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    length: int,
    settings: ProbeSettings,
    work: Path,
    workers: int,
    report: scale.Report | None,
) -> Ground:
    folder = work / f"passages-{tokenizer.digest}-{length}-{settings.text.every}"
    read = [0]

    def in_bytes(number: int) -> None:
        read[0] += number
        if report and corpus.size:
            report(min(read[0], corpus.size), corpus.size, "bytes read")

    passages = write_passages(
        corpus, tokenizer, length=length, folder=folder, every=settings.text.every, progress=in_bytes
    )
    everything = np.arange(len(passages))
    fitting, measuring = (
        (passages.for_topics, passages.for_measures) if settings.text.halves else (everything, everything)
    )
    if not len(fitting) or not len(measuring):
        raise InputError(
            f'corpus = "{corpus.source}" has too few articles to fit topics on one half and measure on the other: '
            "give more text, or --no-halves."
        )
    fits = _fits(passages, tokenizer, settings, work, workers, report)
    plan = make_plan(_labels(fits, tokenizer, settings), passages, measuring, settings)
    return Ground(passages, folder, measuring, plan, plan.write(work), fits, tokenizer)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process prepares something in a folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        # A disk without locks serves one process at a time as well.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def make_plan(
    labels: Sequence[Labels], passages: Passages, chosen: Int[np.ndarray, " chosen"], settings: ProbeSettings
) -> Plan:
    """Count the words of the labels, and their pairs, in the measured passages."""
    words = vocabulary(labels)
    frequency, pairs = np.zeros(len(words)), PairTable.empty(len(words))
    for start in range(0, len(chosen), COUNTED):
        found = [places(passages.whole_tokens(place), words) for place in chosen[start : start + COUNTED].tolist()]
        offsets = np.cumsum([0, *map(len, found)])
        flat = np.concatenate(found)
        frequency += np.bincount(flat[flat >= 0], minlength=len(words))
        pairs = PairTable.merged([pairs, count_pairs(flat, offsets, len(words))])
    return Plan(tuple(labels), frequency, pairs, settings.measures.head_permutations, settings.seed)


def _fits(
    passages: Passages,
    tokenizer: Tokenizer,
    settings: ProbeSettings,
    work: Path,
    workers: int,
    report: scale.Report | None,
) -> list[FittedTopics]:
    options = settings.topics
    if options.word_topics:
        return []
    if options.topics_from:
        return load_topics(options.topics_from, tokenizer)
    first = settings.seed * MOST_SEEDS
    how = TopicSettings(
        topics=options.topics,
        iterations=options.iterations,
        seeds=tuple(range(first, first + options.fits)),
        most_tokens=options.most_tokens,
        stop_words=options.stop_words,
        split=settings.text.halves,
    )
    return fit_topics(passages, tokenizer, how, folder=work / "topics", workers=workers, report=report)


def _labels(fits: Sequence[FittedTopics], tokenizer: Tokenizer, settings: ProbeSettings) -> list[Labels]:
    """Those of the first LDA seed first."""
    options = settings.topics
    if options.word_topics:
        return [read_own_topics(options.word_topics, tokenizer).labels]
    return [
        labels(fitted, fraction, assignment)
        for fitted in fits
        for fraction in options.fractions
        for assignment in options.assignments
    ]


def topic_rows(ground: Ground) -> list[dict[str, object]]:
    """Rows of topics.csv: the words of every labelling, with their topics."""
    words = dict(zip(ground.plan.tokens.tolist(), ground.tokenizer.words(ground.plan.tokens), strict=True))
    return [
        {
            "tokenizer": ground.tokenizer.digest,
            "seed": each.seed,
            "fraction": each.fraction,
            "assignment": each.assignment,
            "topic": each.topic_names[topic] if each.topic_names else int(topic),
            "word": words[int(each.tokens[word])],
        }
        for each in ground.plan.labels
        for topic, word in np.argwhere(each.membership.T)
    ]
