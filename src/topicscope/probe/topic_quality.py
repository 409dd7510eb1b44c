"""How good fitted topics are: coherence, diversity, and whether other seeds find them again."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment

from topicscope.errors import InputError

# Words of each topic that are judged, as is common.
TOP = 10
COHERENCES = ("c_npmi", "c_v")


def top_words(topic_word: Float[np.ndarray, "topic word"], count: int = TOP) -> Int[np.ndarray, "topic top"]:
    """Each topic's likeliest words; of equally likely ones those that come first."""
    return np.argsort(-topic_word, axis=1, kind="stable")[:, :count]


def diversity(top: Int[np.ndarray, "topic top"]) -> float:
    """Share of distinct words among the topics' top words: 1 if no word is in two topics (Dieng et al., 2020)."""
    return len(np.unique(top)) / top.size


def overlap(one: Int[np.ndarray, "topic top"], other: Int[np.ndarray, "topic top"]) -> Float[np.ndarray, "topic topic"]:
    """Jaccard index of the top words of each topic of one fit with each of another: shared words by all words."""
    vocabulary = int(max(one.max(), other.max())) + 1
    indicator = [np.zeros((len(top), vocabulary), dtype=np.float32) for top in (one, other)]
    for table, top in zip(indicator, (one, other), strict=True):
        np.put_along_axis(table, top, 1.0, axis=1)
    shared = indicator[0] @ indicator[1].T
    return (shared / (one.shape[1] + other.shape[1] - shared)).astype(np.float64)


def stability(fits: Sequence[Int[np.ndarray, "topic top"]]) -> float | None:
    """How alike fits of several seeds are: 1 if all find the same topics; None for a single fit.

    Topics of two fits are matched one to one so that their overlaps add up to the most (Greene et al., 2014); the mean
    overlap of matched topics, over all pairs of fits.
    """
    if len(fits) < 2:
        return None
    return float(np.mean([_matched(overlap(one, other)) for one, other in combinations(fits, 2)]))


def coherence(
    top: Int[np.ndarray, "topic top"], documents: Sequence[Int[np.ndarray, " _"]], words: int
) -> dict[str, float]:
    """The measures c_npmi and c_v of the topics' top words over these documents, by gensim; the mean over topics.

    Without the measures that no topic has.
    """
    models, dictionary_class = _gensim()
    texts = [[str(word) for word in document.tolist()] for document in documents]
    dictionary = dictionary_class([[str(word) for word in range(words)]])
    topics = [[str(word) for word in row] for row in top.tolist()]
    found: dict[str, float] = {}
    for kind in COHERENCES:
        model = models(
            topics=topics, texts=texts, dictionary=dictionary, coherence=kind, topn=top.shape[1], processes=1
        )
        with np.errstate(all="ignore"):
            by_topic = np.array(model.get_coherence_per_topic(), dtype=np.float64)
        # A topic with a word that is in none of the documents has no coherence there.
        measured = by_topic[np.isfinite(by_topic)]
        if len(measured):
            found[kind] = float(measured.mean())
    return found


def _matched(overlaps: Float[np.ndarray, "topic topic"]) -> float:
    return float(overlaps[linear_sum_assignment(overlaps, maximize=True)].mean())


def _gensim() -> tuple[Any, Any]:
    try:
        from gensim.corpora import Dictionary
        from gensim.models import CoherenceModel
    except ImportError:
        raise InputError('Coherence is measured by gensim: pip install "topicscope[language]".') from None
    return CoherenceModel, Dictionary
