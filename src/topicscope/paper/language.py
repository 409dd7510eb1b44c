"""Natural language: Tables 1 and 5, and the models that the paper names.

By default ``minilm`` (all-MiniLM-L6-v2, trained contrastively; not the paper's BERT) and the same network untrained are
probed on ``wiki-sample``, gensim's shortened Wikipedia; ``--models`` names others. The rules are the paper's sentences:
a trained model's ratios are above 1, an untrained one's within 2 % of 1. Similarities are those of the embedding
layer's output, which the paper's untrained BERT points to; the word-embedding matrix stands beside them.

Each claim's own test corrects for nothing but itself: its p-value permutes words of the first LDA seed's topics within
strata of frequency. Its number is the average over LDA seeds; its interval draws articles (attention) or topics and
words (similarity) anew, and LDA seeds on top. Claims correct for each other in ``verdict_corrected`` (Holm), and the
map of heads for all layers and heads of its model (maximum statistic).
"""

import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Bool, Float

from topicscope.paper.claims import (
    Claim,
    Detail,
    Drawing,
    Measurement,
    Preset,
    above,
    below,
    exact,
    interval_given,
    near,
)
from topicscope.paper.needs import Results
from topicscope.paper.printed import BERT, FRACTIONS, MEASURES, PAPER_MODELS, table_1
from topicscope.paper.probing import Probed, Probing, Row, available, models_of, probing, untrained, why_unavailable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topicscope.report.probe import RatioRow

# "Untrained": ratios of Table 1's randomly initialised BERT are 0.9994 to 1.0008.
TOLERANCE = 0.02
QUANTITIES = {
    "cosine": "cosine similarity of embeddings",
    "dot": "dot product of embeddings",
    "attention": "attention",
}
TABLES = {"one": "Table 1", "several": "Table 5"}
TOPICS = {"one": "one topic a word", "several": "several topics a word"}
SIGNIFICANT = 0.05


def claims(preset: Preset) -> tuple[Claim, ...]:
    """Of each model that is probed, then of each that the paper names."""
    found: list[Claim] = []
    for model in models_of(preset):
        need = probing(model, preset)
        found += [*_ratio_claims(need, "one"), _head_claim(need)]
        if not untrained(model):
            found += _ratio_claims(need, "several")
    return (*found, *(_paper_claim(model, preset) for model in PAPER_MODELS))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Tables 1 and 5 as pictures, and the map of heads, of all models that can be probed."""
    needs = tuple(probing(model, preset) for model in models_of(preset) if not why_unavailable(model))
    if not needs:
        return ()
    trained = tuple(need for need in needs if not untrained(need.model))
    found = [
        Drawing(name="table1", needs=needs, draw=partial(_draw_ratios, needs, "one")),
        Drawing(name="heads", needs=needs, draw=partial(_draw_heads, needs)),
    ]
    if trained:
        found.append(Drawing(name="table5", needs=trained, draw=partial(_draw_ratios, trained, "several")))
    return tuple(found)


def slug(model: str) -> str:
    """A model's name within a claim's id."""
    return re.sub(r"[^a-z0-9.]+", "-", model.lower()).strip("-.")


def described(model: str) -> str:
    """A model's name in a sentence."""
    known = {
        "minilm": "minilm (all-MiniLM-L6-v2, trained contrastively)",
        "random:minilm": "random:minilm (its architecture, untrained)",
    }
    return known.get(model, model)


def _ratio_claims(need: Probing, assignment: str) -> list[Claim]:
    """Nine ratios: three measures at three thresholds."""
    model, table, random = need.model, TABLES[assignment], untrained(need.model)
    says = "differs by less than 2 % between" if random else "is larger between words of the same topic than between"
    ends = "words of the same topic and words of different topics" if random else "words of different topics"
    return [
        Claim(
            id=f"{slug(table).replace('-', '')}/{slug(model)}/{measure}-{fraction:g}",
            source=table,
            statement=f"In {described(model)} on wiki-sample, at threshold {fraction:g} with {TOPICS[assignment]}, "
            f"the average {QUANTITIES[measure]} {says} {ends}.",
            expected=_expected(model, fraction, measure, assignment),
            rule=near(1, TOLERANCE) if random else above(1),
            measure=partial(_ratio, need, fraction, assignment, measure),
            needs=available(need),
            unit="same / different topic",
            figure=slug(table).replace("-", ""),
            unavailable=why_unavailable(model),
        )
        for measure in MEASURES
        for fraction in FRACTIONS
    ]


def _head_claim(need: Probing) -> Claim:
    """Significant heads: the test's p-values hold for all of a model's heads together."""
    random = untrained(need.model)
    has = "no head has significantly more or less attention" if random else "some head has significantly more attention"
    return Claim(
        id=f"table1/{slug(need.model)}/heads",
        source="Table 1",
        statement=f"In {described(need.model)} on wiki-sample, at threshold {FRACTIONS[0]:g} with one topic a word, "
        f"{has} between words of the same topic (5 % for all heads of the model together).",
        expected=0 if random else "> 0",
        rule=below(1) if random else above(0),
        measure=partial(_significant_heads, need),
        needs=available(need),
        unit="heads",
        figure="heads",
        ours=True,
        unavailable=why_unavailable(need.model),
    )


def _significant_heads(need: Probing, results: Results) -> Measurement:
    ratio, significant = _heads(results[need.name])
    if _untested(results[need.name]):
        # Without a test nothing can be said of the head, neither that it is significant nor that it is not.
        return exact(np.nan, heads=ratio.size, heads_without_a_test=_untested(results[need.name]))
    more, less = int((significant & (ratio > 0)).sum()), int((significant & (ratio < 0)).sum())
    return exact(more + less if untrained(need.model) else more, more=more, less=less, heads=ratio.size)


def _heads(found: Probed) -> tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]:
    """Each head's ratio at the smallest threshold, as log₂, and whether it is significant."""
    heads = found.row(FRACTIONS[0], "one")["attention_by_layer_head"]
    ratio = np.array([[np.nan if head["ratio"] is None else head["ratio"] for head in layer] for layer in heads])
    p = np.array([[1.0 if head["p"] is None else head["p"] for head in layer] for layer in heads])
    return np.log2(ratio), p < SIGNIFICANT


def _untested(found: Probed) -> int:
    """How many heads have no p-value."""
    heads = found.row(FRACTIONS[0], "one")["attention_by_layer_head"]
    return sum(head["p"] is None for layer in heads for head in layer)


def _expected(model: str, fraction: float, measure: str, assignment: str) -> str:
    condition = "within 2 % of 1" if untrained(model) else "> 1"
    if assignment == "several":
        return condition
    whose = "the paper" if model in PAPER_MODELS else "the paper's untrained Bert" if untrained(model) else "its Bert"
    return f"{condition} ({whose}: {table_1(model, fraction, measure):g})"


def _ratio(need: Probing, fraction: float, assignment: str, measure: str, results: Results) -> Measurement:
    found: Probed = results[need.name]
    row = found.row(fraction, assignment)
    beside: dict[str, Detail] = {name: row[measure][name] for name in ("same", "different", "auc", "p")}
    if row[measure]["ratio"] is None:
        beside["no_ratio"] = row[measure]["ratio_note"]
    beside |= {"words": row["words"], "topics": row["topics"], "articles": row["articles"]}
    if measure != "attention":
        matrix = found.row(fraction, assignment, "matrix")[measure]
        centred = found.row(fraction, assignment, centred=True)[measure]
        beside |= {"ratio_on_matrix": matrix["ratio"], "difference_centred": centred["difference"]}
    if untrained(need.model):
        return replace(measured(row[measure]), details=beside)
    return replace(tested(row[measure]), details=beside)


def tested(contrast: Row, **details: Detail) -> Measurement:
    """The ratio of a contrast with its interval and its test; without the test nothing is decided by the interval."""
    known = contrast | ({"ratio": None} if contrast["p"] is None else {})
    return measured(known, test=contrast["p"], **details)


def measured(
    contrast: Row, *, number: Literal["ratio", "difference"] = "ratio", test: float | None = None, **details: Detail
) -> Measurement:
    """The ratio (or difference) of a contrast with its interval and its test; NaN where a ratio is not defined."""
    ends = ("low", "high") if number == "ratio" else ("difference_low", "difference_high")
    value, low, high = (np.nan if contrast[name] is None else contrast[name] for name in (number, *ends))
    return interval_given(value, low, high, p=test, null=1.0 if number == "ratio" else 0.0, **details)


def _paper_claim(model: str, preset: Preset) -> Claim:
    """All of Table 1's ratios of one of the paper's models; not run unless it is named and there."""
    need, random = probing(model, preset), untrained(model)
    reason = why_unavailable(model) if model in preset.models else f"it is not among --models: name {model} there."
    holds = "differ from 1 by less than 2 %" if random else "are above 1"
    return Claim(
        id=f"table1/{slug(PAPER_MODELS[model])}",
        source="Table 1",
        statement=f"The paper's {PAPER_MODELS[model]} ({model}): all nine ratios {holds}.",
        expected="largest distance from 1 < 2 %" if random else "smallest > 1",
        rule=near(1, TOLERANCE) if random else above(1),
        measure=partial(_extreme_ratio, need),
        needs=() if reason else (need,),
        unit="same / different topic",
        figure="table1",
        unavailable=reason,
    )


def _extreme_ratio(need: Probing, results: Results) -> Measurement:
    """The ratio that comes closest to breaking the rule: all nine hold if it does, so nothing needs correction."""
    found: Probed = results[need.name]
    nine = [(fraction, measure) for fraction in FRACTIONS for measure in MEASURES]
    rows = [found.row(fraction, "one")[measure] for fraction, measure in nine]
    needed = ("ratio", "low", "high") if untrained(need.model) else ("ratio", "low", "high", "p")
    undefined = [row for row in rows if any(row[name] is None for name in needed)]
    if undefined:
        return measured(undefined[0] | {"ratio": None})
    if untrained(need.model):
        worst = max(range(9), key=lambda place: max(abs(rows[place]["low"] - 1), abs(rows[place]["high"] - 1)))
        return measured(rows[worst], where=f"{nine[worst][1]} at {nine[worst][0]:g}")
    worst = min(range(9), key=lambda place: rows[place]["low"])
    p = max(row["p"] for row in rows)
    return measured(rows[worst], test=p, where=f"{nine[worst][1]} at {nine[worst][0]:g}")


def _draw_ratios(needs: tuple[Probing, ...], assignment: str, results: Results) -> "Figure":
    from topicscope.report.probe import ratio_table

    rows = [
        _ratio_row(need.model, fraction, results[need.name].row(fraction, assignment))
        for need in needs
        for fraction in FRACTIONS
    ]
    named = {need.model for need in needs} & set(PAPER_MODELS) or {BERT}
    printed = _printed_rows(named) if assignment == "one" else []
    about = f"{TABLES[assignment]}: same over different topic on wiki-sample, {TOPICS[assignment]}"
    return ratio_table(rows, title=about, reference=printed)


def _ratio_row(model: str, fraction: float, row: Row) -> "RatioRow":
    from topicscope.report.probe import Ratio, RatioRow

    ratios = {name: Ratio(*(row[name][end] for end in ("ratio", "low", "high"))) for name in MEASURES}
    return RatioRow(model, fraction, ratios)


def _printed_rows(models: set[str]) -> "list[RatioRow]":
    from topicscope.report.probe import Ratio, RatioRow

    return [
        RatioRow(
            f"{PAPER_MODELS[model]} (paper)",
            fraction,
            {name: Ratio(table_1(model, fraction, name)) for name in MEASURES},
        )
        for model in PAPER_MODELS
        if model in models
        for fraction in FRACTIONS
    ]


def _draw_heads(needs: tuple[Probing, ...], results: Results) -> "Figure":
    from topicscope.report.probe import head_maps

    panels = {need.model: _heads(results[need.name]) for need in needs}
    return head_maps(
        panels, title="Attention by head on wiki-sample, threshold 0.0005 (dots: p < 0.05, all heads together)"
    )
