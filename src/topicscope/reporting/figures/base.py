"""Figures from arrays: each function returns a Matplotlib figure; saving is apart."""

import io
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.figure import Figure

from topicscope.files import write_atomically
from topicscope.reporting.figures.numbers import figure_numbers, numbers_csv

# Diverging and readable with colour-blind eyes; white is zero.
COLOURS = "RdBu_r"


def heat_maps(
    panels: dict[str, Float[np.ndarray, "row column"]],
    *,
    words: int,
    columns: int = 4,
    title: str = "",
    same_scale: Collection[Collection[str]] = (),
) -> Figure:
    """Matrices over tokens side by side, with topic boundaries; white is zero.

    Panels named together in ``same_scale`` share one colour scale, so that they can be compared; others have their own.
    """
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.9 * columns, 3.3 * rows + 0.5), layout="constrained")
    figure.suptitle(title)
    limits = {name: _limit(matrix) for name, matrix in panels.items()}
    for group in same_scale:
        limits |= dict.fromkeys(group, max(limits[name] for name in group))
    for place, (name, matrix) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        image = axes.imshow(matrix, cmap=COLOURS, vmin=-limits[name], vmax=limits[name], interpolation="nearest")
        for boundary in np.arange(0.5, len(matrix) - 1, words):
            axes.axhline(boundary, color="0.6", linewidth=0.3, label="topic boundary")
            axes.axvline(boundary, color="0.6", linewidth=0.3, label="topic boundary")
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("token j (0 is [MASK])", fontsize=8)
        axes.set_ylabel("token i", fontsize=8)
        axes.tick_params(labelsize=7)
        figure.colorbar(image, ax=axes, shrink=0.8).ax.tick_params(labelsize=7)
    return figure


def _limit(matrix: Float[np.ndarray, "row column"]) -> float:
    """End of the colour scale: the largest entry, but at most three times the largest off the diagonal."""
    off_diagonal = np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).max()
    return float(min(np.abs(matrix).max(), 3 * off_diagonal)) or 1.0


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and SVG, and the numbers that it shows as CSV, whole or not at all."""
    paths = []
    for kind in ("png", "svg"):
        buffer = io.BytesIO()
        # No date and no random names in the file: the same figure gives the same bytes.
        with rc_context({"svg.hashsalt": "topicscope"}):
            figure.savefig(buffer, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        paths.append(stem.with_name(f"{stem.name}.{kind}"))
        write_atomically(paths[-1], buffer.getvalue())
    paths.append(stem.with_name(f"{stem.name}.csv"))
    write_atomically(paths[-1], numbers_csv(figure_numbers(figure)))
    return paths


# The logarithmic axis of ratios, the same in pictures and on the page.


STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 20, 50, 100, 200, 500, 1000)


def ratio_axis(numbers: Sequence[float | None]) -> tuple[list[float], tuple[float, float]]:
    """Ticks and ends of an axis that has room for all of these numbers above 0, and for 1.

    Ticks are whole factors: a logarithmic axis would label powers of ten alone.
    """
    ends = [number for number in numbers if number is not None and np.isfinite(number) and number > 0]
    low, high = min([*ends, 0.9]), max([*ends, 1.1])
    ticks = [step for step in STEPS if low / 1.3 <= step <= high * 1.3]
    if high / low < 2.2:
        even = np.arange(0.4, 2.55, 0.1 if high / low < 1.7 else 0.2)
        ticks = [step for step in np.round(even, 2).tolist() if low / 1.06 <= step <= high * 1.06]
    return [float(tick) for tick in ticks], (low / 1.08, high * 1.08)
