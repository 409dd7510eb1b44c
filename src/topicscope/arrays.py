"""Arrays from files: NumPy's, safetensors', and the newest checkpoint of a run folder."""

import re
from collections.abc import Collection
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from topicscope.errors import InputError

CHECKPOINT = re.compile(r"checkpoint-(\d+)\.safetensors")


def newest_checkpoint(folder: Path) -> Path:
    """The checkpoint with the highest step."""
    steps = {int(match[1]): path for path in folder.iterdir() if (match := CHECKPOINT.fullmatch(path.name))}
    if not steps:
        raise InputError(f"{folder} has no checkpoint-STEP.safetensors: give the folder of a run that saved one.")
    return steps[max(steps)]


def load_npy(path: Path) -> Float[np.ndarray, "..."]:
    """An array of numbers, as float64."""
    try:
        with path.open("rb") as file:
            return _numbers(np.load(file, allow_pickle=False), str(path))
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): give a .npy file of numbers.") from None


def load_tensors(path: Path, wanted: Collection[str] = (), optional: Collection[str] = ()) -> dict[str, np.ndarray]:
    """The wanted tensors, all of which must be there, and those of the optional ones that are; float64."""
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            missing = [name for name in wanted if name not in names]
            if missing:
                raise InputError(f"{path} has no tensor {missing[0]}: it has {_listed(names)}; give one of these.")
            chosen = [*wanted, *(name for name in optional if name in names)]
            return {name: _numbers(file.get_tensor(name), f"{path}, tensor {name},") for name in chosen}
    except (OSError, SafetensorError, TypeError) as error:
        raise InputError(
            f"{path} cannot be read ({_first_line(error)}): give a .safetensors file of float16, 32 or 64 numbers."
        ) from None


def only_tensor(path: Path, remedy: str = "say which one with --tensor") -> str:
    """The name of the file's tensor, if it has just one."""
    try:
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read ({_first_line(error)}): give a .safetensors file.") from None
    if len(names) != 1:
        raise InputError(f"{path} has {len(names)} tensors ({_listed(names)}): {remedy}.")
    return names.pop()


def one_layer(array: Float[np.ndarray, "..."], name: str, layer: int | None) -> Float[np.ndarray, "row column"]:
    """A matrix, or one layer of several."""
    if array.ndim == 3:
        if layer is None and len(array) > 1:
            raise InputError(f"{name} has {len(array)} layers: say which one with --layer, from 0.")
        if not 0 <= (layer or 0) < len(array):
            raise InputError(f"layer = {layer} is not allowed: {name} has {len(array)}; give one from 0.")
        array = array[layer or 0]
    if array.ndim != 2 or not array.size:
        raise InputError(f"{name} has shape {array.shape}: give a matrix.")
    return array


def _numbers(array: np.ndarray, name: str) -> Float[np.ndarray, "..."]:
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} holds {array.dtype} values: give real numbers.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds values that are not finite: give finite numbers.")
    return array


def _listed(names: Collection[str]) -> str:
    first = sorted(names)[:12]
    return ", ".join(first) + (", …" if len(names) > len(first) else "")


def _first_line(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error).splitlines()[0]
