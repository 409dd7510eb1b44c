"""A sweep's work items: the runs of one combination that are trained together, and what is measured of each."""

import contextlib
import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from topicscope.errors import DivergedError, InputError
from topicscope.measure.stages import stages
from topicscope.scale import Item, read_result
from topicscope.settings import PARTS, Settings
from topicscope.settings.sweep import Point, Sweep, brief
from topicscope.settings.toml import FILE_SETTINGS, flat, to_table
from topicscope.training.runs import RunFolder, made_with

# What is measured of every run, beside the norm of each part (norm_value and so on).
MEASURES = (
    "loss", "validation_loss", "bayes_floor", "excess_loss", "contrast_value", "contrast_embedding",
    "attention_same_word", "attention_same_topic", "attention_different_topic",
    "stage_1_end", "stage_1_growth", "two_stages",
)  # fmt: skip
# Files of a run folder, copies of those that settings name among them; all others are the user's.
RUN_FILES = (
    "settings.toml", "versions.json", "metrics.jsonl", "reference.json", "reference.safetensors",
    "snapshots.safetensors", "checkpoint-*.safetensors", "topic_words.*", *(f"{part}.*" for part in PARTS),
)  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs of one combination that are trained in one tensor."""

    settings: Settings
    seeds: tuple[int, ...]
    folder: Path


@dataclass(frozen=True)
class Found:
    """What a group left: a row a seed, and the digest of every file that training wrote."""

    rows: list[Row]
    files: dict[str, str | None]


def group_items(sweep: Sweep, out: Path) -> list[tuple[Point, Item[Group]]]:
    """All work, in the order of the combinations and, within one, of the seeds."""
    return [(point, _item(point, seeds, out)) for point in sweep.points() for seeds in sweep.groups()]


def work_folder(out: Path) -> Path:
    """Where results of groups are kept."""
    return out / "work"


def train_group(group: Group) -> bytes:
    """Train the runs, from their last checkpoints if they were begun before; one that diverges has no measures."""
    from topicscope.training.ensemble import Ensemble, train_ensemble

    ensemble = Ensemble(settings=group.settings, seeds=group.seeds)
    began = time.perf_counter()
    with contextlib.suppress(DivergedError):
        train_ensemble(ensemble, group.folder, resume=True)
    seconds = (time.perf_counter() - began) / len(group.seeds)
    rows = [
        {"seed": seed, **measures(RunFolder(group.folder / name), group.settings.training.steps)}
        | {"train_seconds": seconds, "run": f"runs/{group.folder.name}/{name}"}
        for seed, name in zip(group.seeds, ensemble.members(), strict=True)
    ]
    return json.dumps({"rows": rows, "files": _run_files(group.folder)}, allow_nan=False).encode()


def found(content: bytes) -> Found:
    """What ``train_group`` wrote."""
    return Found(**json.loads(content))


def is_finished(item: Item[Group], out: Path) -> bool:
    """Whether a group's result is there and every file that training wrote is as it was."""
    recorded, whole = _files_there(item, out)
    return bool(recorded) and whole == recorded


def forget_damaged(item: Item[Group], out: Path) -> bool:
    """Remove a group of which a file is not what it was when it was finished; whether it was so.

    Files that the user put into its run folders neither count nor are touched.
    """
    recorded, whole = _files_there(item, out)
    if whole == recorded:
        return False
    item.path(work_folder(out)).unlink()
    for name in recorded:
        # By its settings a folder that holds other files too is known as a run's.
        if name not in whole or Path(name).name != "settings.toml":
            (item.argument.folder / name).unlink(missing_ok=True)
    return True


def measures(run: RunFolder, steps: int) -> Row:
    """The final numbers of a run; all but ``diverged`` and ``last_step`` are None if it did not reach its end."""
    rows = run.metrics()
    finished = bool(rows) and rows[-1]["step"] == steps
    last: Row = rows[-1] if rows else {"step": 0}
    head: Row = {"diverged": not finished, "last_step": last["step"]}
    if not finished:
        return head
    floor = run.reference()["bayes_floor"]["loss"]
    held_out = last["validation_loss"]
    end = _stages(rows)
    return head | {
        "loss": last["loss"],
        "validation_loss": held_out,
        "bayes_floor": floor,
        "excess_loss": None if floor is None or held_out is None else held_out - floor,
        "contrast_value": _mean(last["contrast"]["value"]),
        "contrast_embedding": last["contrast"]["embedding"],
        **_attention(run, steps),
        **{f"norm_{name}": float(np.linalg.norm(layers)) for name, layers in last["norm"].items()},
        "stage_1_end": end.end,
        "stage_1_growth": end.growth if np.isfinite(end.growth) else None,
        "two_stages": end.two,
    }


def _item(point: Point, seeds: tuple[int, ...], out: Path) -> Item[Group]:
    # Its threads are part of the settings: left open, they would depend on the machine.
    training = dataclasses.replace(point.settings.training, threads=point.settings.training.threads or 1)
    settings = dataclasses.replace(point.settings, training=training)
    name = " ".join(f"{name.rpartition('.')[2]} {brief(value)}" for name, value in point.values.items())
    key = {"settings": _by_content(settings), "seeds": list(seeds), **made_with("commands/sweep_runs.py")}
    group = Group(settings, seeds, Path())
    item = Item(name, key, group, suffix=".json", threads=training.threads)
    folder = out / "runs" / item.path(work_folder(out)).stem
    return dataclasses.replace(item, argument=dataclasses.replace(group, folder=folder))


def _by_content(settings: Settings) -> dict[str, Any]:
    """Settings by name, the files that they name by their content; seeds are apart."""
    table = flat(to_table(settings))
    for keys in FILE_SETTINGS:
        name = ".".join(keys)
        if table[name]:
            try:
                table[name] = hashlib.sha256(Path(table[name]).read_bytes()).hexdigest()
            except OSError as error:
                raise InputError(
                    f"{name} = {table[name]} cannot be read ({error.strerror}): give an existing file."
                ) from None
    return table | {"seed": None}


def _run_files(folder: Path) -> dict[str, str | None]:
    files = sorted({path for pattern in RUN_FILES for path in folder.glob(f"*/{pattern}") if path.is_file()})
    return {str(path.relative_to(folder)): _digest(path) for path in files}


def _files_there(item: Item[Group], out: Path) -> tuple[set[str], set[str]]:
    """The files that a finished group recorded, none if it is not finished; and those that are still what they were."""
    content = read_result(item.path(work_folder(out)))
    recorded = found(content).files if content is not None else {}
    whole = {name for name, digest in recorded.items() if _digest(item.argument.folder / name) == digest}
    return set(recorded), whole


def _digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _stages(rows: list[Row]) -> Any:
    norms = {
        name: np.array([float(np.linalg.norm(row["norm"][name])) for row in rows]) for name in ("key", "query", "value")
    }
    return stages(np.array([row["step"] for row in rows]), **norms)


def _attention(run: RunFolder, steps: int) -> Row:
    """By class of word pairs at the last step, averaged over layers and heads; none without snapshots."""
    names = ("attention_same_word", "attention_same_topic", "attention_different_topic")
    snapshot = run.snapshots().get(steps)
    if snapshot is None:
        return dict.fromkeys(names)
    averages = snapshot["attention"].reshape(len(names), -1).mean(axis=1).tolist()
    return {name: value if np.isfinite(value) else None for name, value in zip(names, averages, strict=True)}


def _mean(layers: list[float | None]) -> float | None:
    numbers = [value for value in layers if value is not None]
    return float(np.mean(numbers)) if numbers else None
