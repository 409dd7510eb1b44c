"""The loss over attention's weights α and β, with theory drawn in."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from topicscope.reporting.figures import panels
from topicscope.reporting.palette import ORANGE, SEQUENTIAL, SKY
from topicscope.reporting.rounding import readable

BLACK, WHITE = "#000000", "#FFFFFF"

# Losses closer to the smallest than this share of the range look alike.
FLOOR_OF_EXCESS = 1e-4

FADED, BANDS = 0.55, 40


class FinitePanel(NamedTuple):
    """The loss over finite documents, on a grid of its own."""

    title: str
    weights: Float[np.ndarray, " weight"]
    loss: Float[np.ndarray, "weight weight"]
    optimum: tuple[float, float]


@dataclass(frozen=True, eq=False)
class LandscapeData:
    """What the figure shows; weights are positive, and a zero optimum is drawn at the end of the axis."""

    alpha: Float[np.ndarray, " alpha"]
    beta: Float[np.ndarray, " beta"]
    loss: Float[np.ndarray, "alpha beta"]
    word_loss: Float[np.ndarray, "alpha beta"] | None
    """The loss without [MASK] queries, where there are any others."""
    average: Float[np.ndarray, "alpha beta"]
    """Theorem 3's ((v−1)α + β)/v."""
    optimum: tuple[float, float]
    attained: bool
    """False if the loss still falls at the largest weights searched."""
    low: float
    high: float | None
    limit: float | None
    title: str
    finite: FinitePanel | None = None


def landscape_figure(data: LandscapeData) -> Figure:
    """Loss over log α and log β: for all masked positions, and for word queries alone (Remark 5)."""
    losses = [(data.loss, "all masked positions")]
    if data.word_loss is not None:
        losses.append((data.word_loss, "without [MASK] queries"))
    columns = len(losses) + (data.finite is not None)
    figure, [axes] = panels(data.title, (4.6 * columns + 0.6, 5.2), 1, columns, lines=None, letters=11, sharey=True)
    shown = [(data.alpha, data.beta, *each) for each in losses]
    if data.finite is not None:
        shown.append((data.finite.weights, data.finite.weights, data.finite.loss, data.finite.title))
        _mark(axes[-1], data, data.finite.optimum, "o", ORANGE)
    for axis, (alpha, beta, loss, title) in zip(axes, shown, strict=True):
        _draw_loss(figure, axis, alpha, beta, loss)
        _draw_theory(axis, data)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("α, weight on other words of the topic")
    axes[0].set_ylabel("β, weight on the same word")
    # Only the whole loss has one optimum; without [MASK] queries it may be a line.
    _mark(axes[0], data, data.optimum, "o", ORANGE)
    figure.legend(handles=_legend(data), loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _draw_loss(
    figure: Figure,
    axis: Axes,
    alpha: Float[np.ndarray, " alpha"],
    beta: Float[np.ndarray, " beta"],
    loss: Float[np.ndarray, "alpha beta"],
) -> None:
    excess = loss - loss.min()
    top = max(float(excess.max()), np.finfo(float).tiny)
    norm = LogNorm(vmin=FLOOR_OF_EXCESS * top, vmax=top)
    shown = np.maximum(excess, FLOOR_OF_EXCESS * top)
    # Bands, which take less room than shades.
    bands = colormaps[SEQUENTIAL].resampled(BANDS)
    image = axis.pcolormesh(alpha, beta, shown.T, norm=norm, cmap=bands, shading="nearest", rasterized=True)
    axis.set(xscale="log", yscale="log", xlim=alpha[[0, -1]], ylim=beta[[0, -1]])
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(LogLocator(numticks=6))
        ticks.set_minor_locator(LogLocator(subs=(1.0,), numticks=20))
        ticks.set_minor_formatter(NullFormatter())
        # As text: formulas take longer to set than all the rest.
        ticks.set_major_formatter(lambda value, _: readable(value))
    bar = figure.colorbar(image, ax=axis, location="right", pad=0.02, format=lambda value, _: readable(value))
    bar.set_label(f"loss − {readable(loss.min(), 6)}, the smallest shown", fontsize=8)


def _draw_theory(axis: Axes, data: LandscapeData) -> None:
    """Draw Theorem 3's interval as a band, with everything outside faded, its limit, and uniform attention."""
    average = data.average.T
    grid = (data.alpha, data.beta, average)
    least, most = average.min(), average.max()
    for lower, upper in ((least, data.low), (data.high, most)):
        if lower is not None and lower < upper:
            axis.contourf(*grid, levels=[lower, upper], colors=WHITE, alpha=FADED)
    lines = ((data.low, WHITE, "solid", 1.4), (data.high, WHITE, "solid", 1.4), (data.limit, SKY, "dashed", 1.6))
    for level, colour, style, width in lines:
        if level is not None and least < level < most:
            axis.contour(*grid, levels=[level], colors=colour, linestyles=style, linewidths=width)
    _mark(axis, data, (1.0, 1.0), "s", WHITE)


def _mark(axis: Axes, data: LandscapeData, point: tuple[float, float], marker: str, colour: str) -> None:
    x, y = np.clip(point[0], *data.alpha[[0, -1]]), np.clip(point[1], *data.beta[[0, -1]])
    axis.plot(x, y, marker, color=colour, markeredgecolor=BLACK, markersize=8, clip_on=False, zorder=5)


def _legend(data: LandscapeData) -> list[Line2D | Patch]:
    def point(marker: str, colour: str, label: str) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, markeredgecolor=BLACK, linestyle="none", label=label)

    upper = "∞" if data.high is None else readable(data.high)
    alpha, beta = data.optimum
    best = "exact optimum" if data.attained else "no optimum is attained; best weights searched"
    handles: list[Line2D | Patch] = [
        point("o", ORANGE, f"{best}: α = {readable(alpha)}, β = {readable(beta)}"),
        point("s", WHITE, "uniform attention: α = β = 1"),
        Patch(
            facecolor="#D9D9D9",
            edgecolor=BLACK,
            label=f"faded: outside Theorem 3's interval ({readable(data.low)}, {upper})",
        ),
    ]
    if data.finite is not None:
        alpha, beta = data.finite.optimum
        handles.append(point("o", ORANGE, f"{data.finite.title}: α = {readable(alpha)}, β = {readable(beta)}"))
    if data.limit is not None:
        label = f"limit of the average: {readable(data.limit)}"
        handles.append(Line2D([], [], color=SKY, linestyle="dashed", label=label))
    return handles
