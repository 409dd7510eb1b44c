"""A training run as arrays over seeds and steps: what training fills, files hold, claims measure and pages show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load, save

from topicscope.errors import UnreadableError, path_of
from topicscope.records import TRAIN_AGAIN, Reference, Result, table_html
from topicscope.settings import Settings
from topicscope.settings.toml import dump_settings, load_settings
from topicscope.store import checkpoint_path, read_tensors, write_atomically

# A run folder's file with all of the run but its weights, which are in the checkpoints.
FILE = "run.safetensors"
# Fields that are arrays by name, and fields that are one array.
MAPPINGS = ("metrics", "frames", "weights", "theory", "final")
ARRAYS = ("steps", "frame_steps")


def _no_steps() -> Int[np.ndarray, " 0"]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Run(Result):
    """Runs that differ in their seeds alone; every array begins with an axis of seeds unless said otherwise.

    A seed that diverged has NaN from there on, and NaN everywhere in ``weights`` and ``final``.
    """

    name: str
    settings: Settings
    """All settings but the seed."""

    seeds: tuple[int, ...]

    steps: Int[np.ndarray, " row"]
    """The recorded steps; 0 is before the first update, the last is the end."""

    metrics: Mapping[str, Float[np.ndarray, "seed row ..."]]
    """NaN where a number was not recorded. With a ``layer`` axis: "norm/PART", "rotation" ((1 − cos)/2 between W^V and
    itself ten steps earlier), "contrast/value" (same- minus different-topic average of W^E⊤W^V W^E), "attention/words"
    and "attention/mask" (how far attention of these queries is from uniform, in total variation). Without: "loss" of
    the step's own batch, without L2; "validation_loss", "penalty", "contrast/embedding",
    "modes/key-topics" and the like (norms of parts of W^K and W^Q), "uniform_gain" (W^V's gain under uniform
    attention as a share of the optimum's)."""

    weights: Mapping[str, Float[np.ndarray, "seed ..."]] = field(default_factory=dict)
    """Final weights by parameter, as in a checkpoint: "embedding" is W^E⊤ (token, dimension); "value", "key" and
    "query" have a ``layer`` axis."""

    theory: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What belongs to the settings: "word_topics", the topic of each token (0 for [MASK]), and optimal matrices by the
    names that they have in ``frames``. No axis of seeds."""

    final: Mapping[str, Float[np.ndarray, "seed ..."]] = field(default_factory=dict)
    """Measured on held-out documents that all seeds share: "held_out_loss", "attention" by class of word pairs, and
    "first_gradients/PART", the norms of gradients at the initial weights."""

    seconds: float = 0.0
    """Seconds that training all seeds took."""

    frame_steps: Int[np.ndarray, " frame"] = field(default_factory=_no_steps)
    """The steps at which matrices were kept to be looked at."""

    frames: Mapping[str, Float[np.ndarray, "_ frame ..."]] = field(default_factory=dict)
    """Of the first seed alone, by layer: "value_products" (W^E⊤W^V W^E, W^V itself if embeddings are one-hot) and
    "embedding_products" (W^E⊤W^E, one layer). Of all seeds: "averages/MATRIX", by layer and class of entry
    (``measure.blocks.averages_by_class``), and "attention", by class of word pairs, layer and head."""

    reference: Reference | None = None
    """Losses and stages that theory expects, and what its matrices are."""

    @property
    def path(self) -> Path:
        """The folder of a run that was read from one."""
        return Path(self.name)

    @property
    def word_topics(self) -> Int[np.ndarray, " token"]:
        """Topic of each token, 0 for [MASK]."""
        return self.theory["word_topics"]

    @property
    def value_products(self) -> Float[np.ndarray, "seed token token"]:
        """W^E⊤ W^V W^E of the first layer: what W^V does between tokens; W^V itself for one-hot embeddings."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ self.weights["value"][:, 0].astype(np.float64) @ table.transpose(0, 2, 1)

    @property
    def embedding_products(self) -> Float[np.ndarray, "seed token token"]:
        """E = W^E⊤ W^E."""
        table = self.weights["embedding"].astype(np.float64)
        return table @ table.transpose(0, 2, 1)

    def rows(self) -> list[dict[str, Any]]:
        """A row per seed and step: "seed", "step", "loss", "norm/value", or with several layers "norm/value/1"."""
        columns = {"seed": np.repeat(self.seeds, len(self.steps)), "step": np.tile(self.steps, len(self.seeds))}
        for name, values in self.metrics.items():
            shape = values.shape[2:]
            for place in np.ndindex(shape):
                numbers = "".join(f"/{number + 1}" for number in place) if np.prod(shape) > 1 else ""
                columns[name + numbers] = values[(slice(None), slice(None), *place)].ravel()
        return [
            dict(zip(columns, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]

    def __repr__(self) -> str:
        last = f"step {self.steps[-1]:,}" if len(self.steps) else "no step"
        return f"<run {self.name}: seeds {', '.join(map(str, self.seeds))}, {last} of {self.settings.training.steps:,}>"

    def _repr_html_(self) -> str:
        return table_html(("quantity", "value"), list((self.rows() or [{}])[-1].items()), str(self))


# As files.


def run_bytes(run: Run, *, weights: bool = True, named: bool = False) -> bytes:
    """The arrays as safetensors, under names such as ``metrics/norm/value``: any tool opens them.

    A run that is not ``named`` is called what its folder is called.
    """
    arrays: dict[str, Any] = {name: getattr(run, name) for name in ARRAYS}
    arrays |= {"seeds": np.array(run.seeds, dtype=np.int64), "seconds": np.array([run.seconds])}
    if run.reference is not None:
        arrays["reference"] = np.frombuffer(msgspec.json.encode(run.reference), dtype=np.uint8)
    if named:
        arrays["name"] = np.frombuffer(run.name.encode(), dtype=np.uint8)
    for name in MAPPINGS:
        if name != "weights" or weights:
            arrays |= {f"{name}/{key}": array for key, array in getattr(run, name).items()}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def run_of(content: bytes, name: str, settings: Settings) -> Run:
    """The run that ``run_bytes`` stored."""
    return _run(load(content), name, settings)


def _run(arrays: dict[str, np.ndarray], name: str, settings: Settings) -> Run:
    def taken(key: str, dimensions: int, kinds: str) -> np.ndarray:
        array = arrays.pop(key)
        if array.ndim != dimensions or array.dtype.kind not in kinds:
            raise ValueError(f'"{key}" has the shape {array.shape}')
        return array

    fields: dict[str, Any] = {key: taken(key, 1, "iu") for key in ARRAYS} | {key: {} for key in MAPPINGS}
    seeds, seconds = tuple(taken("seeds", 1, "iu").tolist()), float(taken("seconds", 1, "f").sum())
    if "reference" in arrays:
        fields["reference"] = msgspec.json.decode(taken("reference", 1, "u").tobytes(), type=Reference)
    name = taken("name", 1, "u").tobytes().decode() if "name" in arrays else name
    for path, array in sorted(arrays.items()):
        field_name, _, key = path.partition("/")
        fields[field_name][key] = array
    for kind, rows in (("metrics", "steps"), ("frames", "frame_steps")):
        for key, array in fields[kind].items():
            # A matrix is kept of the first seed alone.
            counts = {len(seeds)} if kind == "metrics" else {1, len(seeds)}
            if array.dtype.kind != "f" or array.shape[1:2] != fields[rows].shape or len(array) not in counts:
                raise ValueError(f'"{kind}/{key}" has the shape {array.shape}')
    return Run(name=name, settings=settings, seeds=seeds, seconds=seconds, **fields)


def write_run(run: Run, folder: Path) -> None:
    """Write a run under its name into a folder, without its weights, for a page to show."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "settings.toml", dump_settings(run.settings))
    write_atomically(folder / FILE, run_bytes(run, weights=False, named=True))


def read_run(folder: Path | str, *, weights: bool = True) -> Run:
    """The run in a folder, as far as it is: final ``weights`` are there once it has finished."""
    folder = path_of(folder, "folder")
    settings, path = load_settings(folder / "settings.toml"), folder / FILE
    arrays = read_tensors(path, TRAIN_AGAIN)
    try:
        run = _run(arrays, str(folder), settings)
    except (KeyError, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise UnreadableError(path, f"it is not a run: {error}", TRAIN_AGAIN) from None
    last = checkpoint_path(folder, settings.training.steps)
    if weights and last.exists():
        run = replace(run, weights=read_tensors(last, "train with --resume to have it written again", "weights/"))
    return run


def together(runs: Sequence[Run]) -> Run:
    """Runs that differ in their seeds alone as one, cut to the rows, frames and arrays that all of them have."""
    runs = sorted(runs, key=lambda run: run.seeds)
    first = runs[0]
    if len(runs) == 1:
        return first
    rows, count = (min(len(getattr(run, name)) for run in runs) for name in ARRAYS)

    def joined(name: str, length: int | None = None) -> dict[str, np.ndarray]:
        own: list[Mapping[str, np.ndarray]] = [getattr(run, name) for run in runs]
        shared = [key for key in own[0] if all(key in arrays for arrays in own)]
        here = slice(None) if length is None else (slice(None), slice(length))
        return {key: np.concatenate([arrays[key][here] for arrays in own]) for key in shared}

    frames = joined("frames", count)
    frames |= {name: array[:1] for name, array in frames.items() if f"averages/{name}" in frames}
    parents = {str(Path(run.name).parent) for run in runs}
    return replace(
        first,
        name=parents.pop() if len(parents) == 1 else ", ".join(run.name for run in runs),
        seeds=tuple(seed for run in runs for seed in run.seeds),
        steps=first.steps[:rows],
        metrics=joined("metrics", rows),
        weights=joined("weights"),
        final=joined("final"),
        frame_steps=first.frame_steps[:count],
        frames=frames,
        seconds=sum(run.seconds for run in runs),
    )
