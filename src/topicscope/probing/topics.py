"""Topics: LDA on the words of passages by tomotopy, a user's own words and topics, and how good fitted topics are.

LDA sees passages as bags of the words that the tokenizer keeps whole, without stop words. The likeliest words of its
topics, or those of a CSV file, make a :class:`Labelling`, on which every measure of the probe is based.
"""

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Float32, Int, Int32, Int64
from msgspec import Struct, structs

from topicscope.errors import InputError, UnreadableError, check_at_least, import_for_language
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.settings import PAPER_FRACTIONS, Assignment, TopicOptions
from topicscope.probing.statistics.labelling import Labelling, topic_partners
from topicscope.randomness import Purpose, generator
from topicscope.records import TopicFit
from topicscope.store import first_line, read_table, table_text, write_atomically
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokens import Passages
from topicscope.text.words import Words
from topicscope.work import Report, Task, map_tasks

# Letters; LDA does not see shorter words.
SHORTEST_WORD = 3
# The paper's number of topics, the words and passages that a corpus must have per topic, and the words kept per topic
# where the vocabulary is small.
PAPER_TOPICS, WORDS_FOR_A_TOPIC, PASSAGES_FOR_A_TOPIC = 100, 50, 20
KEPT_WORDS = (5, 10, 20)
# A corpus with less text than this has no meaningful topics.
FEWEST_ARTICLES, FEWEST_WORDS = 20, 200
# Words of several tokens that occur less often are left out: there are many, and LDA learns nothing from them.
RARE = 5
# How many words of each topic are judged, as is common.
TOP = 10
# Part of a fit's key: to be raised when topics or coherences of the same words would change.
VERSION = 3
# BERTopic's number for documents without a topic.
OUTLIERS = -1


@dataclass(frozen=True, eq=False)
class Bags:
    """Documents of words; a word is its place among ``tokens``."""

    words: Int32[np.ndarray, " occurrence"]
    offsets: Int64[np.ndarray, " passage_plus_one"]
    tokens: Int32[np.ndarray, " word"]
    """The number of each word (``text.words``), ascending."""

    @property
    def digest(self) -> str:
        """Identifies the content."""
        digest = hashlib.sha256()
        for array in (self.words, self.offsets, self.tokens):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:20]

    def documents(self) -> list[Int32[np.ndarray, " _"]]:
        """The words of each passage that has any."""
        return [bag for bag in np.split(self.words, self.offsets[1:-1]) if len(bag)]


def collect_bags(
    passages: Passages,
    words: Words,
    sampled: Int64[np.ndarray, " sampled"],
    stop_words: frozenset[str],
    shortest: int = SHORTEST_WORD,
) -> Bags:
    """The words of these passages, without stop words and short ones."""
    spelled = np.concatenate([passages.spelled(place) for place in sampled.tolist()])
    passage = np.repeat(np.arange(len(sampled), dtype=np.int32), passages.lengths[sampled])[spelled >= 0]
    numbers = words.word[spelled[spelled >= 0]]
    seen = np.bincount(numbers, minlength=len(words.word))
    there = np.flatnonzero((seen > 0) & ((words.lengths == 1) | (seen >= RARE)))
    kept = there[[len(name) >= shortest and name.lower() not in stop_words for name in words.named(there)]]
    place = words.places(kept)[numbers]
    lengths = np.bincount(passage[place >= 0], minlength=len(sampled))
    return Bags(place[place >= 0], np.append(0, np.cumsum(lengths)).astype(np.int64), kept.astype(np.int32))


def sample(
    chosen: Int64[np.ndarray, " chosen"],
    lengths: Int64[np.ndarray, " chosen"],
    most: int,
    *,
    generator: np.random.Generator,
) -> Int64[np.ndarray, " sampled"]:
    """All chosen passages if they have at most so many tokens in all, else a random part of them, in order."""
    if lengths.sum() <= most:
        return chosen
    order = generator.permutation(len(chosen))
    fits = np.cumsum(lengths[order]) <= most
    return np.sort(chosen[order[fits]])


@dataclass(frozen=True, eq=False)
class FittedTopics:
    """One fit of LDA."""

    tokens: Int32[np.ndarray, " word"]
    """The number of each word of LDA's vocabulary (``text.words``), ascending."""

    topic_word: Float32[np.ndarray, "topic word"]
    """P(word | topic)."""

    about: TopicFit
    """Its seed, how good it is, and what it was fitted on."""

    @property
    def seed(self) -> int:
        """LDA's seed."""
        return self.about.seed

    def top_words(self) -> Int[np.ndarray, "topic top"]:
        """Tokens of each topic's likeliest words."""
        return self.tokens[top_words(self.topic_word)]


@dataclass(frozen=True)
class Fitting:
    """Where and how topics are fitted."""

    folder: Path
    """Where fits are kept."""

    seeds: Sequence[int] = (0,)
    halves: bool = True
    """Fit on one half of the articles, to measure on the other. The paper does not."""

    judged: bool = True
    """Measure the coherence of each fit."""

    workers: int = 1
    report: Report | None = None


def fit_topics(passages: Passages, words: Words, options: TopicOptions, fitting: Fitting) -> list[FittedTopics]:
    """One fit for each seed, each on one thread, so that it repeats exactly."""
    chosen, folder = passages.for_topics if fitting.halves else np.arange(len(passages)), fitting.folder
    draw = generator(0, Purpose.DOCUMENTS)
    sampled = sample(chosen, passages.lengths[chosen], options.most_tokens, generator=draw)
    bags = collect_bags(passages, words, sampled, stop_word_list(options.stop_words, passages.about.language))
    topics = options.topics
    if topics is None:
        check_enough(passages, len(bags.tokens), halves=fitting.halves)
        topics = fitting_topics(len(bags.tokens), len(bags.offsets) - 1)
    if len(bags.tokens) < topics:
        raise InputError(
            f"topics = {topics} is not allowed with {len(bags.tokens)} words that the tokenizer of "
            f'"{words.tokenizer.name}" keeps whole: give at most as many topics as words, or more text.'
        )
    _tomotopy()
    tasks = [
        Task(
            f"topics seed {seed}",
            {"version": VERSION, "bags": bags.digest, "settings": [topics, options.iterations, seed, fitting.judged]},
            (bags, topics, options.iterations, seed, fitting.judged),
            ".safetensors",
        )
        for seed in fitting.seeds
    ]
    map_tasks(_fit, tasks, folder, workers=fitting.workers, report=fitting.report)
    fits = [unpacked(task.path(folder), FittedTopics) for task in tasks]
    about = {
        "tokenizer": words.tokenizer.digest,
        "tokenizer_name": words.tokenizer.name,
        "merged": words.merged,
        "several_tokens": passages.about.several_tokens,
        "corpus": passages.about.corpus,
        "passages": passages.digest,
        "split": fitting.halves,
    }
    return [replace(one, about=structs.replace(one.about, **about)) for one in fits]


def check_enough(passages: Passages, vocabulary: int, *, halves: bool) -> None:
    """Refuse a corpus that is too small to choose a number of topics for, naming everything that it lacks."""
    parts = {"to fit topics on": passages.for_topics, "to measure on": passages.for_measures}
    parts = parts if halves else {"to fit topics on": np.arange(len(passages))}
    articles = {purpose: len(np.unique(passages.articles[part])) for purpose, part in parts.items()}
    missing = [
        f"{number:,} articles {purpose} ({FEWEST_ARTICLES} are needed)"
        for purpose, number in articles.items()
        if number < FEWEST_ARTICLES
    ]
    if vocabulary < FEWEST_WORDS:
        what = "which are whole, no stop words, and of three letters or more"
        missing.append(f"{vocabulary:,} different words to fit, {what} ({FEWEST_WORDS} are needed)")
    if missing:
        raise InputError(
            f'corpus = "{passages.about.source}" is too small to find topics in; it has {"; ".join(missing)}: give '
            "more text, or say with --topics and --fractions what to try all the same, or bring words with their "
            "topics with --word-topics."
        )


def fitting_topics(vocabulary: int, documents: int) -> int:
    """The default number of topics for a corpus: the paper's 100, or fewer if there is little text."""
    return max(2, min(PAPER_TOPICS, vocabulary // WORDS_FOR_A_TOPIC, documents // PASSAGES_FOR_A_TOPIC))


def fitting_fractions(vocabulary: int) -> tuple[float, ...]:
    """The default ambiguity thresholds: the paper's, or those that keep about 5, 10 and 20 words per topic.

    The latter are used if the paper's smallest would keep fewer than 5.
    """
    if words_per_topic(PAPER_FRACTIONS[0], vocabulary) >= KEPT_WORDS[0]:
        return PAPER_FRACTIONS
    fractions = []
    for kept in KEPT_WORDS:
        exact = (kept - 1) / vocabulary
        # Two digits, rounded up.
        digits = 10 ** (1 - math.floor(math.log10(exact)))
        fractions.append(math.ceil(exact * digits - 1e-9) / digits)
    # Of very few words, a fraction may not keep all.
    return tuple(fraction for fraction in fractions if fraction < 1) or (0.5,)


def label_fits(fits: Sequence[FittedTopics], options: TopicOptions) -> tuple[list[Labelling], list[str]]:
    """The labellings of all fits, thresholds and assignments, the first fit's first, and notes about them.

    A threshold at which no two words share a topic, or all share one, is left out; so is a topic without a word.
    """
    vocabulary, notes = len(fits[0].tokens), list[str]()
    fractions = options.fractions or fitting_fractions(vocabulary)
    shown = ", ".join(f"{each:g}" for each in fractions)
    if options.topics is None or not options.fractions:
        counts = ", ".join(str(words_per_topic(each, vocabulary)) for each in fractions)
        notes.append(
            f"{len(fits[0].topic_word)} topics at thresholds {shown}, which keep {counts} words per topic, for a "
            f"vocabulary of {vocabulary:,} words"
        )
    labellings, useless = list[Labelling](), list[str]()
    for fraction, assignment in product(fractions, options.assignments):
        own = [label_words(fitted, fraction, assignment) for fitted in fits]
        if all(0 < len(each.same_topic_pairs[0]) < math.comb(each.words, 2) for each in own):
            labellings += own
        else:
            useless.append(f"{fraction:g} ({assignment})")
    if not labellings:
        raise InputError(
            f"no threshold of {shown} gives words that share a topic and words that do not, with LDA's {vocabulary:,} "
            f"words: give --fractions of {2 / vocabulary:.2g} or more, fewer --topics, or a larger corpus."
        )
    if useless:
        notes.append(f"left out, because no two words share a topic there or all do: threshold {', '.join(useless)}")
    seeds = [fitted.seed for fitted in fits]
    return sorted(labellings, key=lambda labelling: seeds.index(labelling.seed or 0)), notes


def fit_lda(bags: Bags, topics: int, iterations: int, seed: int, judged: bool = False) -> FittedTopics:
    """LDA by collapsed Gibbs sampling, on counts of words.

    Dirichlet parameters start at tomotopy's 0.1 (topics of a document; fitted every ten sweeps) and 0.01 (words).
    judged: measure coherence; there is none if no topic has one.
    """
    tomotopy = _tomotopy()
    model = tomotopy.LDAModel(k=topics, seed=seed)
    for document in bags.documents():
        model.add_doc([str(word) for word in document.tolist()])
    model.train(iterations, workers=1)
    # tomotopy numbers words as they come.
    order = np.argsort([int(word) for word in model.used_vocabs])
    weights = np.array([model.get_topic_word_dist(topic) for topic in range(topics)], dtype=np.float32)
    topic_word = np.ascontiguousarray(weights[:, order])
    score = math.nan
    if judged:
        # Of windows of ten words, as gensim's c_npmi.
        score = tomotopy.coherence.Coherence(model, coherence="c_npmi", top_n=TOP).get_score()
    about = TopicFit(
        seed=seed,
        log_likelihood_per_word=float(model.ll_per_word),
        diversity=diversity(top_words(topic_word)),
        c_npmi=score if math.isfinite(score) else None,
    )
    return FittedTopics(bags.tokens, topic_word, about)


def _fit(work: tuple[Bags, int, int, int, bool]) -> bytes:
    return packed(fit_lda(*work))


def _tomotopy() -> Any:
    with warnings.catch_warnings():
        # Where warnings are errors, its own while it loads would make it seem missing.
        warnings.simplefilter("ignore")
        return import_for_language("tomotopy", "Fitting topics needs tomotopy")


def words_per_topic(fraction: float, vocabulary: int) -> int:
    """⌊f·V⌋ + 1, f the ambiguity threshold and V the number of words of LDA's vocabulary (Table 1's first column)."""
    # The fraction as written, not as stored: 0.29 · 100 is 29, although 0.29 is stored as a little less.
    return math.floor(Fraction(str(fraction)) * vocabulary) + 1


def label_words(fitted: FittedTopics, fraction: float, assignment: Assignment) -> Labelling:
    """The likeliest words of each topic, ⌊f·V⌋ + 1 of them.

    With ``several`` (Table 5) a word has every topic that has it among its likeliest words; with ``one`` (Table 1) it
    has only the one of these in which it is likeliest, and a topic may have no word.
    """
    count = words_per_topic(fraction, len(fitted.tokens))
    likely = np.zeros(fitted.topic_word.shape, dtype=bool)
    np.put_along_axis(likely, top_words(fitted.topic_word, count), True, axis=1)
    if assignment == "one":
        own = np.where(likely, fitted.topic_word, -1.0).argmax(axis=0)
        likely &= own == np.arange(len(likely))[:, None]
    words = likely.any(axis=0)
    return Labelling(
        np.ascontiguousarray(likely[:, words].T),
        tokens=fitted.tokens[words],
        fraction=fraction,
        assignment=assignment,
        seed=fitted.seed,
    )


def read_own_topics(path: Path, words: Words) -> tuple[Labelling, list[str], list[str]]:
    """A CSV file with columns ``word`` and ``topic``; a word on several lines has several topics.

    Also returned are the words that the tokenizer splits, and the topics that have no others: both are left out.
    """
    pairs = read_pairs(path)
    numbers = {name: words.find(name) for name, _ in pairs}
    whole = [(number, topic) for name, topic in pairs if (number := numbers[name]) is not None]
    topics = {topic: place for place, topic in enumerate(dict.fromkeys(topic for _, topic in whole))}
    kept, row = np.unique([number for number, _ in whole], return_inverse=True)
    membership = np.zeros((len(kept), len(topics)), dtype=bool)
    membership[row, [topics[topic] for _, topic in whole]] = True
    without, most = list(dict.fromkeys(topic for _, topic in pairs if topic not in topics)), membership.sum(axis=0)
    if len(topics) < 2 or most.max() < 2:
        lost = f" (without {', '.join(without)}, whose words the tokenizer splits)" if without else ""
        remedy = "" if len(words.lengths) > words.tokenizer.size else ", or --several-tokens to measure split words too"
        raise InputError(
            f"{path} has {len(topics)} topic{'' if len(topics) == 1 else 's'} with words that the tokenizer of "
            f'"{words.tokenizer.name}" keeps whole{lost}, of at most {most.max(initial=0)} such words: give two topics '
            f"or more, one of them with two words or more, so that there are pairs to compare{remedy}."
        )
    assignment: Assignment = "one" if (membership.sum(axis=1) == 1).all() else "several"
    labelling = Labelling(membership, tokens=kept.astype(np.int32), assignment=assignment, topic_names=tuple(topics))
    return labelling, sorted(name for name, word in numbers.items() if word is None), without


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Words and topics, line by line."""
    rows = read_table(path, _Pair, "give a CSV file with the columns word and topic")
    return [(row.word.strip(), row.topic.strip()) for row in rows]


class _Pair(Struct):
    word: str
    topic: str


class Topics(Protocol):
    """Anything that offers words by topic."""

    def words_by_topic(self, words: int) -> Mapping[Any, Sequence[str]]:
        """So many words of each topic, the likeliest first."""


def word_topics(
    model: Any, *, words: int = 20, names: Any = None, out: Path | str | None = None
) -> dict[str, list[str]]:
    """The likeliest words of each topic of a topic model that was fitted elsewhere, for ``--word-topics``.

    model: one of gensim, tomotopy, BERTopic (its topic −1, of outliers, is left out) or scikit-learn (anything with
    ``components_``, or a pipeline that ends with it), or anything that offers :class:`Topics`.
    words: how many words of each topic.
    names: the words of a scikit-learn model's columns, or the vectorizer that knows them; not for others.
    out: a CSV file to write, with the columns word and topic, as the probe reads it.
    """
    check_at_least("words", words, 1)
    by_topic = _words_by_topic(model, words, names).items()
    topics = {str(topic): own for topic, likeliest in by_topic if (own := [word for word in likeliest if word])}
    if not topics:
        raise InputError("The model has no topics with words: fit it first.")
    if out is not None:
        rows = [{"word": word, "topic": topic} for topic, likeliest in topics.items() for word in likeliest]
        write_atomically(Path(out), table_text(rows))
    return topics


def _words_by_topic(model: Any, words: int, names: Any) -> Mapping[Any, Sequence[str]]:
    """:class:`Topics`, by what each library's models offer."""
    if hasattr(model, "words_by_topic"):
        offered: Mapping[Any, Sequence[str]] = model.words_by_topic(words)
        return offered
    if hasattr(model, "show_topics"):  # gensim
        shown = model.show_topics(num_topics=-1, num_words=words, formatted=False)
        return {topic: [word for word, _ in weighted] for topic, weighted in shown}
    if hasattr(model, "get_topic_words"):  # tomotopy
        return {topic: [word for word, _ in model.get_topic_words(topic, top_n=words)] for topic in range(model.k)}
    if hasattr(model, "steps"):  # scikit-learn's pipeline
        return _words_by_topic(model[-1], words, model[:-1])
    if hasattr(model, "components_"):  # scikit-learn
        known = names.get_feature_names_out() if hasattr(names, "get_feature_names_out") else names
        weights = np.asarray(model.components_, dtype=np.float64)
        if known is None or len(known) != weights.shape[1]:
            raise InputError(
                f"The model's topics are over {weights.shape[1]:,} columns, and "
                f"{'no' if known is None else f'{len(known):,}'} names are given: give its vectorizer, or the words of "
                "its columns, as names."
            )
        likeliest = enumerate(top_words(weights, words))
        return {topic: [str(known[at]) for at in row if weights[topic, at] > 0] for topic, row in likeliest}
    if hasattr(model, "get_topics"):  # BERTopic
        by_topic = model.get_topics().items()
        return {topic: [word for word, _ in weighted[:words]] for topic, weighted in by_topic if topic != OUTLIERS}
    raise InputError(
        f"A {type(model).__name__} is no topic model that is known: give one of gensim, tomotopy, BERTopic or "
        "scikit-learn, or write a CSV file with the columns word and topic."
    )


class SavedTopics(Struct):
    """A topics.safetensors."""

    fits: list[FittedTopics]


def save_topics(fits: Sequence[FittedTopics], folder: Path) -> None:
    """Write ``topics.safetensors``, for other models with the same tokenizer."""
    folder.mkdir(exist_ok=True)
    write_atomically(folder / "topics.safetensors", packed(SavedTopics(list(fits))))


def load_topics(folder: Path, passages: Passages | None, words: Words) -> list[FittedTopics]:
    """The topics that ``save_topics`` wrote; refused if they do not belong to these words.

    passages: those to be measured, if they are already known.
    """
    path, why = folder / "topics.safetensors", None
    try:
        fits = unpacked(path, SavedTopics).fits
        about, last = fits[0].about, max(int(one.tokens[-1]) for one in fits)
        whole = all(one.topic_word.shape[1:] == one.tokens.shape and (np.diff(one.tokens) > 0).all() for one in fits)
    except Exception as error:  # whatever safetensors and msgspec raise
        raise UnreadableError(path, first_line(error), "give a folder topics-… that an earlier probe made") from None
    if not whole:
        why = "do not fit each other: give those of an earlier probe"
    elif about.tokenizer != words.tokenizer.digest:
        why = f'were fitted with the tokenizer of "{about.tokenizer_name}", not that of "{words.tokenizer.name}"'
    elif about.merged != words.merged:
        why = f"were fitted with --{'' if about.merged else 'no-'}merge-words: give it here too"
    elif passages is not None and about.several_tokens != passages.about.several_tokens:
        why = f"were fitted {'with' if about.several_tokens else 'without'} --several-tokens"
    elif passages is not None and about.several_tokens and about.passages != passages.digest:
        why = "have words of several tokens, which are numbered by their corpus: give it"
    elif passages is not None and last >= len(words.names):
        why = f"have words beyond the {len(words.names):,} that are known here"
    if why:
        raise InputError(f"The topics in {folder} {why}, or fit them anew.")
    return fits


def quality(fits: Sequence[FittedTopics]) -> dict[str, float | None]:
    """Coherence and diversity, as means over seeds, and stability over seeds; None for what was not measured."""
    means: dict[str, float | None] = {}
    for kind in ("c_npmi", "diversity", "log_likelihood_per_word"):
        values = [value for one in fits if (value := getattr(one.about, kind)) is not None]
        means[kind] = float(np.mean(values)) if values else None
    return means | {"stability": stability([one.top_words() for one in fits])}


def top_words(topic_word: Float[np.ndarray, "topic word"], count: int = TOP) -> Int[np.ndarray, "topic top"]:
    """Each topic's likeliest words; among equally likely ones, those that come first."""
    return np.argsort(-topic_word, axis=1, kind="stable")[:, :count]


def diversity(top: Int[np.ndarray, "topic top"]) -> float:
    """Share of distinct words among the topics' top words: 1 if no word is in two topics (Dieng et al., 2020)."""
    return len(np.unique(top)) / top.size


def stability(fits: Sequence[Int[np.ndarray, "topic top"]]) -> float | None:
    """How alike fits of several seeds are: 1 if all find the same topics; None for a single fit.

    Topics of two fits are matched one to one so that the sum of their overlaps is largest (Greene et al., 2014); this
    is the mean overlap of matched topics over all pairs of fits.
    """
    if len(fits) < 2:
        return None
    words, members = int(np.max(fits)) + 1, []
    for top in fits:
        members.append(np.zeros((words, len(top)), dtype=bool))
        np.put_along_axis(members[-1], top.T, True, axis=0)
    return float(np.mean([topic_partners(one, other)[1].mean() for one, other in combinations(members, 2)]))
