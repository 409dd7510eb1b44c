"""Files that are either there whole or not at all, rows up to where they were cut, folders to oneself."""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
