"""Options of the commands: a dataclass, parsed from the words of a command line and handed to a verb by name."""

import contextlib
import dataclasses
import inspect
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tyro

from topicscope.errors import InputError

T = TypeVar("T")

# ``Annotated[Settings, INLINE]``: the fields of an option that is a dataclass are options without its name before them.
INLINE: Any = tyro.conf.arg(name="")

# ``Annotated[Path, POSITIONAL]``: given by its place, without a name.
POSITIONAL: Any = tyro.conf.Positional


def parse(options: type[T], words: Sequence[str], *, command: str, description: str, default: T | None = None) -> T:
    """The options that the words give, over the default; --help prints them and exits.

    What cannot be read is refused in one sentence.
    """
    boxes = io.StringIO()
    more: Any = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(boxes):
            return tyro.cli(options, args=words, prog=f"topicscope {command}", description=description, **more)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(one_sentence(boxes.getvalue())) from None


def call(verb: Callable[..., T], options: Any, **more: Any) -> T:
    """Call a verb with those options that it takes by name; ``more`` goes over them."""
    taken = inspect.signature(verb).parameters
    names = [field.name for field in dataclasses.fields(options) if field.name in taken]
    return verb(**{name: getattr(options, name) for name in names} | more)


def value_of(words: Sequence[str], option: str) -> str | None:
    """The value of an option that is needed before all options can be parsed."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(option + "="):
            return word.removeprefix(option + "=")
    return None


def check_out_is_given(words: Sequence[str], what: str) -> None:
    """Refuse to write nowhere, unless it is help that is asked for."""
    if "--help" not in words and "-h" not in words and not value_of(words, "--out"):
        raise InputError(f"--out is missing: give a folder to write the {what} to.")


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
