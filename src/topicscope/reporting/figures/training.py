"""Figures of training: matrices over tokens, norms over steps, the map of stages, attention, losses, structure."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from topicscope.reporting.figures import BLUE, DIVERGING, GREEN, GREY, ORANGE, PALETTE, faint_lines, panels
from topicscope.reporting.palette import CLASSES

# Shades of a map, white in their middle.
SHADES = 65

NORM_NAMES = {"key": "‖W^K‖", "query": "‖W^Q‖", "value": "‖W^V‖"}
ROTATION_NAME = "rotation of W^V\nin 10 steps"


# Steps, the curves of each quantity by name, and the step at which attention takes off in each run in which it does.
Trajectory = tuple[Int[np.ndarray, " row"], Mapping[str, Mapping[str, Float[np.ndarray, "seed row"]]], Sequence[int]]

# The reduced model: the step at which attention takes off, if it does, then steps and curves, named as the runs' are.
Predicted = tuple[float | None, Sequence[float], Mapping[str, Sequence[float]]]

# Steps, then the values of each norm and of the rotation.
LayerCurves = tuple[Int[np.ndarray, " row"], Mapping[str, Float[np.ndarray, "seed row layer"]]]

# Label, steps, curves by name, and steps to mark on some of them.
Panel = tuple[str, np.ndarray, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def heat_maps(
    matrices: dict[str, Float[np.ndarray, "row column"]],
    *,
    words: int = 0,
    word_topics: Int[np.ndarray, " token"] | None = None,
    columns: int = 4,
    title: str = "",
    same_scale: Collection[Collection[str]] = (),
) -> Figure:
    """Matrices over tokens side by side, with topic boundaries; white is zero.

    Topics have ``words`` words each, in order, or are those of ``word_topics``, by which tokens are then ordered.
    Panels named together in ``same_scale`` share one colour scale, so that they can be compared; others have their own.
    """
    tokens = len(next(iter(matrices.values())))
    # Token 0 is [MASK], of no topic; the boundaries are where the topic changes.
    topics = -(-np.arange(tokens) // words) if word_topics is None else word_topics
    order = np.argsort(topics, kind="stable")
    boundaries = np.flatnonzero(np.diff(topics[order])) + 0.5
    sorted_by = "" if (order == np.arange(tokens)).all() else ", by topic"
    rows = -(-len(matrices) // columns)
    size = (3.9 * columns, 3.3 * rows + 0.5)
    figure, axes = panels(title, size, rows, columns, lines=None, sharex=True, sharey=True)
    for spare in axes.flat[len(matrices) :]:
        spare.remove()
    limits = {name: colour_limit(matrix) for name, matrix in matrices.items()}
    for group in same_scale:
        limits |= dict.fromkeys(group, max(limits[name] for name in group))
    for place, (panel, (name, matrix)) in enumerate(zip(axes.flat, matrices.items(), strict=False)):
        # Without interpolation the SVG has a pixel per entry; few shades take less room.
        scale = {
            "cmap": colormaps[DIVERGING].resampled(SHADES),
            "vmin": -limits[name],
            "vmax": limits[name],
            "interpolation": "none",
        }
        image = panel.imshow(matrix[np.ix_(order, order)], **scale)
        ends = (-0.5, tokens - 0.5)
        panel.hlines(boundaries, *ends, color="0.6", linewidth=0.3)
        panel.vlines(boundaries, *ends, color="0.6", linewidth=0.3)
        panel.set_title(name, fontsize=10)
        panel.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        panel.yaxis.set_major_locator(MaxNLocator(3, integer=True))
        panel.tick_params(labelsize=7)
        if place >= len(matrices) - columns:
            panel.set_xlabel(f"token j (0 is [MASK]){sorted_by}", fontsize=8)
        if place % columns == 0:
            panel.set_ylabel(f"token i{sorted_by}", fontsize=8)
        figure.colorbar(image, ax=panel, shrink=0.8, ticks=MaxNLocator(4)).ax.tick_params(labelsize=7)
    return figure


def colour_limit(matrix: Float[np.ndarray, "row column"]) -> float:
    """The end of a matrix's colour scale: the largest entry, but at most three times the largest off the diagonal."""
    off_diagonal = np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).max(initial=0.0)
    return float(min(np.abs(matrix).max(), 3 * off_diagonal)) or 1.0


def norm_trajectories(
    settings: Mapping[str, Trajectory], *, title: str, predicted: Mapping[str, Predicted] | None = None
) -> Figure:
    """Curves over steps, a column per setting and a row per quantity; faint lines are runs, bold ones means.

    Orange dashes are where attention takes off in a run, a black dashed line where it is ``predicted`` to, and a thin
    black curve is the reduced model's.

    A quantity may have several curves (a norm, and norms of its parts); a rotation, which has its own scale, has a
    logarithmic axis.
    """
    quantities = list(next(iter(settings.values()))[1])
    size = (4.2 * len(settings), 1.9 * len(quantities) + 0.6)
    figure, axes = panels(title, size, len(quantities), len(settings), sharex="col")
    for column, (name, (steps, rows, ends)) in enumerate(settings.items()):
        expected, at, theory = (predicted or {}).get(name, (None, (), {}))
        for row, (label, curves) in enumerate(rows.items()):
            panel = axes[row, column]
            for (part, values), colour in zip(curves.items(), (BLUE, GREEN, GREY), strict=False):
                faint_lines(panel, steps, values, colour)
                # The first rows of the rotation are NaN: there is nothing 10 steps earlier.
                panel.plot(steps[1:], values[:, 1:].mean(axis=0), color=colour, linewidth=1.8, label=part)
                if part in theory:
                    panel.plot(at, theory[part], color="black", linewidth=0.8, label="the reduced model")
            if expected is not None:
                panel.axvline(expected, color="black", linewidth=0.8, linestyle="--")
            for end in ends:
                panel.axvline(end, color=ORANGE, alpha=0.5, linewidth=1.0, linestyle="--")
            panel.set_ylabel(label, fontsize=8)
            if len(curves) > 1 or set(curves) & set(theory):
                panel.legend(fontsize=7, loc="upper left")
            if label == ROTATION_NAME:
                panel.set_yscale("log")
            else:
                highest = max(float(np.nanmax(values)) for values in curves.values())
                panel.set_ylim(0, 1.1 * highest if highest > 0 else 1)
        state = "attention takes off (dashed)" if ends else "attention does not take off"
        state += "" if expected is None else f", predicted at {expected:,.0f} (black)"
        axes[0, column].set_title(f"{name}\n{state}", fontsize=8)
        axes[-1, column].set_xlabel("step")
    return figure


def stage_map(losses: Mapping[str, Mapping[tuple[str, str], tuple[float, float, float]]], *, title: str) -> Figure:
    """Which settings have two stages: a panel per loss, rows optimiser and rate, columns the initial scale.

    Each cell has the share of runs with two stages (its colour), the step at which attention takes off, and the share
    of the gain under uniform attention that W^V has by then; NaN for all where attention does not take off.
    """
    first = next(iter(losses.values()))
    rows, columns = (list(dict.fromkeys(place[axis] for place in first)) for axis in (0, 1))
    size = (max(4.5, 1.15 * len(columns) + 2.0) * len(losses), 0.62 * len(rows) + 1.9)
    figure, [axes] = panels(title, size, 1, len(losses), lines=None)
    for panel, (name, cells) in zip(axes, losses.items(), strict=True):
        shares = np.array([[cells[row, column][0] for column in columns] for row in rows])
        panel.set_facecolor("0.93")
        # Below the darkest blue, so that black text stays readable.
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
        for (row, column), (share, when, gain) in cells.items():
            text = "does not\ntake off" if np.isnan(when) else f"step {when:.0f}\n{100 * gain:.0f} % gained"
            style = {"ha": "center", "va": "center", "fontsize": 8, "weight": "bold" if share == 1 else "normal"}
            panel.text(columns.index(column), rows.index(row), text, **style)
        panel.hlines(np.arange(1, len(rows)) - 0.5, -0.5, len(columns) - 0.5, color="0.8", linewidth=0.8)
        panel.vlines(np.arange(1, len(columns)) - 0.5, -0.5, len(rows) - 0.5, color="0.8", linewidth=0.8)
        panel.set_xticks(range(len(columns)), columns)
        panel.set_yticks(range(len(rows)), rows)
        panel.set_xlabel("initial scale")
        panel.set_title(name, fontsize=10)
    figure.supxlabel(
        "in each cell: when attention takes off, and W^V's share of the gain under uniform attention by then;\n"
        "blue and bold: all runs are two-stage; grey: attention has not taken off when the run ends",
        fontsize=8,
    )
    return figure


def predicted_against_measured(
    pairs: Mapping[str, Float[np.ndarray, "cell 2"]], groups: Sequence[str], *, title: str
) -> Figure:
    """Predicted (vertical) against measured (horizontal) numbers, a panel per number and a marker per group of cells.

    Beside the line of equality is a band of 15 %. Cells in which one of the two is NaN are left out.
    """
    figure, [axes] = panels(title, (5.2 * len(pairs), 4.6), 1, len(pairs), lines=None)
    for panel, (name, numbers) in zip(axes, pairs.items(), strict=True):
        both = np.isfinite(numbers).all(axis=1)
        for number, kind in enumerate(dict.fromkeys(groups)):
            here = both & np.array([group == kind for group in groups])
            colour, marker = (BLUE, ORANGE, GREEN, GREY)[number % 4], "osD^v<>"[number % 7]
            panel.plot(numbers[here, 1], numbers[here, 0], marker, color=colour, markersize=5, alpha=0.8, label=kind)
        if both.any():
            ends = np.array([numbers[both].min(), numbers[both].max()])
            panel.plot(ends, ends, color=GREY, linewidth=1.0)
            panel.fill_between(ends, ends / 1.15, ends * 1.15, color=GREY, alpha=0.15, linewidth=0)
            if ends[0] > 0 and ends[1] > 10 * ends[0]:
                panel.set(xscale="log", yscale="log")
        panel.set(xlabel=f"measured {name}", ylabel=f"predicted {name}")
    axes[0].legend(fontsize=8)
    return figure


def attention_bars(rows: Mapping[str, Float[np.ndarray, "seed class"]], *, uniform: float, title: str) -> Figure:
    """Average attention × 100 to the same word, the same topic and other topics; a dot per run, a bar for the mean.

    ``uniform`` is uniform attention's value for any pair.
    """
    figure, [[panel]] = panels(title, (9.0, 0.62 * len(rows) + 1.6), lines="x")
    places = np.arange(len(rows))
    for number, (pair, colour) in enumerate(list(CLASSES.items())[:3]):
        points = [100 * values[:, number] for values in rows.values()]
        heights = places + 0.26 * (number - 1)
        panel.barh(heights, [each.mean() for each in points], height=0.24, color=colour, alpha=0.55, label=pair)
        for height, each in zip(heights, points, strict=True):
            panel.plot(each, np.full(len(each), height), ".", color=colour, markersize=4)
    panel.axvline(100 * uniform, color=GREY, linestyle="--", linewidth=1.0, label="uniform attention")
    panel.set_yticks(places, list(rows), fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xlabel("average attention of a pair of positions × 100")
    panel.legend(loc="lower right", fontsize=8)
    return figure


def run_points(
    numbers: Mapping[str, tuple[Mapping[str, Float[np.ndarray, " seed"]], Mapping[str, float]]], *, title: str
) -> Figure:
    """Numbers of several settings or models, a dot per run, between named levels; a panel per number."""
    most = max(len(values) for values, _ in numbers.values())
    figure, [axes] = panels(title, (5.2 * len(numbers), 0.36 * most + 1.9), 1, len(numbers))
    for place, (panel, (label, (values, levels))) in enumerate(zip(axes, numbers.items(), strict=True)):
        for (name, level), style in zip(levels.items(), ("--", ":"), strict=False):
            panel.axvline(level, color=ORANGE, linestyle=style, linewidth=1.4, label=name)
        for row, points in enumerate(values.values()):
            panel.plot(points, np.full(len(points), row), "o", color=BLUE, alpha=0.5, markersize=5)
        # The same names are written once.
        again = place and list(values) == list(next(iter(numbers.values()))[0])
        panel.set_yticks(range(len(values)), [""] * len(values) if again else list(values), fontsize=8)
        panel.set_ylim(len(values) - 0.5, -0.5)
        panel.set_xlabel(label)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def gradient_ratios(
    measured: Mapping[str, Mapping[float, Float[np.ndarray, " seed"]]],
    formula: Mapping[str, tuple[Float[np.ndarray, " scale"], Float[np.ndarray, " scale"]]],
    *,
    title: str,
) -> Figure:
    """‖∇W^V‖ over ‖∇W^K‖ at the start against the initial scale, with a dot per run and the formula as a line."""
    figure, [[panel]] = panels(title, (5.5, 4.2), letters=10)
    for (name, points), colour, marker in zip(measured.items(), (BLUE, ORANGE), "os", strict=True):
        panel.plot(*formula[name], color=colour, linewidth=1.2, label=f"{name}: formula")
        scales = np.repeat(list(points), [len(values) for values in points.values()])
        ratios = np.concatenate(list(points.values()))
        panel.plot(scales, ratios, marker, color=colour, alpha=0.5, markersize=5, label=f"{name}: measured")
    panel.set(xscale="log", yscale="log", xlabel="initial scale s", ylabel="‖∇W^V‖ / ‖∇W^K‖ at the start")
    panel.legend(fontsize=8)
    return figure


def layer_trajectories(settings: Mapping[str, LayerCurves], *, title: str) -> Figure:
    """Figure 5: norms of W^K, W^Q, W^V and the rotation of W^V; a column per layer, a colour per setting.

    Below them, if "attention" is given, is how far it is from uniform.
    """
    parts = {**NORM_NAMES, "rotation": ROTATION_NAME}
    first = next(iter(settings.values()))[1]
    if "attention" in first:
        parts["attention"] = "a: attention,\nfrom uniform"
    layers = first["key"].shape[2]
    size = (3.2 * layers + 0.6, 2.35 * len(parts))
    figure, axes = panels(title, size, len(parts), layers, sharex=True, sharey="row")
    for (name, (steps, values)), colour in zip(settings.items(), PALETTE, strict=False):
        for row, part in enumerate(parts):
            for layer in range(layers):
                lines = axes[row, layer].plot(
                    steps, values[part][:, :, layer].T, color=colour, linewidth=0.9, alpha=0.8
                )
                lines[0].set_label(name)
    for row, label in enumerate(parts.values()):
        axes[row, 0].set(ylabel=label, yscale="log")
    for layer in range(layers):
        axes[0, layer].set_title(f"layer {layer + 1}", fontsize=10)
        axes[-1, layer].set_xlabel("step")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure
