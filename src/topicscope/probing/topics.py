"""Topics: LDA on the words of passages by tomotopy, a user's own words and topics, and how good fitted topics are.

LDA sees passages as bags of the words that the tokenizer keeps whole, without stop words. The likeliest words of its
topics, or those of a CSV file, make a :class:`Labelling`, on which every measure of the probe is based.
"""

import csv
import hashlib
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Float32, Int, Int32, Int64
from msgspec import Struct, structs
from safetensors.numpy import save
from scipy.optimize import linear_sum_assignment

from topicscope.errors import InputError, UnreadableError, check_at_least, import_for_language
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.settings import PAPER_FRACTIONS, Assignment, TopicOptions
from topicscope.probing.statistics.labelling import Labelling
from topicscope.randomness import Purpose, generator
from topicscope.records import FITTED, FittedTopicsFile, TopicFit
from topicscope.store import (
    read_struct,
    read_tensors,
    read_text,
    struct_text,
    table_rows_of,
    table_text,
    write_atomically,
)
from topicscope.text.stop_words import led_by_stop_words, stop_word_list
from topicscope.text.tokens import Passages
from topicscope.text.words import Words
from topicscope.work import Report, Task, map_tasks

# Passages looked at together: memory does not grow with the corpus.
BLOCK = 10_000
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
VERSION = 2
# Columns of a user's own topics.
COLUMNS = ("word", "topic")
# BERTopic's number for documents without a topic.
OUTLIERS = -1


@dataclass(frozen=True, eq=False)
class Bags:
    """Documents of words; a word is its place among ``tokens``."""

    words: Int32[np.ndarray, " occurrence"]
    offsets: Int64[np.ndarray, " passage_plus_one"]
    tokens: Int32[np.ndarray, " word"]
    """The number of each word (``text.words``), ascending."""

    counts: Int64[np.ndarray, " word"]
    """How often each word occurs in these passages."""

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
    blocks = np.split(sampled, range(BLOCK, len(sampled), BLOCK))
    seen = np.zeros(len(words.word), dtype=np.int64)
    for block in blocks:
        numbers, _ = _occurrences(passages, words, block)
        seen += np.bincount(numbers, minlength=len(seen))
    rare = (words.lengths > 1) & (seen < RARE)
    there = np.flatnonzero((seen > 0) & ~rare)
    kept = there[[len(name) >= shortest and name.lower() not in stop_words for name in words.named(there)]]
    place = words.places(kept)
    occurring, lengths = [np.empty(0, dtype=np.int32)], [np.empty(0, dtype=np.int64)]
    for block in blocks:
        numbers, passage = _occurrences(passages, words, block)
        inside = place[numbers] >= 0
        occurring.append(place[numbers[inside]])
        lengths.append(np.bincount(passage[inside], minlength=len(block)))
    offsets = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return Bags(np.concatenate(occurring), offsets, kept.astype(np.int32), seen[kept])


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


def _occurrences(
    passages: Passages, words: Words, block: Int64[np.ndarray, " block"]
) -> tuple[Int[np.ndarray, " occurrence"], Int[np.ndarray, " occurrence"]]:
    """The words of a block's passages, and the passage within the block that each belongs to."""
    lengths = passages.lengths[block]
    starts = passages.offsets[block]
    passage = np.repeat(np.arange(len(block)), lengths)
    # Each passage's places follow its start: a ramp that begins anew at every passage.
    ramp = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    spellings = passages.spellings[np.repeat(starts, lengths) + ramp]
    return words.word[spellings[spellings >= 0]], passage[spellings >= 0]


@dataclass(frozen=True, eq=False)
class FittedTopics:
    """One fit of LDA."""

    tokens: Int32[np.ndarray, " word"]
    """The number of each word of LDA's vocabulary (``text.words``), ascending."""

    topic_word: Float32[np.ndarray, "topic word"]
    """P(word | topic)."""

    counts: Int64[np.ndarray, " word"]
    """How often each word occurs in the text that was fitted."""

    about: TopicFit
    """Seed, log-likelihood per word, coherence, diversity, the tokenizer's and the text's digests."""

    @property
    def seed(self) -> int:
        """LDA's seed."""
        return self.about.seed

    def top_words(self, count: int = 10) -> list[list[int]]:
        """Tokens of each topic's likeliest words."""
        return self.tokens[top_words(self.topic_word, count)].tolist()


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
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bags-{bags.digest}.safetensors"
    write_atomically(path, packed(bags))
    tasks = [
        Task(
            f"topics seed {seed}",
            {"version": VERSION, "bags": bags.digest, "settings": [topics, options.iterations, seed, fitting.judged]},
            (path, topics, options.iterations, seed, fitting.judged),
            ".safetensors",
        )
        for seed in fitting.seeds
    ]
    map_tasks(_fit, tasks, folder, workers=fitting.workers, report=fitting.report)
    about = TopicFit(
        seed=0,
        tokenizer=words.tokenizer.digest,
        tokenizer_name=words.tokenizer.name,
        merged=words.merged,
        several_tokens=passages.about.several_tokens,
        corpus=passages.about.corpus,
        passages=passages.digest,
        stop_words=options.stop_words,
        split=fitting.halves,
        topics=topics,
        iterations=options.iterations,
        words=len(bags.tokens),
        passages_fitted=len(bags.documents()),
        words_fitted=len(bags.words),
    )
    fits = [unpacked(task.path(folder), LDAFit) for task in tasks]
    return [
        FittedTopics(
            bags.tokens,
            fit.topic_word,
            bags.counts,
            structs.replace(about, seed=seed, **fit.quality, diversity=diversity(top_words(fit.topic_word))),
        )
        for seed, fit in zip(fitting.seeds, fits, strict=True)
    ]


def check_enough(passages: Passages, vocabulary: int, *, halves: bool) -> None:
    """Refuse a corpus that is too small to choose a number of topics for, naming everything that it lacks."""
    articles = [len(np.unique(passages.articles[part])) for part in (passages.for_topics, passages.for_measures)]
    if not halves:
        articles = [sum(articles)]
    wanted = {
        **{
            f"articles to {purpose}": (number, FEWEST_ARTICLES)
            for number, purpose in zip(articles, ("fit topics on", "measure on"), strict=False)
        },
        "different words to fit, which are whole, no stop words, and of three letters or more": (
            vocabulary,
            FEWEST_WORDS,
        ),
    }
    missing = [f"{there:,} {what} ({least:,} are needed)" for what, (there, least) in wanted.items() if there < least]
    if missing:
        raise InputError(
            f'corpus = "{passages.about.source}" is too small to find topics in; it has '
            f"{'; '.join(missing)}: give more text, or say with --topics and --fractions what to try all the same, "
            "or bring words with their topics with --word-topics."
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
    exact = [(kept - 1) / vocabulary for kept in KEPT_WORDS]
    # Two digits, rounded up.
    digits = [1 - math.floor(math.log10(each)) for each in exact]
    rounded = [math.ceil(each * 10**digit - 1e-9) / 10**digit for each, digit in zip(exact, digits, strict=True)]
    # Of very few words, a fraction may not keep all.
    return tuple(fraction for fraction in rounded if fraction < 1) or (0.5,)


def label_fits(fits: Sequence[FittedTopics], options: TopicOptions) -> tuple[list[Labelling], list[str]]:
    """The labellings of all fits, thresholds and assignments, the first fit's first, and notes about them.

    A threshold at which no two words share a topic, or all share one, is left out; so is a topic without a word.
    """
    vocabulary = len(fits[0].tokens)
    fractions = options.fractions or fitting_fractions(vocabulary)
    notes = []
    if options.topics is None or not options.fractions:
        counts = ", ".join(str(words_per_topic(each, vocabulary)) for each in fractions)
        notes.append(
            f"{len(fits[0].topic_word)} topics at thresholds {', '.join(f'{each:g}' for each in fractions)}, which "
            f"keep {counts} words per topic, for a vocabulary of {vocabulary:,} words"
        )
    labellings: list[Labelling] = []
    useless: list[str] = []
    for fraction in fractions:
        for assignment in options.assignments:
            own = [label_words(fitted, fraction, assignment) for fitted in fits]
            if all(_has_pairs(labelling) for labelling in own):
                labellings += own
            else:
                useless.append(f"{fraction:g} ({assignment})")
            topics = sum(len(fitted.topic_word) for fitted in fits)
            empty = topics - sum(labelling.topics for labelling in own)
            if assignment == "one" and empty:
                notes.append(
                    f"at threshold {fraction:g}, {empty} of {topics} topics of LDA's {len(fits)} seeds have no word "
                    "that is likeliest in them, and are left out where a word has one topic"
                )
    if not labellings:
        raise InputError(
            f"no threshold of {', '.join(f'{each:g}' for each in fractions)} gives words that share a topic and words "
            f"that do not, with LDA's {vocabulary:,} words: give --fractions of {2 / vocabulary:.2g} or more, fewer "
            "--topics, or a larger corpus."
        )
    if useless:
        notes.append(f"left out, because no two words share a topic there or all do: threshold {', '.join(useless)}")
    # Labellings of the first LDA seed come first.
    seeds = [fitted.seed for fitted in fits]
    return sorted(labellings, key=lambda labelling: seeds.index(labelling.seed or 0)), notes


def _has_pairs(labelling: Labelling) -> bool:
    """Whether some pair of words shares a topic, and some pair does not."""
    same, every = len(labelling.same_topic_pairs[0]), labelling.words * (labelling.words - 1) // 2
    return 0 < same < every


def topic_warnings(fits: Sequence[FittedTopics], words: Words) -> list[str]:
    """A sentence if stop words lead topics."""
    led = led_by_stop_words([words.named(np.array(each)) for one in fits for each in one.top_words(TOP)])
    if led is None:
        return []
    language, topics = led
    return [
        f"{topics} of {sum(len(one.topic_word) for one in fits)} topics are led by stop words of the language "
        f'"{language}": give --stop-words {language}, or a file with those of your corpus'
    ]


class LDAFit(Struct, frozen=True):
    """One fit of LDA."""

    topic_word: Float32[np.ndarray, "topic word"]
    """P(word | topic)."""

    quality: dict[str, float]
    """Log-likelihood per word, and coherence if it was asked for and some topic has one."""


def fit_lda(bags: Bags, topics: int, iterations: int, seed: int, *, judged: bool = False) -> LDAFit:
    """LDA by collapsed Gibbs sampling, on counts of words.

    Dirichlet parameters start at tomotopy's 0.1 (topics of a document; fitted every ten sweeps) and 0.01 (words).
    """
    tomotopy = _tomotopy()
    model = tomotopy.LDAModel(k=topics, seed=seed)
    for document in bags.documents():
        model.add_doc([str(word) for word in document.tolist()])
    model.train(iterations, workers=1)
    # tomotopy numbers words as they come.
    order = np.argsort([int(word) for word in model.used_vocabs])
    topic_word = np.array([model.get_topic_word_dist(topic) for topic in range(topics)], dtype=np.float32)
    quality = {"log_likelihood_per_word": float(model.ll_per_word)}
    if judged:
        # Of windows of ten words, as gensim's c_npmi.
        score = tomotopy.coherence.Coherence(model, coherence="c_npmi", top_n=TOP).get_score()
        quality |= {"c_npmi": score} if math.isfinite(score) else {}
    return LDAFit(np.ascontiguousarray(topic_word[:, order]), quality)


def _fit(work: tuple[Path, int, int, int, bool]) -> bytes:
    path, topics, iterations, seed, judged = work
    return packed(fit_lda(unpacked(path, Bags), topics, iterations, seed, judged=judged))


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
    if not 0 < fraction < 1:
        raise InputError(f"fraction = {fraction:g} is not allowed: give a number between 0 and 1, such as 0.001.")
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
        name=f"{fraction:g}/{assignment}/seed{fitted.seed}",
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
    topics = list(dict.fromkeys(topic for _, topic in pairs))
    kept = sorted({word for word in numbers.values() if word is not None})
    membership = np.zeros((len(kept), len(topics)), dtype=bool)
    for name, topic in pairs:
        if (word := numbers[name]) is not None:
            membership[kept.index(word), topics.index(topic)] = True
    there = np.any(membership, axis=0)
    without = [topic for topic, has_words in zip(topics, there, strict=True) if not has_words]
    topics, membership = [topic for topic in topics if topic not in without], membership[:, there]
    if len(topics) < 2 or membership.sum(axis=0).max(initial=0) < 2:
        lost = f" (without {', '.join(without)}, whose words the tokenizer splits)" if without else ""
        remedy = "" if len(words.lengths) > words.tokenizer.size else ", or --several-tokens to measure split words too"
        raise InputError(
            f"{path} has {len(topics)} topic{'' if len(topics) == 1 else 's'} with words that the tokenizer of "
            f'"{words.tokenizer.name}" keeps whole{lost}, of at most {membership.sum(axis=0).max(initial=0)} such '
            "words: give two topics or more, one of them with two words or more, so that there are pairs to compare"
            f"{remedy}."
        )
    assignment: Assignment = "one" if (membership.sum(axis=1) == 1).all() else "several"
    labelling = Labelling(
        membership,
        tokens=np.array(kept, dtype=np.int32),
        name=f"own/{assignment}",
        assignment=assignment,
        topic_names=tuple(topics),
    )
    return labelling, sorted(name for name, word in numbers.items() if word is None), without


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """Words and topics, line by line."""
    remedy = "give a CSV file with the columns word and topic"
    # Spreadsheets begin a file with a byte order mark.
    text = read_text(path, remedy).removeprefix("\ufeff")
    try:
        names, table = next(csv.reader([text.partition("\n")[0]]), []), table_rows_of(text)
    except csv.Error as error:
        raise UnreadableError(path, str(error), remedy) from None
    if not set(COLUMNS) <= set(names):
        raise InputError(
            f"{path} has the columns {', '.join(names) or 'none'}: "
            "give a CSV file with word and topic in its first line."
        )
    rows = [((row["word"] or "").strip(), (row["topic"] or "").strip()) for row in table]
    for number, (word, topic) in enumerate(rows, start=2):
        if not word or not topic:
            raise InputError(
                f"{path}, line {number}, has no {'topic' if word else 'word'}: give both, or remove the line."
            )
    return rows


def word_topics(
    model: Any, *, words: int = 20, names: Any = None, out: Path | str | None = None
) -> dict[str, list[str]]:
    """The likeliest words of each topic of a topic model that was fitted elsewhere, for ``--word-topics``.

    model: one of gensim, tomotopy, BERTopic (its topic −1, of outliers, is left out) or scikit-learn (anything with
    ``components_``, or a pipeline that ends with it).
    words: how many words of each topic.
    names: the words of a scikit-learn model's columns, or the vectorizer that knows them; not for others.
    out: a CSV file to write, with the columns word and topic, as the probe reads it.
    """
    check_at_least("words", words, 1)
    topics = {str(topic): likeliest for topic, likeliest in _likeliest_words(model, words, names) if likeliest}
    if not topics:
        raise InputError("The model has no topics with words: fit it first.")
    if out is not None:
        rows = [{"word": word, "topic": topic} for topic, likeliest in topics.items() for word in likeliest]
        write_atomically(Path(out), table_text(rows))
    return topics


def _likeliest_words(model: Any, words: int, names: Any) -> Iterator[tuple[Any, list[str]]]:
    """Topics and their words, by what each library's models offer."""
    if hasattr(model, "show_topics"):
        for topic, weighted in model.show_topics(num_topics=-1, num_words=words, formatted=False):
            yield topic, [word for word, _ in weighted]
    elif hasattr(model, "get_topic_words"):
        # Some models of tomotopy have topics that are not used.
        live = getattr(model, "is_live_topic", lambda topic: True)
        for topic in filter(live, range(model.k)):
            yield topic, [word for word, _ in model.get_topic_words(topic, top_n=words)]
    elif hasattr(model, "steps") and hasattr(model.steps[-1][1], "components_"):
        yield from _likeliest_words(model.steps[-1][1], words, model[:-1] if names is None else names)
    elif hasattr(model, "components_"):
        names = getattr(model, "feature_names_in_", None) if names is None else names
        known = names.get_feature_names_out() if hasattr(names, "get_feature_names_out") else names
        weights = np.asarray(model.components_)
        if known is None or len(known) != weights.shape[1]:
            raise InputError(
                f"The model's topics are over {weights.shape[1]:,} columns, and "
                f"{'no' if known is None else f'{len(known):,}'} names are given: give its vectorizer, or the words of "
                "its columns, as names."
            )
        for topic, row in enumerate(top_words(weights.astype(np.float64), words)):
            yield topic, [str(known[place]) for place in row if weights[topic, place] > 0]
    elif callable(getattr(model, "get_topics", None)):
        for topic, weighted in model.get_topics().items():
            if topic != OUTLIERS:
                yield topic, [word for word, _ in weighted[:words] if word]
    else:
        raise InputError(
            f"A {type(model).__name__} is no topic model that is known: give one of gensim, tomotopy, BERTopic or "
            "scikit-learn, or write a CSV file with the columns word and topic."
        )


def save_topics(fits: Sequence[FittedTopics], folder: Path) -> None:
    """Write ``topics.safetensors`` and ``topics.json``, for other models with the same tokenizer and for people."""
    arrays = {f"seed{one.seed}/{name}": getattr(one, name) for one in fits for name in FITTED}
    folder.mkdir(exist_ok=True)
    write_atomically(folder / "topics.safetensors", save(arrays))
    about = FittedTopicsFile(fits=[one.about for one in fits], quality=quality(fits))
    write_atomically(folder / "topics.json", struct_text(about))


def read_topics(folder: Path) -> list[FittedTopics]:
    """Read what ``save_topics`` wrote; refused in one sentence if its arrays do not fit each other."""
    remedy = "give a folder with topics.safetensors and topics.json, as probe writes them"
    path, fits = folder / "topics.safetensors", []
    try:
        described = read_struct(folder / "topics.json", FittedTopicsFile, remedy).fits
        arrays = read_tensors(path, remedy)
        for about in described:
            own = {name: arrays.get(f"seed{about.seed}/{name}") for name in FITTED}
            whole = {name: each for name, each in own.items() if each is not None and each.dtype == FITTED[name]}
            if len(whole) < len(FITTED):
                raise UnreadableError(path, f"it lacks some of the numbers of seed {about.seed}", remedy)
            words, topics, counts = (each.shape for each in whole.values())
            if len(topics) != 2 or 0 in topics or not words == counts == topics[1:]:
                raise UnreadableError(path, f"the arrays of seed {about.seed} have different lengths", remedy)
            tokens = whole["tokens"]
            if tokens[0] < 0 or not (tokens[1:] > tokens[:-1]).all():
                raise UnreadableError(path, f"the words of seed {about.seed} are not in order", remedy)
            fits.append(FittedTopics(**whole, about=about))
    except UnreadableError as error:
        raise InputError(
            f"{folder} has no fitted topics that can be read ({Path(str(error.path)).name}: {error.reason}): "
            f"{error.remedy}."
        ) from None
    return fits


def load_topics(folder: Path, passages: Passages | None, words: Words) -> list[FittedTopics]:
    """The topics of an earlier probe; refused if its words had other numbers.

    passages: those to be measured, if they are already known.
    """
    fits = read_topics(folder)
    for about in (one.about for one in fits):
        if about.tokenizer != words.tokenizer.digest:
            raise InputError(
                f'The topics in {folder} were fitted with the tokenizer of "{about.tokenizer_name}", which is not '
                f'that of "{words.tokenizer.name}": fit them anew.'
            )
        if about.merged != words.merged:
            switch = "--merge-words" if not words.merged else "--no-merge-words"
            raise InputError(f"The topics in {folder} were fitted with {switch}: give it here too, or fit them anew.")
        if passages is None:
            continue
        several = (about.several_tokens, passages.about.several_tokens)
        if any(several) and (several[0] != several[1] or about.passages != passages.digest):
            raise InputError(
                f"The topics in {folder} have words of several tokens, which are numbered by their corpus: give it and "
                "--several-tokens, or fit them anew."
                if several[0]
                else f"The topics in {folder} have no words of several tokens: leave --several-tokens out, or fit anew."
            )
    known = len(words.names)
    if passages is not None and any(one.tokens[-1] >= known for one in fits):
        raise InputError(f"The topics in {folder} have words beyond the {known:,} that are known here: fit them anew.")
    return fits


def quality(fits: Sequence[FittedTopics]) -> dict[str, float | None]:
    """Coherence and diversity, as means over seeds, and stability over seeds; None for what was not measured."""
    means: dict[str, float | None] = {}
    for kind in ("c_npmi", "diversity", "log_likelihood_per_word"):
        values = [value for one in fits if (value := getattr(one.about, kind)) is not None]
        means[kind] = float(np.mean(values)) if values else None
    return means | {"stability": stability([np.array(one.top_words()) for one in fits])}


def top_words(topic_word: Float[np.ndarray, "topic word"], count: int = TOP) -> Int[np.ndarray, "topic top"]:
    """Each topic's likeliest words; among equally likely ones, those that come first."""
    return np.argsort(-topic_word, axis=1, kind="stable")[:, :count]


def diversity(top: Int[np.ndarray, "topic top"]) -> float:
    """Share of distinct words among the topics' top words: 1 if no word is in two topics (Dieng et al., 2020)."""
    return len(np.unique(top)) / top.size


def overlap(one: Int[np.ndarray, "topic top"], other: Int[np.ndarray, "topic top"]) -> Float[np.ndarray, "topic topic"]:
    """The Jaccard index of the top words of each topic of one fit and each of another: shared words over all words."""
    vocabulary = int(max(one.max(), other.max())) + 1
    indicator = [np.zeros((len(top), vocabulary), dtype=np.float32) for top in (one, other)]
    for table, top in zip(indicator, (one, other), strict=True):
        np.put_along_axis(table, top, 1.0, axis=1)
    shared = indicator[0] @ indicator[1].T
    return (shared / (one.shape[1] + other.shape[1] - shared)).astype(np.float64)


def stability(fits: Sequence[Int[np.ndarray, "topic top"]]) -> float | None:
    """How alike fits of several seeds are: 1 if all find the same topics; None for a single fit.

    Topics of two fits are matched one to one so that the sum of their overlaps is largest (Greene et al., 2014); this
    is the mean overlap of matched topics over all pairs of fits.
    """
    if len(fits) < 2:
        return None
    overlaps = [overlap(one, other) for one, other in combinations(fits, 2)]
    return float(np.mean([each[linear_sum_assignment(each, maximize=True)].mean() for each in overlaps]))
