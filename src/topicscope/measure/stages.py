"""When things happen in training: two stages (§5.1, §8.1, Figures 4 and 5), and when a structure appears.

The stages are about attention and W^V, so they are measured by what these do, in numbers that depend neither on the
initial scale nor on how long the run goes on: a(t), how far attention is from uniform (``distance_from_uniform``), and
g(t), the share of the gain possible under uniform attention that W^V has reached (``training.record``). Beside them are
the norms of the paper's own picture (``norm_stages``) and the directions in which W^K and W^Q grow (``mode_norms``).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.blocks import words_of
from topicscope.measure.run import Run

# Attention takes off when that of word queries is on average this far from uniform, in total variation.
TAKE_OFF = 0.05
# Two-stage: W^V then has at least this share of what the optimum under uniform attention gains.
LEAST_GAIN = 2 / 3

# The rule on norms: stage 1 ends when a norm of W^K or W^Q first exceeds this many times its start.
NORM_TAKE_OFF = 2.0
# Two-stage: W^V has then made at least this share of its growth over the run, in at least this share of the steps.
LEAST_GROWTH = 1 / 3
LEAST_STEPS = 0.05


@dataclass(frozen=True)
class Stages:
    """When attention takes off in one run, and how far W^V is by then."""

    take_off: int | None
    """The first logged step at which word queries' attention has taken off; None if it never does."""
    gain: float
    """g at take-off; NaN without one."""

    @property
    def two(self) -> bool:
        """Whether W^V came first; a run that ended before attention took off, or diverged, does not show it."""
        return self.take_off is not None and self.gain >= LEAST_GAIN


def stages(
    steps: Int[np.ndarray, " row"],
    words: Float[np.ndarray, " row"],
    gain: Float[np.ndarray, " row"],
    *,
    threshold: float = TAKE_OFF,
) -> Stages:
    """Apply the rule to one run: a(t) of word queries, and g(t)."""
    row = _first(words >= threshold) if np.isfinite([words[-1], gain[-1]]).all() else None
    return Stages(None, np.nan) if row is None else Stages(int(steps[row]), float(gain[row]))


def run_stages(run: Run, *, threshold: float = TAKE_OFF) -> list[Stages]:
    """Each seed's stages in a run of one layer whose attention was recorded."""
    curves = zip(run.metrics["attention/words"][:, :, 0], run.metrics["uniform_gain"], strict=True)
    return [stages(run.steps, *seed, threshold=threshold) for seed in curves]


def _first(reached: np.ndarray) -> int | None:
    return int(np.argmax(reached)) if reached.any() else None


def distance_from_uniform(
    scores: Float[np.ndarray, "*many key query"],
    keys: Int[np.ndarray, "document token"],
    queries: Int[np.ndarray, "document token"],
) -> tuple[Float[np.ndarray, "*many"], Float[np.ndarray, "*many"]]:
    r"""How far attention is from uniform in total variation, averaged over word queries, and over [MASK] queries.

    ``scores`` are attention's logits between tokens ([MASK] is token 0); ``keys`` and ``queries`` count how often each
    token of each document can be attended to, and how often it attends. With n_k a document's count of
    keys k, N their sum and s the scores, a query of token b has

    .. math:: \tfrac12 \sum_k \Big| \frac{n_k e^{s_{kb}}}{\sum_l n_l e^{s_{lb}}} - \frac{n_k}{N} \Big|.

    0 means uniform attention; 1 is never reached. NaN where there is no query.
    """
    weights = np.exp(scores - scores.max(axis=-2, keepdims=True))
    distance = np.zeros((*scores.shape[:-2], *keys.shape))
    # Documents are taken one by one: each has few of the tokens, and all pairs of all documents would not fit.
    for document, counts in enumerate(keys):
        present = np.flatnonzero(counts)
        share, here = counts[present] / counts.sum(), weights[..., present, :]
        # |n e^s/Z − n/N| is n/N · |e^s / (Z/N) − 1|, and Z/N is the average of e^s over the keys.
        average = np.einsum("k,...kb->...b", share, here)[..., None, :]
        distance[..., document, :] = np.einsum("k,...kb->...b", share / 2, np.abs(here / average - 1))
    with np.errstate(invalid="ignore"):
        words, mask = (
            np.einsum("...db,db->...", distance[..., some], queries[:, some]) / queries[:, some].sum()
            for some in (slice(1, None), slice(0, 1))
        )
    return words, mask


def mode_norms(
    matrix: Float[np.ndarray, "*many width token"], word_topics: Int[np.ndarray, " token"]
) -> tuple[Float[np.ndarray, "*many"], Float[np.ndarray, "*many"]]:
    """The norm of W^K's or W^Q's [MASK] column, and of its part that distinguishes topics.

    For the topic part each word column is replaced by its topic's average, less the average of all words: keys (or
    queries) that differ between topics and not within them. Attention to topics can grow only through this part,
    attention to or from [MASK] through that column.
    """
    here = words_of(word_topics)
    topics = word_topics[here]
    member = (topics[:, None] == np.unique(topics)).astype(np.float64)
    size = member.sum(axis=0)
    words = matrix[..., here].astype(np.float64)
    averages = words @ (member / size)
    spread = (averages - words.mean(axis=-1, keepdims=True)) * np.sqrt(size)
    return np.linalg.norm(matrix[..., 0], axis=-1), np.linalg.norm(spread, axis=(-2, -1))


@dataclass(frozen=True)
class NormStages:
    """Where stage 1 ends in one run by its norms alone, and what W^V did before."""

    end: int | None
    """The first logged step at which W^K or W^Q has taken off; None if they never do."""

    growth: float
    """The share of ‖W^V‖'s growth over the run that is made by then, 0 to 1; 0 if it does not grow. If stage 1 does
    not end it is 1, or NaN if W^V does not grow either; NaN if the run diverged."""

    steps: float
    """The share of the run's steps that stage 1 takes; 1 without an end, NaN if the run diverged."""

    @property
    def diverged(self) -> bool:
        """Whether the run diverged, so that its norms show nothing."""
        return bool(np.isnan(self.steps))

    @property
    def two(self) -> bool:
        """Whether the run has two stages. A stage 1 that never ends is one stage."""
        return self.end is not None and self.growth >= LEAST_GROWTH and self.steps >= LEAST_STEPS


def norm_stages(
    steps: Int[np.ndarray, " row"],
    key: Float[np.ndarray, " row"],
    query: Float[np.ndarray, " row"],
    value: Float[np.ndarray, " row"],
) -> NormStages:
    """Two stages as they appear in a plot of norms.

    This is the paper's picture, and the rule of this package's first version. It depends on the initial scale (from
    nearly zero anything doubles at once) and on the run's length, so no claim of the paper rests on it any more.
    """
    if not np.isfinite([key[-1], query[-1], value[-1]]).all():
        return NormStages(None, np.nan, np.nan)
    grown = value[-1] - value[0]
    row = _first((key > NORM_TAKE_OFF * key[0]) | (query > NORM_TAKE_OFF * query[0]))
    if row is None:
        return NormStages(None, 1.0 if grown > 0 else np.nan, 1.0)
    # A norm that was once larger than it is in the end has made all of its growth, not several times it.
    growth = float(np.clip((value[row] - value[0]) / grown, 0, 1)) if grown > 0 else 0.0
    return NormStages(int(steps[row]), growth, float(steps[row] / steps[-1]))


def plateau(steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], end: int) -> float:
    """How fast ‖W^V‖ grows where stage 1 ends, relative to its beginning, both per step: 0 on a plateau, 1 without one.

    The beginning is the first half of stage 1; its end is the second half and as long again after it, so the number
    does not depend on how long the run goes on, unless it stops before.
    """
    half, after = np.searchsorted(steps, end / 2), _window_end(steps, end)
    before = (value[half] - value[0]) / (steps[half] - steps[0])
    around = (value[after] - value[half]) / (steps[after] - steps[half])
    return float(around / before)


def rotation(
    now: Float[np.ndarray, "*several row column"], before: Float[np.ndarray, "*several row column"]
) -> Float[np.ndarray, "*several"]:
    """Cosine distance (1 − cos)/2 ∈ [0, 1] between W^V and itself some steps earlier; NaN if one of them is 0."""
    first, second = now.astype(np.float64), before.astype(np.float64)
    sizes = np.linalg.norm(first, axis=(-2, -1)) * np.linalg.norm(second, axis=(-2, -1))
    with np.errstate(invalid="ignore"):
        return np.clip((1 - (first * second).sum(axis=(-2, -1)) / sizes) / 2, 0.0, 1.0)


def turning(
    steps: Int[np.ndarray, " row"], value: Float[np.ndarray, " row"], rotation: Float[np.ndarray, " row"], end: int
) -> float:
    r"""How much more W^V turns than it grows as stage 2 begins: angle over relative change of norm, both between rows.

    ``rotation`` compares W^V with itself one row earlier (log every 10 steps). "Locally rotates with an approximately
    constant norm" (§8.1) means well above 1. Both are medians over rows from the end of stage 1 to half as long again.
    """
    after = np.flatnonzero((steps > end) & (steps <= steps[_window_end(steps, end)]))
    angle = np.arccos(1 - 2 * rotation[after])
    change = np.abs(value[after] - value[after - 1]) / value[after - 1]
    return float(np.median(angle) / np.median(change))


def _window_end(steps: Int[np.ndarray, " row"], end: int) -> int:
    """The row at one and a half times the length of stage 1, or the last one."""
    return min(int(np.searchsorted(steps, 1.5 * end)), len(steps) - 1)
