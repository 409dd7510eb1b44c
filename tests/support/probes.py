"""Results of probes made by hand."""

from typing import Any

import numpy as np

from topicscope.papers.topic_structure import language
from topicscope.papers.topic_structure.experiments import FRACTIONS
from topicscope.probing.settings import PAPER_WORDS
from topicscope.records import (
    Comparison,
    HeadComparison,
    MatchedComparison,
    MatchedPairs,
    ProbeResult,
    ProbeRow,
    Ratio,
    TopPairs,
    WordMap,
)

NINE = [word for words in PAPER_WORDS.values() for word in words]
BY_TOPIC = np.repeat(np.arange(3), 3)


def numbers(same: float, different: float, kind: Any = Comparison, *, p: float | None = 1e-4, **more: Any) -> Any:
    """A comparison whose numbers are uncertain by three thousandths."""
    ratio, difference, spread = same / different, same - different, 0.006 * same
    return kind(
        same=same, different=different, ratio=ratio, low=ratio * 0.994, high=ratio * 1.006, difference=difference,
        difference_low=difference - spread, difference_high=difference + spread, auc=0.7, p=p, **more,
    )  # fmt: skip


def head(ratio: float, *, p: float = 0.01) -> HeadComparison:
    return numbers(0.01 * ratio, 0.01, HeadComparison, p=p)


def fabricated(
    ratio: float, *, model: str = "minilm", top: float = 0.8, matched: float = 1.2, **more: Any
) -> ProbeResult:
    """A model with this ratio, smaller at higher thresholds; ``top`` and ``matched`` are ratios to other pairs."""
    rows = []
    for place, fraction in enumerate(FRACTIONS):
        here = ratio ** (1 - 0.2 * place)
        fall = ratio**0.4
        own = {
            "model": model, "revision": "", "fraction": fraction, "words": 100, "topics": 10, "articles": 50,
            "cosine": numbers(0.2 * here, 0.2), "dot": numbers(2 * here, 2.0),
            "attention": numbers(0.01 * here, 0.01),
            "attention_by_layer_head": [[head(ratio, p=1.0 if ratio == 1 else 0.01)] * 2],
            "over_largest_threshold": None if place == 2 else dict.fromkeys(
                language.MEASURES, Ratio(ratio=fall, low=fall * 0.99, high=fall * 1.01)
            ),
            "top_co_occurring": TopPairs(
                pairs=105, attention=numbers(0.01 * top, 0.01), cosine=numbers(0.3 / top, 0.3)
            ),
            "matched": MatchedPairs(
                attention=numbers(0.01 * matched, 0.01, MatchedComparison, share=0.9),
                cosine=numbers(0.3 * matched, 0.3, MatchedComparison, share=0.9),
            ),
        } | more  # fmt: skip
        rows += [
            ProbeRow(**own, assignment=assignment, embedding=embedding, centred=centred)
            for assignment in ("one", "several")
            for embedding in ("matrix", "layer")
            for centred in (False, True)
        ]
    return ProbeResult(rows=rows, maps=[words(BY_TOPIC)])


def words(topic: np.ndarray) -> WordMap:
    """Figure 3's words, similar where these numbers are equal."""
    cosines = np.where(topic[:, None] == topic, 0.5, 0.1)
    return WordMap(model="minilm", words=NINE, cosine=cosines.tolist())
