"""A command line run in this process, and whether it ended as every command must.

That is in success, or in one sentence on standard error with exit code 2 (refused) or 3 (diverged), and with nothing
new or changed on disk after a refusal.
"""

import contextlib
import functools
import io
import logging
import re
import resource
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from topicscope.cli import COMMANDS, main

MEGABYTE = 2**20
# How much memory a command may ask for beside what this process has: one that asks for all of it must say so.
MOST_MEMORY = 3000 * MEGABYTE
OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")
# File or folder → when it was changed, and its size.
Disk = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    words: tuple[str, ...]
    code: int
    output: str
    errors: str
    changed: tuple[str, ...]
    """What is new, other or gone on disk."""

    def check(self) -> None:
        """Fail unless it ended as it must."""
        said = f"{self.words}\n{self.output[-400:]}\n{self.errors[-1500:]}"
        assert self.code in (0, 2, 3), f"exit code {self.code}: {said}"
        assert "Traceback" not in self.errors, said
        if self.code:
            last = self.errors.rstrip("\n").rpartition("\n")[2]
            assert last.startswith("topicscope: "), said
            assert last.endswith((".", "?")), said
            assert len(last) < 3_000, said
        if self.code == 2:
            assert not self.changed, f"{self.changed}: {said}"


@functools.cache
def options_of(command: str) -> frozenset[str]:
    """All that its help names; a run on text has other settings than one on documents of a topic model."""
    output = io.StringIO()
    for more in ([], ["--data.corpus=x"]) if command == "train" else ([],):
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([command, *more, "--help-all"])
    # Help has of a flag and its opposite the one that changes something.
    names = set(OPTION.findall(output.getvalue())) - {"--help-all"}
    return frozenset(names | {re.sub(r"(--|\.)no-", r"\1", name) for name in names})


def options_of_all() -> frozenset[str]:
    return frozenset[str]().union(*map(options_of, COMMANDS))


def run(words: Sequence[str], folder: Path) -> Ended:
    """Run a command line inside a folder, which is all that it may change."""
    output, errors = io.StringIO(), io.StringIO()
    before, logger = disk(folder), logging.getLogger("topicscope")
    logged = (logger.handlers, logger.level)
    with (
        little_memory(),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    logger.handlers, logger.level = logged
    after = disk(folder)
    changed = tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))
    return Ended(tuple(words), code, output.getvalue(), errors.getvalue(), changed)


@contextlib.contextmanager
def little_memory() -> Iterator[Callable[[], int]]:
    """Refuse this process much more memory; gives a function of no arguments, by how much it grew at most.

    Only Linux counts it so that it can be asked; elsewhere nothing is refused or measured.
    """
    if not sys.platform.startswith("linux"):
        yield lambda: 0
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MOST_MEMORY, limits[1]))
    # The highest so far is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    start = _status("VmRSS")
    highest = start
    try:
        yield lambda: highest - start
    finally:
        highest = _status("VmHWM")
        resource.setrlimit(resource.RLIMIT_AS, limits)


def _status(name: str) -> int:
    """Bytes of this process, by the system's name for them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def disk(folder: Path) -> Disk:
    """All that is in a folder; of folders only that they are there."""
    entries = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        entries[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (about.st_mtime_ns, about.st_size)
    return entries


def in_a_copy(words: Sequence[str], material: Path, folder: Path) -> Ended:
    """Run in a folder like the material; it is like the material again afterwards."""
    if not folder.exists():
        shutil.copytree(material, folder)
    ended = run(words, folder)
    if ended.changed:
        shutil.rmtree(folder)
    return ended
