"""Each topic by itself: its own words against all other words, in similarity or in attention."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.probing.statistics.labelling import Labelling
from topicscope.probing.statistics.pairs import form_average
from topicscope.probing.statistics.permutation import false_discovery_rates, permutation_p
from topicscope.probing.statistics.resampling import contrast

# Of a contrast, what is said of a topic.
SAID = ("same", "different", "ratio", "low", "high", "difference", "difference_low", "difference_high", "p")


def topic_contrasts(
    values: Sequence[Float[np.ndarray, "word word"]],
    labelling: Labelling,
    draws: Float[np.ndarray, "replicate word"],
    orders: Int[np.ndarray, "permutation word"],
    *,
    counts: Float[np.ndarray, "word word"] | None = None,
) -> list[list[dict[str, Any]]]:
    """Of each matrix, a contrast per topic: pairs of its words against pairs of one of them and a word of other topics.

    values: symmetric, of the words that the labelling keeps (all of its words). Sums over ``counts`` pairs of places,
    if these are given, else a number per pair of words.
    draws: how often each word was drawn, the sample first. Of the words outside a topic, which are many, none is.
    orders: permutations of the words. p is that of the average, over the topic's pairs, of what is left of a pair after
    the levels of its two words are taken off, a word's level being its average with words of other topics: words that
    are alike to everything, or to all but a few well-encoded topics, do not make a topic. ``q`` is the false discovery
    rate among the topics of a matrix. A topic without a pair has NaN.
    """
    ones = np.ones_like(values[0]) if counts is None else counts
    apart = ~_related(labelling)
    np.fill_diagonal(apart, False)
    outside = [np.where(apart, each, 0.0).sum(axis=1) for each in (*values, ones)]
    levels = [form_average(each, outside[-1]) for each in outside[:-1]]
    left = [each - ones * (level[:, None] + level) for each, level in zip(values, levels, strict=True)]
    found: list[list[dict[str, Any]]] = [[] for _ in values]
    for topic in range(labelling.membership.shape[1]):
        members = np.flatnonzero(labelling.membership[:, topic])
        first, second = (members[each] for each in np.triu_indices(len(members), k=1))
        weights = draws[:, first] * draws[:, second]
        number = weights @ ones[first, second]
        shuffled = orders[:, first], orders[:, second]
        drawn = ones[shuffled].sum(axis=1)
        beside = draws[:, members] @ outside[-1][members]
        for place, matrix in enumerate(values):
            same = form_average(weights @ matrix[first, second], number)
            different = form_average(draws[:, members] @ outside[place][members], beside)
            permuted = form_average(left[place][shuffled].sum(axis=1), drawn)
            observed = float(form_average(left[place][first, second].sum(keepdims=True), number[:1])[0])
            p = permutation_p(observed, permuted, size=float(np.abs(same[0])))
            said = asdict(contrast(same, different, p=p))
            found[place].append({name: said[name] for name in SAID})
    for each in found:
        rates = false_discovery_rates(np.array([np.nan if row["p"] is None else row["p"] for row in each]))
        for row, rate in zip(each, rates.tolist(), strict=True):
            row["q"] = rate
    return found


def _related(labelling: Labelling) -> np.ndarray:
    member = labelling.membership.astype(np.float32)
    return member @ member.T > 0
