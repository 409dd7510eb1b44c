"""Files that are either there whole or not at all, and folders that one process has to itself."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

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


@contextlib.contextmanager
def alone_in(folder: Path, *, wait: bool) -> Iterator[None]:
    """Keep other processes that ask for the same out of a folder; the lock goes with the process, however it ends.

    wait: for the process that has it; else ``BlockingIOError``. Windows has no such locks: there nobody is kept out.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if wait:
            # A disk without locks serves one process at a time as well.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX)
        else:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
