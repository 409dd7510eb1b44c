"""Files that are either there whole or not at all, rows up to where they were cut, folders to oneself."""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Float
from safetensors import SafetensorError, safe_open

from topicscope.errors import InputError

# Names that a file has while it is being written.
LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name beside the file, bring it to disk, then rename it over the file."""
    # A name of its own: two processes that write the same file must not rename each other's half.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        # On a full disk the part that was written would take the last space; after Ctrl-C nobody would ask for it.
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path, *, older_than: float = 0.0) -> None:
    """Remove what killed processes left of files that they were writing.

    older_than: seconds; more than a file takes to be written, where other processes may be writing now.
    """
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= older_than:
                    path.unlink()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics.jsonl, up to the first that was cut short or spoilt; none if there is no file."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            break
        if not isinstance(row, dict) or "step" not in row:
            break
        rows.append(row)
    return rows


@contextlib.contextmanager
def alone_in(folder: Path, *, otherwise: str | None = None) -> Iterator[None]:
    """Keep other processes that ask for the same out of a folder; the lock goes with the process, however it ends.

    otherwise: what an ``InputError`` says if another process has the folder; without it, that process is waited for.
    Windows has no such locks: there nobody is kept out.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if otherwise is None:
            # A disk without locks serves one process at a time as well.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        else:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(otherwise) from None
        yield
    finally:
        os.close(handle)


# Arrays from files: NumPy's, safetensors', and the newest checkpoint of a run folder.


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
