"""What a probe found, in a sentence per model made from its numbers, with the rule behind each yes, no or unclear."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

from topicscope.errors import first_few
from topicscope.records import (
    SIGNIFICANT,
    Comparison,
    CorpusRow,
    HiddenLayer,
    LayerAttention,
    PairedRow,
    ProbeRow,
    TopicComparison,
    TopicRow,
    WordMap,
)
from topicscope.reporting.rounding import comparison_text, decimals, is_significant, with_interval
from topicscope.reporting.verdicts import latex_text

Verdict = Literal["yes", "no", "unclear"]

# How many words a note lists.
LISTED = 20

# Below this AUC a same-topic pair has the larger number hardly more often than by chance.
NEXT_TO_NOTHING = 0.55

RULE = (
    f"“Yes” means that p < {SIGNIFICANT} by a permutation test and the whole 95 % interval is on the side of the same "
    "topic; “no” means that this is not so and the interval of AUC, the chance that a same-topic pair has the larger "
    f"number, ends below {NEXT_TO_NOTHING}; else it is “unclear”. Numbers are for the largest threshold with "
    "{assignment}: embeddings by cosines of the embedding matrix, hidden states by centred cosines of words in "
    "different passages, with p corrected for all layers. A topic is encoded if its own interval is above 0 at a false "
    f"discovery rate of {SIGNIFICANT}. Matched pairs occur and co-occur about equally often, and for attention are "
    "about equally far apart."
)
# Comparisons of a row of probe.json, and their names in a table.
MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
ASSIGNMENTS = {"one": "one topic per word", "several": "several topics per word"}


def verdict(comparison: Comparison, p: float | None) -> Verdict:
    """The verdict by the rule; ``p`` is the comparison's own, or corrected for more than it."""
    if p is not None and p < SIGNIFICANT and _is_above(comparison):
        return "yes"
    return "no" if comparison.auc_high is not None and comparison.auc_high < NEXT_TO_NOTHING else "unclear"


def _is_above(comparison: Comparison) -> bool:
    """Whether the whole interval, of the ratio or else of the difference, is on the side of the same topic."""
    has_ratio = comparison.ratio is not None
    low = comparison.low if has_ratio else comparison.difference_low
    return low is not None and low > (1 if has_ratio else 0)


def _by_layers(layers: Sequence[HiddenLayer]) -> list[Verdict]:
    return [verdict(layer.centred_cosine, layer.centred_cosine.p_all_layers) for layer in layers]


def model_label(row: ProbeRow) -> str:
    """The model's label, and its revision if there is one."""
    return f"{row.label or row.model} {row.revision or ''}".strip()


def labels_of(rows: Sequence[ProbeRow]) -> dict[str, str]:
    """Labels of models by their titles in comparisons.json."""
    return {row.title: model_label(row) for row in rows}


def answers(rows: Sequence[ProbeRow]) -> list[str]:
    """A paragraph per model, then the rule; models whose rows lack the numbers are left out."""
    chosen = answering(rows)
    if not chosen:
        return []
    # Models with vocabularies of different size may have different thresholds.
    several = len({row.fraction for row in chosen}) > 1
    at = [f" (threshold {row.fraction:g})" if several and row.fraction else "" for row in chosen]
    paragraphs = [
        f"{model_label(row)}{where}. {' '.join(_sentences(row))}" for row, where in zip(chosen, at, strict=True)
    ]
    return [*paragraphs, RULE.format(assignment=ASSIGNMENTS.get(chosen[0].assignment, ""))]


def answering(rows: Sequence[ProbeRow]) -> list[ProbeRow]:
    """For each model the row behind the answer: largest threshold, first assignment, embedding matrix."""
    usable = [row for row in rows if row.embedding == "matrix" and not row.centred and row.cosine and row.attention]
    chosen = []
    for _, of_model in groupby(usable, key=model_label):
        own = list(of_model)
        comparable = [row for row in own if row.assignment == own[0].assignment]
        chosen.append(max(comparable, key=lambda row: row.fraction or 0.0))
    return chosen


def _sentences(row: ProbeRow) -> list[str]:
    cosine, attention = row.cosine or Comparison(), row.attention or Comparison()
    strongest = where_strongest(row.attention_by_layer)
    where = f", {strongest}" if verdict(attention, attention.p) == "yes" and strongest else ""
    return [
        f"Embeddings: {verdict(cosine, cosine.p)}, {_times(cosine)}.",
        f"Attention: {verdict(attention, attention.p)}, {_times(attention)}{where}.",
        *_of_matched(row, {"embeddings": cosine, "attention": attention}),
        *_of_states(row.hidden_by_layer or []),
        *_of_topics(row, {"the embeddings": cosine, "attention": attention}),
    ]


def _times(comparison: Comparison) -> str:
    text = comparison_text(comparison, no_ratio="same − different")
    return text.replace(" [", "× [", 1) if comparison.ratio is not None else text


def where_strongest(layers: Sequence[LayerAttention]) -> str:
    """In words, which layers have at least half of the largest excess of a ratio over 1."""
    ratios = {layer.layer: layer.ratio or 0.0 for layer in layers}
    if len(ratios) < 2 or max(ratios.values()) <= 1:
        return ""
    strong = [layer for layer, ratio in ratios.items() if ratio - 1 >= (max(ratios.values()) - 1) / 2]
    return "spread over all layers" if len(strong) == len(ratios) else f"strongest in {_layers(strong)}"


def _layers(numbers: Sequence[int]) -> str:
    """Ascending numbers, with a dash for those in a row: ``layers 1–3, 5``."""
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    written = ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"layer{'s' * (len(numbers) > 1)} {written}"


def _of_matched(row: ProbeRow, unmatched: Mapping[str, Comparison]) -> list[str]:
    """How similar same-topic pairs are next to matched ones, and whether co-occurrence alone may explain the answer."""
    if not row.matched:
        return []
    matched = {"embeddings": row.matched.cosine, "attention": row.matched.attention}
    numbers = ", ".join(f"{name} {_times(each)}" for name, each in matched.items())
    yes = [name for name, each in unmatched.items() if verdict(each, each.p) == "yes"]
    doubtful = [name for name in yes if not _is_above(matched[name])]
    why = f"; co-occurrence may be the reason in {' and '.join(doubtful)}" if doubtful else ""
    return [f"Among matched pairs: {numbers}{why}."]


def _of_states(layers: Sequence[HiddenLayer]) -> list[str]:
    """From which layer on the hidden states have topics; layer 0 is the embedding layer's output."""
    if not layers:
        return []
    verdicts = _by_layers(layers)
    best = max(layers, key=lambda layer: layer.centred_cosine.auc or 0.0)
    numbers, area = best.centred_cosine, ""
    if numbers.auc is not None:
        shown = with_interval(numbers.auc, numbers.auc_low, numbers.auc_high)
        area = f" (AUC {shown} in layer {best.layer}, where it is largest)"
    if "yes" not in verdicts:
        return [f"Hidden states: {'no' if set(verdicts) == {'no'} else 'unclear'}{area}."]
    yes = [layer.layer for layer, each in zip(layers, verdicts, strict=True) if each == "yes"]
    where = f"in {_layers(yes)}"
    if yes == [layer.layer for layer in layers[-len(yes) :]]:
        where = "in every layer" if len(yes) == len(layers) else f"from layer {yes[0]} on"
    return [f"Hidden states: yes, {where}{area}."]


def is_encoded(contrast: TopicComparison) -> bool:
    """Whether a topic stands out, by its contrast of ``by_topic``."""
    rate, low = contrast.q, contrast.difference_low
    return rate is not None and rate < SIGNIFICANT and low is not None and low > 0


def _of_topics(row: ProbeRow, together: Mapping[str, Comparison]) -> list[str]:
    topics: Sequence[TopicRow] = row.by_topic or []
    contrasts = {
        "the embeddings": [topic.cosine for topic in topics],
        "attention": [topic.attention for topic in topics if topic.attention],
        "hidden states": [topic.hidden for topic in topics if topic.hidden],
    }
    if not topics:
        return []
    counts = {where: sum(map(is_encoded, each)) for where, each in contrasts.items() if len(each) == len(topics)}
    usable = f"{len(topics)} of {row.topics} have two words or more"
    sentences = [f"Topics: {usable}; encoded: {', '.join(f'{count} in {where}' for where, count in counts.items())}."]
    verdicts = {where: [verdict(each, each.p)] for where, each in together.items()}
    verdicts["hidden states"] = _by_layers(row.hidden_by_layer or [])
    # Otherwise "Attention: yes" and "0 in attention" would read as a contradiction.
    if unclear := [where for where, count in counts.items() if not count and "yes" in verdicts[where]]:
        sentences.append(f"In {' and '.join(unclear)} no single topic is clear by itself, though all together are.")
    return sentences


# Notes about a probe's numbers: its corpus, what is left out, and its topics' quality.


def probe_notes(corpora: Sequence[CorpusRow], rows: Sequence[ProbeRow]) -> list[str]:
    """Sentences from rows of corpus.json; with several tokenizers or lengths, each begins with the models it is for.

    rows: those of probe.json, which say what each model was measured on.
    """
    notes = []
    for about in corpora:
        measured = [row.title for row in rows if (row.tokenizer, row.length) == (about.tokenizer, about.length)]
        names = first_few(list(dict.fromkeys(measured)), 1) or "no model"
        ground = f"for {names} (tokenizer {about.tokenizer[:8]}, passages of {about.length} tokens): "
        notes += [ground * (len(corpora) > 1) + sentence for sentence in _notes(about)]
    return notes


def _notes(about: CorpusRow) -> list[str]:
    size = f"{about.articles:,} articles, {about.passages:,} passages; measured on {about.measured:,}"
    notes = [f"{about.source}: {size}.", *about.problems]
    if about.words_left_out:
        splits = f'the tokenizer of "{about.tokenizer_name}" splits these words, which are left out'
        remedy = "--several-tokens measures them too"
        notes.append(f"own topics: {splits} ({remedy}): {first_few(about.words_left_out, LISTED)}.")
    if absent := about.words_without_attention:
        count = f"{len(absent):,} of {about.words:,} words"
        unseen = f"{count} are in no passage that is measured, and have no attention"
        notes.append(f"own topics: {unseen}: {first_few(absent, LISTED)}.")
    quality = {name: value for name, value in (about.topic_quality or {}).items() if value is not None}
    known = [f"{name} {value:.3f}" for name, value in quality.items()]
    weak = " Topics may be weak: with c_npmi below 0, their likeliest words occur together less often than by chance."
    return [*notes, f"topics: {', '.join(known)}.{weak * (quality.get('c_npmi', 0) < 0)}"] if known else notes


def word_notes(maps: Sequence[WordMap]) -> list[str]:
    """A sentence for each model whose tokenizer splits words of Figure 3, from words.json."""
    return [
        f"Figure 3 of {each.label or each.model} lacks words that the tokenizer splits: {', '.join(each.left_out)}."
        for each in maps
        if each.left_out
    ]


# Two models compared.

PAIRED_RULE = (
    f"“More” and “less” mean that p < {SIGNIFICANT} by a paired permutation test, not corrected, and the whole 95 % "
    "interval of the difference (of same − different topic) is on one side of 0; else models are “not told apart”. "
    "Both have the same passages and topics."
)
# The measures of comparisons.json by which a sentence compares two models, and what each is called there.
PAIRED = {"attention": "Attention", "cosine matrix": "Embeddings", "hidden centred_cosine": "Hidden states"}


def paired(comparisons: Sequence[PairedRow]) -> list[PairedRow]:
    """The rows of comparisons.json behind the answer: of each pair of models those at the largest threshold."""
    chosen = []
    for _, of_pair in groupby(comparisons, key=_names_of):
        own = list(of_pair)
        usable = [row for row in own if row.assignment == own[0].assignment and row.measure in PAIRED]
        largest = max((row.fraction or 0.0 for row in usable), default=0.0)
        chosen += [row for row in usable if (row.fraction or 0.0) == largest]
    return chosen


def _names_of(row: PairedRow) -> tuple[str, str]:
    return row.model, row.against


def paired_verdict(row: PairedRow) -> Literal["more", "less", "not told apart"]:
    """Whether the first model has more topic structure than the second, by the rule."""
    low, high, p = row.difference_low, row.difference_high, row.p
    if p is None or p >= SIGNIFICANT or low is None or high is None or low <= 0 <= high:
        return "not told apart"
    return "more" if low > 0 else "less"


def paired_answers(comparisons: Sequence[PairedRow], labels: Mapping[str, str]) -> list[str]:
    """A paragraph per pair of models, then the rule; nothing where there is no pair.

    labels: labels of models by their titles.
    """
    paragraphs = []
    for (model, against), of_pair in groupby(paired(comparisons), key=_names_of):
        own = list(of_pair)
        by_measure = {label: [row for row in own if row.measure == measure] for measure, label in PAIRED.items()}
        sentences = [f"{label}: {_compared(rows)}." for label, rows in by_measure.items() if rows]
        paragraphs.append(f"{labels.get(model, model)} against {labels.get(against, against)}. {' '.join(sentences)}")
    return [*paragraphs, PAIRED_RULE] if paragraphs else []


def _compared(rows: Sequence[PairedRow]) -> str:
    """The verdict with its number; of hidden states the layers of each verdict."""
    row, layers = rows[0], dict[str, list[int]]()
    if row.layer is None:
        # Beside averages around zero a ratio says nothing: then the difference does.
        if row.ratio_of_ratios is not None and (row.low or 0) > 0:
            return f"{paired_verdict(row)}, {with_interval(row.ratio_of_ratios, row.low, row.high)} times its ratio"
        if row.difference is None:
            return "no number"
        interval = with_interval(row.difference, row.difference_low, row.difference_high)
        return f"{paired_verdict(row)}, {interval} in same − different"
    for row in rows:
        layers.setdefault(paired_verdict(row), []).append(row.layer or 0)
    if len(layers) == 1:
        [name] = layers
        return f"{name} in {'any' if name == 'not told apart' else 'every'} layer"
    return "; ".join(f"{name} in {_layers(at)}" for name, at in layers.items())


def latex(rows: Sequence[ProbeRow]) -> str:
    r"""Table 1 as LaTeX to ``\input``: a macro for each comparison and its p, and one booktabs table.

    ``\probe{minilm/0.002/one/matrix}{attention}`` prints the ratio with its interval anywhere in a text, or the
    difference where there is no ratio, as the command prints it. ``attention-ratio``, ``attention-low``,
    ``attention-high`` and ``attention-p`` are single numbers. Those of ``cosine`` and ``dot`` are there too.
    """
    lines = [
        r"% Written by topicscope probe, to be \input. The table needs \usepackage{booktabs,longtable}.",
        r"% \probe{MODEL/THRESHOLD/ASSIGNMENT/EMBEDDING}{attention} prints a ratio with its interval, or a difference",
        r"% ($\Delta$) where there is no ratio; -ratio, -low, -high and -p print single numbers.",
        r"\providecommand{\probe}[2]{\csname probe@#1@#2\endcsname}",
        r"\providecommand{\probetable}{\csname probetable\endcsname}",
    ]
    table = []
    for row in (row for row in rows if not row.centred):
        threshold = "own" if row.fraction is None else f"{row.fraction:g}"
        about = (model_label(row), threshold, row.assignment, row.embedding)
        name = "/".join(about)
        lines += [
            rf"\expandafter\def\csname probe@{name}@{measure}{part}\endcsname{{{text}}}"
            for measure in MEASURES
            for part, text in _cells(getattr(row, measure) or Comparison()).items()
        ]
        cells = [rf"\probe{{{name}}}{{{measure}}}" for measure in MEASURES]
        table.append(rf"{' & '.join([latex_text(about[0]), *about[1:], *cells])} \\")
    return "\n".join(
        [
            *lines,
            r"\expandafter\def\csname probetable\endcsname{%",
            r"\begin{longtable}{@{}lllllll@{}}",
            rf"\toprule model & threshold & topics & embedding & {' & '.join(MEASURES.values())} \\ \midrule \endhead",
            *table,
            r"\bottomrule",
            r"\end{longtable}}",
            "",
        ]
    )


def _cells(numbers: Comparison) -> dict[str, str]:
    """What a comparison's macros print, by the ends of their names."""
    shown = comparison_text(numbers, mark="*" if is_significant(numbers) else "")
    # With as many digits as there, so that different numbers do not look alike.
    whole = numbers.low is not None and numbers.high is not None
    kind = f".{decimals((numbers.high or 0) - (numbers.low or 0))}f" if whole else ".4g"
    single = {"ratio": numbers.ratio, "low": numbers.low, "high": numbers.high}
    texts = {f"-{name}": "--" if value is None else f"{value:{kind}}" for name, value in single.items()}
    return {"": latex_text(shown.replace("-", "−")), **texts, "-p": "--" if numbers.p is None else f"{numbers.p:.4g}"}
