"""What claims measure on language models: Tables 1, 2 and 5, Figure 3, §1 and §8.2.

Similarities are those of the embedding layer's output, which the paper's untrained BERT suggests; the word-embedding
matrix is among the details. Each number is the average over LDA seeds. Its interval draws articles (attention) or
topics and words (similarity) anew, and LDA seeds with them; matched pairs leave topics out in turn. Ratios of trained
models must pass a permutation test of words within strata of frequency too. Neither is corrected for the number of
claims or rows.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.attention import ATTENTION_CLASSES
from topicscope.measure.run import Run
from topicscope.measure.uncertainty import Interval, student_interval
from topicscope.papers.claim import Detail, Measurement, Results, Rule, exact, interval_given, over_seeds, weakest
from topicscope.papers.topic_structure.experiments import BERT, FRACTIONS, PAPER_MODELS, UNTRAINED
from topicscope.probing.settings import PAPER_WORDS
from topicscope.records import SIGNIFICANT, Comparison, HeadComparison, ProbeResult, ProbeRow, Ratio

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
MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
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
    return TABLE_1[PAPER_MODELS.get(model, other)][FRACTIONS.index(fraction)][[*MEASURES].index(measure)]


def ratio(comparison: Comparison | Ratio, *, test: bool = False) -> Measurement:
    """A ratio with its interval; with ``test``, the permutation test of a ratio of 1 counts too, and must be there."""
    p = comparison.p if test and isinstance(comparison, Comparison) else None
    if test and p is None:
        return interval_given(None, None, None)
    return interval_given(comparison.ratio, comparison.low, comparison.high, p=p, null=1.0)


def difference(comparison: Comparison) -> Measurement:
    """A difference with its interval."""
    return interval_given(comparison.difference, comparison.difference_low, comparison.difference_high)


def at_thresholds(results: Results, measure: Callable[[ProbeResult, float], Measurement]) -> dict[str, Measurement]:
    """A row for each model and threshold."""
    return {
        f"{model}, {fraction:g}": measure(result, fraction)
        for model, result in probed(results).items()
        for fraction in FRACTIONS
    }


# Tables 1 and 5.


def ratios(
    results: Results, *, measures: Sequence[str] = tuple(MEASURES), assignment: str = "one", test: bool = True
) -> dict[str, Measurement]:
    """Same- over different-topic averages, by model, measure and threshold, beside what Table 1 prints."""
    rows = {}
    for model, result in probed(results).items():
        for measure in measures:
            for fraction in FRACTIONS:
                comparison: Comparison = getattr(row_of(result, fraction, assignment), measure)
                details: dict[str, Detail] = {"p": comparison.p}
                if measure != "attention":
                    matrix = row_of(result, fraction, assignment, "matrix")
                    details["ratio_on_matrix"] = getattr(matrix, measure).ratio
                if assignment == "one":
                    whose = "this_model" if model in PAPER_MODELS else "Bert"
                    details[f"the_paper_prints_for_{whose}"] = printed(model, fraction, measure)
                rows[f"{model}, {MEASURES[measure]}, {fraction:g}"] = ratio(comparison, test=test).beside(**details)
    return rows


def fall(results: Results, *, measure: str) -> dict[str, Measurement]:
    """How many times as large a ratio is at the smallest threshold as at the largest, under the same draws."""
    rows = {}
    for model, result in probed(results).items():
        few, many = (row_of(result, fraction) for fraction in (FRACTIONS[0], FRACTIONS[-1]))
        compared = (few.over_largest_threshold or {}).get(measure, Ratio())
        ends = {f"at_{row.fraction:g}".replace(".", "_"): getattr(row, measure).ratio for row in (few, many)}
        rows[model] = ratio(compared).beside(**ends)
    return rows


def heads_of(result: ProbeResult) -> dict[tuple[int, int], HeadComparison]:
    """The contrasts of all heads at the smallest threshold, by layer and head."""
    layers = row_of(result, FRACTIONS[0]).attention_by_layer_head
    return {(layer, head): own for layer, row in enumerate(layers, 1) for head, own in enumerate(row, 1)}


def some_head(results: Results) -> dict[str, Measurement]:
    """The head with more attention within topics that is the most significant; if none has, the one with the most.

    Its p-value is the test's for all heads of the model together (maximum statistic), which accounts for the choice.
    """
    rows = {}
    for model, result in probed(results).items():
        heads = heads_of(result)
        # Without a test nothing can be said about a head, and so about all of them.
        numbers = {at: (one.ratio, one.p) for at, one in heads.items() if one.ratio is not None and one.p is not None}
        if len(numbers) < len(heads):
            rows[model] = interval_given(None, None, None)
            continue
        more = {at: number for at, number in numbers.items() if number[0] > 1} or numbers
        significant = [value for value, p in numbers.values() if p < SIGNIFICANT]
        at = min(more, key=lambda at: (more[at][1] if more is not numbers else 0, -more[at][0]))
        counts = {"more": sum(value > 1 for value in significant), "less": sum(value < 1 for value in significant)}
        rows[model] = ratio(heads[at], test=True).beside(layer=at[0], head=at[1], **counts)
    return rows


def every_head(results: Results) -> dict[str, Measurement]:
    """The head that supports "as in an untrained model" least: an absence of significant heads would say nothing."""
    rows = {}
    for model, result in probed(results).items():
        heads = [*heads_of(result).values()]
        measured = [ratio(head) for head in heads]
        significant = sum(head.p is not None and head.p < SIGNIFICANT for head in heads)
        rows[model] = measured[weakest(LIKE_UNTRAINED, measured)].beside(heads=len(heads), significant=significant)
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
    own = np.log(attention_ratios(results[synthetic]))
    rows = {}
    for model, result in probed(results).items():
        theirs = ratio(row_of(result, FRACTIONS[0]).attention or Ratio()).interval
        logs = Interval(*np.log([theirs.value, theirs.low, theirs.high]).tolist())
        ends = independent_difference(student_interval(own), logs)
        quotient = interval_given(*np.exp([ends.value, ends.low, ends.high]).tolist())
        rows[model] = quotient.beside(on_synthetic_data=np.exp(own), in_the_language_model=theirs.value)
    return rows


def embeddings_beside(results: Results, *, synthetic: str) -> dict[str, Measurement]:
    """The difference of average cosines in the synthetic model minus that in the language model."""
    run = results[synthetic]
    own = np.array([cosine_contrast(table, run.word_topics) for table in run.weights["embedding"]])
    rows = {}
    for model, result in probed(results).items():
        cosine = row_of(result, FRACTIONS[0], embedding="matrix").cosine
        assert cosine is not None
        theirs = difference(cosine).interval
        ends = independent_difference(student_interval(own), theirs)
        contrast = interval_given(ends.value, ends.low, ends.high)
        rows[model] = contrast.beside(on_synthetic_data=own, in_the_language_model=theirs.value)
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
    topic = {word: name for name, words in PAPER_WORDS.items() for word in words}
    rows = {}
    for model, result in probed(results).items():
        shown = result.maps[0]
        first, second = np.triu_indices(len(shown.words), k=1)
        labels, cosines = np.array([topic[word] for word in shown.words]), np.array(shown.cosine)[first, second]
        same = labels[first] == labels[second]
        within, between = cosines[same], cosines[~same]
        rows[model] = exact(np.nan)
        if len(within) and len(between):
            rows[model] = exact(within.min() - between.max(), average_same=within, average_different=between)
    return rows


# Table 2 and §8.2: whether it is topics or only co-occurrence.


def top_pairs(results: Results, *, measure: str) -> dict[str, Measurement]:
    """Same-topic pairs beside the pairs of any words that co-occur most: ratio of attention, difference of cosines."""

    def measured(result: ProbeResult, fraction: float) -> Measurement:
        top = row_of(result, fraction).top_co_occurring
        assert top is not None
        attention, top_attention, cosine, top_cosine = TABLE_2[fraction]
        if measure == "attention":
            return ratio(top.attention).beside(the_paper_has_for_Bert=attention / top_attention)
        return difference(top.cosine).beside(the_paper_has_for_Bert=cosine - top_cosine)

    return at_thresholds(results, measured)


def matched_pairs(results: Results, *, measure: str) -> dict[str, Measurement]:
    """Same-topic pairs beside matched ones of different topics: ratio of attention, difference of cosines."""

    def measured(result: ProbeResult, fraction: float) -> Measurement:
        row = row_of(result, fraction)
        assert row.matched is not None
        matched = getattr(row.matched, measure)
        compared = ratio(matched) if measure == "attention" else difference(matched)
        return compared.beside(share_of_pairs_matched=matched.share)

    return at_thresholds(results, measured)
