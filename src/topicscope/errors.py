"""What a user can get wrong, and what training can: each is one sentence and an exit code."""

import contextlib
import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any


class InputError(Exception):
    """Something given is wrong: the message says what, what is allowed and what to do."""

    exit_code = 2


@contextlib.contextmanager
def collected(problems: list[InputError]) -> Iterator[None]:
    """Add what is wrong to a list instead of stopping, so that all of it can be told at once."""
    try:
        yield
    except InputError as error:
        problems.append(error)


def refuse_all(problems: Sequence[InputError]) -> None:
    """Raise what was collected, if anything was, as one error; what is wrong twice is said once."""
    sentences = list(dict.fromkeys(map(str, problems)))
    if len(sentences) == 1:
        raise problems[0]
    if sentences:
        numbered = " ".join(f"({number}) {sentence}" for number, sentence in enumerate(sentences, start=1))
        raise InputError(f"{len(sentences)} things are wrong. {numbered}")


class UnreadableError(InputError):
    """A file cannot be read, or is not what it should be: a command stops with it, a page goes on without the file."""

    def __init__(self, path: object, reason: str, remedy: str) -> None:
        # All three go to the base, so that the error can be pickled.
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
    """A piece of work could not be finished: its worker was lost again and again."""

    exit_code = 4


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
    return str(value)


def check_at_least(name: str, value: int, low: int) -> None:
    """Whole numbers from ``low`` up; what is too large for memory is found when it is used."""
    if not isinstance(value, int) or value < low:
        raise refuse(name, value, f"give a whole number, {low} or more")


def check_probability(name: str, value: float) -> None:
    """Numbers in [0, 1]; NaN fails."""
    if not 0 <= value <= 1:
        raise refuse(name, value, "give a probability between 0 and 1")


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


def import_for_language(module: str, need: str) -> Any:
    """A module of the packages for natural language; where it is not installed, ``need`` begins the sentence."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f'{need}: pip install "topicscope[language]".') from None
