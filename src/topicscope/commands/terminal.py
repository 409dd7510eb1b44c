"""Messages and progress on standard error: bars on a terminal, lines or nothing when piped."""

import logging
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topicscope.commands.printing import console, print_json
from topicscope.work import Report

__all__ = ["console", "log_to_terminal", "print_json", "progress_bar"]

# Seconds between two lines of progress where there is no terminal, and before the second.
EACH, AT_ONCE = 60.0, 10.0


def log_to_terminal(*, quiet: bool) -> None:
    """Print what the package logs on standard error; warnings even when quiet."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("topicscope: %(message)s"))
    logger = logging.getLogger("topicscope")
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


class LinesOfProgress:
    """A line on standard error at once, when a stage begins, and when a minute has passed since the last line."""

    def __init__(self, title: str) -> None:
        """A stage is what is being done, without its number."""
        self._title, self._stage, self._began, self._last = title, "", time.monotonic(), 0.0

    def __call__(self, done: int, total: int, state: str) -> None:
        """Report progress, with the arguments of a progress bar."""
        now, stage = time.monotonic(), re.sub(r"[\d.,%]+", "", state)
        # Work that is refused or finished at once needs no more than the first line.
        early, same = now - self._began < AT_ONCE, stage == self._stage and now - self._last < EACH
        if self._stage and (early or same):
            return
        self._stage, self._last = stage, now
        share = f" {done:,} of {total:,}" if total > 1 else ""
        sys.stderr.write(f"topicscope: {self._title}{share}: {state} ({now - self._began:.0f} s)\n")
        sys.stderr.flush()


@contextmanager
def progress_bar(title: str, *, quiet: bool = False, lines: bool = False) -> Iterator[Report]:
    """A progress bar on standard error: its time left, its speed, a few words; nothing when piped or quiet.

    lines: where standard error is no terminal, write a line at once, for each stage and each minute.
    """
    if quiet or not sys.stderr.isatty():
        yield LinesOfProgress(title) if lines and not quiet else lambda done, total, state: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None, state="", speed="")

        def report(done: int, total: int, state: str) -> None:
            speed = progress.tasks[task].speed
            shown = f"{speed:,.0f}/s" if speed else ""
            progress.update(task, completed=done, total=total, state=state, speed=shown)

        yield report
