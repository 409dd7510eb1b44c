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


# Commands that keep what they have finished when Ctrl-C stops them, and what resumes them. The others keep nothing.
SAME, RESUME = "the same command resumes", "the same command with --resume resumes"
RESUMED = {"demo": SAME, "probe": SAME, "reproduce": SAME, "sweep": RESUME, "train": RESUME}

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
    line = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in sentence)
    if len(line) > LONGEST_SENTENCE:
        line = f"{line[: LONGEST_SENTENCE // 2]} … {line[-LONGEST_SENTENCE // 2 :]}"
    sys.stderr.write(f"topicscope: {line}\n")


def _refuse(words: list[str]) -> None:
    """Refuse names that are not UTF-8, an unknown command, and an option given twice: one of two might be ignored."""
    if strange := [word for word in words if re.search("[\0\ud800-\udfff]", word)]:
        raise InputError(f"{strange[0]} is not UTF-8: give files and folders names that are.")
    if words[0] not in COMMANDS:
        nearest = difflib.get_close_matches(words[0], COMMANDS, n=1, cutoff=0.0)[0]
        raise InputError(f'"{words[0]}" is not a command: did you mean {nearest}? (topicscope --help lists them.)')
    options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
    twice = next((option for option in options if options.count(option) > 1), None)
    if twice:
        raise InputError(f"{twice} is given twice: give it once, with all its values behind it.")


def _stopped(words: list[str], stop: KeyboardInterrupt) -> str:
    """The line after Ctrl-C. A run itself says where it was saved; within other work that is not how to go on."""
    name = words[0] if words else ""
    if name == "train" and str(stop):
        return str(stop)
    return f"stopped; what was finished is kept, and {RESUMED[name]}." if name in RESUMED else "stopped."
