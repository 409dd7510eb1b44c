"""The runs of a sweep that are trained together: training them, and measuring each.

The finished work of a sweep is named by the content of this file and of the others that a run's numbers depend on
(``runs.SOURCES``): what a sweep prints and draws is elsewhere, so that it can change without any training.
"""

import contextlib
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from topicscope.errors import DivergedError
from topicscope.files import Row, checkpoint_path, load_tensors
from topicscope.measure.stages import norm_stages
from topicscope.settings import PARTS, Settings
from topicscope.training.runs import RunFolder

# What is measured of every run, beside the norm of each part (norm_value and so on).
MEASURES = (
    "loss", "validation_loss", "bayes_floor", "excess_loss", "distance_to_optimum", "excess_over_optimum",
    "share_of_optimum", "contrast_value", "contrast_embedding",
    "attention_same_word", "attention_same_topic", "attention_different_topic",
    "stage_1_end", "stage_1_growth", "two_stages",
)  # fmt: skip

# Files of a run folder, with copies of those that settings name; all others are the user's.
RUN_FILES = (
    "settings.toml", "versions.json", "metrics.jsonl", "reference.json", "reference.safetensors",
    "snapshots.safetensors", "checkpoint-*.safetensors", "topic_words.*", *(f"{part}.*" for part in PARTS),
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Runs of one combination that are trained in one tensor."""

    settings: Settings
    seeds: tuple[int, ...]
    folder: Path


def train_group(group: Group) -> bytes:
    """Train the runs, from their last checkpoints if they were begun before; one that diverges has no measures.

    It returns JSON: ``rows``, one per seed, and ``files``, the digest of every file that training wrote.
    """
    from topicscope.training.loop import Ensemble, train_ensemble

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
    files = sorted({path for pattern in RUN_FILES for path in group.folder.glob(f"*/{pattern}") if path.is_file()})
    digests = {str(path.relative_to(group.folder)): file_digest(path) for path in files}
    return json.dumps({"rows": rows, "files": digests}, allow_nan=False).encode()


def file_digest(path: Path) -> str | None:
    """The digest of a file's content; None if there is no file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def measures(run: RunFolder, steps: int) -> Row:
    """The final numbers of a run; only ``diverged`` and ``last_step`` if it did not reach its end."""
    rows = run.metrics()
    finished = bool(rows) and rows[-1]["step"] == steps
    last: Row = rows[-1] if rows else {"step": 0}
    head: Row = {"diverged": not finished, "last_step": last["step"]}
    if not finished:
        return head
    floor = run.reference()["bayes_floor"]["loss"]
    held_out = last["validation_loss"]
    contrasts = [value for value in last["contrast"]["value"] if value is not None]
    norms = {
        name: np.array([float(np.linalg.norm(row["norm"][name])) for row in rows]) for name in ("key", "query", "value")
    }
    end = norm_stages(np.array([row["step"] for row in rows]), **norms)
    return head | {
        "loss": last["loss"],
        "validation_loss": held_out,
        "bayes_floor": floor,
        "excess_loss": None if floor is None or held_out is None else held_out - floor,
        **_of_optimum(run, steps),
        "contrast_value": float(np.mean(contrasts)) if contrasts else None,
        "contrast_embedding": last["contrast"]["embedding"],
        **_attention(run, steps),
        **{f"norm_{name}": float(np.linalg.norm(layers)) for name, layers in last["norm"].items()},
        "stage_1_end": end.end,
        "stage_1_growth": end.growth if np.isfinite(end.growth) else None,
        "two_stages": end.two,
    }


def _of_optimum(run: RunFolder, steps: int) -> Row:
    """How far W^V is from the optimum of the run's own objective, where that is known."""
    from topicscope.training.reference import optimum_measures

    settings = run.settings()
    assert isinstance(settings, Settings)
    weights = load_tensors(checkpoint_path(run.path, steps), ["weights/value"])
    return dict(optimum_measures(settings, weights["weights/value"]))


def _attention(run: RunFolder, steps: int) -> Row:
    """Attention by class of word pairs at the last step, averaged over layers and heads; none without snapshots."""
    names = ("attention_same_word", "attention_same_topic", "attention_different_topic")
    snapshot = run.snapshots().get(steps)
    if snapshot is None:
        return dict.fromkeys(names)
    averages = snapshot["attention"].reshape(len(names), -1).mean(axis=1).tolist()
    return {name: value if np.isfinite(value) else None for name, value in zip(names, averages, strict=True)}
