"""``topicscope train``: train one model into a run folder, on documents of a topic model or on real text."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from topicscope.commands.options import INLINE, keywords, parse, value_of
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError, path_of
from topicscope.measure.run import Run, read_run
from topicscope.records import PASSAGES
from topicscope.settings import Settings, TextData
from topicscope.settings.data import Device
from topicscope.settings.toml import load_settings
from topicscope.store import expanded

DESCRIPTION = """Train one model into a run folder, on documents of a topic model or on real text.

Settings come from a TOML file, if one is given, and from the options, which override it. A run that was stopped or
killed resumes with --resume and ends with the same numbers to the bit; a finished one can be made longer.
With a corpus, the model is BERT of 4 layers unless parts are off, and DIR/huggingface a folder for AutoModelForMaskedLM
and for topicscope probe. Its tokenizer is trained on the corpus, or given.

examples:
  topicscope train --out runs/first --training.steps 300
  topicscope train examples/figure2.toml --out runs/figure2 --seed 1
  topicscope train --out runs/figure2 --resume --training.steps 4000
  topicscope train --out runs/tau --data.sampler topics --data.per-document 3 --training.loss squared
  topicscope train --data.corpus wiki-sample --out runs/text
  topicscope train --data.corpus notes.txt --data.tokenizer minilm --model.no-residual --out runs/off --device cpu
  topicscope train --data.corpus wiki-sample --help
"""

# Settings that --help prints, of those that there are; --help-all prints all.
USUAL = (
    "--seed", "--data.sampler", "--data.topics", "--data.words", "--data.per-document", "--data.dirichlet",
    "--data.topic-words", "--data.fresh", "--data.corpus", "--data.tokenizer", "--data.vocabulary", "--data.length",
    "--data.held-out", "--masking.mask", "--masking.keep", "--masking.random", "--model.layers", "--model.heads",
    "--model.dimension", "--training.loss", "--training.optimizer", "--training.learning-rate", "--training.l2",
    "--training.batch", "--training.steps", "--training.schedule", "--training.snapshots",
)  # fmt: skip


def train(
    settings: Settings | Path | str,
    out: Path | str,
    *,
    seeds: Sequence[int] = (),
    resume: bool = False,
    device: Device = "auto",
    progress: bool = False,
) -> Run:
    """Train a model into a new folder, or resume the run that is in it; report.html shows it.

    ``settings`` may be the path of a TOML file. Several ``seeds`` are trained in one tensor, as one run.
    Settings that name a corpus train on text, on the ``device`` that is named. ``progress`` shows a progress bar on
    a terminal.
    """
    from topicscope.reporting.page import write_report
    from topicscope.training.loop import train

    out = path_of(out, "out")
    if not isinstance(settings, Settings):
        settings = load_settings(path_of(settings, "settings"))
    with progress_bar("training", quiet=not progress) as report:
        folder = train(settings, out, seeds=seeds, resume=resume, device=device, report=report)
    write_report([folder.path], folder.path / "report.html")
    return read_run(folder.path)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The run folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Resume the run in --out, with the settings it was started with."""

    quiet: bool = False
    """Print no progress bar and no messages."""

    json: bool = False
    """Print the last row of the metrics as JSON."""

    device: Device = "auto"
    """Where to compute on text; "auto" is the fastest available."""

    settings: Annotated[Settings, INLINE] = Settings()


def main(words: list[str]) -> None:
    """Parse, train, print where the run is."""
    options = parse_options(words)
    log_to_terminal(quiet=options.quiet)
    run = train(**keywords(options), progress=not options.quiet)
    on_text = isinstance(run.settings.data, TextData)
    last = {name: None if value != value else value for name, value in run.rows()[-1].items()}
    if options.json:
        print_json({"out": str(run.path), **last})
    elif not options.quiet:
        documents = f"{run.settings.training.validation_documents:,} held-out documents"
        digits, held_out = (4, "held-out articles") if on_text else (6, documents)
        validation = last.get("validation_loss")
        beside = "" if validation is None else f", on {held_out} {validation:.{digits}f}"
        line = f"{run.path}: {last['step']} steps, loss {last['loss']:.{digits}f}{beside}"
        for text in (line, *([] if on_text else _answer(run)), *_where_next(run)):
            console().print(text, soft_wrap=True, markup=False)
    if on_text and not options.quiet:
        for note in PASSAGES.read(run.path / "passages").problems:
            console(to_errors=options.json).print(note, soft_wrap=True, markup=False)


def _answer(run: Run) -> list[str]:
    """What to compare the losses with, and how far W^V of the first seed is from the optimum."""
    from topicscope.training.reference import optimum_measures

    assert run.reference is not None
    floor, optimum = run.reference.bayes_floor, run.reference.uniform_attention_optimum
    lines = []
    if optimum.loss is not None:
        lines.append(f"  exact optimum under uniform attention   {optimum.loss:.6f}")
    if floor.loss is not None:
        interval = "" if floor.low is None else f", 95 % interval {floor.low:.4f} to {floor.high:.4f}"
        lines.append(f"  Bayes floor, the least of any model     {floor.loss:.6f}{interval}")
    if lines and run.settings.training.validate_every:
        lines.append("  a loss on so many documents scatters around its expectation, and may be below these")
    lines += [f"  {level.reason}" for level in (optimum, floor) if level.reason]
    measured = optimum_measures(run.settings, run.weights["value"][0])
    if (share := measured["share_of_optimum"]) is not None:
        lines.append(f"  W^V has {share:.1%} of what its exact optimum gains over predicting nothing")
    if (distance := measured["distance_to_optimum"]) is not None:
        lines.append(f"  its entries are off by {distance:.1%} in all (‖W − W*‖ / ‖W*‖); averages are less noisy")
    return lines


def _where_next(run: Run) -> list[str]:
    """What to do next."""
    data, out = run.settings.data, shlex.quote(str(run.path))
    following = [f"topicscope check {out}"]
    if isinstance(data, TextData):
        probe = f"topicscope probe {out}/huggingface --corpus {shlex.quote(data.corpus)} --out {out}-probe"
        following = [probe] if (run.path / "huggingface").exists() else []
    if run.settings.training.can_grow:
        following.append(f"topicscope train --out {out} --resume --training.steps {2 * run.settings.training.steps}")
    return [f"page: {run.path / 'report.html'}", *(f"next: {command}" for command in following)]


def parse_options(words: list[str]) -> Options:
    """The TOML file's settings, or those of the run that is resumed, with the options that override them.

    The run is on text if an option, the TOML file or the run that is resumed names a corpus.
    """
    settings, words = _given_settings(words)
    corpus = value_of(words, "--data.corpus")
    if corpus is not None and not (settings and isinstance(settings.data, TextData)):
        if settings:
            raise InputError("--data.corpus is not allowed with settings of a topic model: leave one of them out.")
        settings = Settings(data=TextData(corpus=corpus))
    return parse(
        Options,
        words,
        command="train [SETTINGS.toml]",
        description=DESCRIPTION,
        default=Options(out=Path(), settings=settings or Settings()),
        usual=USUAL,
    )


def _given_settings(words: list[str]) -> tuple[Settings | None, list[str]]:
    """The settings in the TOML file, or of the run that is resumed; and the words without the file's name."""
    # The file is the first word if that is no option, or any that ends in .toml, but not the folder after --out.
    places = [
        place
        for place, word in enumerate(words)
        if not word.startswith("-") and (place == 0 or (word.endswith(".toml") and words[place - 1] != "--out"))
    ]
    if len(places) > 1:
        raise InputError(f"{' and '.join(words[place] for place in places)} are too many settings: give one TOML file.")
    if places:
        return load_settings(Path(words[places[0]])), words[: places[0]] + words[places[0] + 1 :]
    if "--resume" not in words:
        return None, words
    out = expanded(value_of(words, "--out") or "")
    if (out / "settings.toml").exists():
        return load_settings(out / "settings.toml"), words
    # Without a run, options must say what to train.
    if not any(word.startswith(("--data.", "--masking.", "--model.", "--training.")) for word in words):
        raise InputError(f"--out {out} holds no run to resume: give the folder of a run, or settings to start one.")
    return None, words
