"""Choose the sub-command, run it, and turn every error into one line and an exit code."""

import difflib
import importlib
import re
import sys
from collections.abc import Sequence

import topicscope
from topicscope.errors import DivergedError, InputError, LostWorkError, is_out_of_memory

# The name of each sub-command, which is also that of its module, and what it does.
COMMANDS = {
    "check": "how far a matrix is from Lemma 1, Theorems 1 and 2 and the finite-document optimum",
    "demo": "train two small models in seconds, and write a page that shows them beside theory",
    "landscape": "exact loss over attention's weights α and β, its optimum and Theorem 3's interval",
    "playground": "a page that trains the paper's transformer live in the browser",
    "probe": "topic structure in pretrained transformers, on any corpus",
    "report": "write finished work as one HTML page, to look at and to send",
    "reproduce": "run the paper's claims: verdicts, numbers and figures",
    "sweep": "train many settings and seeds into one table, on this machine or on Ray",
    "theory": "closed forms, exact optima and floors for one setting",
    "train": "train one model into a run folder",
}


# What commands that Ctrl-C stops midway keep, and how they resume. The others keep nothing.
KEPT = {
    "demo": "what was trained is kept, and the same command resumes",
    "probe": "what was measured is kept, and the same command resumes",
    "reproduce": "what was measured is kept, and the same command resumes",
    "sweep": "what was trained is kept, and the same command with --resume resumes",
    "train": "what was finished is kept, and the same command with --resume resumes at its last checkpoint",
}

# The most characters of a sentence; a longer one, with a number of a thousand digits in it, loses its middle.
LONGEST_SENTENCE = 2_000


USAGE = """topicscope shows how transformers learn topic structure, and checks it against theory.

usage: topicscope COMMAND [OPTIONS]        topicscope COMMAND --help for the options and examples

{commands}

  --version   print the version
  --help      print this

examples:
  topicscope demo
  topicscope reproduce --out results
  topicscope theory --topics 10 --words 10 --per-document 2
  topicscope train --out runs/first --training.steps 300
  topicscope report results runs/first --out report.html
  topicscope train examples/figure2.toml --out runs/figure2 --seed 1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code is 0, or 2 for bad input, 3 diverged training, 4 lost workers, 130 Ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] in ("--help", "-h"):
            width = max(map(len, COMMANDS))
            table = "\n".join(f"  {name:<{width}}   {text}" for name, text in COMMANDS.items())
            sys.stdout.write(USAGE.format(commands=table))
            return 0
        if words[0] == "--version":
            sys.stdout.write(f"topicscope {topicscope.__version__}\n")
            return 0
        _refuse(words)
        # It is imported only now: --help must answer at once, and torch takes seconds.
        command = importlib.import_module(f"topicscope.commands.{words[0]}").main
        return int(command(words[1:]) or 0)
    except (InputError, DivergedError, LostWorkError) as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt as stop:
        _say(_stopped(words, stop))
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) went away: nothing to say, and nobody to say it to.
        sys.stderr.close()
        return 0
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        _say("memory ran out: lower the sizes (topics, words, length, batch).")
        return InputError.exit_code
    except OSError as error:
        # A folder that cannot be written, or a full disk: print the system's own words, without a traceback.
        _say(f"{error.filename or 'a file'} cannot be used: {error.strerror or error}.")
        return InputError.exit_code


def _say(sentence: str) -> None:
    """One line on standard error, of reasonable length; line breaks and control characters are shown escaped."""
    plain = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in sentence)
    middle = "" if len(plain) <= LONGEST_SENTENCE else " … "
    kept = len(plain) if not middle else LONGEST_SENTENCE // 2
    sys.stderr.write(f"topicscope: {plain[:kept]}{middle}{plain[-kept:] if middle else ''}\n")


def _refuse(words: list[str]) -> None:
    """Refuse names that are not UTF-8, an unknown command, and an option given twice: one of two might be ignored."""
    if strange := [word for word in words if "\0" in word or any("\ud800" <= each <= "\udfff" for each in word)]:
        raise InputError(f"{strange[0]} is not UTF-8: give files and folders names that are.")
    if words[0] not in COMMANDS:
        nearest = difflib.get_close_matches(words[0], COMMANDS, n=1, cutoff=0.0)[0]
        raise InputError(f'"{words[0]}" is not a command: did you mean {nearest}? (topicscope --help lists them.)')
    options = [word.partition("=")[0].replace("_", "-") for word in words if re.match(r"--[a-z]", word)]
    twice = next((option for option in options if options.count(option) > 1), None)
    if twice:
        raise InputError(f"{twice} is given twice: give it once, with all its values behind it.")


def _stopped(words: list[str], stop: KeyboardInterrupt) -> str:
    """The line after Ctrl-C. A run itself says where it was saved; within other work that is not how to go on."""
    name = words[0] if words else ""
    if name == "train" and str(stop):
        return str(stop)
    return f"stopped; {KEPT[name]}." if name in KEPT else "stopped."
