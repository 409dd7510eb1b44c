"""Writing files whole or not at all, locking folders, and reading files back.

A file appears under its name once all of it is on disk (``write_atomically``). Only regular files of a size that fits
in memory are read; what cannot be read, or is not what was expected, is an ``UnreadableError`` of one sentence,
whatever the bytes are. ``records`` says what is in each file of ours.
"""

import contextlib
import csv
import errno
import fcntl
import io
import os
import re
import secrets
import shutil
import stat
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
from jaxtyping import Float
from safetensors import safe_open

from topicscope.errors import InputError, UnreadableError, is_out_of_memory

# The names of files while they are being written.
LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")

# More bytes than any file of ours has: of text, which takes ten times as much once it is read, and of arrays.
MOST_TEXT, MOST_ARRAYS = 2**30, 2**35

# No model has a matrix with larger numbers, and products of such matrices may not be finite.
LARGEST = 1e100

# How text that a spreadsheet would compute begins, and such text once it is escaped by a quotation mark.
FORMULA = re.compile(r"'*[=+\-@\t\r]")

# The most levels of lists and objects in JSON and TOML; ours have up to seven.
MOST_LEVELS = 40

# What safetensors calls the kinds of numbers that NumPy has.
KINDS = re.compile(r"(F|I|U)(8|16|32|64)|BOOL")


def expanded(name: str | Path) -> Path:
    """A path, from the home folder if it begins with ``~``; ``~`` with an unknown user's name stays as it is."""
    return Path(os.path.expanduser(name))  # noqa: PTH111 (the other one raises)


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name beside the file, bring it to disk, then rename it over the file."""
    # The name is unique: two processes that write the same file must not rename each other's half.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        # On a full disk the part that was written would take the last space; after Ctrl-C nobody would need it.
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno:
            # The system names the temporary file, or on a full disk none.
            error.filename = str(path)
        raise


def remove_leftovers(folder: Path, *, older_than: float = 0.0) -> None:
    """Remove the unfinished files of killed processes.

    older_than: seconds; where other processes may be writing, more than writing a file takes.
    """
    for path in folder.iterdir():
        if LEFTOVER.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime >= older_than:
                    path.unlink()


@contextlib.contextmanager
def alone_in(folder: Path, *, otherwise: str | None = None) -> Iterator[None]:
    """Make a folder if needed, and keep other processes that ask for the same out of it.

    otherwise: what an ``InputError`` says if another process has the folder; without it, wait for that process.
    The lock is on the folder itself, needs no file, and ends with the process, in whatever way that ends. Some disks
    have no locks: there nobody is kept out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
            except BlockingIOError:
                raise InputError(otherwise) from None
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def as_before_if_refused(
    folder: Path, locked: contextlib.AbstractContextManager[None], unless: Callable[[], bool]
) -> Iterator[None]:
    """Lock a folder, and if what follows is refused, remove what was put into it, and the folder itself if it is new.

    So the corrected command can use the same folder. Nothing is removed if something is worth keeping (``unless``).
    """
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    with locked:
        before = set(folder.iterdir())
        try:
            yield
        except Exception as error:
            if (isinstance(error, InputError) or is_out_of_memory(error)) and not unless():
                for path in set(folder.iterdir()) - before:
                    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                # The folder stays if somebody else has put something there meanwhile.
                with contextlib.suppress(OSError):
                    for path in new:
                        path.rmdir()
            raise


# Text and tables. ``remedy`` ends the error's sentence: it says what the user can do.


def read_file(path: Path, remedy: str) -> bytes:
    """A file's bytes."""
    with _opened(path, remedy, MOST_TEXT) as file:
        # Only as many as it had when it was opened: a run's metrics grow while they are read.
        return file.read(os.fstat(file.fileno()).st_size)


def read_text(path: Path, remedy: str) -> str:
    """A file's text, which must be UTF-8."""
    try:
        return read_file(path, remedy).decode()
    except UnicodeDecodeError:
        raise UnreadableError(path, "it is not UTF-8 text", remedy) from None


def read_struct(path: Path, kind: Any, remedy: str) -> Any:
    """A JSON file's content as structs (of msgspec); keys that they do not declare are left out."""
    with _refused_in_a_sentence(path, remedy):
        return msgspec.json.decode(read_file(path, remedy), type=kind)


def struct_text(value: Any) -> bytes:
    """Structs, or lists of them, as a JSON file; a number that is not finite becomes null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


@contextlib.contextmanager
def _refused_in_a_sentence(path: object, remedy: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnreadableError(path, first_line(error), remedy) from None
    except RecursionError:
        raise UnreadableError(path, "it is nested too deeply", remedy) from None


def read_toml(path: Path, remedy: str) -> dict[str, Any]:
    """A TOML file's content."""
    text = read_text(path, remedy)
    try:
        content = tomllib.loads(text)
        if not _bearable(content):
            raise ValueError
    except tomllib.TOMLDecodeError as error:
        # tomllib names the line, except for what is missing at the end.
        last = len(text.rstrip().splitlines())
        where = str(error).replace("at end of document", f"at line {last}, the end of the document")
        raise UnreadableError(path, f"it is not valid TOML: {where}", "correct that line") from None
    except (RecursionError, ValueError):
        # The other ValueErrors are numbers of more digits than Python converts.
        raise UnreadableError(path, "it is nested too deeply, or has a number that is too large", remedy) from None
    return content


def _bearable(value: Any, levels: int = MOST_LEVELS) -> bool:
    """Whether it has few levels, and no whole number beyond 64 bits: they would cause a traceback far from here."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_bearable(item, levels - 1) for item in inside)
    return not isinstance(value, int) or abs(value) < 2**63


def table_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with all rows' columns; text that a spreadsheet would take for a formula is escaped."""
    names = dict.fromkeys(name for row in rows for name in row)
    lines = []
    for cells in (names, *([row.get(name) for name in names] for row in rows)):
        # Python quotes a carriage return only where it ends lines.
        line = io.StringIO(newline="")
        csv.writer(line).writerow([_escaped(cell) if isinstance(cell, str) else cell for cell in cells])
        lines.append(line.getvalue().removesuffix("\r\n") + "\n")
    return "".join(lines)


def _escaped(cell: str) -> str:
    if not FORMULA.match(cell):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def table_rows_of(text: str) -> list[dict[str, str]]:
    """Rows of a CSV, as they were before escaping."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    return [{_plain_cell(name): _plain_cell(cell) for name, cell in row.items()} for row in rows]


def _plain_cell(cell: Any) -> Any:
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") and FORMULA.match(cell) else cell


def read_table(path: Path, kind: Any, remedy: str) -> Any:
    """Rows of a CSV file as structs of this kind; an empty cell is a field's default."""
    # Spreadsheets begin a file with a byte order mark.
    text = read_text(path, remedy).removeprefix("\ufeff")
    try:
        rows = table_rows_of(text)
    except csv.Error as error:
        raise UnreadableError(path, first_line(error), remedy) from None
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    if missing := [name for name in required if not rows or name not in rows[0]]:
        raise UnreadableError(path, f"it has no column {missing[0]}, or no row", remedy)
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise UnreadableError(path, f"row {number} does not have one cell per column", remedy)
    with _refused_in_a_sentence(path, remedy):
        full = [{name: cell for name, cell in row.items() if cell} for row in rows]
        return msgspec.convert(full, list[kind], strict=False)


@contextlib.contextmanager
def _opened(path: Path, remedy: str, most: int) -> Iterator[IO[bytes]]:
    """Open a regular file: reading a pipe or a device might never end."""
    try:
        # Without this flag, opening a pipe waits for somebody who writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise UnreadableError(path, first_line(error), remedy) from None
    try:
        about = os.fstat(handle)
        if stat.S_ISDIR(about.st_mode):
            raise UnreadableError(path, os.strerror(errno.EISDIR), remedy)
        if not stat.S_ISREG(about.st_mode):
            raise UnreadableError(path, "it is not a regular file", remedy)
        if about.st_size > most:
            raise UnreadableError(path, f"it has {about.st_size:,} bytes, of which at most {most:,} are read", remedy)
        with os.fdopen(handle, "rb", closefd=False) as file:
            yield file
    except OSError as error:
        raise UnreadableError(path, first_line(error), remedy) from None
    finally:
        os.close(handle)


# Arrays of safetensors and NumPy, and where a run folder has its checkpoints.


def read_tensors(path: Path, remedy: str, prefix: str = "") -> dict[str, np.ndarray]:
    """All arrays of a safetensors file, or those whose names begin with the prefix, by the rest of their names.

    One with numbers that NumPy does not have is refused.
    """
    with read_by_others(path, remedy), safe_open(path, framework="numpy") as file:
        names = [name for name in file.keys() if name.startswith(prefix)]  # noqa: SIM118 (not a dict)
        kinds = {name: file.get_slice(name).get_dtype() for name in names}
        if strange := [name for name, kind in kinds.items() if not KINDS.fullmatch(kind)]:
            raise UnreadableError(path, f'"{strange[0]}" holds {kinds[strange[0]]} numbers', remedy)
        return {name.removeprefix(prefix): file.get_tensor(name) for name in names}


@contextlib.contextmanager
def read_by_others(path: Path, remedy: str) -> Iterator[None]:
    """Turn whatever a library raises on damaged bytes into one sentence."""
    with _opened(path, remedy, MOST_ARRAYS):
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            raise UnreadableError(path, first_line(error), remedy) from None


def checkpoint_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is in a run folder."""
    return folder / f"checkpoint-{step}.safetensors"


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint in a run folder, in order."""
    found = (re.fullmatch(r"checkpoint-(\d+)\.safetensors", path.name) for path in folder.iterdir())
    return sorted(int(match[1]) for match in found if match)


def load_array(
    path: Path, *names: str, alone: bool = True, remedy: str = "say which one with --tensor"
) -> Float[np.ndarray, "..."]:
    """An array of numbers, as float64: that of a .npy file, or a tensor of a .safetensors file.

    The tensor is the first of these names that the file has, or if ``alone`` its only one; ``remedy`` says how to name
    another.
    """
    if path.suffix == ".npy":
        with read_by_others(path, "give a .npy file of numbers"), path.open("rb") as opened:
            return checked_numbers(np.load(opened, allow_pickle=False), str(path))
    if path.suffix != ".safetensors":
        raise InputError(f"{path} is not allowed: give a .npy or .safetensors file.")
    with (
        read_by_others(path, "give a .safetensors file of float16, 32 or 64 numbers"),
        safe_open(path, framework="numpy") as file,
    ):
        there = sorted(file.keys())
        chosen = [name for name in names if name in there] or (there if alone and len(there) == 1 else [])
        if not chosen:
            listed = ", ".join(there[:12]) + (", …" if len(there) > 12 else "")
            raise InputError(f"{path} has {len(there)} tensors ({listed}): {remedy}.")
        return checked_numbers(file.get_tensor(chosen[0]), f"{path}, tensor {chosen[0]},")


def one_layer(array: Float[np.ndarray, "..."], name: str, layer: int | None) -> Float[np.ndarray, "row column"]:
    """A matrix, or one layer of several; a run's tensor has an axis of seeds before, here of one."""
    if array.ndim == 4 and len(array) == 1:
        array = array[0]
    if array.ndim == 3:
        if layer is None and len(array) > 1:
            raise InputError(f"{name} has {len(array)} layers: say which one with --layer, from 0.")
        if not 0 <= (layer or 0) < len(array):
            raise InputError(f"layer = {layer} is not allowed: {name} has {len(array)}; give one from 0.")
        array = array[layer or 0]
    elif layer:
        raise InputError(f"layer = {layer} is not allowed: {name} has no layers; leave it out.")
    if array.ndim != 2 or not array.size:
        raise InputError(f"{name} has shape {array.shape}: give a matrix.")
    return array


def first_line(error: Exception) -> str:
    """What went wrong, in a line."""
    said = str(getattr(error, "strerror", None) or error)
    return said.splitlines()[0] if said else type(error).__name__


def checked_numbers(array: np.ndarray, name: str) -> Float[np.ndarray, "..."]:
    """The array as float64; refuse what no matrix of a model or a theorem has."""
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} holds {array.dtype} values: give real numbers.")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds values that are not finite: give finite numbers.")
    if array.size and np.abs(array).max() > LARGEST:
        raise InputError(f"{name} holds numbers beyond {LARGEST:g}, whose products may overflow: give smaller ones.")
    return array
