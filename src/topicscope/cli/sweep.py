"""``topicscope sweep``: many runs, one table."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.box import SIMPLE
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError
from topicscope.scale import check_engine
from topicscope.settings.sweep import Sweep, brief
from topicscope.settings.sweep_toml import load_sweep

if TYPE_CHECKING:
    from topicscope.commands.sweep import SweepResult

# Measures in the table on the terminal, and how many combinations it has at most.
PRINTED = ("loss", "validation_loss", "contrast_value")
MOST_ROWS = 20

# Paragraphs of one line: the parser joins lines of text, and does not break them.
DESCRIPTION = """Train many settings, each with several seeds, into one folder.

SWEEP.toml says which settings vary over what (examples/sweep.toml).

The folder has the runs, sweep.csv, sweep.parquet, figures and report.html.

Stopped or killed, a sweep goes on with --resume.

examples:
  topicscope sweep examples/sweep.toml --out sweeps/first
  topicscope sweep examples/sweep.toml --out sweeps/first --dry-run
  topicscope sweep --out sweeps/first --resume
  topicscope sweep examples/sweep.toml --out sweeps/ray --engine ray --workers 2
  topicscope sweep SWEEP.toml --out /shared/sweep --engine ray --address auto
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    sweep: Annotated[Path | None, tyro.conf.Positional] = None
    """SWEEP.toml; can be left out with --resume."""

    out: Path
    """The sweep's folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Go on with the sweep in --out."""

    dry_run: bool = False
    """Print how many runs there are and about how long they take, from a short trial; write nothing. With --resume,
    of what is not yet finished."""

    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or Ray (pip install "topicscope[scale]")."""

    address: str | None = None
    """A Ray cluster, HOST:PORT or auto, instead of a Ray on this machine; --out must be on a disk it shares."""

    workers: int | None = None
    """How many groups of runs at once; as many as there are cores if not given."""

    timeout: float | None = None
    """Seconds that the runs trained together may take; over it they are tried again, three times in all."""

    measures: tuple[str, ...] = ()
    """What is drawn, instead of the usual ones: loss, validation_loss, bayes_floor, excess_loss, contrast_value,
    contrast_embedding, attention_same_word, attention_same_topic, attention_different_topic, stage_1_end,
    stage_1_growth, two_stages, or norm_ and a part of the model, such as norm_value."""

    quiet: bool = False
    """No progress bar, no messages."""

    json: bool = False
    """Print the table's rows (or the estimate) as JSON on standard output, and nothing else."""


def main(words: list[str]) -> None:
    """Parse, run, print where the table is."""
    options = _parse(words)
    log_to_terminal(quiet=True)
    check_engine(options.engine, address=options.address, workers=options.workers, timeout=options.timeout)
    asked = load_sweep(options.sweep or _stored(options))
    # Only now: torch takes seconds to import, and bad options should not wait for it.
    from topicscope.commands.sweep import sweep

    if options.dry_run:
        _print_estimate(asked, options)
        return
    with progress_bar("training", quiet=options.quiet) as report:
        result = sweep(
            asked,
            options.out,
            resume=options.resume,
            workers=options.workers,
            engine=options.engine,
            address=options.address,
            timeout=options.timeout,
            measures=options.measures,
            report=report,
        )
    if options.json:
        print_json(result.rows)
    elif not options.quiet:
        _print_result(result)


def _parse(words: list[str]) -> Options:
    asks_help = "--help" in words or "-h" in words
    if not asks_help and not any(word == "--out" or word.startswith("--out=") for word in words):
        raise InputError("--out is missing: give a folder to write the sweep to.")
    return parse(lambda: tyro.cli(Options, args=words, prog="topicscope sweep", description=DESCRIPTION))


def _stored(options: Options) -> Path:
    """The sweep that is in --out."""
    if not options.resume:
        raise InputError("SWEEP.toml is missing: give a sweep, or --resume with the --out of one that was begun.")
    stored = options.out / "sweep.toml"
    if not stored.exists():
        what = "holds no sweep" if options.out.exists() else "does not exist"
        raise InputError(
            f"--out {options.out} {what}: give the folder of a sweep that was begun, or SWEEP.toml to begin one."
        )
    return stored


def _print_estimate(asked: Sweep, options: Options) -> None:
    from topicscope.commands.sweep_estimate import count_sweep, estimate_sweep
    from topicscope.scale import available_cores

    workers = options.workers or available_cores()
    if options.json:
        print_json(dataclasses.asdict(estimate_sweep(asked, options.out, resume=options.resume, workers=workers)))
        return
    count = count_sweep(asked, options.out, resume=options.resume)
    finished = f", {count.finished} of them finished" if count.finished else ""
    runs = f"{count.runs} runs: {count.combinations} combinations, trained in {count.groups} groups{finished}."
    if count.finished == count.groups:
        console().print(f"{runs} Nothing is left to train.")
        return
    # At once, for the trial takes a while.
    console().print(runs)
    if not options.quiet:
        console(to_errors=True).print("timing a short trial …")
    found = estimate_sweep(asked, options.out, resume=options.resume, workers=workers)
    console().print(
        f"About {_duration(found.wall_seconds)} with {found.workers} workers ({_duration(found.compute_seconds)} of "
        "computing), estimated from a short trial; starting them, figures and the page come on top."
    )


def _print_result(result: "SweepResult") -> None:
    """A row a combination: means over its seeds."""
    settings = [name for name in result.rows[0] if "." in name]
    by_combination: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in result.rows:
        by_combination.setdefault(tuple(row[name] for name in settings), []).append(row)
    seeds = len({row["seed"] for row in result.rows})
    means = "" if seeds == 1 else f", mean ± half of the 95 % interval over {seeds} seeds"
    console().print(f"{len(result.rows)} runs: {len(by_combination)} combinations{means}")
    table = Table(box=SIMPLE)
    for name in [*settings, *PRINTED]:
        # With spaces a narrow terminal breaks the heading instead of cutting it.
        table.add_column(name.rpartition(".")[2].replace("_", " "), justify="right")
    for values, rows in list(by_combination.items())[:MOST_ROWS]:
        table.add_row(*map(brief, values), *(_cell(rows, name) for name in PRINTED))
    console().print(table)
    if len(by_combination) > MOST_ROWS:
        console().print(f"… and {len(by_combination) - MOST_ROWS} more combinations.")
    diverged = sum(row["diverged"] for row in result.rows)
    if diverged:
        console().print(f"{diverged} of the runs diverged: they have no measures.")
    console().print(f"{result.out / 'sweep.csv'}: all columns; {len(result.figures)} figure files beside it.")
    console().print(f"{result.out / 'report.html'}: all of it to look at.", soft_wrap=True)


def _cell(rows: Sequence[dict[str, Any]], measure: str) -> str:
    from topicscope.report.sweep import over_seeds

    found = over_seeds(rows, measure)
    if found is None:
        return "–"
    half = found.high - found.value
    return f"{found.value:.4g}" + (f" ± {half:.1g}" if math.isfinite(half) else "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
