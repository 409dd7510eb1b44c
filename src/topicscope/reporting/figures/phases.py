"""Block against diagonal: the share of W^V's same-word contrast that its blocks have, along the setting's numbers."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from topicscope.files import Row
from topicscope.reporting.figures import BLUE, ORANGE, Drawn

NAMES = {
    "keep": "$p_c$, masked words that are kept",
    "words": "v, words per topic",
    "per_document": "τ, topics per document",
    "length": "N, words per document",
    "dirichlet": "Dirichlet α",
}


@dataclass(frozen=True, eq=False)
class PhaseCurve:
    """One axis of the diagram."""

    at: Float[np.ndarray, " point"]
    joint: Float[np.ndarray, "point 3"]
    """Value, low and high at the joint optimum."""
    uniform: Float[np.ndarray, " point"]
    """Under uniform attention."""


def phase_figure(curves: dict[str, PhaseCurve], measured: dict[str, tuple[float, float, float]] | None = None) -> Drawn:
    """A panel per axis; ``measured`` are points (where on the axis, uniform, joint) of trained models, as crosses."""
    figure = Figure(figsize=(2.9 * len(curves), 3.1), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False, sharey=True)[0]
    for axis, (name, curve) in zip(panels, curves.items(), strict=True):
        # A point at 0 has no place on a logarithmic axis, so it is drawn at the left end.
        positive = curve.at[curve.at > 0]
        at = np.where(curve.at > 0, curve.at, positive.min() / 5)
        value, low, high = curve.joint.T
        axis.plot(at, curve.uniform, "o-", color=BLUE, markersize=4, label="uniform attention")
        axis.errorbar(
            at, value, yerr=[value - low, high - value], fmt="s-", color=ORANGE, markersize=4, label="joint optimum"
        )
        if measured and name in measured:
            place, uniform, joint = measured[name]
            axis.plot([place, place], [uniform, joint], "x", color="black", markersize=8, label="trained")
        axis.set_xscale("log")
        axis.set_xticks(at, [f"{each:g}" for each in curve.at], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel(NAMES.get(name, name))
        axis.axhline(1.0, color="0.8", linewidth=0.8, zorder=0)
    panels[0].set_ylabel("block share of $W^V$\n(1: blocks, 0: diagonal)")
    panels[0].set_ylim(-0.03, 1.25)
    panels[0].legend(fontsize=8, frameon=False)
    rows: list[Row] = [
        {"varied": name, "at": float(at), "uniform": float(uniform), "joint": float(joint[0])}
        for name, curve in curves.items()
        for at, uniform, joint in zip(curve.at, curve.uniform, curve.joint, strict=True)
    ]
    return Drawn(figure, rows)
