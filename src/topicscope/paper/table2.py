"""Table 2 and §8.2's question: is it topics, or only co-occurrence.

Table 2 compares same-topic pairs with as many pairs that co-occur most. Ours goes on: same-topic pairs against
different-topic pairs of equal co-occurrence and frequency (and, for attention, distance).
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

from topicscope.paper.claim import Claim, Detail, Measurement, Preset, above, below
from topicscope.paper.probe_experiment import (
    FRACTIONS,
    Probed,
    Probing,
    described,
    measured,
    models_of,
    probe_claim,
    probing,
    slug,
    tested,
    untrained,
)

# Table 2, BERT, one row per threshold: attention of same-topic and of top co-occurring pairs, cosine of the same.
TABLE_2 = ((0.00659, 0.00751, 0.468, 0.316), (0.00621, 0.00695, 0.461, 0.311), (0.00597, 0.00677, 0.425, 0.323))


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Of every trained model, at every threshold."""
    trained = [probing(model, preset) for model in models_of(preset) if not untrained(model)]
    return tuple(
        make(need, fraction)
        for need in trained
        for make in (_top_attention, _top_cosine, _matched_attention, _matched_cosine)
        for fraction in FRACTIONS
    )


def _top_attention(need: Probing, fraction: float) -> Claim:
    same, top, *_ = TABLE_2[FRACTIONS.index(fraction)]
    return _claim(
        need,
        fraction,
        "table2/attention",
        "give each other less attention than the word pairs that co-occur most, as many as one topic has",
        expected=f"< 1 (its Bert: {same / top:.3f})",
        rule=below(1),
        unit="same topic / top co-occurring",
    )


def _top_cosine(need: Probing, fraction: float) -> Claim:
    *_, same, top = TABLE_2[FRACTIONS.index(fraction)]
    return _claim(
        need,
        fraction,
        "table2/cosine",
        "have more similar embeddings (embedding layer's output) than the word pairs that co-occur most, as many as "
        "one topic has",
        expected=f"> 0 (its Bert: {same - top:.3f})",
        rule=above(0),
        unit="same topic − top co-occurring",
    )


def _matched_attention(need: Probing, fraction: float) -> Claim:
    return _claim(
        need,
        fraction,
        "section8.2/attention",
        "give each other more attention than words of different topics of equal co-occurrence, frequency and distance",
        rule=above(1),
        unit="same / different topic, matched",
        kind="ours",
    )


def _matched_cosine(need: Probing, fraction: float) -> Claim:
    return _claim(
        need,
        fraction,
        "section8.2/cosine",
        "have more similar embeddings (embedding layer's output) than words of different topics of equal co-occurrence "
        "and frequency",
        rule=above(0),
        unit="same − different topic, matched",
        kind="ours",
    )


def _claim(need: Probing, fraction: float, name: str, what: str, **claim: Any) -> Claim:
    """On words of one topic in one model; the name says which comparison, and of what."""
    about, measure = name.split("/")
    source, compare = {"table2": ("Table 2", _top), "section8.2": ("§8.2", _matched)}[about]
    return probe_claim(
        need,
        partial(compare, fraction, measure),
        id=f"{about}/{slug(need.model)}/{measure}-{fraction:g}",
        source=source,
        statement=f"In {described(need.model)} on wiki-sample, at threshold {fraction:g}, words of one topic {what}.",
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
