"""Run folders as the page shows them: those that differ in the seed alone are one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.report.page.folders import Found
from topicscope.report.page.run_folder import read_run
from topicscope.report.page.view import KEPT, RunView, kept


def run_views(folders: Sequence[Path], found: Found) -> list[RunView]:
    """Run folders with equal settings but for the seed are one view; kept experiments are one each.

    Seeds that have recorded different things so far, such as one without snapshots, are shown apart.
    """
    groups: dict[str, list[RunView]] = {}
    for folder in folders:
        view = (kept if (folder / KEPT).exists() else read_run)(folder, found)
        if view is not None:
            _say_how_far(view, found)
            key = json.dumps({**view.settings, "seed": None}, sort_keys=True, default=str)
            groups.setdefault(key, []).append(view)
    return [_together(views) for alike in groups.values() for views in _with_the_same_records(alike, found)]


def _say_how_far(view: RunView, found: Found) -> None:
    if not len(view.steps):
        found.notes.append(f"{view.name} holds a run that has logged nothing yet.")
    elif view.done < view.total and (sweep := _sweep_of(Path(view.name))):
        # Its runs are trained together, and go on together.
        said = f"{sweep} holds runs that are not finished; topicscope sweep --out {sweep} --resume goes on."
        found.notes.extend([said] if said not in found.notes else [])
    elif view.done < view.total:
        found.notes.append(
            f"{view.name} is not finished: step {view.done:,} of {view.total:,}; "
            f"topicscope train --out {view.name} --resume goes on."
        )


def _sweep_of(run: Path) -> Path | None:
    """The sweep whose run a folder is: SWEEP/runs/GROUP/seed-0."""
    inside = len(run.parents) > 2 and run.parents[1].name == "runs" and (run.parents[2] / "sweep.toml").exists()
    return run.parents[2] if inside else None


def _with_the_same_records(views: list[RunView], found: Found) -> list[list[RunView]]:
    """The largest part of the seeds that have the same matrices and norms first; a note on each of the others."""
    parts: dict[Any, list[RunView]] = {}
    for view in views:
        matrices = tuple((matrix.label, matrix.frames.shape[1:]) for matrix in view.matrices)
        parts.setdefault((matrices, tuple(view.norms), len(view.frame_steps) > 0), []).append(view)
    ordered = sorted(parts.values(), key=len, reverse=True)
    found.notes.extend(
        f"{view.name} has not recorded what other seeds of its setting have, so it is shown apart."
        for part in ordered[1:]
        for view in part
        if len(view.steps)
    )
    return ordered


def _together(views: list[RunView]) -> RunView:
    """Runs that differ in the seed alone; cut to the rows and frames that all of them have."""
    first = min(views, key=lambda view: view.seeds)
    if len(views) == 1:
        return first
    views = sorted(views, key=lambda view: view.seeds)
    rows = min(len(view.steps) for view in views)
    frames = min(len(view.frame_steps) for view in views)
    matrices = tuple(
        replace(
            matrix,
            frames=matrix.frames[:frames],
            classes=np.concatenate([view.matrices[place].classes[:, :frames] for view in views]),
        )
        for place, matrix in enumerate(first.matrices)
    )
    return replace(
        first,
        name=_common_name([view.name for view in views]),
        seeds=tuple(seed for view in views for seed in view.seeds),
        steps=first.steps[:rows],
        loss=np.concatenate([view.loss[:, :rows] for view in views]),
        held_out=np.concatenate([view.held_out[:, :rows] for view in views]),
        norms={name: np.concatenate([view.norms[name][:, :rows] for view in views]) for name in first.norms},
        frame_steps=first.frame_steps[:frames],
        matrices=matrices,
        attention=np.concatenate([view.attention[:, :frames] for view in views]),
    )


def _common_name(names: list[str]) -> str:
    parents = {str(Path(name).parent) for name in names}
    return parents.pop() if len(parents) == 1 else ", ".join(names)
