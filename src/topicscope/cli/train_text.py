"""``topicscope train`` with a corpus: a deeper transformer on real text."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.cli.train import check_out_is_given, given_settings, value_of
from topicscope.settings.text import Device, TextData, TextSettings

DESCRIPTION = """Train a transformer encoder on real text: 4 layers of 4 heads, BERT exactly unless parts are off.

The tokenizer is trained on the corpus, or given; passages are packed without padding. Per step, metrics.jsonl has the
loss, the norms of every layer and head, the rotation of W^V and gradient norms; at some steps the topic structure of
embeddings and attention. Stopped or killed, a run goes on with --resume and ends with the same numbers to the bit.
Where the architecture is BERT's, DIR/huggingface is a folder for AutoModelForMaskedLM and for topicscope probe.

examples:
  topicscope train --data.corpus wiki-sample --out runs/text --training.steps 400
  topicscope train --data.corpus articles/ --data.vocabulary 4000 --model.attention-scale 0.001 --out runs/own
  topicscope train --out runs/own --resume
  topicscope train --data.corpus notes.txt --data.tokenizer minilm --model.no-residual --out runs/off --device cpu
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The run folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Go on with the run in --out, with the settings it was started with."""

    device: Device = "auto"
    """Where to compute; "auto" is the fastest that is there."""

    quiet: bool = False
    """No progress bar, no messages."""

    json: bool = False
    """Print the last row of the metrics, and the speed, as JSON."""

    settings: Annotated[TextSettings, tyro.conf.arg(name="")]


def main(words: list[str]) -> None:
    """Parse, train, print where the run is and how fast it was."""
    options = parse_options(words)
    log_to_terminal(quiet=options.quiet)
    # Only now: torch takes seconds to import, and bad options should not wait for it.
    from topicscope.commands.train import train_text

    with progress_bar("training", quiet=options.quiet) as report:
        trained = train_text(options.settings, options.out, resume=options.resume, device=options.device, report=report)
    row, speed = trained.run.metrics()[-1], trained.speed
    if options.json:
        speeds = {"steps_per_second": speed.steps_per_second, "tokens_per_second": speed.tokens_per_second}
        print_json({"out": str(trained.run.path), **speeds, **row})
    elif not options.quiet:
        validation = "" if row["validation_loss"] is None else f", on held-out articles {row['validation_loss']:.4f}"
        console().print(f"{trained.run.path}: {row['step']} steps, loss {row['loss']:.4f}{validation}; {speed.words}")
    if not options.quiet:
        for note in trained.notes:
            console(to_errors=options.json).print(note, soft_wrap=True, markup=False)


def parse_options(words: list[str]) -> Options:
    """The options, over the TOML file if one is given, or over the settings of the run that is resumed."""
    settings, words = given_settings(words)
    check_out_is_given(words)
    if not isinstance(settings, TextSettings):
        settings = TextSettings(data=TextData(corpus=value_of(words, "--data.corpus") or ""))
    default = Options(out=Path("DIR"), settings=dataclasses.replace(settings))
    return parse(
        lambda: tyro.cli(
            Options, args=words, default=default, prog="topicscope train [SETTINGS.toml]", description=DESCRIPTION
        )
    )
