"""What commands print: results as tables for people or as JSON alone, and messages and progress on standard error.

A result is a struct or a dataclass. Its ``reasons`` say why a number is None, its ``notes`` what a reader should know
beside a part; both are by dotted name.
"""

import dataclasses
import logging
import math
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from topicscope.records import field_docstrings, plain
from topicscope.reporting.rounding import NOTHING, powers, readable, with_interval
from topicscope.work import Report

# The most seconds between two lines of progress where there is no terminal.
LINE_SECONDS = 60.0


def console(*, to_errors: bool = False) -> Console:
    """A console that prints plain text, wide enough for our tables, when its output is not a terminal.

    Text is printed as it is: a folder may be called ``a[red]b`` or ``:smile:``.
    """
    stream = sys.stderr if to_errors else sys.stdout
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=None if stream.isatty() else 120)


def print_json(result: Any) -> None:
    """Print strict JSON on standard output: what is not finite is null."""
    sys.stdout.write(as_json(result))


def as_json(result: Any) -> str:
    """The same as text."""
    return msgspec.json.format(msgspec.json.encode(plain(result)), indent=2).decode() + "\n"


def print_parts(result: Any, titles: Mapping[str, str], *, digits: int = 6) -> None:
    """Print a table for each part, by its dotted name: its title, and its numbers, labelled by their docstrings."""
    screen, printed = console(), set[str]()
    for name, title in titles.items():
        part: Any = result
        for key in name.split("."):
            part = part[key] if isinstance(part, Mapping) else getattr(part, key, None)
        if part is None:
            if reason := result.reasons.get(name):
                shown = "for the same reason" if reason in printed else reason
                screen.print(f"{title}\n  not defined: {shown}\n")
                printed.add(reason)
            continue
        table = Table(title=title, title_justify="left", title_style="", show_header=False)
        for key, label, number in _labelled(part):
            reason = result.reasons.get(f"{name}.{key}")
            if number is not None or reason:
                table.add_row(label, powers(f"not defined: {reason}" if number is None else cell(number, digits)))
        screen.print(table)
        for note in result.notes.get(name, ()):
            screen.print(f"  {note}")
        screen.print()


def _labelled(part: Any, path: str = "", heading: str = "") -> Iterator[tuple[str, str, Any]]:
    """The numbers of a part by dotted name, each with the first clause of its docstring; those without are left out."""
    for name, text in field_docstrings(type(part)).items():
        value, label = getattr(part, name), heading + text.partition(";")[0].rstrip(".")
        if dataclasses.is_dataclass(value) and not hasattr(value, "low"):
            yield from _labelled(value, f"{path}{name}.", f"{label}, ")
        elif not isinstance(value, bool | str | tuple):
            yield path + name, label, plain(value)


def print_rows(rows: Sequence[Sequence[Any]], heading: Sequence[str], *, note: str = "", digits: int = 4) -> None:
    """Print a table with a row per result; nothing if there is none."""
    table = Table(*heading, caption=note or None, caption_justify="left")
    for row in rows:
        table.add_row(*(cell(value, digits) for value in row))
    if rows:
        console().print(table)


def cell(value: Any, digits: int = 4) -> str:
    """A value in one cell of a table."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    if isinstance(value, dict):
        return with_interval(value["value"], value["low"], value["high"])
    if isinstance(value, float):
        return readable(value, digits)
    return ", ".join(cell(item, digits) for item in value) if isinstance(value, list | tuple) else str(value)


def log_to_terminal(*, quiet: bool) -> None:
    """Print what the package logs on standard error; warnings even when quiet."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("topicscope: %(message)s"))
    logger = logging.getLogger("topicscope")
    logger.handlers = [handler]
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


@contextmanager
def progress_bar(title: str, *, quiet: bool = False, lines: bool = False) -> Iterator[Report]:
    """A progress bar on standard error: its time left, its speed, a few words; nothing when piped or quiet.

    lines: where standard error is no terminal, write a line when a stage begins and each minute.
    """
    if quiet or not sys.stderr.isatty():
        yield _lines(title) if lines and not quiet else lambda done, total, state: None
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


def _lines(title: str) -> Report:
    began, last = time.monotonic(), (-math.inf, "")

    def report(done: int, total: int, state: str) -> None:
        nonlocal last
        # A stage is what is being done, without its number.
        now, stage = time.monotonic(), re.sub(r"[\d.,%]+", "", state)
        if stage != last[1] or now - last[0] >= LINE_SECONDS:
            last = now, stage
            share = f" {done:,} of {total:,}" if total > 1 else ""
            sys.stderr.write(f"topicscope: {title}{share}: {state} ({now - began:.0f} s)\n")
            sys.stderr.flush()

    return report
