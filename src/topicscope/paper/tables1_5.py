"""Tables 1 and 5: same- over different-topic averages of language models, beside what the paper prints; and §1.

The rules are the paper's sentences: a trained model's ratios are above 1, an untrained one's within 2 % of 1. LayerNorm
makes all embeddings nearly equally long, so cosine and dot product are one statement: the weaker of the two decides. A
head's claim has the p-value that holds for all heads of its model (maximum statistic).

§1 says that what is seen on Wikipedia is "even more pronounced on synthetic LDA data". The same ratio is compared; for
similarity, whose ratio is not defined where different topics have a cosine of about 0, it is the same difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.files import Row
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.paper import figure1, figure10
from topicscope.paper.claim import (
    Before,
    Claim,
    Detail,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    Rule,
    above,
    claim_on,
    decision_p,
    interval_given,
    near,
    over_seeds,
)
from topicscope.paper.experiment import ATTENTION_CLASSES, Experiment, Trained
from topicscope.paper.probe_experiment import (
    BERT,
    DEFAULT_MODELS,
    FRACTIONS,
    PAPER_MODELS,
    UNTRAINED_BERT,
    Probed,
    Probing,
    fall,
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

MEASURES = ("cosine", "dot", "attention")
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
# What is claimed, in words, and what it is measured by.
QUANTITIES = {
    "embeddings": "similarity of embeddings (embedding layer's output), by cosine and by dot product,",
    "attention": "attention",
}
MEASURED_BY = {"embeddings": ("cosine", "dot"), "attention": ("attention",)}
MEASURE_WORDS = {"cosine": "cosine ", "dot": "dot product ", "attention": ""}
TABLES = {"one": "Table 1", "several": "Table 5"}
TOPICS = {"one": "one topic per word", "several": "several topics per word"}
ON_SYNTHETIC_DATA = "trained with cross-entropy and Adam on the paper's synthetic documents"
MORE_PRONOUNCED_ATTENTION = (
    "Attention's topic structure is more pronounced on synthetic data: the ratio of attention between different words "
    "of the same topic to that between words of different topics is larger in Table 3's model (W^V trained) "
    f"{ON_SYNTHETIC_DATA}"
)
# What is measured on a synthetic model and a language model together.
Compared = Callable[[Trained, Probed], Measurement]


def table_1(model: str, fraction: float, measure: str) -> float:
    """One ratio of Table 1; that of BERT (or the untrained one) for a model that is not the paper's."""
    like = UNTRAINED_BERT if model.startswith(UNTRAINED) else BERT
    return TABLE_1.get(model, TABLE_1[like])[FRACTIONS.index(fraction)][MEASURES.index(measure)]


def _rule(need: Probing) -> Rule:
    """What the paper says about a model's ratios."""
    return near(1, TOLERANCE) if need.untrained else above(1)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The claims on each model that is probed, then on each that the paper names."""
    found: list[Claim] = []
    for need in probings(preset):
        found += [*_ratio_claims(need, "one"), _head_claim(need)]
        if not need.untrained:
            found += [_fall_claim(need), *_ratio_claims(need, "several"), *_synthetic_claims(need, preset)]
    return (*found, _printed_claim(preset), *(_paper_claim(model, preset) for model in PAPER_MODELS))


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Tables 1 and 5 as pictures, and the map of heads, for all models that can be probed."""
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
    """Six: similarity and attention at three thresholds."""
    table, random = TABLES[assignment].lower().replace(" ", ""), need.untrained
    says = "differs by less than 2 % between" if random else "is larger between words of the same topic than between"
    ends = "words of the same topic and words of different topics" if random else "words of different topics"
    return [
        probe_claim(
            need,
            partial(_ratio, need, fraction, assignment, quantity),
            id=f"{table}/{need.slug}/{quantity}-{fraction:g}",
            statement=f"In {need.words} on wiki-sample, at threshold {fraction:g} with {TOPICS[assignment]}, "
            f"the average {QUANTITIES[quantity]} {says} {ends}.",
            expected=_expected(need, fraction, quantity, assignment),
            rule=_rule(need),
            unit="same / different topic",
            figure=table,
            kind=need.kind,
            before=Before("cosine and dot product in a claim each", verdict="holds")
            if quantity == "embeddings" and need.model in DEFAULT_MODELS
            else None,
        )
        for quantity in QUANTITIES
        for fraction in FRACTIONS
    ]


def _fall_claim(need: Probing) -> Claim:
    """Table 1's attention ratios fall from threshold to threshold; those of cosines are Figure 3's claim."""
    first, last = FRACTIONS[0], FRACTIONS[-1]
    falls = table_1(need.model, first, "attention") / table_1(need.model, last, "attention")
    return probe_claim(
        need,
        lambda found: fall(found, "attention"),
        id=f"table1/{need.slug}/attention-falls",
        statement=f"In {need.words} on wiki-sample, the ratio of attention between words of the same topic to that "
        f"between words of different topics is larger at threshold {first:g} than at {last:g}, both under the same "
        "bootstrap draws.",
        expected=f"> 1 ({'the paper' if need.model in PAPER_MODELS else 'its Bert'}: {falls:.3f})",
        rule=above(1),
        unit=f"ratio at {first:g} / at {last:g}",
        figure="table1",
        kind=need.kind,
    )


def _synthetic_claims(need: Probing, preset: Preset) -> list[Claim]:
    """§1: what a language model shows is more pronounced in models of synthetic documents.

    These are trained as language models are, with cross-entropy and Adam. For the language model the smallest threshold
    with one topic per word counts: its ratios are the largest, and no word is in two topics, as in synthetic documents.
    """
    joint = figure10.joint(preset, "cross_entropy", "adam")
    embedding = figure1.experiment(preset, "cross_entropy", "adam")
    about = f"than in {need.words} on wiki-sample at threshold {FRACTIONS[0]:g}"
    reason = why_unavailable(need.model)

    said: dict[str, tuple[str, str, Rule, Experiment, Compared]] = {
        "attention": (
            MORE_PRONOUNCED_ATTENTION,
            "ratio on synthetic data / in the language model",
            above(1),
            joint,
            _attention_beside,
        ),
        "embeddings": (
            "The embeddings' topic structure is more pronounced on synthetic data: the average cosine of different "
            "words of the same topic exceeds that of words of different topics (word-embedding matrix) by more in "
            f"Figure 1's model {ON_SYNTHETIC_DATA}",
            "difference on synthetic data − in the language model",
            above(0),
            embedding,
            _embeddings_beside,
        ),
    }
    return [
        Claim(
            id=f"section1/{need.slug}/{name}",
            statement=f"{statement} {about}.",
            rule=rule,
            needs=() if reason else (need, experiment),
            measure=lambda results, of=experiment, measure=measure: measure(results[of.name], results[need.name]),  # type: ignore[misc]
            unit=unit,
            figure="table1",
            kind=need.kind,
            unavailable=reason,
        )
        for name, (statement, unit, rule, experiment, measure) in said.items()
    ]


def _printed_claim(preset: Preset) -> Claim:
    """§1 with the number that the paper itself prints for the model of its observations."""
    printed = table_1(BERT, FRACTIONS[0], "attention")
    return claim_on(
        figure10.joint(preset, "cross_entropy", "adam"),
        lambda trained: over_seeds(_attention_ratios(trained)),
        id="section1/printed-bert/attention",
        statement=f"{MORE_PRONOUNCED_ATTENTION} than the paper's Table 1 has it for Bert at threshold "
        f"{FRACTIONS[0]:g}.",
        expected=f"> {printed:g}",
        unit="same / different topic",
        rule=above(printed),
        figure="table3",
    )


def _attention_ratios(synthetic: Trained) -> Float[np.ndarray, " seed"]:
    """Attention between different words of the same topic over that between words of different topics."""
    same, different = (
        synthetic.attention[:, ATTENTION_CLASSES.index(name)] for name in ("same_topic", "different_topic")
    )
    return same / different


def _attention_beside(synthetic: Trained, found: Probed) -> Measurement:
    """The quotient of both ratios, with an interval from the difference of their logarithms."""
    ratios = _attention_ratios(synthetic)
    row = found.row(FRACTIONS[0], "one")["attention"]
    theirs = _interval(row, ("ratio", "low", "high"))
    logs = Interval(*(float(np.log(each)) for each in (theirs.value, theirs.low, theirs.high)))
    ends = independent_difference(student_interval(np.log(ratios)), logs)
    return interval_given(
        *(float(np.exp(each)) for each in (ends.value, ends.low, ends.high)),
        on_synthetic_data=float(ratios.mean()),
        in_the_language_model=theirs.value,
    )


def _embeddings_beside(synthetic: Trained, found: Probed) -> Measurement:
    row = found.row(FRACTIONS[0], "one", "matrix")["cosine"]
    theirs = _interval(row, ("difference", "difference_low", "difference_high"))
    mine = np.array([cosine_contrast(each, synthetic.word_topics) for each in synthetic.weights["embedding"]])
    ends = independent_difference(student_interval(mine), theirs)
    return interval_given(
        ends.value,
        ends.low,
        ends.high,
        on_synthetic_data=float(mine.mean()),
        in_the_language_model=theirs.value,
        ratio_in_the_language_model=row["ratio"],
    )


def cosine_contrast(embedding: Float[np.ndarray, "token width"], word_topics: Int[np.ndarray, " token"]) -> float:
    """Average cosine of different words of the same topic, minus that of words of different topics; without [MASK]."""
    words = embedding[1:] / np.linalg.norm(embedding[1:], axis=1, keepdims=True)
    cosines, same = words @ words.T, word_topics[1:, None] == word_topics[None, 1:]
    return float(cosines[same & ~np.eye(len(same), dtype=bool)].mean() - cosines[~same].mean())


def _interval(row: Row, names: tuple[str, str, str]) -> Interval:
    return Interval(*(np.nan if row[name] is None else float(row[name]) for name in names))


def independent_difference(one: Interval, other: Interval) -> Interval:
    """The difference of two independent numbers, with an interval from theirs (Zou and Donner's MOVER).

    Each end is as far out as both numbers' own ends on that side together, since errors of independent numbers add up
    in squares. For symmetric intervals of normal numbers it is the usual interval.
    """
    value = one.value - other.value
    return Interval(
        value,
        value - float(np.hypot(one.value - one.low, other.high - other.value)),
        value + float(np.hypot(one.high - one.value, other.value - other.low)),
    )


def _head_claim(need: Probing) -> Claim:
    """If trained, some head has more, by a test for all heads together; if untrained, none differs by much."""
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
        statement=f"In {need.words} on wiki-sample, at threshold {FRACTIONS[0]:g} with one topic per word, {has}.",
        expected="within 2 % of 1" if random else "> 1",
        rule=_rule(need),
        unit="same / different topic",
        figure="heads",
        kind="ours",
        diagnosis=Diagnosis(
            "power",
            "Averaged over layers and heads attention is even between topics. A single head of random weights prefers "
            "some words to others by chance, and on so few articles the interval of one head among all is wider than "
            "the band of 2 %. How many are significant by the test over all heads is among the details.",
            holds="for the average over layers and heads",
            see=tuple(f"table1/{need.slug}/attention-{fraction:g}" for fraction in FRACTIONS),
        )
        if random
        else None,
    )


def _some_head(found: Probed) -> Measurement:
    """The head with more attention within topics that is the most significant; if none has, the one with the most.

    Its p-value is the test's for all heads together (maximum statistic), which accounts for the choice.
    """
    heads = _head_rows(found)
    if any(head["p"] is None or head["ratio"] is None for head in heads):
        # Without a test nothing can be said about a head, and so about all of them.
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
    """Among several numbers that must all obey a rule, the one that supports it least.

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


def _expected(need: Probing, fraction: float, quantity: str, assignment: str) -> str:
    condition = "within 2 % of 1" if need.untrained else "> 1"
    if assignment == "several":
        return condition
    others = "the paper's untrained Bert" if need.untrained else "its Bert"
    whose = "the paper" if need.model in PAPER_MODELS else others
    numbers = [f"{MEASURE_WORDS[each]}{table_1(need.model, fraction, each):g}" for each in MEASURED_BY[quantity]]
    return f"{condition} ({whose}: {', '.join(numbers)})"


def _ratio(need: Probing, fraction: float, assignment: str, quantity: str, found: Probed) -> Measurement:
    """The ratio of attention; or, of cosine and dot product, the one that supports the rule less."""
    row, names = found.row(fraction, assignment), MEASURED_BY[quantity]
    weak = weakest([_tested(need, row[name]) for name in names], _rule(need))
    beside: dict[str, Detail] = {}
    for name in names:
        start = "" if len(names) == 1 else f"{name}_"
        beside |= {f"{start}{each}": row[name][each] for each in ("ratio", "same", "different", "auc", "p")}
        if row[name]["ratio"] is None:
            beside[f"{start}no_ratio"] = row[name]["ratio_note"]
        if quantity == "embeddings":
            matrix = found.row(fraction, assignment, "matrix")[name]
            centred = found.row(fraction, assignment, centred=True)[name]
            beside |= {f"{name}_ratio_on_matrix": matrix["ratio"], f"{name}_difference_centred": centred["difference"]}
    beside |= {"words": row["words"], "topics": row["topics"], "articles": row["articles"]}
    return replace(weak, details=beside)


def _paper_claim(model: str, preset: Preset) -> Claim:
    """All of Table 1's ratios of one of the paper's models; not run unless it is named and available."""
    need = probing(model, preset)
    random = need.untrained
    reason = why_unavailable(model) if model in preset.models else f"it is not among --models: name {model} there."
    holds = "differ from 1 by less than 2 %" if random else "are above 1"
    return Claim(
        id=f"table1/{slug(PAPER_MODELS[model])}",
        statement=f"The paper's {PAPER_MODELS[model]} ({model}) on wiki-sample: all nine ratios, of attention and of "
        f"the embedding layer's output, {holds}.",
        expected="largest distance from 1 < 2 %" if random else "smallest > 1",
        rule=_rule(need),
        measure=partial(_extreme_ratio, need),
        needs=() if reason else (need,),
        unit="same / different topic",
        figure="table1",
        unavailable=reason,
    )


def _extreme_ratio(need: Probing, results: Results) -> Measurement:
    """The ratio that supports the rule least: all nine hold if it does."""
    nine = [
        _tested(need, results[need.name].row(fraction, "one")[measure], where=f"{measure} at {fraction:g}")
        for fraction in FRACTIONS
        for measure in MEASURES
    ]
    return weakest(nine, _rule(need))


def _tested(need: Probing, contrast: Row, **details: Detail) -> Measurement:
    """A ratio; that of a trained model needs its test too."""
    return replace(measured(contrast) if need.untrained else tested(contrast), details=details)


def _draw_ratios(needs: tuple[Probing, ...], assignment: str, results: Results) -> Drawn:
    from topicscope.reporting.figures.probe import ratio_table

    def row(need: Probing, fraction: float) -> Row:
        found = results[need.name].row(fraction, assignment)
        return {"model": need.model, "fraction": fraction, **{name: found[name] for name in MEASURES}}

    def printed(model: str, fraction: float) -> Row:
        ratios = {name: {"ratio": table_1(model, fraction, name)} for name in MEASURES}
        return {"model": f"{PAPER_MODELS[model]} (paper)", "fraction": fraction, **ratios}

    named = {need.model for need in needs} & set(PAPER_MODELS) or {BERT}
    beside = [model for model in PAPER_MODELS if model in named and assignment == "one"]
    return ratio_table(
        [row(need, fraction) for need in needs for fraction in FRACTIONS],
        title=f"{TABLES[assignment]}: same over different topic on wiki-sample, {TOPICS[assignment]}",
        reference=[printed(model, fraction) for model in beside for fraction in FRACTIONS],
    )


def _draw_heads(needs: tuple[Probing, ...], results: Results) -> Drawn:
    from topicscope.reporting.figures.probe import head_maps

    panels = {need.model: _heads(results[need.name]) for need in needs}
    return head_maps(
        panels, title="Attention by head on wiki-sample, threshold 0.0005 (dots: p < 0.05, all heads together)"
    )
