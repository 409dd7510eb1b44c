"""Table 2 and §8.2's question: is it topics, or only co-occurrence.

Table 2 compares same-topic pairs with the pairs of any words (stop words left out) that co-occur most, as many as the
paper has. Ours goes on: same-topic pairs against different-topic pairs of equal co-occurrence and frequency (and, for
attention, distance).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from topicscope.paper.claim import Before, Claim, Detail, Diagnosis, Measurement, Preset, Verdict, above, below
from topicscope.paper.probe_experiment import (
    FRACTIONS,
    Probed,
    Probing,
    measured,
    probe_claim,
    probings,
    tested,
)
from topicscope.text.tokenizers import MINILM

# Table 2, BERT, one row per threshold: pairs; attention of same-topic and of top co-occurring pairs; their cosines.
TABLE_2 = (
    (105, 0.00659, 0.00751, 0.468, 0.316),
    (435, 0.00621, 0.00695, 0.461, 0.311),
    (1711, 0.00597, 0.00677, 0.425, 0.323),
)
# What an earlier version, with fewer pairs of labelled words alone, found for the packaged model.
ASKED_BEFORE = "pairs of labelled words alone, and as many as one topic has here (6, 28 and 105)"
FOUND_BEFORE: dict[str, tuple[Verdict, ...]] = {
    "attention": ("undecided", "undecided", "undecided"),
    "cosine": ("undecided", "fails", "fails"),
}


WHICH_MODEL = (
    "Whether it comes out otherwise than in the paper's Bert because that was trained on masked words, and minilm "
    "contrastively, or because the packaged text is a small sample, cannot be told without the paper's models."
)


def _diagnosis(need: Probing, measure: Literal["attention", "cosine"]) -> Diagnosis:
    """Why it may come out otherwise than in the paper."""
    if measure == "attention":
        said = (
            "This model gives words of one topic far more attention, compared with other words, than the paper's Bert "
            "does (Table 1), and the pairs that co-occur most, of which few are of one topic, about as much as uniform "
            "attention would (0.01). "
        )
        return Diagnosis(
            "settings",
            said + WHICH_MODEL,
            holds="for the paper's Bert, by the numbers of its Table 2",
            see=(f"table1/{need.slug}/attention-{FRACTIONS[0]:g}",),
        )
    said = (
        "The comparison is not at equal frequency: the pairs that co-occur most are of the most frequent words, and in "
        "this model these are similar although few of the pairs are of one topic. "
    )
    return Diagnosis(
        "settings",
        said + WHICH_MODEL,
        holds="among pairs of equal co-occurrence and frequency",
        see=tuple(f"section8.2/{need.slug}/cosine-{fraction:g}" for fraction in FRACTIONS),
    )


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Of every trained model, at every threshold: Table 2's comparisons, and ours."""
    more_similar = "have more similar embeddings (embedding layer's output) than"
    found = []
    for need in probings(preset, trained=True):
        matched = partial(_claim, need, "section8.2", _matched, kind="ours")
        found += [*_top_claims(need, "attention"), *_top_claims(need, "cosine")]
        others = "words of different topics of equal co-occurrence"
        for fraction in FRACTIONS:
            what = f"give each other more attention than {others}, frequency and distance"
            found.append(matched("attention", fraction, what, rule=above(1), unit="same / different topic, matched"))
        for fraction in FRACTIONS:
            what = f"{more_similar} {others} and frequency"
            found.append(matched("cosine", fraction, what, rule=above(0), unit="same − different topic, matched"))
    return tuple(found)


def _top_claims(need: Probing, measure: Literal["attention", "cosine"]) -> list[Claim]:
    """Less attention, and more similar embeddings, within topics than in the pairs that co-occur most."""
    found = []
    for place, (fraction, (pairs, *numbers)) in enumerate(zip(FRACTIONS, TABLE_2, strict=True)):
        top = f"the {pairs:,} pairs of words that co-occur most"
        if measure == "attention":
            same, most = numbers[:2]
            what, rule = f"give each other less attention than {top}", below(1)
            expected, unit = f"< 1 (its Bert: {same / most:.3f})", "same topic / top co-occurring"
        else:
            same, most = numbers[2:]
            what, rule = f"have more similar embeddings (embedding layer's output) than {top}", above(0)
            expected, unit = f"> 0 (its Bert: {same - most:.3f})", "same topic − top co-occurring"
        before = Before(ASKED_BEFORE, verdict=FOUND_BEFORE[measure][place]) if need.model == MINILM else None
        found.append(
            _claim(
                need,
                "table2",
                _top,
                measure,
                fraction,
                what,
                rule=rule,
                unit=unit,
                expected=expected,
                kind=need.kind,
                before=before,
                diagnosis=_diagnosis(need, measure) if need.model == MINILM else None,
            )
        )
    return found


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
    return measured(
        top[measure],
        number=number,
        same_topic=same,
        top_co_occurring=different,
        pairs=top["pairs"],
        share_of_top_pairs_of_one_topic=top["same_topic"],
    )


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
