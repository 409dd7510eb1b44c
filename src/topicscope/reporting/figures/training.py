"""Figures of training: matrices over tokens, norms over steps, the map of stages, attention, losses, structure."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from topicscope.files import Row
from topicscope.reporting.figures import BLUE, DIVERGING, GREEN, GREY, ORANGE, PALETTE, Drawn, panels

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
    tabled: bool = True,
) -> Drawn:
    """Matrices over tokens side by side, with topic boundaries; white is zero.

    Topics have ``words`` words each, in order, or are those of ``word_topics``, by which tokens are then ordered.
    Panels named together in ``same_scale`` share one colour scale, so that they can be compared; others have their own.
    Large matrices need not be ``tabled``.
    """
    tokens = len(next(iter(matrices.values())))
    # Token 0 is [MASK], of no topic; the boundaries are where the topic changes.
    topics = -(-np.arange(tokens) // words) if word_topics is None else word_topics
    order = np.argsort(topics, kind="stable")
    boundaries = np.flatnonzero(np.diff(topics[order])) + 0.5
    sorted_by = "" if (order == np.arange(tokens)).all() else ", by topic"
    rows = -(-len(matrices) // columns)
    figure = Figure(figsize=(3.9 * columns, 3.3 * rows + 0.5), layout="constrained")
    figure.suptitle(title)
    limits = {name: colour_limit(matrix) for name, matrix in matrices.items()}
    for group in same_scale:
        limits |= dict.fromkeys(group, max(limits[name] for name in group))
    table: list[Row] = []
    for place, (name, matrix) in enumerate(matrices.items(), start=1):
        axes = figure.add_subplot(rows, columns, place)
        ordered = matrix[np.ix_(order, order)]
        image = axes.imshow(ordered, cmap=DIVERGING, vmin=-limits[name], vmax=limits[name], interpolation="nearest")
        for boundary in boundaries:
            axes.axhline(boundary, color="0.6", linewidth=0.3)
            axes.axvline(boundary, color="0.6", linewidth=0.3)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel(f"token j (0 is [MASK]){sorted_by}", fontsize=8)
        axes.set_ylabel(f"token i{sorted_by}", fontsize=8)
        axes.tick_params(labelsize=7)
        figure.colorbar(image, ax=axes, shrink=0.8).ax.tick_params(labelsize=7)
        table += [
            {"panel": name, "token_i": i, "token_j": j, "topic_i": one, "topic_j": other, "value": value}
            for i, (one, line) in enumerate(zip(topics.tolist(), matrix.tolist(), strict=True) if tabled else ())
            for j, (other, value) in enumerate(zip(topics.tolist(), line, strict=True))
        ]
    return Drawn(figure, table)


def colour_limit(matrix: Float[np.ndarray, "row column"]) -> float:
    """The end of a matrix's colour scale: the largest entry, but at most three times the largest off the diagonal."""
    off_diagonal = np.abs(matrix[~np.eye(len(matrix), dtype=bool)]).max(initial=0.0)
    return float(min(np.abs(matrix).max(), 3 * off_diagonal)) or 1.0


def norm_trajectories(
    settings: Mapping[str, Trajectory], *, title: str, predicted: Mapping[str, Predicted] | None = None
) -> Drawn:
    """Curves over steps, a column per setting and a row per quantity; faint lines are runs, bold ones means.

    Orange dashes are where attention takes off in a run, a black dashed line where it is ``predicted`` to, and a thin
    black curve is the reduced model's.

    A quantity may have several curves (a norm, and norms of its parts); a rotation, which has its own scale, has a
    logarithmic axis.
    """
    quantities = list(next(iter(settings.values()))[1])
    size = (4.2 * len(settings), 1.9 * len(quantities) + 0.6)
    figure, axes = panels(title, size, len(quantities), len(settings), sharex="col")
    table: list[Row] = []
    for column, (name, (steps, rows, ends)) in enumerate(settings.items()):
        expected, at, theory = (predicted or {}).get(name, (None, (), {}))
        for row, (label, curves) in enumerate(rows.items()):
            panel = axes[row, column]
            for (part, values), colour in zip(curves.items(), (BLUE, GREEN, GREY), strict=False):
                # The first rows of the rotation are NaN: there is nothing 10 steps earlier.
                mean = values[:, 1:].mean(axis=0)
                # Faint lines of many runs are pixels: as curves they would fill megabytes.
                panel.plot(steps, values.T, color=colour, alpha=0.25, linewidth=0.7, rasterized=True)
                panel.plot(steps[1:], mean, color=colour, linewidth=1.8, label=part)
                table += _curves(steps, values, setting=name, quantity=part)
                table += _curves(steps[1:], mean[None], setting=name, quantity=part, run="mean")
                if part in theory:
                    panel.plot(at, theory[part], color="black", linewidth=0.8, label="the reduced model")
                    table += _curves(
                        np.array(at), np.array([theory[part]]), setting=name, quantity=part, run="predicted"
                    )
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
        table += [{"setting": name, "quantity": "attention takes off", "step": int(end)} for end in ends]
        state = "attention takes off (dashed)" if ends else "attention does not take off"
        if expected is not None:
            table.append({"setting": name, "quantity": "attention takes off", "run": "predicted", "step": expected})
            state += f", predicted at {expected:,.0f} (black)"
        axes[0, column].set_title(f"{name}\n{state}", fontsize=8)
        axes[-1, column].set_xlabel("step")
    return Drawn(figure, table)


def _curves(steps: np.ndarray, values: Float[np.ndarray, "seed row"], *, run: str = "", **names: object) -> list[Row]:
    """Rows of curves over steps, one curve per run, or that of ``run``; ``names`` are the other columns."""
    return [
        {**names, "run": run or number, "step": step, "value": value}
        for number, line in enumerate(values.tolist(), start=1)
        for step, value in zip(steps.tolist(), line, strict=True)
    ]


def stage_map(losses: Mapping[str, Mapping[tuple[str, str], tuple[float, float, float]]], *, title: str) -> Drawn:
    """Which settings have two stages: a panel per loss, rows optimiser and rate, columns the initial scale.

    Each cell has the share of runs with two stages (its colour), the step at which attention takes off, and the share
    of the gain under uniform attention that W^V has by then; NaN for all where attention does not take off.
    """
    first = next(iter(losses.values()))
    rows, columns = (list(dict.fromkeys(place[axis] for place in first)) for axis in (0, 1))
    size = (max(4.5, 1.15 * len(columns) + 2.0) * len(losses), 0.62 * len(rows) + 1.9)
    figure, [axes] = panels(title, size, 1, len(losses), lines=None)
    table: list[Row] = []
    for panel, (name, cells) in zip(axes, losses.items(), strict=True):
        shares = np.array([[cells[row, column][0] for column in columns] for row in rows])
        panel.set_facecolor("0.93")
        # Below the darkest blue, so that black text stays readable.
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1.6, aspect="auto")
        for (row, column), (share, when, gain) in cells.items():
            text = "does not\ntake off" if np.isnan(when) else f"step {when:.0f}\n{100 * gain:.0f} % gained"
            style = {"ha": "center", "va": "center", "fontsize": 8, "weight": "bold" if share == 1 else "normal"}
            panel.text(columns.index(column), rows.index(row), text, **style)
            where = {"loss": name, "optimizer": row, "initial_scale": column}
            table.append({**where, "two_stage_runs": share, "take_off": when, "uniform_gain": gain})
        for edge in range(1, max(len(rows), len(columns))):
            panel.axhline(edge - 0.5, color="0.8", linewidth=0.8)
            panel.axvline(edge - 0.5, color="0.8", linewidth=0.8)
        panel.set_xlim(-0.5, len(columns) - 0.5)
        panel.set_ylim(len(rows) - 0.5, -0.5)
        panel.set_xticks(range(len(columns)), columns)
        panel.set_yticks(range(len(rows)), rows)
        panel.set_xlabel("initial scale")
        panel.set_title(name, fontsize=10)
    figure.supxlabel(
        "in each cell: when attention takes off, and W^V's share of the gain under uniform attention by then;\n"
        "blue and bold: all runs are two-stage; grey: attention has not taken off when the run ends",
        fontsize=8,
    )
    return Drawn(figure, table)


def predicted_against_measured(
    pairs: Mapping[str, Float[np.ndarray, "cell 2"]], groups: Sequence[str], names: Sequence[str], *, title: str
) -> Drawn:
    """Predicted (vertical) against measured (horizontal) numbers, a panel per number and a marker per group of cells.

    Beside the line of equality is a band of 15 %. Cells in which one of the two is NaN are in the table alone.
    """
    figure, [axes] = panels(title, (5.2 * len(pairs), 4.6), 1, len(pairs), lines=None)
    table: list[Row] = []
    kinds = list(dict.fromkeys(groups))
    for panel, (name, numbers) in zip(axes, pairs.items(), strict=True):
        both = np.isfinite(numbers).all(axis=1)
        for number, kind in enumerate(kinds):
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
        table += [
            {"number": name, "setting": cell, "predicted": float(row[0]), "measured": float(row[1])}
            for cell, row in zip(names, numbers, strict=True)
        ]
    axes[0].legend(fontsize=8)
    return Drawn(figure, table)


def attention_bars(rows: Mapping[str, Float[np.ndarray, "seed class"]], *, uniform: float, title: str) -> Drawn:
    """Average attention × 100 to the same word, the same topic and other topics; a dot per run, a bar for the mean.

    ``uniform`` is uniform attention's value for any pair.
    """
    figure, [[panel]] = panels(title, (9.0, 0.62 * len(rows) + 1.6), lines="x")
    colours = {"same word": GREEN, "same topic, other word": BLUE, "different topic": ORANGE}
    table: list[Row] = []
    for place, (name, values) in enumerate(rows.items()):
        for number, (pair, colour) in enumerate(colours.items()):
            height, points = place + 0.26 * (number - 1), 100 * values[:, number]
            panel.barh(height, points.mean(), height=0.24, color=colour, alpha=0.55)
            panel.plot(points, np.full(len(points), height), ".", color=colour, markersize=4)
            table += _runs(points, setting=name, pair=pair)
            table.append({"setting": name, "pair": pair, "run": "mean", "value": float(points.mean())})
    table.append({"setting": "uniform attention", "value": 100 * uniform})
    panel.axvline(100 * uniform, color=GREY, linestyle="--", linewidth=1.0)
    panel.set_yticks(range(len(rows)), list(rows), fontsize=8)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.set_xlabel("average attention of a pair of positions × 100")
    handles = [Line2D([], [], color=colour, linewidth=6, alpha=0.55) for colour in colours.values()]
    handles.append(Line2D([], [], color=GREY, linestyle="--"))
    panel.legend(handles, (*colours, "uniform attention"), loc="lower right", fontsize=8)
    return Drawn(figure, table)


def _runs(values: Float[np.ndarray, " seed"], **names: object) -> list[Row]:
    """Rows of one number per run; ``names`` are the other columns."""
    return [{**names, "run": run, "value": value} for run, value in enumerate(values.tolist(), start=1)]


def seed_points(numbers: Mapping[str, tuple[Mapping[str, Float[np.ndarray, " seed"]], float]], *, title: str) -> Drawn:
    """Numbers of several settings, a dot per run, with the claim's threshold; a panel per number."""
    names = list(next(iter(numbers.values()))[0])
    size = (5.0 * len(numbers), 0.32 * len(names) + 1.6)
    figure, [axes] = panels(title, size, 1, len(numbers), sharey=True)
    table: list[Row] = []
    for panel, (label, (values, threshold)) in zip(axes, numbers.items(), strict=True):
        panel.axvline(threshold, color=ORANGE, linestyle="--", linewidth=1.2)
        for place, name in enumerate(names):
            panel.plot(values[name], np.full(len(values[name]), place), "o", color=BLUE, alpha=0.5, markersize=4)
            table += _runs(values[name], quantity=label, threshold=threshold, setting=name)
        panel.set_xlabel(label)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()
    return Drawn(figure, table)


def loss_levels(
    losses: Mapping[str, tuple[Mapping[str, Float[np.ndarray, " seed"]], Mapping[str, float]]], *, title: str
) -> Drawn:
    """Held-out losses of several models, a dot per run, between reference levels; a panel per loss."""
    most = max(len(models) for models, _ in losses.values())
    figure, [axes] = panels(title, (5.6 * len(losses), 0.42 * most + 2.0), 1, len(losses))
    table: list[Row] = []
    for panel, (label, (models, levels)) in zip(axes, losses.items(), strict=True):
        for (name, level), style in zip(levels.items(), ("--", ":"), strict=True):
            panel.axvline(level, color=ORANGE, linestyle=style, linewidth=1.4, label=name)
        for place, (name, values) in enumerate(models.items()):
            panel.plot(values, np.full(len(values), place), "o", color=BLUE, alpha=0.5, markersize=5)
            table += _runs(values, loss=label, model=name)
        table += [{"loss": label, "model": name, "value": float(level)} for name, level in levels.items()]
        panel.set_yticks(range(len(models)), list(models), fontsize=8)
        panel.set_ylim(len(models) - 0.5, -0.5)
        panel.set_xlabel(label)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return Drawn(figure, table)


def gradient_ratios(
    measured: Mapping[str, Mapping[float, Float[np.ndarray, " seed"]]],
    formula: Mapping[str, tuple[Float[np.ndarray, " scale"], Float[np.ndarray, " scale"]]],
    *,
    title: str,
) -> Drawn:
    """‖∇W^V‖ over ‖∇W^K‖ at the start against the initial scale, with a dot per run and the formula as a line."""
    figure, [[panel]] = panels(title, (5.5, 4.2), letters=10)
    table: list[Row] = []
    for (name, points), colour, marker in zip(measured.items(), (BLUE, ORANGE), "os", strict=True):
        panel.plot(*formula[name], color=colour, linewidth=1.2, label=f"{name}: formula")
        scales = np.repeat(list(points), [len(values) for values in points.values()])
        ratios = np.concatenate(list(points.values()))
        panel.plot(scales, ratios, marker, color=colour, alpha=0.5, markersize=5, label=f"{name}: measured")
        for scale, values in points.items():
            table += _runs(values, loss=name, initial_scale=scale)
        table += [
            {"loss": name, "initial_scale": scale, "run": "formula", "value": ratio}
            for scale, ratio in zip(*(array.tolist() for array in formula[name]), strict=True)
        ]
    panel.set(xscale="log", yscale="log", xlabel="initial scale s", ylabel="‖∇W^V‖ / ‖∇W^K‖ at the start")
    panel.legend(fontsize=8)
    return Drawn(figure, table)


def layer_trajectories(settings: Mapping[str, LayerCurves], *, title: str) -> Drawn:
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
    table: list[Row] = []
    for (name, (steps, values)), colour in zip(settings.items(), PALETTE, strict=False):
        for row, (part, label) in enumerate(parts.items()):
            for layer in range(layers):
                curves = values[part][:, :, layer]
                lines = axes[row, layer].plot(steps, curves.T, color=colour, linewidth=0.9, alpha=0.8)
                table += _curves(steps, curves, setting=name, layer=layer + 1, quantity=label)
                if row == layer == 0:
                    lines[0].set_label(name)
    for row, label in enumerate(parts.values()):
        axes[row, 0].set(ylabel=label, yscale="log")
    for layer in range(layers):
        axes[0, layer].set_title(f"layer {layer + 1}", fontsize=10)
        axes[-1, layer].set_xlabel("step")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return Drawn(figure, table)


def structure_over_steps(
    steps: Int[np.ndarray, " row"],
    loss: Float[np.ndarray, "seed row"],
    value: Float[np.ndarray, "seed row layer"],
    measured: Int[np.ndarray, " measured"],
    log_ratios: Mapping[str, Float[np.ndarray, "seed measured"]],
    by_layer: Float[np.ndarray, "seed measured layer"],
    *,
    half_ways: Mapping[str, Float[np.ndarray, " seed"]],
    layer_half_ways: Float[np.ndarray, "seed layer"],
    title: str,
) -> Drawn:
    """Loss, ‖W^V‖, and log-ratios of same- to different-topic averages; faint lines are runs, bold ones their means.

    A dot per run shows where a structure reaches half of its final log-ratio.
    """
    figure, axes = panels(title, (7.0, 9.6), 4, sharex=True)
    layers = {f"layer {layer + 1}": layer for layer in range(by_layer.shape[2])}
    layer_marks = {name: layer_half_ways[:, layer] for name, layer in layers.items()}
    layer_ratios = {name: by_layer[:, :, layer] for name, layer in layers.items()}
    groups: tuple[Panel, ...] = (
        ("loss", steps, {"": loss}, {}),
        ("‖W^V‖", steps, {name: value[:, :, layer] for name, layer in layers.items()}, {}),
        ("log-ratio,\nsame over different topic", measured, dict(log_ratios), half_ways),
        ("attention's log-ratio\nby layer", measured, layer_ratios, layer_marks),
    )
    table: list[Row] = []
    for panel, (label, at, curves, marks) in zip(axes[:, 0], groups, strict=True):
        for (name, values), colour in zip(curves.items(), PALETTE, strict=False):
            mean, names = values.mean(axis=0), {"quantity": label, "of": name}
            panel.plot(at, values.T, color=colour, linewidth=0.6, alpha=0.4)
            panel.plot(at, mean, color=colour, linewidth=1.8, label=name or None)
            table += _curves(at, values, **names)
            table += _curves(at, mean[None], **names, run="mean")
            if name in marks:
                halves = values[:, -1] / 2
                panel.plot(marks[name], halves, "o", color=colour, markersize=5, markeredgecolor="black")
                table += [
                    {**names, "run": f"{run}, half of its last", "step": step, "value": half}
                    for run, (step, half) in enumerate(zip(marks[name].tolist(), halves.tolist(), strict=True), start=1)
                ]
        panel.set_ylabel(label)
        if len(curves) > 1:
            panel.legend(fontsize=8, ncols=2)
    for panel in axes[2:, 0]:
        panel.axhline(0.0, color=GREY, linestyle="--", linewidth=0.8)
    axes[-1, 0].set_xlabel("step")
    return Drawn(figure, table)
