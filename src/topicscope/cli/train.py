"""``topicscope train``: one training run into a run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings

DESCRIPTION = """Train one model into a run folder.

Settings come from a TOML file, if one is given, and from the options, which go over it. Stopped or killed, a run goes
on with --resume and ends with the same numbers to the bit.

examples:
  topicscope train --out runs/first --training.steps 300
  topicscope train examples/figure2.toml --out runs/figure2 --seed 1
  topicscope train --out runs/figure2 --resume
  topicscope train --out runs/tau --data.sampler topics --data.per-document 3 --training.loss squared
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The run folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Go on with the run in --out, with the settings it was started with."""

    quiet: bool = False
    """No progress bar, no messages."""

    json: bool = False
    """Print the last row of the metrics as JSON."""

    settings: Annotated[Settings, tyro.conf.arg(name="")] = Settings()


def main(words: list[str]) -> None:
    """Parse, train, print where the run is."""
    options = parse_options(words)
    log_to_terminal(quiet=options.quiet)
    # Only now: torch takes seconds to import, and bad options should not wait for it.
    from topicscope.commands.train import train

    with progress_bar("training", quiet=options.quiet) as report:
        folder = train(options.settings, options.out, resume=options.resume, report=report)
    row = folder.metrics()[-1]
    if options.json:
        print_json({"out": str(folder.path), **row})
    elif not options.quiet:
        validation = "" if row["validation_loss"] is None else f", on held-out documents {row['validation_loss']:.6f}"
        console().print(f"{folder.path}: {row['step']} steps, loss {row['loss']:.6f}{validation}")


def parse_options(words: list[str]) -> Options:
    """The options, over the TOML file if one is given, or over the settings of the run that is resumed."""
    settings = Settings()
    places = [place for place, word in enumerate(words) if _is_settings_file(words, place, word)]
    if len(places) > 1:
        raise InputError(f"{' and '.join(words[place] for place in places)} are too many settings: give one TOML file.")
    if places:
        settings = load_settings(Path(words[places[0]]))
        words = words[: places[0]] + words[places[0] + 1 :]
    elif "--resume" in words:
        settings = _stored_settings(words)
    if "--help" not in words and "-h" not in words and not _value_of(words, "--out"):
        raise InputError("--out is missing: give a folder to write the run to.")
    default = Options(out=Path("DIR"), settings=settings)
    return parse(
        lambda: tyro.cli(
            Options, args=words, default=default, prog="topicscope train [SETTINGS.toml]", description=DESCRIPTION
        )
    )


def _is_settings_file(words: list[str], place: int, word: str) -> bool:
    """The first word if it is no option, or any that ends in .toml; but not the folder after --out."""
    first = place == 0 and not word.startswith("-")
    return first or (word.endswith(".toml") and not word.startswith("-") and words[place - 1] != "--out")


def _stored_settings(words: list[str]) -> Settings:
    """The settings of the run that is resumed; without one, options must say what to train."""
    out = Path(_value_of(words, "--out") or "")
    if (out / "settings.toml").exists():
        return load_settings(out / "settings.toml")
    if not any(word.startswith(("--data.", "--masking.", "--model.", "--training.")) for word in words):
        raise InputError(f"--out {out} holds no run to resume: give the folder of a run, or settings to start one.")
    return Settings()


def _value_of(words: list[str], option: str) -> str | None:
    """The value of an option that is needed before all options can be parsed."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(option + "="):
            return word.removeprefix(option + "=")
    return None
