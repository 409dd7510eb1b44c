"""Results in a notebook: short tables of runs and claims, and the whole page in a frame."""

import html
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topicscope.reporting.rounding import claim_number, claim_text, readable

HEIGHT = 900

CURVE_WIDTH, CURVE_HEIGHT = 320, 60


@dataclass(frozen=True, repr=False)
class Shown:
    """A page, shown by notebooks in a frame of its own."""

    page: str

    def __repr__(self) -> str:
        return f"<page of {len(self.page) / 1e6:.1f} MB: a notebook shows it; topicscope.report writes one to a file>"

    def _repr_html_(self) -> str:
        # Without allow-same-origin the page cannot reach the notebook; its own policy keeps it off the network.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width: 100%; height: {HEIGHT}px; border: 1px solid #888" title="topicscope report"></iframe>'
        )


def table_html(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """A table, everything in it escaped."""
    head = "".join(f'<th scope="col" style="text-align: left">{html.escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align: left">{html.escape(_text(cell))}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def claims_html(rows: Sequence[Mapping[str, Any]], folder: str) -> str:
    """Verdicts of all claims."""
    counts = Counter(row["verdict"] for row in rows)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    cells = [
        (row["verdict"], row["id"], row["statement"], claim_number(row["expected"]), claim_text(row)) for row in rows
    ]
    columns = ("verdict", "claim", "statement", "expected", "measured [95 % interval]")
    return table_html(columns, cells, f"{len(rows)} claims in {folder}: {said or 'none'}")


def probe_html(rows: Sequence[Mapping[str, Any]], folder: str) -> str:
    """Table 1 with intervals."""
    from topicscope.reporting.page.probes import table_row

    columns = ("model", "fraction", "assignment", "embedding", "centred", "cosine", "dot product", "attention")
    shown = [table_row(dict(row)) for row in rows]
    cells = [[row[name] for name in columns] for row in shown]
    return table_html(columns, cells, f"same- over different-topic averages in {folder}; * p < 0.05")


def run_html(folder: str, rows: Sequence[Mapping[str, Any]], total: int) -> str:
    """The last row of the metrics, and the loss as a curve."""
    if not rows:
        return f"<p>{html.escape(folder)}: nothing is logged yet.</p>"
    last = rows[-1]
    cells = [
        ("step", f"{last['step']:,} of {total:,}"),
        ("loss", last["loss"]),
        ("held-out loss", last["validation_loss"]),
        *(
            (f"norm of {name}", ", ".join(readable(each, 5) for each in values))
            for name, values in last["norm"].items()
        ),
    ]
    losses = [float(row["loss"]) for row in rows]
    return table_html(("quantity", "value"), cells, f"run {folder}") + curve_svg(losses, "loss over steps")


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which can show HTML and replace it."""
    IPython = sys.modules.get("IPython")
    return IPython is not None and getattr(IPython.get_ipython(), "kernel", None) is not None


def live_html(rows: Sequence[Mapping[str, Any]], done: int, total: int) -> str:
    """A run while it is trained: how far it is, the loss, and the norms of W^V, W^K and W^Q as they grow."""
    said = f"<p>step {done:,} of {total:,}</p>"
    if len(rows) < 2:
        return said
    lines = {"loss": [float(row["loss"]) for row in rows]}
    for name, symbol in (("value", "W^V"), ("key", "W^K"), ("query", "W^Q")):
        lines[f"‖{symbol}‖"] = [math.hypot(*row["norm"][name]) for row in rows]
    cells = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th><td>{curve_svg(values, name)}</td>"
        f"<td>{readable(values[0])} → {readable(values[-1])}</td></tr>"
        for name, values in lines.items()
    )
    return f"{said}<table>{cells}</table>"


def curve_svg(values: Sequence[float], label: str) -> str:
    """A small curve, from its least to its largest value."""
    low, high = min(values), max(values)
    span, last = (high - low) or 1.0, max(len(values) - 1, 1)
    points = " ".join(
        f"{CURVE_WIDTH * place / last:.1f},{2 + (CURVE_HEIGHT - 4) * (high - value) / span:.1f}"
        for place, value in enumerate(values)
    )
    said = html.escape(f"{label}: from {readable(values[0], 5)} to {readable(values[-1], 5)}")
    return (
        f'<svg role="img" aria-label="{said}" width="{CURVE_WIDTH}" height="{CURVE_HEIGHT}">'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/></svg>'
    )


def _text(cell: Any) -> str:
    return claim_number(cell) if cell is None or isinstance(cell, float) else str(cell)
