"""Table 2 and §8.2's question: is it topics, or only co-occurrence.

Table 2 compares same-topic pairs with as many pairs that co-occur most. Ours goes on: same-topic pairs against
different-topic pairs of equal co-occurrence and frequency (and, for attention, distance).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from topicscope.paper.claim import Claim, Detail, Measurement, Preset, above, below
from topicscope.paper.probe_experiment import FRACTIONS, Probed, Probing, measured, probe_claim, probings, tested

# Table 2, BERT, one row per threshold: attention of same-topic and of top co-occurring pairs, cosine of the same.
TABLE_2 = ((0.00659, 0.00751, 0.468, 0.316), (0.00621, 0.00695, 0.461, 0.311), (0.00597, 0.00677, 0.425, 0.323))


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Of every trained model, at every threshold: Table 2's comparisons, and ours."""
    more_similar = "have more similar embeddings (embedding layer's output) than"
    top_pairs = "the word pairs that co-occur most, as many as one topic has"
    found = []
    for need in probings(preset, trained=True):
        top, matched = partial(_claim, need, "table2", _top), partial(_claim, need, "section8.2", _matched, kind="ours")
        for fraction, (same, most, *_) in zip(FRACTIONS, TABLE_2, strict=True):
            what = f"give each other less attention than {top_pairs}"
            expected, unit = f"< 1 (its Bert: {same / most:.3f})", "same topic / top co-occurring"
            found.append(top("attention", fraction, what, rule=below(1), unit=unit, expected=expected))
        for fraction, (*_, same, most) in zip(FRACTIONS, TABLE_2, strict=True):
            expected, unit = f"> 0 (its Bert: {same - most:.3f})", "same topic − top co-occurring"
            found.append(
                top("cosine", fraction, f"{more_similar} {top_pairs}", rule=above(0), unit=unit, expected=expected)
            )
        others = "words of different topics of equal co-occurrence"
        for fraction in FRACTIONS:
            what = f"give each other more attention than {others}, frequency and distance"
            found.append(matched("attention", fraction, what, rule=above(1), unit="same / different topic, matched"))
        for fraction in FRACTIONS:
            what = f"{more_similar} {others} and frequency"
            found.append(matched("cosine", fraction, what, rule=above(0), unit="same − different topic, matched"))
    return tuple(found)


def _claim(
    need: Probing,
    about: str,
    compare: Callable[[float, str, Probed], Measurement],
    measure: str,
    fraction: float,
    what: str,
    **claim: Any,
) -> Claim:
    """On words of one topic in one model."""
    return probe_claim(
        need,
        partial(compare, fraction, measure),
        id=f"{about}/{need.slug}/{measure}-{fraction:g}",
        statement=f"In {need.words} on wiki-sample, at threshold {fraction:g}, words of one topic {what}.",
        **claim,
    )


def _top(fraction: float, measure: str, found: Probed) -> Measurement:
    """The ratio for attention, the difference for cosine; intervals over words and LDA seeds, no test."""
    row = found.row(fraction, "one")
    top = row["top_co_occurring"]
    number: Literal["ratio", "difference"] = "ratio" if measure == "attention" else "difference"
    same, different = top[measure]["same"], top[measure]["different"]
    return measured(top[measure], number=number, same_topic=same, top_co_occurring=different, pairs=top["pairs"])


def _matched(fraction: float, measure: str, found: Probed) -> Measurement:
    """The ratio for attention, the difference for cosine.

    Both intervals leave each topic out in turn and hold LDA seeds, the ratio's draws articles too; and the ratio must
    pass a permutation test over words.
    """
    row = found.row(fraction, "one")
    matched, plain = row["matched"][measure], row[measure]
    number: Literal["ratio", "difference"] = "ratio" if measure == "attention" else "difference"
    # How often the matched pairs still co-occur: what matching leaves of the difference that it is to remove.
    left = {f"co_occurrence_{name}": matched["co_occurrence"][name] for name in ("same", "different")}
    details: dict[str, Detail] = {"unmatched": plain[number], "share_of_pairs_matched": matched["share"], **left}
    if measure == "attention":
        return tested(matched, permutation_p=matched["p"], **details)
    return replace(measured(matched, number=number), details=details)
