"""A command line run in this process, and whether it ended as every command must.

That is in success, or in one sentence on standard error with exit code 2 (refused) or 3 (diverged); with nothing new or
changed on disk after a refusal; within a time and below a growth of memory.
"""

import contextlib
import functools
import io
import logging
import re
import resource
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hypothesis import HealthCheck, settings

from topicscope.cli import COMMANDS, main

MEGABYTE = 2**20
# How much a command may add to this process' memory, and how long it may take; what is asked for here is small.
MOST_MEMORY = 500 * MEGABYTE
MOST_SECONDS = 60.0
# What is left of memory is not taken by a command that asks for all of it.
ADDRESS_SPACE = 3000 * MEGABYTE

REFUSED, DIVERGED = 2, 3
ENDINGS = {0: "success", REFUSED: "refusal", DIVERGED: "divergence"}

OPTION = re.compile(r"(?<![\w-])--[a-z][\w.-]*\w")

# File or folder → when it was changed, and its size.
Disk = dict[str, tuple[int, int]]


class OutOfTime(BaseException):
    """A command takes too long; nothing catches it on the way."""


@dataclass(frozen=True)
class Ended:
    """How a command line ended."""

    words: tuple[str, ...]
    code: int
    output: str
    errors: str
    seconds: float
    memory: int
    """By how many bytes the process grew at most."""

    changed: tuple[str, ...]
    """What is new, other or gone on disk."""

    @property
    def ending(self) -> str:
        """ "success", "refusal" or "divergence"."""
        return ENDINGS[self.code]

    @property
    def foreign_options(self) -> set[str]:
        """Options that the sentence names and neither the command nor its user does, nor a command that it names."""
        sentence = self.errors.rstrip("\n").rpartition("\n")[2]
        commands = {self.words[0], *re.findall(r"topicscope ([a-z]+)", sentence)} & set(COMMANDS)
        known = set().union(*map(options_of, commands))
        given = " ".join(self.words)
        return {each for each in OPTION.findall(sentence) if each not in known and each not in given}

    def check(self) -> None:
        """Fail unless it ended as it must."""
        said = f"{self.words}\n{self.output[-400:]}\n{self.errors[-1500:]}"
        assert self.code in ENDINGS, f"exit code {self.code}: {said}"
        assert "Traceback" not in self.errors, said
        assert self.memory < MOST_MEMORY, f"{self.memory / MEGABYTE:.0f} MB more: {said}"
        if self.code:
            last = self.errors.rstrip("\n").rpartition("\n")[2]
            assert last.startswith("topicscope: "), said
            assert last.endswith((".", "?")), said
        if self.code == REFUSED:
            assert not self.changed, f"{self.changed}: {said}"
            assert not self.foreign_options, f"no option of this command: {self.foreign_options}: {said}"
        # What a reader would take for a number.
        if "--json" not in self.words and self.code == 0 and self.words[0] == "theory":
            assert "nan" not in self.output.split(), said


@functools.cache
def options_of(command: str) -> frozenset[str]:
    """All that its help names; a run on text has other settings than one on documents of a topic model."""
    output = io.StringIO()
    for more in ([], ["--data.corpus=x"]) if command == "train" else ([],):
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([command, *more, "--help-all"])
    return frozenset(OPTION.findall(output.getvalue())) - {"--help-all"}


def run(words: Sequence[str], folder: Path) -> Ended:
    """Run a command line inside a folder, which is all that it may change."""
    output, errors = io.StringIO(), io.StringIO()
    before, started, level = disk(folder), time.monotonic(), logging.getLogger("topicscope")
    logged = (level.handlers, level.level)
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
        warnings.catch_warnings(),
        in_time(MOST_SECONDS),
        little_memory() as grown,
    ):
        warnings.simplefilter("ignore")
        try:
            code = main(list(words))
        except SystemExit as end:
            code = int(end.code or 0)
    level.handlers, level.level = logged
    after = disk(folder)
    changed = tuple(name for name in sorted({*before, *after}) if before.get(name) != after.get(name))
    seconds = time.monotonic() - started
    return Ended(tuple(words), code, output.getvalue(), errors.getvalue(), seconds, grown(), changed)


def disk(folder: Path) -> Disk:
    """All that is in a folder; of folders only that they are there."""
    found = {}
    for path in folder.rglob("*"):
        about = path.lstat()
        found[str(path.relative_to(folder))] = (0, 0) if path.is_dir() else (about.st_mtime_ns, about.st_size)
    return found


@contextlib.contextmanager
def in_time(seconds: float) -> Iterator[None]:
    """Stop what takes longer."""

    def stop(number: int, frame: Any) -> None:
        raise OutOfTime(f"after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def little_memory() -> Iterator[Any]:
    """Refuse this process much more memory; gives a function of no arguments, by how much it grew at most.

    Only Linux counts it so that it can be asked; elsewhere nothing is refused or measured.
    """
    if not sys.platform.startswith("linux"):
        yield lambda: 0
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + ADDRESS_SPACE, limits[1]))
    # The highest so far is forgotten.
    Path("/proc/self/clear_refs").write_text("5")
    start = status("VmRSS")
    highest = start
    try:
        yield lambda: highest - start
    finally:
        highest = status("VmHWM")
        resource.setrlimit(resource.RLIMIT_AS, limits)


def status(name: str) -> int:
    """Bytes of this process, by the system's name for them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(name)


def fuzzed(cases: int) -> Any:
    """So many examples of a test, the same ones each time."""
    return settings(
        max_examples=cases, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )


def in_a_copy(
    words: Sequence[str], material: Path, folder: Path, spoilt: Mapping[str, bytes] = MappingProxyType({})
) -> Ended:
    """Run in a folder like the material, but for some files' content; it is like the material again afterwards."""
    if not folder.exists():
        shutil.copytree(material, folder)
    try:
        for name, content in spoilt.items():
            (folder / name).write_bytes(content)
        ended = run(words, folder)
        for name in {*ended.changed, *spoilt}:
            _restore(folder / name, material / name)
    except BaseException:
        # Whatever is left of it.
        shutil.rmtree(folder)
        raise
    return ended


def _restore(path: Path, original: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not original.is_dir():
            shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if original.is_dir():
        path.mkdir(parents=True, exist_ok=True)
    elif original.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(original, path)


class Counts:
    """How many cases ended how."""

    def __init__(self) -> None:
        self.endings: Counter[str] = Counter()
        self.slowest, self.largest = 0.0, 0

    def add(self, ended: Ended) -> None:
        """Check a case, then count it."""
        ended.check()
        self.endings[ended.ending] += 1
        self.slowest, self.largest = max(self.slowest, ended.seconds), max(self.largest, ended.memory)
