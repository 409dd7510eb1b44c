"""``topicscope sweep``: many runs, one table."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError
from topicscope.scale import check_engine
from topicscope.settings.sweep import Sweep
from topicscope.settings.sweep_toml import load_sweep

if TYPE_CHECKING:
    from topicscope.commands.sweep import SweepResult

DESCRIPTION = """Train many settings, each with several seeds, into one folder: runs, sweep.csv, sweep.parquet and
figures. SWEEP.toml says which settings vary over what (examples/sweep.toml). Stopped or killed, it goes on with
--resume; the table depends neither on the engine nor on the number of workers.

examples:
  topicscope sweep examples/sweep.toml --out sweeps/first
  topicscope sweep examples/sweep.toml --out sweeps/first --dry-run
  topicscope sweep --out sweeps/first --resume
  topicscope sweep examples/sweep.toml --out sweeps/ray --engine ray --workers 2
  topicscope sweep examples/sweep.toml --out /shared/sweep --engine ray --address 10.0.0.1:6379
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
    """Columns of the table to draw, instead of the usual ones."""

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
    from topicscope.commands.sweep_estimate import estimate_sweep
    from topicscope.scale import available_cores

    workers = options.workers or available_cores()
    found = estimate_sweep(asked, options.out, resume=options.resume, workers=workers)
    if options.json:
        print_json(dataclasses.asdict(found))
        return
    finished = f", {found.finished} of them finished" if found.finished else ""
    time = (
        f"About {_duration(found.wall_seconds)} with {found.workers} workers ({_duration(found.compute_seconds)} of "
        "computing), estimated from a short trial."
        if found.finished < found.groups
        else "Nothing is left to train."
    )
    console().print(
        f"{found.runs} runs: {found.combinations} combinations, trained in {found.groups} groups{finished}. {time}"
    )


def _print_result(result: "SweepResult") -> None:
    table = Table(title=f"{len(result.rows)} runs")
    settings = [name for name in result.rows[0] if "." in name]
    shown = [*settings, "seed", "loss", "validation_loss", "contrast_value"]
    columns = [name for name in shown if name in result.rows[0]]
    for name in columns:
        table.add_column(name, justify="right")
    for row in result.rows[:20]:
        table.add_row(*(_cell(row[name]) for name in columns))
    console().print(table)
    if len(result.rows) > 20:
        console().print(f"… and {len(result.rows) - 20} more.")
    diverged = sum(row["diverged"] for row in result.rows)
    console().print(f"{result.out / 'sweep.csv'}: all columns; {len(result.figures)} figure files beside it.")
    if diverged:
        console().print(f"{diverged} of the runs diverged: they have no measures.")


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
