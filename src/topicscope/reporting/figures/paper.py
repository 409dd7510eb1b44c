"""Figures of the claims on trained models, from arrays: norms over steps, the map of stages, attention by class."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

# Okabe and Ito's colours, told apart by colour-blind eyes.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.45"


NORM_NAMES = {"key": "‖W^K‖", "query": "‖W^Q‖", "value": "‖W^V‖"}


# Steps, norms by part, rotation of W^V, and where stage 1 ends in each run that has an end.
Trajectory = tuple[
    Int[np.ndarray, " row"], Mapping[str, Float[np.ndarray, "seed row"]], Float[np.ndarray, "seed row"], Sequence[int]
]


def norm_trajectories(columns: Mapping[str, Trajectory], *, title: str) -> Figure:
    """Norms of W^K, W^Q, W^V and the rotation of W^V, a column a setting; one faint line a run, the mean in bold."""
    figure = Figure(figsize=(4.6 * len(columns), 8.0), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(4, len(columns), sharex="col", squeeze=False)
    for column, (name, (steps, norms, rotation, ends)) in enumerate(columns.items()):
        rows = {NORM_NAMES[part]: norms[part] for part in NORM_NAMES} | {"rotation of W^V\nin 10 steps": rotation}
        for row, (label, values) in enumerate(rows.items()):
            panel = axes[row, column]
            runs = [f"run {number + 1}" for number in range(len(values))]
            panel.plot(steps, values.T, color=BLUE, alpha=0.3, linewidth=0.8, label=runs)
            # The first rows of the rotation are NaN: there is nothing 10 steps earlier.
            panel.plot(steps[1:], values[:, 1:].mean(axis=0), color=BLUE, linewidth=1.8, label="mean")
            for end in ends:
                panel.axvline(end, color=ORANGE, alpha=0.5, linewidth=1.0, linestyle="--", label="end of stage 1")
            panel.set_ylabel(label)
            panel.grid(color="0.9", linewidth=0.5)
            if row == 3:
                panel.set_yscale("log")
            else:
                panel.set_ylim(0, 1.1 * np.nanmax(values))
        state = "stage 1 ends (dashed)" if ends else "stage 1 does not end"
        axes[0, column].set_title(f"{name}\n{state}", fontsize=9)
        axes[-1, column].set_xlabel("step")
    return figure


def stage_map(panels: Mapping[str, Mapping[tuple[str, str], tuple[float, float, float]]], *, title: str) -> Figure:
    """Which settings have two stages: a panel a loss, rows optimiser and rate, columns the initial scale.

    Each cell has the share of runs with two stages (its colour), the share of steps that stage 1 takes, and the share
    of W^V's growth that it makes.
    """
    first = next(iter(panels.values()))
    rows, columns = (list(dict.fromkeys(place[axis] for place in first)) for axis in (0, 1))
    width = max(4.5, 1.15 * len(columns) + 1.5)
    figure = Figure(figsize=(width * len(panels), 0.62 * len(rows) + 1.9), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (name, cells) in zip(axes, panels.items(), strict=True):
        shares = np.array([[cells[row, column][0] for column in columns] for row in rows])
        # Below the darkest blue, so that black text stays readable.
        image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
        image.set_label("share of runs with two stages")
        for (row, column), (share, length, growth) in cells.items():
            text = "no stage 2" if length == 1 else f"{100 * length:.0f} % steps\n{100 * growth:.0f} % growth"
            weight = "bold" if share == 1 else "normal"
            panel.text(
                columns.index(column), rows.index(row), text, ha="center", va="center", fontsize=8, weight=weight
            )
        for edge in range(1, max(len(rows), len(columns))):
            panel.axhline(edge - 0.5, color="0.8", linewidth=0.8, label="_edge of cells")
            panel.axvline(edge - 0.5, color="0.8", linewidth=0.8, label="_edge of cells")
        panel.set_xlim(-0.5, len(columns) - 0.5)
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_xticks(range(len(columns)), columns)
        panel.set_yticks(range(len(rows)), rows)
        panel.set_xlabel("initial scale")
        panel.set_title(f"{name}", fontsize=10)
    figure.supxlabel(
        "in each cell: what stage 1 takes of the steps and makes of ‖W^V‖'s growth; blue and bold: all runs two-stage",
        fontsize=8,
    )
    return figure


def attention_bars(rows: Mapping[str, Float[np.ndarray, "seed class"]], *, uniform: float, title: str) -> Figure:
    """Average attention × 100 to the same word, the same topic and other topics; a dot a run, a bar the mean.

    ``uniform`` is what uniform attention gives to any pair.
    """
    figure = Figure(figsize=(9.0, 0.62 * len(rows) + 1.6), layout="constrained")
    figure.suptitle(title)
    panel = figure.subplots()
    labels = ("same word", "same topic, other word", "different topic")
    colours = (GREEN, BLUE, ORANGE)
    for place, (name, values) in enumerate(rows.items()):
        for number, colour in enumerate(colours):
            height, what = place + 0.26 * (number - 1), f"{name}: {labels[number]}"
            points = 100 * values[:, number]
            panel.barh(height, points.mean(), height=0.24, color=colour, alpha=0.55, label=f"{what}, mean")
            panel.plot(points, np.full(len(points), height), ".", color=colour, markersize=4, label=f"{what}, runs")
    panel.axvline(100 * uniform, color=GREY, linestyle="--", linewidth=1.0, label="uniform attention")
    panel.set_yticks(range(len(rows)), list(rows), fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xlabel("average attention of a pair of positions × 100")
    handles = [Line2D([], [], color=colour, linewidth=6, alpha=0.55) for colour in colours]
    handles.append(Line2D([], [], color=GREY, linestyle="--"))
    panel.legend(handles, (*labels, "uniform attention"), loc="lower right", fontsize=8)
    panel.grid(axis="x", color="0.9", linewidth=0.5)
    return figure


def seed_points(panels: Mapping[str, tuple[Mapping[str, Float[np.ndarray, " seed"]], float]], *, title: str) -> Figure:
    """Numbers of several settings, a dot a run, with the threshold that a claim puts on them; a panel a number."""
    names = list(next(iter(panels.values()))[0])
    figure = Figure(figsize=(5.0 * len(panels), 0.32 * len(names) + 1.6), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for panel, (label, (values, threshold)) in zip(axes, panels.items(), strict=True):
        panel.axvline(threshold, color=ORANGE, linestyle="--", linewidth=1.2, label="threshold")
        for place, name in enumerate(names):
            panel.plot(
                values[name], np.full(len(values[name]), place), "o", color=BLUE, alpha=0.5, markersize=4, label=name
            )
        panel.set_xlabel(label)
        panel.grid(color="0.9", linewidth=0.5)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()
    return figure


def loss_levels(
    panels: Mapping[str, tuple[Mapping[str, Float[np.ndarray, " seed"]], Mapping[str, float]]], *, title: str
) -> Figure:
    """Held-out losses of several models, a dot a run, between levels that are no model's; a panel a loss."""
    most = max(len(models) for models, _ in panels.values())
    figure = Figure(figsize=(5.6 * len(panels), 0.42 * most + 2.0), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for panel, (label, (models, levels)) in zip(axes, panels.items(), strict=True):
        for (name, level), style in zip(levels.items(), ("--", ":"), strict=True):
            panel.axvline(level, color=ORANGE, linestyle=style, linewidth=1.4, label=name)
        for place, values in enumerate(models.values()):
            panel.plot(values, np.full(len(values), place), "o", color=BLUE, alpha=0.5, markersize=5)
        panel.set_yticks(range(len(models)), list(models), fontsize=8)
        panel.set_ylim(len(models) - 0.5, -0.5)
        panel.set_xlabel(label)
        panel.grid(color="0.9", linewidth=0.5)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8)
    return figure


def gradient_ratios(
    measured: Mapping[str, Mapping[float, Float[np.ndarray, " seed"]]],
    formula: Mapping[str, tuple[Float[np.ndarray, " scale"], Float[np.ndarray, " scale"]]],
    *,
    title: str,
) -> Figure:
    """‖∇W^V‖ over ‖∇W^K‖ at the start against the initial scale, a dot a run, the formula as a line."""
    figure = Figure(figsize=(5.5, 4.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panel = figure.subplots()
    for (name, points), colour, marker in zip(measured.items(), (BLUE, ORANGE), "os", strict=True):
        panel.plot(*formula[name], color=colour, linewidth=1.2, label=f"{name}: formula")
        scales = np.repeat(list(points), [len(values) for values in points.values()])
        ratios = np.concatenate(list(points.values()))
        panel.plot(scales, ratios, marker, color=colour, alpha=0.5, markersize=5, label=f"{name}: measured")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("initial scale s")
    panel.set_ylabel("‖∇W^V‖ / ‖∇W^K‖ at the start")
    panel.grid(color="0.9", linewidth=0.5)
    panel.legend(fontsize=8)
    return figure
