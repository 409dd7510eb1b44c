"""Figures of training on text, from arrays: Figure 5's layout, and topic structure on the time axis of training."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind eyes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


ROWS = {"key": "‖W^K‖", "query": "‖W^Q‖", "value": "‖W^V‖", "rotation": "rotation of W^V\nin 10 steps"}


# Steps, then each row's values.
Curves = tuple[Int[np.ndarray, " row"], Mapping[str, Float[np.ndarray, "seed row layer"]]]


# Label, steps, curves by name, and steps to mark on some of them.
Panel = tuple[str, np.ndarray, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]


def layer_trajectories(settings: Mapping[str, Curves], *, title: str) -> Figure:
    """Figure 5: a column a layer; norms of W^K, W^Q, W^V and the rotation of W^V; a curve a run, a colour a setting."""
    layers = next(iter(settings.values()))[1]["key"].shape[2]
    figure = Figure(figsize=(3.2 * layers + 0.6, 9.4), layout="constrained")
    figure.suptitle(title)
    axes = figure.subplots(len(ROWS), layers, sharex=True, sharey="row", squeeze=False)
    for (name, (steps, values)), colour in zip(settings.items(), COLOURS, strict=False):
        for row, part in enumerate(ROWS):
            for layer in range(layers):
                label = name if row == layer == 0 else None
                for number, curve in enumerate(values[part][:, :, layer]):
                    shown = label if number == 0 else None
                    axes[row, layer].plot(steps, curve, color=colour, linewidth=0.9, alpha=0.8, label=shown)
    for row, label in enumerate(ROWS.values()):
        axes[row, 0].set_ylabel(label)
        for panel in axes[row]:
            panel.set_yscale("log")
            panel.grid(color="0.9", linewidth=0.5)
    for layer in range(layers):
        axes[0, layer].set_title(f"layer {layer + 1}", fontsize=10)
        axes[-1, layer].set_xlabel("step")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, fontsize=8)
    return figure


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
) -> Figure:
    """Loss, ‖W^V‖, and log-ratios of same- to different-topic averages; one faint line a run, the mean in bold.

    A dot a run shows where a structure reaches half of its final log-ratio.
    """
    figure = Figure(figsize=(7.0, 9.6), layout="constrained")
    figure.suptitle(title)
    panels = figure.subplots(4, 1, sharex=True)
    layers = {f"layer {layer + 1}": layer for layer in range(by_layer.shape[2])}
    layer_marks = {name: layer_half_ways[:, layer] for name, layer in layers.items()}
    layer_ratios = {name: by_layer[:, :, layer] for name, layer in layers.items()}
    groups: tuple[Panel, ...] = (
        ("loss", steps, {"": loss}, {}),
        ("‖W^V‖", steps, {name: value[:, :, layer] for name, layer in layers.items()}, {}),
        ("log-ratio,\nsame over different topic", measured, dict(log_ratios), half_ways),
        ("attention's log-ratio\nby layer", measured, layer_ratios, layer_marks),
    )
    for panel, (label, at, curves, marks) in zip(panels, groups, strict=True):
        for (name, values), colour in zip(curves.items(), COLOURS, strict=False):
            panel.plot(at, values.T, color=colour, linewidth=0.6, alpha=0.4)
            panel.plot(at, values.mean(axis=0), color=colour, linewidth=1.8, label=name or None)
            if name in marks:
                panel.plot(marks[name], values[:, -1] / 2, "o", color=colour, markersize=5, markeredgecolor="black")
        panel.set_ylabel(label)
        panel.grid(color="0.9", linewidth=0.5)
        if len(curves) > 1:
            panel.legend(fontsize=8, ncols=2)
    for panel in panels[2:]:
        panel.axhline(0.0, color="0.45", linestyle="--", linewidth=0.8)
    panels[-1].set_xlabel("step")
    return figure
