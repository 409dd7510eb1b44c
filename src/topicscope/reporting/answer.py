"""What a probe found, in a sentence per model made from its numbers, with the rule behind each yes, no or unclear."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from topicscope.files import Row
from topicscope.records import SIGNIFICANT
from topicscope.reporting.rounding import comparison_text, decimals, is_significant, with_interval
from topicscope.reporting.verdicts import latex_text

Verdict = Literal["yes", "no", "unclear"]

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
ASSIGNMENTS = {"one": "one topic per word", "several": "several topics per word"}


def verdict(comparison: Mapping[str, Any], p: str = "p") -> Verdict:
    """The verdict by the rule."""
    found = comparison.get(p)
    if found is not None and found < SIGNIFICANT and _is_above(comparison):
        return "yes"
    area = comparison.get("auc_high")
    return "no" if area is not None and area < NEXT_TO_NOTHING else "unclear"


def _is_above(comparison: Mapping[str, Any]) -> bool:
    """Whether the whole interval, of the ratio or else of the difference, is on the side of the same topic."""
    ratio = comparison.get("ratio") is not None
    low, nothing = (comparison.get("low"), 1.0) if ratio else (comparison.get("difference_low"), 0.0)
    return low is not None and bool(low > nothing)


def model_label(row: Row) -> str:
    """The model's label, and its revision if there is one."""
    return f"{row.get('label') or row['model']} {row.get('revision') or ''}".strip()


def labels_of(rows: Sequence[Row]) -> dict[str, str]:
    """Labels of models by their titles in comparisons.json."""
    return {f"{row['model']} {row.get('revision') or ''}".strip(): model_label(row) for row in rows}


def answers(rows: Sequence[Row]) -> list[str]:
    """A paragraph per model, then the rule; models whose rows lack the numbers are left out."""
    chosen = answering(rows)
    # Models that were probed at different times may have different thresholds.
    several = len({row.get("fraction") for row in chosen}) > 1
    at = [f" (threshold {row['fraction']:g})" if several and row.get("fraction") else "" for row in chosen]
    found = [f"{model_label(row)}{where}. {' '.join(_sentences(row))}" for row, where in zip(chosen, at, strict=True)]
    return [*found, RULE.format(assignment=ASSIGNMENTS.get(chosen[0]["assignment"], ""))] if found else []


def answering(rows: Sequence[Row]) -> list[Row]:
    """For each model the row behind the answer: largest threshold, first assignment, embedding matrix."""
    usable = [
        row
        for row in rows
        if row.get("embedding") == "matrix" and not row.get("centred") and row.get("cosine") and row.get("attention")
    ]
    found = []
    for _, each in groupby(usable, key=model_label):
        mine = list(each)
        alike = [row for row in mine if row["assignment"] == mine[0]["assignment"]]
        found.append(max(alike, key=lambda row: row.get("fraction") or 0.0))
    return found


def _sentences(row: Row) -> list[str]:
    strongest = where_strongest(row.get("attention_by_layer") or [])
    attention = row["attention"]
    where = f", {strongest}" if verdict(attention) == "yes" and strongest else ""
    return [
        f"Embeddings: {verdict(row['cosine'])}, {_times(row['cosine'])}.",
        f"Attention: {verdict(attention)}, {_times(attention)}{where}.",
        *_of_matched(row),
        *_of_states(row.get("hidden_by_layer") or []),
        *_of_topics(row),
        *_of_sink(row),
    ]


def _times(comparison: Mapping[str, Any]) -> str:
    text = comparison_text(comparison, no_ratio="same − different")
    return text.replace(" [", "× [", 1) if comparison.get("ratio") is not None else text


def where_strongest(layers: Sequence[Mapping[str, Any]]) -> str:
    """In words, which layers have at least half of the largest excess of a ratio over 1."""
    ratios = [each.get("ratio") or 0.0 for each in layers]
    if len(ratios) < 2 or max(ratios) <= 1:
        return ""
    strong = [layer for layer, ratio in enumerate(ratios, start=1) if ratio - 1 >= (max(ratios) - 1) / 2]
    if len(strong) == len(ratios):
        return "spread over all layers"
    return f"strongest in layer{'s' * (len(strong) > 1)} {_runs(strong)}"


def _runs(numbers: Sequence[int]) -> str:
    """Ascending numbers, with a dash for those in a row: ``1–3, 5``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in found)


def _of_matched(row: Row) -> list[str]:
    """How similar same-topic pairs are next to matched ones, and whether co-occurrence alone may explain the answer."""
    places = {"cosine": "embeddings", "attention": "attention"}
    there = {name: each for name in places if (each := (row.get("matched") or {}).get(name))}
    if not there:
        return []
    said = ", ".join(f"{places[name]} {_times(each)}" for name, each in there.items())
    doubtful = [places[name] for name, each in there.items() if verdict(row[name]) == "yes" and not _is_above(each)]
    why = f"; co-occurrence may be the reason in {' and '.join(doubtful)}" if doubtful else ""
    return [f"Among matched pairs: {said}{why}."]


def _of_states(layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """From which layer on the hidden states have topics; layer 0 is the embedding layer's output."""
    if not layers:
        return []
    found = [verdict(each["centred_cosine"], "p_all_layers") for each in layers]
    best = max(layers, key=lambda each: each["centred_cosine"].get("auc") or 0.0)
    numbers = best["centred_cosine"]
    area = ""
    if numbers.get("auc") is not None:
        shown = with_interval(numbers["auc"], numbers.get("auc_low"), numbers.get("auc_high"))
        area = f" (AUC {shown} in layer {best['layer']}, where it is largest)"
    if "yes" not in found:
        return [f"Hidden states: {'no' if set(found) == {'no'} else 'unclear'}{area}."]
    first = found.index("yes")
    if all(each == "yes" for each in found[first:]):
        where = "in every layer" if first == 0 else f"from layer {first} on"
    else:
        yes = [layer for layer, each in enumerate(found) if each == "yes"]
        where = f"in layer{'s' * (len(yes) > 1)} {_runs(yes)}"
    return [f"Hidden states: yes, {where}{area}."]


def is_encoded(contrast: Mapping[str, Any]) -> bool:
    """Whether a topic stands out, by its contrast of ``by_topic``."""
    rate, low = contrast.get("q"), contrast.get("difference_low")
    return rate is not None and rate < SIGNIFICANT and low is not None and low > 0


def _of_topics(row: Row) -> list[str]:
    topics = row.get("by_topic")
    if not topics:
        return []
    places = {"cosine": "the embeddings", "attention": "attention", "hidden": "hidden states"}
    counts = {
        where: sum(is_encoded(each[name]) for each in topics)
        for name, where in places.items()
        if all(name in each for each in topics)
    }
    usable = f"{len(topics)} of {row.get('topics', len(topics))} have two words or more"
    said = [f"Topics: {usable}; encoded: {', '.join(f'{count} in {where}' for where, count in counts.items())}."]
    together = {
        "the embeddings": [verdict(row["cosine"])],
        "attention": [verdict(row["attention"])],
        "hidden states": [verdict(each["centred_cosine"], "p_all_layers") for each in row.get("hidden_by_layer") or []],
    }
    # Otherwise "Attention: yes" and "0 in attention" would read as a contradiction.
    if unclear := [where for where, count in counts.items() if not count and "yes" in together[where]]:
        said.append(f"In {' and '.join(unclear)} no single topic is clear by itself, though all together are.")
    return said


def sink_text(row: Row) -> str:
    """The share of later tokens' attention that a decoder's first token takes: over all heads, least and most."""
    shares = [share for layer in row.get("sink") or () for share in layer]
    return f"{sum(shares) / len(shares):.0%} ({min(shares):.0%} to {max(shares):.0%} by head)" if shares else ""


def _of_sink(row: Row) -> list[str]:
    share = sink_text(row)
    return [f"Attention sink: the first token takes {share} of later tokens' attention, and is left out."] * bool(share)


# Two models compared.

PAIRED_RULE = (
    f"“More” and “less” mean that p < {SIGNIFICANT} by a paired permutation test, not corrected, and the whole 95 % "
    "interval of the difference (of same − different topic) is on one side of 0; else models are “not told apart”. "
    "Both have the same passages and topics."
)
# The measures of comparisons.json by which a sentence compares two models, and what each is called there.
PAIRED = {"attention": "Attention", "cosine matrix": "Embeddings", "hidden centred_cosine": "Hidden states"}


def paired(comparisons: Sequence[Row]) -> list[Row]:
    """The rows of comparisons.json behind the answer: largest threshold, first assignment, three measures.

    They are chosen for each pair of models by itself.
    """
    found = []
    for _, each in groupby(comparisons, key=_names_of):
        mine = list(each)
        alike = [row for row in mine if row["assignment"] == mine[0]["assignment"] and row["measure"] in PAIRED]
        largest = max((row.get("fraction") or 0.0 for row in alike), default=0.0)
        found += [row for row in alike if (row.get("fraction") or 0.0) == largest]
    return found


def _names_of(row: Row) -> tuple[str, str]:
    return row["model"], row["against"]


def paired_verdict(row: Row) -> Literal["more", "less", "not told apart"]:
    """Whether the first model has more topic structure than the second, by the rule."""
    low, high, p = (row.get(name) for name in ("difference_low", "difference_high", "p"))
    if p is None or p >= SIGNIFICANT or low is None or high is None or low <= 0 <= high:
        return "not told apart"
    return "more" if low > 0 else "less"


def paired_answers(comparisons: Sequence[Row], labels: Mapping[str, str] | None = None) -> list[str]:
    """A paragraph per pair of models, then the rule; nothing where there is no pair.

    labels: labels of models by their titles.
    """
    found, names = [], labels or {}
    for (model, against), each in groupby(paired(comparisons), key=_names_of):
        mine = list(each)
        said = []
        for measure, label in PAIRED.items():
            rows = [row for row in mine if row["measure"] == measure]
            if rows:
                said.append(f"{label}: {_by_layer(rows) if measure.startswith('hidden') else _one_number(rows[0])}.")
        found.append(f"{names.get(model, model)} against {names.get(against, against)}. {' '.join(said)}")
    return [*found, PAIRED_RULE] if found else []


def _one_number(row: Row) -> str:
    # Beside averages around zero a ratio says nothing: then the difference does.
    if row.get("ratio_of_ratios") is not None and (row.get("low") or 0) > 0:
        numbers = f"{with_interval(row['ratio_of_ratios'], row.get('low'), row.get('high'))} times its ratio"
    elif row.get("difference") is not None:
        ends = (row.get("difference_low"), row.get("difference_high"))
        numbers = f"{with_interval(row['difference'], *ends)} in same − different"
    else:
        return "no number"
    return f"{paired_verdict(row)}, {numbers}"


def _by_layer(rows: Sequence[Row]) -> str:
    """Hidden states: more, less and not told apart, each with its layers."""
    layers: dict[str, list[int]] = {}
    for row in rows:
        layers.setdefault(paired_verdict(row), []).append(row["layer"])
    if len(layers) == 1:
        [name] = layers
        return f"{name} in {'any' if name == 'not told apart' else 'every'} layer"
    return "; ".join(f"{name} in layer{'s' * (len(at) > 1)} {_runs(at)}" for name, at in layers.items())


def latex(rows: Sequence[Row]) -> str:
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
    for row in (row for row in rows if not row.get("centred")):
        threshold = "own" if row.get("fraction") is None else f"{row['fraction']:g}"
        name = f"{model_label(row)}/{threshold}/{row['assignment']}/{row['embedding']}"
        cells = []
        for measure in ("cosine", "dot", "attention"):
            numbers = row.get(measure) or {}
            shown = comparison_text(numbers, mark="*" if is_significant(numbers) else "")
            texts = {"": latex_text(shown.replace("-", "−"))}
            ends = [numbers[key] for key in ("low", "high") if numbers.get(key) is not None]
            # With as many digits as there, so that different numbers do not look alike.
            kind = f".{decimals(ends[1] - ends[0])}f" if len(ends) == 2 else ".4g"
            for key, of_key in {"ratio": kind, "low": kind, "high": kind, "p": ".4g"}.items():
                texts[f"-{key}"] = "--" if numbers.get(key) is None else f"{numbers[key]:{of_key}}"
            lines += [
                rf"\expandafter\def\csname probe@{name}@{measure}{part}\endcsname{{{text}}}"
                for part, text in texts.items()
            ]
            cells.append(rf"\probe{{{name}}}{{{measure}}}")
        about = [latex_text(model_label(row)), threshold, row["assignment"], row["embedding"]]
        table.append(rf"{' & '.join([*about, *cells])} \\")
    lines += [
        r"\expandafter\def\csname probetable\endcsname{%",
        r"\begin{longtable}{@{}lllllll@{}}",
        r"\toprule model & threshold & topics & embedding & cosine & dot product & attention \\ \midrule \endhead",
        *table,
        r"\bottomrule",
        r"\end{longtable}}",
    ]
    return "\n".join(lines) + "\n"
