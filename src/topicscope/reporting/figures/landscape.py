"""The loss over attention's weights α and β, with theory drawn in."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.artist import Artist
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


class Surface(NamedTuple):
    """The loss over α and β, which have the same positive weights."""

    title: str
    weights: Float[np.ndarray, " weight"]
    loss: Float[np.ndarray, "alpha beta"]
    optimum: tuple[float, float] | None
    """None where it may be a line; a zero is drawn at the end of the axis."""


class Bounds(NamedTuple):
    """Theorem 3's interval of the weighted average ((v − 1)α + β)/v, and its limit; None for what is not finite."""

    words: int
    low: float
    high: float | None
    limit: float | None


def landscape_figure(title: str, surfaces: Sequence[Surface], bounds: Bounds, *, attained: bool) -> Figure:
    """Losses side by side over log α and log β.

    ``attained`` is False if the first loss still falls at the largest weights searched.
    """
    size = (4.6 * len(surfaces) + 0.6, 5.2)
    figure, [axes] = panels(title, size, 1, len(surfaces), lines=None, sharey=True)
    handles: list[Artist] = []
    for place, (axis, surface) in enumerate(zip(axes, surfaces, strict=True)):
        _draw_loss(figure, axis, surface)
        _draw_theory(axis, surfaces[0].weights, bounds)
        uniform = _mark(axis, (1.0, 1.0), "s", WHITE, "uniform attention: α = β = 1")
        axis.set_title(surface.title, fontsize=10)
        axis.set_xlabel("α, weight on other words of the topic")
        if surface.optimum:
            best = "exact optimum" if attained else "no optimum is attained; best weights searched"
            alpha, beta = map(readable, surface.optimum)
            label = f"{surface.title if place else best}: α = {alpha}, β = {beta}"
            handles.append(_mark(axis, surface.optimum, "o", ORANGE, label))
    axes[0].set_ylabel("β, weight on the same word")
    upper = "∞" if bounds.high is None else readable(bounds.high)
    outside = f"faded: outside Theorem 3's interval ({readable(bounds.low)}, {upper})"
    handles += [uniform, Patch(facecolor="#D9D9D9", edgecolor=BLACK, label=outside)]
    if bounds.limit is not None:
        label = f"limit of the average: {readable(bounds.limit)}"
        handles.append(Line2D([], [], color=SKY, linestyle="dashed", label=label))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def _draw_loss(figure: Figure, axis: Axes, surface: Surface) -> None:
    excess, weights = surface.loss - surface.loss.min(), surface.weights
    # Where the loss is the same everywhere, the scale is that of its rounding.
    top = max(float(excess.max()), float(np.finfo(float).eps))
    norm = LogNorm(vmin=FLOOR_OF_EXCESS * top, vmax=top)
    shown = np.maximum(excess, FLOOR_OF_EXCESS * top)
    # Bands, which take less room than shades.
    bands = colormaps[SEQUENTIAL].resampled(BANDS)
    image = axis.pcolormesh(weights, weights, shown.T, norm=norm, cmap=bands, shading="nearest", rasterized=True)
    axis.set(xscale="log", yscale="log", xlim=weights[[0, -1]], ylim=weights[[0, -1]])
    for ticks in (axis.xaxis, axis.yaxis):
        ticks.set_major_locator(LogLocator(numticks=6))
        ticks.set_minor_locator(LogLocator(subs=(1.0,), numticks=20))
        ticks.set_minor_formatter(NullFormatter())
        # As text: formulas take longer to set than all the rest.
        ticks.set_major_formatter(lambda value, _: readable(value))
    bar = figure.colorbar(image, ax=axis, location="right", pad=0.02, format=lambda value, _: readable(value))
    bar.set_label(f"loss − {readable(surface.loss.min(), 6)}, the smallest shown", fontsize=8)


def _draw_theory(axis: Axes, weights: Float[np.ndarray, " weight"], bounds: Bounds) -> None:
    """Draw Theorem 3's interval as a band, with everything outside faded, and its limit."""
    average = ((bounds.words - 1) * weights[None, :] + weights[:, None]) / bounds.words
    grid, least, most = (weights, weights, average), average.min(), average.max()
    for lower, upper in ((least, bounds.low), (bounds.high, most)):
        if lower is not None and lower < upper:
            axis.contourf(*grid, levels=[lower, upper], colors=WHITE, alpha=FADED)
    lines = ((bounds.low, WHITE, "solid"), (bounds.high, WHITE, "solid"), (bounds.limit, SKY, "dashed"))
    for level, colour, style in lines:
        if level is not None and least < level < most:
            axis.contour(*grid, levels=[level], colors=colour, linestyles=style, linewidths=1.5)


def _mark(axis: Axes, point: tuple[float, float], marker: str, colour: str, label: str) -> Artist:
    x, y = np.clip(point[0], *axis.get_xlim()), np.clip(point[1], *axis.get_ylim())
    (drawn,) = axis.plot(x, y, marker, color=colour, mec=BLACK, markersize=8, clip_on=False, zorder=5, label=label)
    return drawn
