"""Tables 1 and 5: same- over different-topic averages of language models, beside what the paper prints.

The rules are the paper's sentences: a trained model's ratios are above 1, an untrained one's within 2 % of 1. A head's
claim has the p-value that holds for all heads of its model (maximum statistic).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from topicscope.files import Row
from topicscope.paper.claim import (
    Claim,
    Detail,
    Drawing,
    Measurement,
    Preset,
    Results,
    Rule,
    above,
    decision_p,
    interval_given,
    near,
)
from topicscope.paper.probe_experiment import (
    FRACTIONS,
    Probed,
    Probing,
    measured,
    probe_claim,
    probing,
    probings,
    slug,
    tested,
    why_unavailable,
)
from topicscope.records import SIGNIFICANT
from topicscope.text.tokenizers import UNTRAINED

if TYPE_CHECKING:
    from topicscope.reporting.figures import Drawn

MEASURES = ("cosine", "dot", "attention")
BERT = "google-bert/bert-base-uncased"
UNTRAINED_BERT = f"{UNTRAINED}{BERT}"
# The hub's models that the paper's names stand for. It names no sizes; these are the base models.
PAPER_MODELS = {
    BERT: "Bert",
    "albert/albert-base-v2": "Albert",
    "facebook/bart-base": "Bart",
    "google/electra-base-discriminator": "Electra",
    "FacebookAI/roberta-base": "Roberta",
    UNTRAINED_BERT: "Bert (randomly initialized)",
}
# Table 1: same- over different-topic averages by model, one row per threshold: cosine, dot product, attention.
TABLE_1 = {
    BERT: ((1.21, 1.19, 1.32), (1.13, 1.15, 1.28), (1.11, 1.13, 1.22)),
    "albert/albert-base-v2": ((5.64, 6.29, 1.33), (4.18, 3.74, 1.28), (3.24, 2.93, 1.22)),
    "facebook/bart-base": ((2.80, 2.67, 1.35), (1.95, 1.92, 1.31), (1.63, 1.62, 1.23)),
    "google/electra-base-discriminator": ((5.98, 5.37, 2.14), (7.70, 7.35, 2.09), (7.46, 8.08, 1.95)),
    "FacebookAI/roberta-base": ((6.44, 6.81, 1.40), (5.73, 6.31, 1.31), (5.24, 5.30, 1.22)),
    UNTRAINED_BERT: ((1.00080, 1.00063, 0.99943), (0.99974, 1.00036, 0.99996), (1.00016, 1.00027, 1.00007)),
}
# "Untrained": ratios of Table 1's randomly initialised BERT are 0.9994 to 1.0008.
TOLERANCE = 0.02
QUANTITIES = {
    "cosine": "cosine similarity of embeddings (embedding layer's output)",
    "dot": "dot product of embeddings (embedding layer's output)",
    "attention": "attention",
}
TABLES = {"one": "Table 1", "several": "Table 5"}
TOPICS = {"one": "one topic a word", "several": "several topics a word"}


def table_1(model: str, fraction: float, measure: str) -> float:
    """One ratio of Table 1; of BERT (or the untrained one) for a model that is not the paper's."""
    like = UNTRAINED_BERT if model.startswith(UNTRAINED) else BERT
    return TABLE_1.get(model, TABLE_1[like])[FRACTIONS.index(fraction)][MEASURES.index(measure)]


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Of each model that is probed, then of each that the paper names."""
    found: list[Claim] = []
    for need in probings(preset):
        found += [*_ratio_claims(need, "one"), _head_claim(need)]
        if not need.untrained:
            found += _ratio_claims(need, "several")
    return (*found, *(_paper_claim(model, preset) for model in PAPER_MODELS))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Tables 1 and 5 as pictures, and the map of heads, of all models that can be probed."""
    needs = tuple(need for need in probings(preset) if not why_unavailable(need.model))
    if not needs:
        return ()
    trained = tuple(need for need in needs if not need.untrained)
    found = [
        Drawing(name="table1", needs=needs, draw=partial(_draw_ratios, needs, "one")),
        Drawing(name="heads", needs=needs, draw=partial(_draw_heads, needs)),
    ]
    if trained:
        found.append(Drawing(name="table5", needs=trained, draw=partial(_draw_ratios, trained, "several")))
    return tuple(found)


def _ratio_claims(need: Probing, assignment: str) -> list[Claim]:
    """Nine ratios: three measures at three thresholds."""
    table, random = TABLES[assignment].lower().replace(" ", ""), need.untrained
    says = "differs by less than 2 % between" if random else "is larger between words of the same topic than between"
    ends = "words of the same topic and words of different topics" if random else "words of different topics"
    return [
        probe_claim(
            need,
            partial(_ratio, need, fraction, assignment, measure),
            id=f"{table}/{need.slug}/{measure}-{fraction:g}",
            statement=f"In {need.words} on wiki-sample, at threshold {fraction:g} with {TOPICS[assignment]}, "
            f"the average {QUANTITIES[measure]} {says} {ends}.",
            expected=_expected(need, fraction, measure, assignment),
            rule=near(1, TOLERANCE) if random else above(1),
            unit="same / different topic",
            figure=table,
        )
        for measure in MEASURES
        for fraction in FRACTIONS
    ]


def _head_claim(need: Probing) -> Claim:
    """Trained: some head has more, by a test that holds for all heads together. Untrained: none differs by much."""
    random = need.untrained
    has = (
        "every head's attention differs by less than 2 % between words of the same topic and words of different topics"
        if random
        else "some head has more attention between words of the same topic than between words of different topics "
        "(tested for all heads of the model together)"
    )
    return probe_claim(
        need,
        _every_head if random else _some_head,
        id=f"table1/{need.slug}/heads",
        statement=f"In {need.words} on wiki-sample, at threshold {FRACTIONS[0]:g} with one topic a word, {has}.",
        expected="within 2 % of 1" if random else "> 1",
        rule=near(1, TOLERANCE) if random else above(1),
        unit="same / different topic",
        figure="heads",
        kind="ours",
    )


def _some_head(found: Probed) -> Measurement:
    """The head with more attention within topics that is the most significant; if none has, the one with the most.

    Its p-value is the test's for all heads together (maximum statistic), so that it was chosen is accounted for.
    """
    heads = _head_rows(found)
    if any(head["p"] is None or head["ratio"] is None for head in heads):
        # Without a test nothing can be said of a head, and so of all of them.
        return interval_given(np.nan, np.nan, np.nan, heads=len(heads))
    more = [head for head in heads if head["ratio"] > 1] or [max(heads, key=lambda head: head["ratio"])]
    chosen = min(more, key=lambda head: (head["p"], -head["ratio"]))
    ratio, significant = _heads(found)
    counted = {"more": int((significant & (ratio > 0)).sum()), "less": int((significant & (ratio < 0)).sum())}
    place = divmod(heads.index(chosen), ratio.shape[1])
    return tested(chosen, layer=place[0] + 1, head=place[1] + 1, heads=len(heads), **counted)


def _every_head(found: Probed) -> Measurement:
    """All heads: an absence of significant ones would say nothing, so each head's interval must be within the band."""
    ratio, significant = _heads(found)
    weak = weakest([measured(head) for head in _head_rows(found)], near(1, TOLERANCE))
    return replace(weak, details={"heads": ratio.size, "significant": int(significant.sum())})


def weakest(measurements: Sequence[Measurement], rule: Rule) -> Measurement:
    """Of several numbers that must all keep a rule, the one that says least for it.

    All hold if the one with the largest p-value does, so nothing needs correction. If one breaks the rule it was chosen
    among all: the clearest is taken, and its p-value times their number (Bonferroni). Undefined if one of them is.
    """
    undefined = [each for each in measurements if not each.finite]
    if undefined:
        return undefined[0]
    broken = [each for each in measurements if not rule.low < each.value < rule.high]
    if not broken:
        return max(measurements, key=lambda each: decision_p(rule, each))
    worst = min(broken, key=lambda each: decision_p(rule, each))
    interval, end = worst.interval(), rule.low if worst.value <= rule.low else rule.high
    p = min(len(measurements) * decision_p(rule, worst), 1.0)
    return interval_given(interval.value, interval.low, interval.high, p=p, null=end, **worst.details)


def _head_rows(found: Probed) -> list[Row]:
    """The contrasts of all heads at the smallest threshold, layer by layer."""
    return [head for layer in found.row(FRACTIONS[0], "one")["attention_by_layer_head"] for head in layer]


def _heads(found: Probed) -> tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]:
    """Each head's ratio at the smallest threshold, as log₂, and whether it is significant."""
    heads = found.row(FRACTIONS[0], "one")["attention_by_layer_head"]
    ratio = np.array([[np.nan if head["ratio"] is None else head["ratio"] for head in layer] for layer in heads])
    p = np.array([[1.0 if head["p"] is None else head["p"] for head in layer] for layer in heads])
    return np.log2(ratio), p < SIGNIFICANT


def _expected(need: Probing, fraction: float, measure: str, assignment: str) -> str:
    condition = "within 2 % of 1" if need.untrained else "> 1"
    if assignment == "several":
        return condition
    others = "the paper's untrained Bert" if need.untrained else "its Bert"
    whose = "the paper" if need.model in PAPER_MODELS else others
    return f"{condition} ({whose}: {table_1(need.model, fraction, measure):g})"


def _ratio(need: Probing, fraction: float, assignment: str, measure: str, found: Probed) -> Measurement:
    row = found.row(fraction, assignment)
    beside: dict[str, Detail] = {name: row[measure][name] for name in ("same", "different", "auc", "p")}
    if row[measure]["ratio"] is None:
        beside["no_ratio"] = row[measure]["ratio_note"]
    beside |= {"words": row["words"], "topics": row["topics"], "articles": row["articles"]}
    if measure != "attention":
        matrix = found.row(fraction, assignment, "matrix")[measure]
        centred = found.row(fraction, assignment, centred=True)[measure]
        beside |= {"ratio_on_matrix": matrix["ratio"], "difference_centred": centred["difference"]}
    return replace((measured if need.untrained else tested)(row[measure]), details=beside)


def _paper_claim(model: str, preset: Preset) -> Claim:
    """All of Table 1's ratios of one of the paper's models; not run unless it is named and there."""
    need = probing(model, preset)
    random = need.untrained
    reason = why_unavailable(model) if model in preset.models else f"it is not among --models: name {model} there."
    holds = "differ from 1 by less than 2 %" if random else "are above 1"
    return Claim(
        id=f"table1/{slug(PAPER_MODELS[model])}",
        statement=f"The paper's {PAPER_MODELS[model]} ({model}) on wiki-sample: all nine ratios, of attention and of "
        f"the embedding layer's output, {holds}.",
        expected="largest distance from 1 < 2 %" if random else "smallest > 1",
        rule=near(1, TOLERANCE) if random else above(1),
        measure=partial(_extreme_ratio, need),
        needs=() if reason else (need,),
        unit="same / different topic",
        figure="table1",
        unavailable=reason,
    )


def _extreme_ratio(need: Probing, results: Results) -> Measurement:
    """The ratio that says least for the rule: all nine hold if it does."""
    found: Probed = results[need.name]
    make, rule = (measured, near(1, TOLERANCE)) if need.untrained else (tested, above(1))
    nine = [(fraction, measure) for fraction in FRACTIONS for measure in MEASURES]
    return weakest(
        [make(found.row(fraction, "one")[measure], where=f"{measure} at {fraction:g}") for fraction, measure in nine],
        rule,
    )


def _draw_ratios(needs: tuple[Probing, ...], assignment: str, results: Results) -> "Drawn":
    from topicscope.reporting.figures.probe import RatioRow, ratio_table

    def row(need: Probing, fraction: float) -> RatioRow:
        found = results[need.name].row(fraction, assignment)
        return RatioRow(need.model, fraction, {name: found[name] for name in MEASURES})

    def printed(model: str, fraction: float) -> RatioRow:
        ratios = {name: {"ratio": table_1(model, fraction, name)} for name in MEASURES}
        return RatioRow(f"{PAPER_MODELS[model]} (paper)", fraction, ratios)

    named = {need.model for need in needs} & set(PAPER_MODELS) or {BERT}
    beside = [model for model in PAPER_MODELS if model in named and assignment == "one"]
    return ratio_table(
        [row(need, fraction) for need in needs for fraction in FRACTIONS],
        title=f"{TABLES[assignment]}: same over different topic on wiki-sample, {TOPICS[assignment]}",
        reference=[printed(model, fraction) for model in beside for fraction in FRACTIONS],
    )


def _draw_heads(needs: tuple[Probing, ...], results: Results) -> "Drawn":
    from topicscope.reporting.figures.probe import head_maps

    panels = {need.model: _heads(results[need.name]) for need in needs}
    return head_maps(
        panels, title="Attention by head on wiki-sample, threshold 0.0005 (dots: p < 0.05, all heads together)"
    )
