"""Landscapes of the loss over attention's weights (Figures 6 to 9)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.contour import QuadContourSet
from matplotlib.figure import Figure

# Perceptually even and readable with colour-blind eyes.
COLOURS = "viridis"
# Contours of the excess over the least loss, as shares of its largest: even steps of the logarithm.
LEVELS = np.concatenate([[0.0], np.geomspace(1e-4, 1.0, 17)])


@dataclass(frozen=True, eq=False)
class LandscapePanel:
    """The loss on a grid, its minimum, and theory's bound."""

    title: str
    alpha: Float[np.ndarray, " alpha"]
    beta: Float[np.ndarray, " beta"]
    loss: Float[np.ndarray, "alpha beta"]
    best: tuple[float, float]
    words: int
    """v, for lines of equal weighted average ((v − 1)α + β)/v."""
    least_average: float
    """Theorem 3's lower bound of that average; its upper bound is far outside."""

    @property
    def best_average(self) -> float:
        """The minimum's weighted average."""
        return ((self.words - 1) * self.best[0] + self.best[1]) / self.words


def landscapes(panels: Sequence[LandscapePanel], *, title: str) -> Figure:
    """Contours of the loss over logarithmic axes, each with its minimum, uniform attention and Theorem 3's bound."""
    figure = Figure(figsize=(5.2 * len(panels), 4.6), layout="constrained")
    figure.suptitle(title, fontsize=11)
    for place, panel in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        image = _draw(axes, panel)
        bar = figure.colorbar(image, ax=axes, shrink=0.9, format="%.5f")
        bar.set_label("expected squared loss", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        axes.legend(fontsize=7, loc="upper left", framealpha=0.9)
    return figure


def _draw(axes: Axes, panel: LandscapePanel) -> QuadContourSet:
    least, highest = float(panel.loss.min()), float(panel.loss.max())
    levels = least + (highest - least) * LEVELS
    colours = BoundaryNorm(levels, ncolors=256)
    image = axes.contourf(panel.beta, panel.alpha, panel.loss, levels=levels, cmap=COLOURS, norm=colours)
    axes.contour(panel.beta, panel.alpha, panel.loss, levels=levels[1:], colors="white", linewidths=0.25, alpha=0.5)
    _average_line(axes, panel, panel.least_average, "Theorem 3: λ₁(τ − 1)", ":")
    _average_line(axes, panel, panel.best_average, "weighted average of the minimum", "--")
    axes.plot(1, 1, "o", color="white", markeredgecolor="black", label="uniform attention, α = β = 1")
    _mark_minimum(axes, panel)
    axes.set(xscale="log", yscale="log", xlim=panel.beta[[0, -1]], ylim=panel.alpha[[0, -1]])
    axes.set_xlabel("β: weight on the same word", fontsize=9)
    axes.set_ylabel("α: weight on other words of the topic", fontsize=9)
    axes.set_title(panel.title, fontsize=10)
    axes.tick_params(labelsize=8)
    return image


def _mark_minimum(axes: Axes, panel: LandscapePanel) -> None:
    """A star; on the edge of the panel where a weight is zero."""
    alpha, beta = max(panel.best[0], panel.alpha[0]), max(panel.best[1], panel.beta[0])
    label = f"minimum: α = {panel.best[0]:.4g}, β = {panel.best[1]:.4g}"
    style = {"color": "#e69f00", "markeredgecolor": "black", "markersize": 13}
    axes.plot(beta, alpha, "*", clip_on=False, zorder=5, label=label, **style)


def _average_line(axes: Axes, panel: LandscapePanel, average: float, label: str, style: str) -> None:
    """The (α, β) of one weighted average."""
    beta = np.geomspace(panel.beta[0], panel.beta[-1], 400)
    alpha = (panel.words * average - beta) / (panel.words - 1)
    axes.plot(beta[alpha > 0], alpha[alpha > 0], style, color="#d55e00", linewidth=1.4, label=label)
