"""LDA on passages, by tomotopy: which words are likeliest in which topic, and the labels that follow."""

import json
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int32, Int64
from safetensors import SafetensorError
from safetensors.numpy import load, save

from topicscope.errors import InputError
from topicscope.files import write_atomically
from topicscope.probe.bags import Bags, collect_bags, load_bags, stop_word_list
from topicscope.probe.labels import Labels
from topicscope.probe.settings import Assignment
from topicscope.probe.topic_quality import coherence, diversity, stability, top_words
from topicscope.randomness import Purpose, generator
from topicscope.scale import Item, Report, code_digest, map_items, versions
from topicscope.settings.checks import check_at_least
from topicscope.text.tokens import Passages, Tokenizer

ARRAYS = ("tokens", "topic_word", "counts")
# Part of a fit's key: code and packages that the same words may come to give other topics, or coherences, with.
SOURCES = ("probe/topics.py", "probe/topic_quality.py")
PACKAGES = ("numpy", "tomotopy", "gensim")


@dataclass(frozen=True)
class TopicSettings:
    """How topics are fitted."""

    topics: int = 100
    """Topics, T."""

    iterations: int = 200
    """Sweeps of Gibbs sampling."""

    seeds: tuple[int, ...] = (0,)
    """LDA's seeds: one fit each."""

    most_tokens: int = 20_000_000
    """Passages drawn have at most so many tokens; tomotopy keeps about 17.5 bytes a word in memory."""

    stop_words: str = "gensim"
    """Words left out: gensim (the list in its package), none, or a file with one word a line."""

    shortest_word: int = 3
    """Letters; shorter words are left out."""

    split: bool = True
    """Fit on one half of the articles, to measure on the other. The paper does not."""

    coherence: bool = True
    """Measure c_npmi and c_v of each fit."""

    def __post_init__(self) -> None:
        check_at_least("topics", self.topics, 2)
        check_at_least("iterations", self.iterations, 1)
        check_at_least("most_tokens", self.most_tokens, 1)
        check_at_least("shortest_word", self.shortest_word, 1)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise InputError(f"seeds = {list(self.seeds)} is not allowed: give one or more, all different.")
        for seed in self.seeds:
            check_at_least("seeds", seed, 0)


@dataclass(frozen=True, eq=False)
class FittedTopics:
    """One fit of LDA."""

    tokens: Int32[np.ndarray, " word"]
    """The tokenizer's number of each word of LDA's vocabulary, ascending."""

    topic_word: Float32[np.ndarray, "topic word"]
    """P(word | topic)."""

    counts: Int64[np.ndarray, " word"]
    """How often each word occurs in what was fitted."""

    description: dict[str, Any]
    """Seed, log-likelihood a word, coherence, diversity, the tokenizer's and the text's digests."""

    @property
    def seed(self) -> int:
        """LDA's."""
        return self.description["seed"]

    def top_words(self, count: int = 10) -> list[list[int]]:
        """Tokens of each topic's likeliest words."""
        return self.tokens[top_words(self.topic_word, count)].tolist()


@dataclass(frozen=True)
class _Fit:
    """A fit to do, as it is sent to a worker."""

    bags: Path
    settings: TopicSettings
    seed: int


def fit_topics(
    passages: Passages,
    tokenizer: Tokenizer,
    settings: TopicSettings,
    *,
    folder: Path,
    workers: int = 1,
    report: Report | None = None,
) -> list[FittedTopics]:
    """One fit for each seed, each in a process of its own and on one thread, so that it repeats exactly."""
    bags = collect_bags(
        passages,
        tokenizer,
        chosen=passages.for_topics if settings.split else np.arange(len(passages)),
        most_tokens=settings.most_tokens,
        stop_words=stop_word_list(settings.stop_words),
        shortest=settings.shortest_word,
        generator=generator(0, Purpose.DOCUMENTS),
    )
    if len(bags.tokens) < settings.topics:
        raise InputError(
            f"topics = {settings.topics} is not allowed with {len(bags.tokens)} words that the tokenizer of "
            f'"{tokenizer.name}" keeps whole: give at most as many topics as words, or more text.'
        )
    _tomotopy()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bags-{bags.digest}.safetensors"
    bags.save(path)
    items = [
        Item(
            name=f"topics seed {seed}",
            key={
                "what": "topics",
                "code": code_digest(SOURCES),
                "packages": {name: versions()[name] for name in PACKAGES},
                "bags": bags.digest,
                "settings": asdict(settings) | {"seeds": seed, "stop_words": None, "split": None},
            },
            argument=_Fit(path, settings, seed),
            suffix=".safetensors",
        )
        for seed in settings.seeds
    ]
    fitted = [_restored(content) for content in map_items(_fit, items, folder=folder, workers=workers, report=report)]
    about = {
        "tokenizer": tokenizer.digest,
        "tokenizer_name": tokenizer.name,
        "corpus": passages.description["corpus"],
        "passages": passages.digest,
        "stop_words": settings.stop_words,
        "split": settings.split,
    }
    return [replace(one, description=one.description | about) for one in fitted]


def fit_lda(bags: Bags, settings: TopicSettings, seed: int) -> FittedTopics:
    """LDA by collapsed Gibbs sampling, on counts of words.

    Dirichlet parameters start at tomotopy's 0.1 (topics of a document; fitted every ten sweeps) and 0.01 (words).
    """
    tomotopy = _tomotopy()
    documents = bags.documents()
    model = tomotopy.LDAModel(k=settings.topics, seed=seed)
    for document in documents:
        model.add_doc([str(word) for word in document.tolist()])
    model.train(settings.iterations, workers=1)
    # tomotopy numbers words as they come.
    order = np.argsort([int(word) for word in model.used_vocabs])
    topic_word = np.array([model.get_topic_word_dist(topic) for topic in range(settings.topics)], dtype=np.float32)
    topic_word = np.ascontiguousarray(topic_word[:, order])
    top = top_words(topic_word)
    description = {
        "seed": seed,
        "topics": settings.topics,
        "iterations": settings.iterations,
        "words": len(bags.tokens),
        "passages_fitted": len(documents),
        "words_fitted": len(bags.words),
        "log_likelihood_per_word": float(model.ll_per_word),
        "diversity": diversity(top),
    }
    if settings.coherence:
        description |= coherence(top, documents, len(bags.tokens))
    return FittedTopics(bags.tokens, topic_word, bags.counts, description)


def words_per_topic(fraction: float, vocabulary: int) -> int:
    """⌊f·V⌋ + 1, f the ambiguity threshold and V the number of words of LDA's vocabulary (Table 1's first column)."""
    # As written, not as stored: 0.29 · 100 is 29, though 0.29 is stored as a little less.
    return math.floor(Fraction(str(fraction)) * vocabulary) + 1


def labels(fitted: FittedTopics, fraction: float, assignment: Assignment) -> Labels:
    """The likeliest words of each topic, ⌊f·V⌋ + 1 of them.

    ``several`` (Table 5): a word has all topics that it is among the likeliest of. ``one`` (Table 1): of these, the one
    in which it is likeliest.
    """
    if not 0 < fraction < 1:
        raise InputError(f"fraction = {fraction:g} is not allowed: give a number between 0 and 1, such as 0.001.")
    vocabulary = len(fitted.tokens)
    count = words_per_topic(fraction, vocabulary)
    if count < 2:
        raise InputError(
            f"fraction = {fraction:g} is not allowed with LDA's {vocabulary:,} words, for it keeps one word a topic, "
            f"so no pair: give {math.ceil(1e6 / vocabulary) / 1e6:g} or more, or a larger corpus."
        )
    likely = np.zeros(fitted.topic_word.shape, dtype=bool)
    np.put_along_axis(likely, top_words(fitted.topic_word, count), True, axis=1)
    if assignment == "one":
        own = np.where(likely, fitted.topic_word, -1.0).argmax(axis=0)
        likely &= own == np.arange(len(likely))[:, None]
    empty = np.flatnonzero(~likely.any(axis=1))
    if len(empty):
        raise InputError(
            f"Topic {empty[0]} of LDA's seed {fitted.seed} has no word of its own at fraction = {fraction:g}: "
            "fit fewer topics, give a larger fraction or a larger corpus."
        )
    words = likely.any(axis=0)
    return Labels(
        name=f"{fraction:g}/{assignment}/seed{fitted.seed}",
        tokens=fitted.tokens[words],
        membership=np.ascontiguousarray(likely[:, words].T),
        fraction=fraction,
        assignment=assignment,
        seed=fitted.seed,
    )


def quality(fits: Sequence[FittedTopics]) -> dict[str, float | None]:
    """Coherence and diversity, each the mean over seeds, and stability over them; None for what was not measured."""
    kinds = ("c_npmi", "c_v", "diversity", "log_likelihood_per_word")
    found = {kind: [one.description[kind] for one in fits if kind in one.description] for kind in kinds}
    means: dict[str, float | None] = {
        kind: float(np.mean(values)) if values else None for kind, values in found.items()
    }
    return means | {"stability": stability([np.array(one.top_words()) for one in fits])}


def save_topics(fits: Sequence[FittedTopics], folder: Path) -> None:
    """``topics.safetensors`` and ``topics.json``: for other models with the same tokenizer, and for people."""
    arrays = {f"seed{one.seed}/{name}": getattr(one, name) for one in fits for name in ARRAYS}
    about = {"fits": [one.description for one in fits], "quality": quality(fits)}
    write_atomically(folder / "topics.safetensors", save(arrays))
    write_atomically(folder / "topics.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")


def load_topics(folder: Path, tokenizer: Tokenizer) -> list[FittedTopics]:
    """What ``save_topics`` wrote; refused if another tokenizer numbered the words."""
    try:
        descriptions = json.loads((folder / "topics.json").read_text(encoding="utf-8"))["fits"]
        arrays = load((folder / "topics.safetensors").read_bytes())
        fits = [
            FittedTopics(**{name: arrays[f"seed{one['seed']}/{name}"] for name in ARRAYS}, description=one)
            for one in descriptions
        ]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise InputError(
            f"{folder} has no fitted topics that can be read ({error}): give a folder with topics.safetensors and "
            "topics.json, as probe writes them."
        ) from None
    other = next((one.description for one in fits if one.description["tokenizer"] != tokenizer.digest), None)
    if other:
        raise InputError(
            f'The topics in {folder} were fitted with the tokenizer of "{other["tokenizer_name"]}", which is not that '
            f'of "{tokenizer.name}": fit them anew.'
        )
    return fits


def _fit(work: _Fit) -> bytes:
    fitted = fit_lda(load_bags(work.bags), work.settings, work.seed)
    arrays = {name: np.ascontiguousarray(getattr(fitted, name)) for name in ARRAYS}
    return save(arrays, metadata={"description": json.dumps(fitted.description)})


def _restored(content: bytes) -> FittedTopics:
    # The header of a safetensors file: its length in eight bytes, then JSON.
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    return FittedTopics(**load(content), description=json.loads(header["__metadata__"]["description"]))


def _tomotopy() -> Any:
    try:
        with warnings.catch_warnings():
            # Where warnings are errors, its own while it loads would make it seem missing.
            warnings.simplefilter("ignore")
            import tomotopy
    except ImportError:
        raise InputError('Fitting topics needs tomotopy: pip install "topicscope[language]".') from None
    return tomotopy
