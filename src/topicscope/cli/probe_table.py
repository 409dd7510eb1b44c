"""What ``topicscope probe`` prints: Table 1's layout with intervals, and what its signs mean."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from topicscope.cli.terminal import console
from topicscope.report.rounding import with_interval

if TYPE_CHECKING:
    from topicscope.commands.probe import Probed

MEASURES = ("cosine", "dot", "attention")
SIGNIFICANT = 0.05
STAR = (
    "*: p < 0.05, permutation test over words of the first LDA seed, uncorrected; the interval is over articles "
    "(attention) or topics and words (embeddings), so the two may differ."
)


def print_table(result: "Probed", out: Path) -> None:
    """A line a model, threshold, assignment and embedding; then notes and what was written."""
    table = Table(title="Average over same-topic pairs / average over different-topic pairs [95 % interval]")
    for name in ("model", "threshold", "topics a word", "embedding", "cosine", "dot product", "attention"):
        # Folded, not cut: two long paths must not look alike.
        table.add_column(name, no_wrap=name not in ("model", "cosine", "dot product", "attention"), overflow="fold")
    rows = [row for row in result.rows if not row["centred"]]
    for before, row in zip([None, *rows], rows, strict=False):
        table.add_row(*_cells(row, repeated=before is not None and _labelling(before) == _labelling(row)))
    console().print(table)
    for line in (*_signs(rows), *result.notes):
        console().print(line, soft_wrap=True)
    console().print(
        f"written: {out}/report.html, probe.json, probe.csv, topics.csv, corpus.json, words.json, figures/ "
        f"({len(result.figures)} files)",
        soft_wrap=True,
    )


def _cells(row: dict[str, Any], *, repeated: bool) -> list[str]:
    model = f"{row['model']} {row['revision']}".strip()
    threshold = "own" if row["fraction"] is None else f"{row['fraction']:g}"
    shown = [contrast_text(row[name]) for name in MEASURES]
    # Attention has no embedding: it stands once for all of them.
    return [model, threshold, row["assignment"], row["embedding"], *shown[:2], "" if repeated else shown[2]]


def _labelling(row: dict[str, Any]) -> list[Any]:
    """What attention depends on."""
    return [row[name] for name in ("model", "revision", "fraction", "assignment")]


def contrast_text(contrast: dict[str, Any]) -> str:
    """The ratio with its interval; the difference where there is none."""
    star = "*" if contrast["p"] is not None and contrast["p"] < SIGNIFICANT else ""
    if contrast["ratio"] is not None:
        return with_interval(contrast["ratio"], contrast["low"], contrast["high"], mark=star)
    if contrast["difference"] is None:
        return "–"
    ends = (contrast["difference_low"], contrast["difference_high"])
    return f"Δ {with_interval(contrast['difference'], *ends, mark=star)}"


def _signs(rows: list[dict[str, Any]]) -> list[str]:
    """What the table's signs mean, of those that it has."""
    contrasts = [row[name] for row in rows for name in MEASURES]
    found = []
    if any("*" in contrast_text(each) for each in contrasts):
        found.append(STAR)
    reasons = dict.fromkeys(each["ratio_note"] for each in contrasts if contrast_text(each).startswith("Δ"))
    if reasons:
        why = "; ".join(reason for reason in reasons if reason)
        found.append(f"Δ: same minus different [95 % interval], where there is no ratio ({why}).")
    if any(contrast_text(each) == "–" for each in contrasts):
        found.append("–: no pair to average over.")
    no_interval = dict.fromkeys(each["ratio_note"] for each in contrasts if each["ratio"] is not None and _open(each))
    found += [f"no interval, or none with an upper end: {note}." for note in no_interval if note]
    left = max(
        (each.get("replicates_left_out", 0) for each in contrasts if each["difference_low"] is not None), default=0
    )
    if left:
        found.append(
            f"Up to {left:,} bootstrap replicates had no pairs of both kinds, as topics are few, and were left out of "
            "the intervals."
        )
    return found


def _open(contrast: dict[str, Any]) -> bool:
    """Whether an end of the ratio's interval is missing."""
    return contrast["low"] is None or contrast["high"] is None
