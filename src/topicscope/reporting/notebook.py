"""Results in a notebook: short tables of runs and claims, and the whole page in a frame."""

import html
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from topicscope.measure.run import Run
from topicscope.records import ClaimRecord, ProbeRow
from topicscope.reporting.rounding import claim_text, readable
from topicscope.reporting.verdicts import counts_text
from topicscope.store import table_html

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


def claims_html(claims: Sequence[ClaimRecord], folder: str) -> str:
    """Verdicts of all claims."""
    cells = [(claim.verdict, claim.id, claim.statement, claim.rule, claim_text(claim)) for claim in claims]
    columns = ("verdict", "claim", "statement", "rule", "measured [95 % interval]")
    return table_html(columns, cells, f"{len(claims)} claims in {folder}: {counts_text(claims) or 'none'}")


def probe_html(rows: Sequence[ProbeRow], folder: str) -> str:
    """Table 1 with intervals."""
    from topicscope.reporting.page.studies import table_row

    columns = ("model", "fraction", "assignment", "embedding", "centred", "cosine", "dot product", "attention")
    cells = [[cells[name] for name in columns] for cells in map(table_row, rows)]
    return table_html(columns, cells, f"same- over different-topic averages in {folder}; * p < 0.05")


def in_notebook() -> bool:
    """Whether this is a notebook's kernel, which can show HTML and replace it."""
    IPython = sys.modules.get("IPython")
    return IPython is not None and getattr(IPython.get_ipython(), "kernel", None) is not None


def live_html(run: Run, total: int) -> str:
    """A run while it is trained: how far it is, the loss, and the norms of W^V, W^K and W^Q as they grow."""
    progress = f"<p>step {run.steps[-1]:,} of {total:,}</p>"
    if len(run.steps) < 2:
        return progress
    lines = {"loss": run.metrics["loss"][0]}
    for name, symbol in (("value", "W^V"), ("key", "W^K"), ("query", "W^Q")):
        lines[f"‖{symbol}‖"] = np.linalg.norm(run.metrics[f"norm/{name}"][0], axis=1)
    cells = "".join(
        f"<tr><th scope='row'>{html.escape(name)}</th><td>{curve_svg(values.tolist(), name)}</td>"
        f"<td>{readable(float(values[0]))} → {readable(float(values[-1]))}</td></tr>"
        for name, values in lines.items()
    )
    return f"{progress}<table>{cells}</table>"


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
