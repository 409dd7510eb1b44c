"""What the terminal shows: JSON on standard output alone, tables, and progress bars that keep quiet when piped."""

import contextlib
import io
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from topicscope.errors import InputError

# Called with how much is done, how much there is to do, and a few words on the state (such as the loss).
Report = Callable[[int, int, str], None]


def print_json(value: Any) -> None:
    """Print strict JSON (no NaN, no Infinity) on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def console(*, to_errors: bool = False) -> Console:
    """A console that prints plain text, wide enough for our tables, when its output is not a terminal."""
    stream = sys.stderr if to_errors else sys.stdout
    return Console(file=stream, highlight=False, width=None if stream.isatty() else 120)


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
        TextColumn("{task.fields[state]}"),
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


T = TypeVar("T")


def parse(parser: Callable[[], T]) -> T:
    """Run a tyro parser; its error boxes become one sentence, its help stays as it is."""
    boxes = io.StringIO()
    try:
        with contextlib.redirect_stderr(boxes):
            return parser()
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(one_sentence(boxes.getvalue())) from None


def _plainly(message: str) -> str:
    """Tyro's words for a value that cannot be read, in ours."""
    number = re.match(
        r"Error parsing (--[\w.-]+): (?:invalid literal for int|could not convert string to float).*: '(.*)'", message
    )
    if number:
        kind = "a whole number" if "int()" in message else "a number"
        return f"{number[1]} {number[2]} is not allowed: give {kind}"
    optional = re.match(
        r"Error parsing (--[\w.-]+): no type matching \{None\}\|(INT|FLOAT) .* from \['(.*?)'\]", message
    )
    if optional:
        kind = "a whole number" if optional[2] == "INT" else "a number"
        return f"{optional[1]} {optional[3]} is not allowed: give {kind}"
    choice = re.match(r"[Ii]nvalid choice '(.*)' for argument '(--[\w.-]+)'\. Expected one of \((.*)\)", message)
    if choice:
        return f"{choice[2]} {choice[1]} is not allowed: give one of {choice[3].replace(chr(39), '').rstrip(',')}"
    return message


def one_sentence(box: str) -> str:
    """Flatten a tyro error box: its first part, then the option it suggests, if any."""
    lines = [re.sub(r"[│╭╮╰╯]", " ", line).strip() for line in box.splitlines()]
    # Rules between parts are drawn with ─, or with - where standard output is not UTF-8.
    parts = [" ".join(part.split()) for part in re.split(r"[─-]{5,}", "\n".join(lines))]
    message = next((part for part in parts[1:] if part), "the options cannot be read")
    message = _plainly(message)
    suggestion = next((part for part in parts if part.startswith("Perhaps you meant")), "")
    option = re.search(r"--[\w.-]+", suggestion)
    hint = f"; did you mean {option.group()}?" if option else "; see --help for what is allowed."
    return message.rstrip(".") + hint
