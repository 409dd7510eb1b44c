"""What models with one tokenizer are measured on: passages, topics, and the plan that follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int

from topicscope import scale
from topicscope.errors import InputError
from topicscope.files import alone_in
from topicscope.probing.passes import Plan, places, vocabulary
from topicscope.probing.settings import MOST_FITS, ProbeSettings
from topicscope.probing.statistics.cooccurrence import count_pairs
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.topics import (
    FittedTopics,
    Labels,
    OwnTopics,
    TopicSettings,
    fit_topics,
    labels,
    load_topics,
    quality,
    read_own_topics,
)
from topicscope.text.corpora import Corpus, bytes_read
from topicscope.text.formats import corpus_notes
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages, write_passages

# Passages whose pairs are counted at once.
COUNTED = 4_096


@dataclass(frozen=True, eq=False)
class Ground:
    """What models with one tokenizer and length are measured on."""

    passages: Passages
    folder: Path
    """Where the passages are."""

    chosen: Int[np.ndarray, " chosen"]
    """The passages that are measured: not those that topics are fitted on, unless the user wants it so."""

    length: int
    """Content tokens of a passage."""

    plan: Plan
    plan_file: Path
    fits: Sequence[FittedTopics]
    """LDA's; empty if the user brought topics."""

    tokenizer: Tokenizer
    fitted_on: str | None
    """What LDA saw of the corpus, in words; None if the user brought topics."""

    split_words: tuple[str, ...] = ()
    """Words of the user's topics that the tokenizer splits: left out."""

    absent_words: tuple[str, ...] = ()
    """Words of the user's topics that are not in the measured passages: they have embeddings, and no attention."""

    @property
    def corpus(self) -> str:
        """Identifies the corpus's content."""
        return str(self.passages.description["corpus"])

    @property
    def name(self) -> str:
        """Of files about its topics: those of other passage lengths are others."""
        return f"{self.tokenizer.digest}-{self.length}"


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
    every, word_topics = settings.text.every, settings.topics.word_topics
    folder = work / f"passages-{tokenizer.digest}-{length}-{every}"
    progress = bytes_read(corpus, report)
    with alone_in(work):
        passages = write_passages(corpus, tokenizer, length=length, folder=folder, every=every, progress=progress)
        measuring = _measured(passages, corpus, settings)
        own = read_own_topics(word_topics, tokenizer) if word_topics else None
        fits = [] if own else _fits(passages, tokenizer, settings, work, workers, report)
        plan = make_plan(_labels(own, fits, settings), passages, measuring, settings)
        return Ground(
            passages=passages,
            folder=folder,
            chosen=measuring,
            length=length,
            plan=plan,
            plan_file=plan.write(work),
            fits=fits,
            tokenizer=tokenizer,
            fitted_on=None if own else fitted_on(fits, passages),
            split_words=tuple(own.split_words) if own else (),
            absent_words=_absent_words(plan, tokenizer, corpus, word_topics) if word_topics else (),
        )


def _measured(passages: Passages, corpus: Corpus, settings: ProbeSettings) -> Int[np.ndarray, " chosen"]:
    """One half of the articles, if topics are fitted on the other; all of them for the user's own topics."""
    if not settings.text.halves or settings.topics.word_topics:
        return np.arange(len(passages))
    if not len(passages.for_topics) or not len(passages.for_measures):
        raise InputError(
            f'corpus = "{corpus.source}" has too few articles to fit topics on one half and measure on the other: '
            "give more text, or --no-halves."
        )
    return passages.for_measures


def fitted_on(fits: Sequence[FittedTopics], passages: Passages) -> str:
    """What LDA saw, as rows of results say it: ``check_fitted_text`` made sure that it goes with what is measured."""
    about = fits[0].description
    if about.get("corpus") != passages.description["corpus"]:
        return "another corpus"
    return "the other half of the articles" if about["split"] else "the same articles"


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


def _absent_words(plan: Plan, tokenizer: Tokenizer, corpus: Corpus, word_topics: Path) -> tuple[str, ...]:
    """The user's words that the corpus lacks; topics of which it has no word are refused."""
    absent = plan.frequency == 0
    if absent.all():
        raise InputError(
            f'none of the words of --word-topics {word_topics} is in a passage of corpus = "{corpus.source}": give '
            "words that it has, or another corpus."
        )
    return tuple(tokenizer.words(plan.tokens[absent]))


def _fits(
    passages: Passages,
    tokenizer: Tokenizer,
    settings: ProbeSettings,
    work: Path,
    workers: int,
    report: scale.Report | None,
) -> list[FittedTopics]:
    options = settings.topics
    if options.topics_from:
        fits = load_topics(options.topics_from, tokenizer)
        check_fitted_text(fits, passages, halves=settings.text.halves, folder=options.topics_from)
        return fits
    first = settings.seed * MOST_FITS
    how = TopicSettings(
        topics=options.topics,
        iterations=options.iterations,
        seeds=tuple(range(first, first + options.fits)),
        most_tokens=options.most_tokens,
        stop_words=options.stop_words,
        split=settings.text.halves,
    )
    return fit_topics(passages, tokenizer, how, folder=work / "topics", workers=workers, report=report)


def check_fitted_text(fits: Sequence[FittedTopics], passages: Passages, *, halves: bool, folder: Path) -> None:
    """Refuse topics of an earlier probe if what ``halves`` promises would not be so with them."""
    about = [each.description for each in fits]
    same_corpus = all(each.get("corpus") == passages.description["corpus"] for each in about)
    if not same_corpus and halves:
        raise InputError(
            f"--topics-from {folder} was fitted on another corpus, so no half of this one is known to be new to it: "
            "give the corpus that it was fitted on, or --no-halves to measure on all of this one."
        )
    if same_corpus and any(each["split"] != halves for each in about):
        raise InputError(
            f"--topics-from {folder} was fitted on all articles, so that none is left to measure on: add --no-halves, "
            "to measure on the same as the paper does, or fit anew."
            if halves
            else f"--topics-from {folder} was fitted on one half of the articles, and --no-halves asks for all: leave "
            "--no-halves out, or fit anew."
        )


def _labels(own: OwnTopics | None, fits: Sequence[FittedTopics], settings: ProbeSettings) -> list[Labels]:
    """Those of the first LDA seed first."""
    options = settings.topics
    if own:
        return [own.labels]
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
            "length": ground.length,
            "seed": each.seed,
            "fraction": each.fraction,
            "assignment": each.assignment,
            "topic": each.topic_names[topic] if each.topic_names else int(topic),
            "word": words[int(each.tokens[word])],
        }
        for each in ground.plan.labels
        for topic, word in np.argwhere(each.membership.T)
    ]


def corpus_row(ground: Ground) -> dict[str, object]:
    """A row of corpus.json: how much was read, what could not be, and how good the topics are."""
    about = ground.passages.description
    return {
        "tokenizer": ground.tokenizer.digest,
        "tokenizer_name": ground.tokenizer.name,
        "length": ground.length,
        "source": about["source"],
        "articles": about["documents"],
        "passages": len(ground.passages),
        "measured": len(ground.chosen),
        "problems": corpus_notes(about),
        "words": len(ground.plan.tokens),
        "words_left_out": list(ground.split_words),
        "words_without_attention": list(ground.absent_words),
        "topic_quality": quality(ground.fits) if ground.fits else None,
    }
