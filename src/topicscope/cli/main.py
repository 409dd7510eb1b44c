"""Choose the sub-command, parse its options with tyro, and turn every error into one line and an exit code."""

import contextlib
import difflib
import importlib
import io
import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import topicscope
from topicscope.errors import DivergedError, InputError, LostWorkError

T = TypeVar("T")

# Name of the sub-command, which is also that of its module here, and what it does.
COMMANDS = {
    "bench": "measure a training step beside Hugging Face's",
    "check": "how far a matrix is from Lemma 1, Theorems 1 and 2 and the finite-document optimum",
    "landscape": "exact loss over attention's weights α and β, its optimum and Theorem 3's interval",
    "probe": "topic structure in pretrained transformers, on any corpus",
    "report": "one HTML page, to look at and to send, from finished work",
    "reproduce": "run the paper's claims: verdicts, numbers and figures",
    "sweep": "train many settings and seeds into one table, on this machine or on Ray",
    "theory": "closed forms, exact optima and floors for one setting",
    "train": "train one model into a run folder",
}

# Of commands that Ctrl-C stops in their midst: what stays, and how to go on. The others keep nothing.
KEPT = {
    "probe": "what was measured is kept, and the same command goes on from there",
    "reproduce": "what was measured is kept, and the same command goes on from there",
    "sweep": "what was trained is kept, and the same command with --resume goes on from there",
    "train": "what was finished is kept, and the same command with --resume goes on from its last checkpoint",
}

USAGE = """topicscope shows how transformers learn topic structure, and checks it against theory.

usage: topicscope COMMAND [OPTIONS]        topicscope COMMAND --help for the options and examples

{commands}

  --version   print the version
  --help      print this

examples:
  topicscope reproduce --out results
  topicscope theory --topics 10 --words 10 --per-document 2
  topicscope train --out runs/first --training.steps 300
  topicscope report results runs/first --out report.html
  topicscope train examples/figure2.toml --out runs/figure2 --seed 1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 0, 2 bad input, 3 diverged training, 4 lost workers, 130 Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except (InputError, DivergedError, LostWorkError) as error:
        sys.stderr.write(f"topicscope: {error}\n")
        return error.exit_code
    except KeyboardInterrupt as stop:
        sys.stderr.write(f"topicscope: {_stopped(words, stop)}\n")
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) went away: nothing to say, and nobody to say it to.
        sys.stderr.close()
        return 0
    except MemoryError:
        sys.stderr.write("topicscope: memory ran out: lower the sizes (topics, words, length, batch).\n")
        return InputError.exit_code
    except OSError as error:
        # A folder that cannot be written, a full disk: the system's own words, without a traceback.
        sys.stderr.write(f"topicscope: {error.filename or 'a file'} cannot be used: {error.strerror or error}.\n")
        return InputError.exit_code


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("--help", "-h"):
        sys.stdout.write(USAGE.format(commands=_command_table()))
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"topicscope {topicscope.__version__}\n")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        nearest = difflib.get_close_matches(name, COMMANDS, n=1, cutoff=0.0)[0]
        raise InputError(f'"{name}" is not a command: did you mean {nearest}? (topicscope --help lists them.)')
    # Imported only now: --help must answer at once, and torch takes seconds.
    _refuse_twice(rest)
    return int(importlib.import_module(f"topicscope.cli.{name}").main(rest) or 0)


def _refuse_twice(words: list[str]) -> None:
    """Of an option that is given twice tyro would take the last, without a word."""
    options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
    twice = next((option for option in options if options.count(option) > 1), None)
    if twice:
        raise InputError(f"{twice} is given twice: give it once, with all its values behind it.")


def _stopped(words: list[str], stop: KeyboardInterrupt) -> str:
    """What is said after Ctrl-C. A run says itself where it was saved; within other work that is not how to go on."""
    name = words[0] if words else ""
    if name == "train" and str(stop):
        return str(stop)
    return f"stopped; {KEPT[name]}." if name in KEPT else "stopped."


def _command_table() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(f"  {name:<{width}}   {text}" for name, text in COMMANDS.items())


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
