"""What claims measure on language models: Tables 1, 2 and 5, Figure 3, §1 and §8.2.

Similarities are those of the embedding layer's output, which the paper's untrained BERT suggests; the word-embedding
matrix is among the details. Each number is the average over LDA seeds. Its interval draws articles (attention) or
topics and words (similarity) anew, and LDA seeds with them; matched pairs leave topics out in turn. Ratios of trained
models must pass a permutation test of words within strata of frequency too. Neither is corrected for the number of
claims or rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.measure.run import Run
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.papers.claim import Detail, Measurement, Results, Rule, exact, interval_given, over_seeds, weakest
from topicscope.papers.topic_structure.experiments import BERT, FRACTIONS, PAPER_MODELS, UNTRAINED
from topicscope.papers.topic_structure.trained import ATTENTION_CLASSES
from topicscope.probing.settings import PAPER_WORDS
from topicscope.records import (
    SIGNIFICANT,
    AttentionComparison,
    Comparison,
    HeadComparison,
    ProbeResult,
    ProbeRow,
    Ratio,
)

# Table 1: same- over different-topic averages by model, one row per threshold: cosine, dot product, attention.
TABLE_1 = {
    "Bert": ((1.21, 1.19, 1.32), (1.13, 1.15, 1.28), (1.11, 1.13, 1.22)),
    "Albert": ((5.64, 6.29, 1.33), (4.18, 3.74, 1.28), (3.24, 2.93, 1.22)),
    "Bart": ((2.80, 2.67, 1.35), (1.95, 1.92, 1.31), (1.63, 1.62, 1.23)),
    "Electra": ((5.98, 5.37, 2.14), (7.70, 7.35, 2.09), (7.46, 8.08, 1.95)),
    "Roberta": ((6.44, 6.81, 1.40), (5.73, 6.31, 1.31), (5.24, 5.30, 1.22)),
    "Bert (randomly initialized)": (
        (1.00080, 1.00063, 0.99943),
        (0.99974, 1.00036, 0.99996),
        (1.00016, 1.00027, 1.00007),
    ),
}
# Table 2, Bert, by threshold: attention of same-topic and of top co-occurring pairs, then their cosines.
TABLE_2 = {
    0.0005: (0.00659, 0.00751, 0.468, 0.316),
    0.001: (0.00621, 0.00695, 0.461, 0.311),
    0.002: (0.00597, 0.00677, 0.425, 0.323),
}
MEASURES = ("cosine", "dot", "attention")
MEASURE_WORDS = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
# "Untrained": ratios of Table 1's randomly initialised BERT are 0.9994 to 1.0008.
LIKE_UNTRAINED = Rule(0.98, 1.02)


def probed(results: Results) -> dict[str, ProbeResult]:
    """The language models among the results, by name."""
    return {result.rows[0].model: result for result in results.values() if isinstance(result, ProbeResult)}


def row_of(
    result: ProbeResult, fraction: float, assignment: str = "one", embedding: str = "layer", *, centred: bool = False
) -> ProbeRow:
    """The row of these settings."""
    wanted = (fraction, assignment, embedding, centred)
    [row] = [row for row in result.rows if (row.fraction, row.assignment, row.embedding, row.centred) == wanted]
    return row


def printed(model: str, fraction: float, measure: str) -> float:
    """One ratio of Table 1; that of Bert (or of the untrained one) for a model that is not the paper's."""
    other = PAPER_MODELS[f"{UNTRAINED}{BERT}" if model.startswith(UNTRAINED) else BERT]
    return TABLE_1[PAPER_MODELS.get(model, other)][FRACTIONS.index(fraction)][MEASURES.index(measure)]


def number(value: float | None) -> float:
    """NaN for what is not defined."""
    return np.nan if value is None else value


def ratio(comparison: Comparison | Ratio, *, p: float = np.nan, **details: Detail) -> Measurement:
    """A ratio with its interval; with ``p``, the test of a ratio of 1 counts too."""
    ends = (number(comparison.ratio), number(comparison.low), number(comparison.high))
    return interval_given(*ends, p=p, null=1.0).beside(**details)


def tested(comparison: Comparison, **details: Detail) -> Measurement:
    """A ratio with its interval and its permutation test; without the test the interval decides nothing."""
    if comparison.p is None:
        return interval_given(np.nan, np.nan, np.nan).beside(**details)
    return ratio(comparison, p=comparison.p).beside(**details)


def difference(comparison: Comparison, **details: Detail) -> Measurement:
    """A difference with its interval."""
    ends = (comparison.difference, comparison.difference_low, comparison.difference_high)
    return interval_given(*map(number, ends)).beside(**details)


def at_thresholds(results: Results, measure: Callable[[ProbeResult, float], Measurement]) -> dict[str, Measurement]:
    """A row for each model and threshold."""
    return {
        f"{model}, {fraction:g}": measure(result, fraction)
        for model, result in probed(results).items()
        for fraction in FRACTIONS
    }


# Tables 1 and 5.


def ratios(
    results: Results, *, measures: Sequence[str] = MEASURES, assignment: str = "one", test: bool = True
) -> dict[str, Measurement]:
    """Same- over different-topic averages, by model, measure and threshold."""
    rows = {}
    for model, result in probed(results).items():
        for measure in measures:
            for fraction in FRACTIONS:
                name = f"{model}, {MEASURE_WORDS[measure]}, {fraction:g}"
                rows[name] = _table_ratio(result, measure, fraction, assignment, test=test)
    return rows


def _table_ratio(result: ProbeResult, measure: str, fraction: float, assignment: str, *, test: bool) -> Measurement:
    row = row_of(result, fraction, assignment)
    comparison: Comparison = getattr(row, measure)
    details: dict[str, Detail] = {
        name: getattr(comparison, name) for name in ("same", "different", "auc", "p", "ratio_note")
    }
    if measure != "attention":
        details["ratio_on_matrix"] = getattr(row_of(result, fraction, assignment, "matrix"), measure).ratio
        details["difference_centred"] = getattr(row_of(result, fraction, assignment, centred=True), measure).difference
    if assignment == "one":
        model = row.model
        printed_for = "this_model" if model in PAPER_MODELS else "Bert"
        details[f"the_paper_prints_for_{printed_for}"] = printed(model, fraction, measure)
    details |= {"words": row.words, "topics": row.topics, "articles": row.articles}
    shown = {name: value for name, value in details.items() if value is not None}
    return (tested(comparison) if test else ratio(comparison)).beside(**shown)


def fall(results: Results, *, measure: str) -> dict[str, Measurement]:
    """How many times as large a ratio is at the smallest threshold as at the largest, under the same draws."""
    rows = {}
    for model, result in probed(results).items():
        few, many = (row_of(result, fraction) for fraction in (FRACTIONS[0], FRACTIONS[-1]))
        compared = (few.over_largest_threshold or {}).get(measure, Ratio())
        ends = {f"at_{row.fraction:g}".replace(".", "_"): number(getattr(row, measure).ratio) for row in (few, many)}
        rows[model] = ratio(compared).beside(**ends)
    return rows


def heads_of(result: ProbeResult) -> list[list[HeadComparison]]:
    """The contrasts of all heads at the smallest threshold, layer by layer."""
    return row_of(result, FRACTIONS[0]).attention_by_layer_head


def head_numbers(result: ProbeResult) -> tuple[Float[np.ndarray, "layer head"], Bool[np.ndarray, "layer head"]]:
    """Each head's log₂ of the ratio, and whether it is significant by the test for all heads together."""
    heads = heads_of(result)
    logs = np.log2([[number(head.ratio) for head in layer] for layer in heads])
    return logs, np.array([[head.p is not None and head.p < SIGNIFICANT for head in layer] for layer in heads])


def some_head(results: Results) -> dict[str, Measurement]:
    """The head with more attention within topics that is the most significant; if none has, the one with the most.

    Its p-value is the test's for all heads of the model together (maximum statistic), which accounts for the choice.
    """
    return {model: _some_head(result) for model, result in probed(results).items()}


def _some_head(result: ProbeResult) -> Measurement:
    heads = {(layer, head): each for layer, row in enumerate(heads_of(result), 1) for head, each in enumerate(row, 1)}
    if any(head.p is None or head.ratio is None for head in heads.values()):
        # Without a test nothing can be said about a head, and so about all of them.
        return interval_given(np.nan, np.nan, np.nan, heads=len(heads))
    more = [place for place, head in heads.items() if number(head.ratio) > 1]
    at = min(
        more or [max(heads, key=lambda place: number(heads[place].ratio))],
        key=lambda place: (number(heads[place].p), -number(heads[place].ratio)),
    )
    logs, significant = head_numbers(result)
    counts = {"more": int((significant & (logs > 0)).sum()), "less": int((significant & (logs < 0)).sum())}
    return tested(heads[at], layer=at[0], head=at[1], heads=len(heads), **counts)


def every_head(results: Results) -> dict[str, Measurement]:
    """The head that supports "as in an untrained model" least: an absence of significant heads would say nothing."""
    rows = {}
    for model, result in probed(results).items():
        weak = weakest(LIKE_UNTRAINED, [ratio(head) for layer in heads_of(result) for head in layer])
        significant = head_numbers(result)[1]
        rows[model] = replace(weak, details={"heads": significant.size, "significant": int(significant.sum())})
    return rows


# §1: more pronounced on synthetic data.


def attention_ratios(synthetic: Run) -> Float[np.ndarray, " seed"]:
    """Attention between different words of the same topic over that between words of different topics."""
    same, different = (
        synthetic.final["attention"][:, ATTENTION_CLASSES.index(name)] for name in ("same_topic", "different_topic")
    )
    return np.asarray(same / different)


def printed_bert(results: Results) -> Measurement:
    """That ratio in Table 3's model, for the rule with the number that the paper prints for Bert."""
    (synthetic,) = results.values()
    return over_seeds(attention_ratios(synthetic))


def attention_beside(results: Results, *, synthetic: str) -> dict[str, Measurement]:
    """The quotient of the synthetic model's ratio and the language model's, from the difference of their logarithms."""
    own = attention_ratios(results[synthetic])
    rows = {}
    for model, result in probed(results).items():
        theirs: AttentionComparison | None = row_of(result, FRACTIONS[0]).attention
        assert theirs is not None
        logs = Interval(*np.log([number(theirs.ratio), number(theirs.low), number(theirs.high)]).tolist())
        ends = independent_difference(student_interval(np.log(own)), logs)
        rows[model] = interval_given(
            *np.exp([ends.value, ends.low, ends.high]).tolist(),
            on_synthetic_data=float(own.mean()),
            in_the_language_model=number(theirs.ratio),
        )
    return rows


def embeddings_beside(results: Results, *, synthetic: str) -> dict[str, Measurement]:
    """The difference of average cosines in the synthetic model minus that in the language model."""
    run = results[synthetic]
    own = np.array([cosine_contrast(table, run.word_topics) for table in run.weights["embedding"]])
    rows = {}
    for model, result in probed(results).items():
        theirs = row_of(result, FRACTIONS[0], embedding="matrix").cosine
        assert theirs is not None
        ends = independent_difference(student_interval(own), difference(theirs).interval)
        rows[model] = interval_given(
            ends.value,
            ends.low,
            ends.high,
            on_synthetic_data=float(own.mean()),
            in_the_language_model=number(theirs.difference),
            ratio_in_the_language_model=number(theirs.ratio),
        )
    return rows


def cosine_contrast(embedding: Float[np.ndarray, "token width"], word_topics: Int[np.ndarray, " token"]) -> float:
    """Average cosine of different words of the same topic, minus that of words of different topics; without [MASK]."""
    words = embedding[1:] / np.linalg.norm(embedding[1:], axis=1, keepdims=True)
    cosines, same = words @ words.T, word_topics[1:, None] == word_topics[None, 1:]
    return float(cosines[same & ~np.eye(len(same), dtype=bool)].mean() - cosines[~same].mean())


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


# Figure 3.


def word_margin(results: Results) -> dict[str, Measurement]:
    """The smallest cosine of two words of one topic minus the largest of two topics, among Figure 3's nine words."""
    rows = {}
    for model, result in probed(results).items():
        same, cosines = _word_pairs(result)
        if not same.any() or same.all():
            rows[model] = exact(np.nan, words=len(result.maps[0].words))
            continue
        rows[model] = exact(
            cosines[same].min() - cosines[~same].max(),
            smallest_same=cosines[same].min(),
            average_same=cosines[same].mean(),
            average_different=cosines[~same].mean(),
            average_exact_p=partition_p(result),
        )
    return rows


def _word_pairs(result: ProbeResult) -> tuple[Bool[np.ndarray, " pair"], Float[np.ndarray, " pair"]]:
    """Which pairs of the words are of one topic, and their cosines."""
    topic = {word: name for name, words in PAPER_WORDS.items() for word in words}
    first, second = np.triu_indices(len(result.maps[0].words), k=1)
    labels = np.array([topic[word] for word in result.maps[0].words])
    return labels[first] == labels[second], np.array(result.maps[0].cosine)[first, second]


def partition_p(result: ProbeResult) -> float:
    """How many of the 280 ways to part nine words into three topics of three have as large an average within."""
    if len(result.maps[0].words) != 9:
        return np.nan
    cosine = np.array(result.maps[0].cosine)
    threes = {three: cosine[np.ix_(three, three)][np.triu_indices(3, k=1)].sum() for three in combinations(range(9), 3)}
    sums = [
        threes[first] + threes[second] + threes[third]
        for first, second, third in combinations(threes, 3)
        if len({*first, *second, *third}) == 9
    ]
    same, cosines = _word_pairs(result)
    return float(np.mean(np.array(sums) >= cosines[same].sum() - 1e-9))


# Table 2 and §8.2: whether it is topics or only co-occurrence.


def top_pairs(results: Results, *, measure: str) -> dict[str, Measurement]:
    """Same-topic pairs beside the pairs of any words that co-occur most: ratio of attention, difference of cosines."""

    def measured(result: ProbeResult, fraction: float) -> Measurement:
        top = row_of(result, fraction).top_co_occurring
        assert top is not None
        comparison: Comparison = getattr(top, measure)
        attention, top_attention, cosine, top_cosine = TABLE_2[fraction]
        details: dict[str, Detail] = {
            "same_topic": number(comparison.same),
            "top_co_occurring": number(comparison.different),
            "pairs": top.pairs,
            "share_of_top_pairs_of_one_topic": number(top.same_topic),
        }
        if measure == "attention":
            return ratio(comparison).beside(**details, the_paper_has_for_Bert=attention / top_attention)
        return difference(comparison, **details, the_paper_has_for_Bert=cosine - top_cosine)

    return at_thresholds(results, measured)


def matched_pairs(results: Results, *, measure: str) -> dict[str, Measurement]:
    """Same-topic pairs beside matched ones of different topics: ratio of attention (tested), difference of cosines."""

    def measured(result: ProbeResult, fraction: float) -> Measurement:
        row = row_of(result, fraction)
        plain: Comparison = getattr(row, measure)
        assert row.matched is not None
        matched = row.matched.attention if measure == "attention" else row.matched.cosine
        # How often matched pairs still co-occur is the difference that matching leaves.
        details: dict[str, Detail] = {
            "share_of_pairs_matched": number(matched.share),
            "co_occurrence_same": number(matched.co_occurrence.same),
            "co_occurrence_different": number(matched.co_occurrence.different),
        }
        if measure == "attention":
            return tested(matched, permutation_p=number(matched.p), unmatched=number(plain.ratio), **details)
        return difference(matched, unmatched=number(plain.difference), **details)

    return at_thresholds(results, measured)
