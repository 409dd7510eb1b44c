"""What the terminal shows: JSON on standard output alone, tables, and progress bars that keep quiet when piped."""

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topicscope.scale import Report


def print_json(value: Any) -> None:
    """Print strict JSON (no NaN, no Infinity) on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def console(*, to_errors: bool = False) -> Console:
    """A console that prints plain text, wide enough for our tables, when its output is not a terminal.

    Text is text: a folder called ``a[red]b`` or ``:smile:`` is printed as it is called.
    """
    stream = sys.stderr if to_errors else sys.stdout
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=None if stream.isatty() else 120)


def log_to_terminal(*, quiet: bool) -> None:
    """Print what the package logs on standard error; warnings even when quiet."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("topicscope: %(message)s"))
    logger = logging.getLogger("topicscope")
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Report]:
    """A progress bar on standard error: its time left, its speed, a few words; nothing when piped or quiet."""
    if quiet or not sys.stderr.isatty():
        yield lambda done, total, state: None
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
