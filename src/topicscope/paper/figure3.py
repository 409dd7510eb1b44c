"""Figure 3: nine words of three topics, and that words which are likely under few topics show it more."""

from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float

from topicscope.paper.claim import (
    Before,
    Claim,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    exact,
    interval_given,
)
from topicscope.paper.probe_experiment import (
    FRACTIONS,
    Probed,
    Probing,
    fall,
    probe_claim,
    probings,
    why_unavailable,
)
from topicscope.probing.settings import PAPER_WORDS


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The claims on every trained model."""
    return tuple(claim for need in probings(preset, trained=True) for claim in _word_claims(need))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The figure, for all trained models that can be probed."""
    needs = tuple(need for need in probings(preset, trained=True) if not why_unavailable(need.model))

    def draw(results: Results) -> Drawn:
        from topicscope.reporting.figures.probe import word_maps

        words = results[needs[0].name].words
        # A tokenizer that keeps other words of the nine whole has a picture that cannot be put beside this one.
        alike = [need for need in needs if results[need.name].words == words]
        shown = {need.model: results[need.name].cosines for need in alike}
        return word_maps(shown, words, title="Figure 3: cosine of word embeddings (word-embedding matrix)")

    return (Drawing(name="figure3", needs=needs, draw=draw),) if needs else ()


def _word_claims(need: Probing) -> list[Claim]:
    """Claims on its nine words, and on all words at two thresholds.

    That every pair of one topic is more similar implies that their average is.
    """
    model = need.words
    return [
        probe_claim(
            need,
            _word_margin,
            id=f"figure3/{need.slug}/every-pair",
            statement=f"In {model}, every two of Figure 3's words of one topic have a larger cosine "
            "(word-embedding matrix) than any two of different topics.",
            rule=above(0),
            unit="smallest same − largest different",
            figure="figure3",
            kind=need.kind,
        ),
        probe_claim(
            need,
            lambda found: fall(found, "cosine"),
            id=f"figure3/{need.slug}/unambiguous",
            statement=f"In {model} on wiki-sample, the cosine ratio (embedding layer's output) of words that are "
            "likely under few topics (threshold 0.0005) is larger than that of more ambiguous words (0.002), both "
            "under the same bootstrap draws.",
            rule=above(1),
            unit="ratio at 0.0005 / at 0.002",
            figure="figure3",
            kind=need.kind,
            before=Before(
                "the same, with the ends of the two intervals put together, as if the two ratios shared no word",
                rule=above(1),
                measure=lambda results: _unpaired(results[need.name]),
            ),
        ),
    ]


def _word_topics(found: Probed) -> tuple[Bool[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Which pairs of the words are of one topic, and their cosines."""
    topic = {word: name for name, words in PAPER_WORDS.items() for word in words}
    first, second = np.triu_indices(len(found.words), k=1)
    labels = np.array([topic[word] for word in found.words])
    return labels[first] == labels[second], found.cosines[first, second]


def _partition_p(found: Probed) -> float:
    """How many of the 280 ways to part nine words into three topics of three have as large an average within."""
    if len(found.words) != 9:
        return np.nan
    threes = {
        three: found.cosines[np.ix_(three, three)][np.triu_indices(3, k=1)].sum() for three in combinations(range(9), 3)
    }
    sums = [
        threes[first] + threes[second] + threes[third]
        for first, second, third in combinations(threes, 3)
        if len({*first, *second, *third}) == 9
    ]
    same, cosines = _word_topics(found)
    return float(np.mean(np.array(sums) >= cosines[same].sum() - 1e-9))


def _word_margin(found: Probed) -> Measurement:
    same, cosines = _word_topics(found)
    if not same.any() or same.all():
        return exact(np.nan, words=len(found.words))
    return exact(
        cosines[same].min() - cosines[~same].max(),
        smallest_same=cosines[same].min(),
        average_same=cosines[same].mean(),
        average_different=cosines[~same].mean(),
        average_exact_p=_partition_p(found),
    )


def _unpaired(found: Probed) -> Measurement:
    """The ends are those of the two intervals put together: too wide, as the two ratios share words."""
    few, many = (found.row(fraction, "one")["cosine"] for fraction in (FRACTIONS[0], FRACTIONS[-1]))
    if any(contrast[name] is None for contrast in (few, many) for name in ("ratio", "low", "high")):
        return interval_given(np.nan, np.nan, np.nan)
    value, low, high = few["ratio"] / many["ratio"], few["low"] / many["high"], few["high"] / many["low"]
    return interval_given(value, low, high)
