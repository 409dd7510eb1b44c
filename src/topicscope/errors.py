"""What users can get wrong and what can go wrong in training: each is one sentence and an exit code."""

import difflib
import importlib
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class InputError(Exception):
    """Something given is wrong: the message says what, what is allowed and what to do."""

    exit_code = 2


class UnreadableError(InputError):
    """A file cannot be read, or is not what it should be: a command stops with it, a page goes on without the file."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        # All three are passed to the base class, so that the error can be pickled.
        super().__init__(path, reason, remedy)
        self.path, self.reason, self.remedy = path, reason, remedy

    def __str__(self) -> str:
        if not self.reason.startswith("it "):
            return f"{self.path} cannot be read ({self.reason}): {self.remedy}."
        return f"{self.path} {self.reason.removeprefix('it ')}{';' if ': ' in self.reason else ':'} {self.remedy}."


class DivergedError(Exception):
    """Training reached a loss that is not a finite number."""

    exit_code = 3


class StoppedTraining(KeyboardInterrupt):
    """Ctrl-C, after the run was saved: the message says how to go on."""


class LostWorkError(Exception):
    """A piece of work could not be finished: its worker was lost every time."""

    exit_code = 4


# Files and libraries count in 64 bits.
LARGEST_NUMBER = 2**63 - 1

LONGEST_SHOWN = 100

# Checks shared by the settings: each raises one sentence with the name, the value and what is allowed.


def refuse(name: str, value: object, allowed: str) -> InputError:
    """The error for a setting whose value is not allowed."""
    return InputError(f"{name} = {shown(value)} is not allowed: {allowed}.")


def shown(value: object) -> str:
    """A value as a user would write it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if getattr(value, "shape", ()):
        return f"(an array of shape {' × '.join(map(str, value.shape))})"  # type: ignore[attr-defined]
    # Numbers are shown whole; anything else that would fill the screen is described by its type.
    text = str(value)
    short = isinstance(value, int | float) or (len(text) <= LONGEST_SHOWN and "\n" not in text)
    return text if short else f"({type(value).__name__})"


def check_at_least(name: str, value: int, low: int, most: int = LARGEST_NUMBER) -> None:
    """Whole numbers from ``low`` up to ``most``; one that is too large for memory is noticed when it is used."""
    if not isinstance(value, int) or value < low:
        raise refuse(name, value, f"give a whole number, {low} or more")
    if value > most:
        raise refuse(name, value, f"give a whole number of at most {most:,}")


def check_positive(name: str, value: float) -> None:
    """Finite numbers above zero."""
    if not (value > 0 and math.isfinite(value)):
        raise refuse(name, value, "give a finite number above 0")


def check_not_negative(name: str, value: float) -> None:
    """Finite numbers from zero up."""
    if not (value >= 0 and math.isfinite(value)):
        raise refuse(name, value, "give a finite number, 0 or more")


def check_one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """One of a few words."""
    if value not in allowed:
        raise refuse(name, value, "give one of " + ", ".join(allowed))


def path_of(given: object, name: str) -> Path:
    """A path, given as a path or as text."""
    if not isinstance(given, str | os.PathLike):
        raise refuse(name, given, "give a path")
    return Path(given)


def listed(given: Any, name: str) -> tuple[Any, ...]:
    """Several values, or one: a text is one value, not its letters."""
    if isinstance(given, str | os.PathLike):
        return (given,)
    if not isinstance(given, Iterable):
        raise refuse(name, given, "give one or a list of them")
    return tuple(given)


def first_few(names: Sequence[str], most: int = 8) -> str:
    """Names for a sentence; of many, the first few and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def nearest(name: str, names: Sequence[str]) -> str | None:
    """Which of these dotted names is meant, by spelling, with or without its section; None if none is near."""
    section, _, last = name.rpartition(".")
    # In the section that was named, if it is there; ``value.start`` is ``model.value.start``.
    inside = [known for known in names if section and f".{known.rpartition('.')[0]}".endswith(f".{section}")]
    for candidates, cutoff in ((inside, 0.6), (names, 0.75)):
        by_last_word = {known.rpartition(".")[2]: known for known in reversed(candidates)}
        if close := difflib.get_close_matches(last, by_last_word, n=1, cutoff=cutoff):
            return by_last_word[close[0]]
    return None if inside else next(iter(difflib.get_close_matches(name, names, n=1, cutoff=0.7)), None)


def import_for_language(module: str, need: str) -> Any:
    """A module of the packages for natural language; if it is not installed, ``need`` begins the error's sentence."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f'{need}: pip install "topicscope[language]".') from None


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory; on the CPU PyTorch has no type for it."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(each in str(error).lower() for each in words)
