"""``topicscope sweep``: train many settings and seeds into one folder: a table, figures and a page.

The runs of one combination that are trained together are a task (``work``). What is finished is kept in ``work/`` and
``runs/``: with ``resume`` the same sweep resumes, on either engine and with any number of workers, and ends with the
same table.
"""

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from rich.box import SIMPLE
from rich.table import Table

from topicscope.commands.folders import holds_something, locked
from topicscope.commands.options import POSITIONAL, check_out_is_given, keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError, path_of
from topicscope.records import SweepRow
from topicscope.reporting.rounding import readable
from topicscope.settings import ATTENTION_PARTS
from topicscope.settings.sweep import Point, Sweep, brief, dump_sweep, load_sweep, sweep_differences
from topicscope.settings.toml import FILE_SETTINGS, flat, to_table
from topicscope.store import as_before_if_refused, frame_of, table_html, table_text, write_atomically
from topicscope.synthetic.topics import TopicModel
from topicscope.training.sweep import VERSION, Group, train_group
from topicscope.work import Report, Task, check_engine, map_tasks

DESCRIPTION = """Train many settings, each with several seeds, into one folder.

SWEEP.toml says which settings vary over what (examples/sweep.toml).

The folder has the runs, sweep.csv, figures and report.html.

If interrupted, a sweep resumes with --resume.

examples:
  topicscope sweep examples/sweep.toml --out sweeps/first
  topicscope sweep examples/sweep.toml --out sweeps/first --dry-run
  topicscope sweep --out sweeps/first --resume
  topicscope sweep examples/sweep.toml --out sweeps/ray --engine ray --workers 2
  topicscope sweep SWEEP.toml --out /shared/sweep --engine ray --address auto
"""

# Measures that are drawn; those that say nothing in a sweep are left out.
DRAWN = (
    "validation_loss", "excess_loss", "distance_to_optimum", "excess_over_optimum",
    "contrast_value", "contrast_embedding", "attention_same_topic",
)  # fmt: skip

# How many differences between two sweeps are named; of the others only the number is given.
MOST_NAMES = 3

# Measures in the table on the terminal, and the most combinations that it has.
PRINTED = ("loss", "validation_loss", "excess_over_optimum", "contrast_value")
MOST_ROWS = 20

Work = tuple[Point, Task[Group]]


@dataclass(frozen=True)
class SweepResult:
    """The table's rows, and the figures."""

    out: Path
    rows: list[SweepRow]
    figures: list[Path]

    def cells(self) -> list[dict[str, Any]]:
        """The table as sweep.csv has it: models of different kinds have different parts, but rows the same columns."""
        rows = [row.cells() for row in self.rows]
        names = dict.fromkeys(name for row in rows for name in row)
        columns = [name for name in names if name not in ("train_seconds", "run")] + ["train_seconds", "run"]
        return [{name: row.get(name) for name in columns} for row in rows]

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame_of(self.cells())

    def _repr_html_(self) -> str:
        shown = [*self.rows[0].settings, "seed", *PRINTED]
        cells = [[row[name] for name in shown] for row in self.cells()[:MOST_ROWS]]
        return table_html(shown, cells, f"{len(self.rows)} runs of the sweep in {self.out}")


def sweep(
    sweep: Sweep | Path | str,
    out: Path | str,
    *,
    resume: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    report: Report | None = None,
) -> SweepResult:
    """Train every combination with every seed into ``out``, and write sweep.csv, figures and a page.

    ``workers``, ``engine`` and ``address`` are those of ``work.completed``; the table depends on none of them.
    """
    from topicscope.reporting.page import write_report

    asked = sweep if isinstance(sweep, Sweep) else load_sweep(path_of(sweep, "sweep"))
    out = path_of(out, "out").resolve()
    check_engine(engine, address=address, workers=workers)
    # Refused before anything is made, and checked again under the lock: another command may have begun here meanwhile.
    work = tasks(asked, out)
    holds_sweep(asked, out, resume=resume)
    with as_before_if_refused(out, locked(out), lambda: any((out / "work").glob("[!.]*"))):
        if not holds_sweep(asked, out, resume=resume):
            write_atomically(out / "sweep.toml", dump_sweep(asked))
        # The longest come first, so that no worker is left with a long one at the end.
        order = sorted(range(len(work)), key=lambda place: -_cost(work[place]))
        longest_first = [work[place][1] for place in order]
        options = {"workers": workers, "engine": engine, "address": address, "report": report}
        contents = map_tasks(train_group, longest_first, out / "work", **options)
        by_place = dict(zip(order, contents, strict=True))
        rows = [row for place in sorted(by_place) for row in msgspec.json.decode(by_place[place], type=list[SweepRow])]
        result = SweepResult(out, rows, [])
        write_atomically(out / "sweep.csv", table_text(result.cells()))
        result = dataclasses.replace(result, figures=_draw(asked, result))
        write_report([out], out / "report.html")
        return result


def tasks(sweep: Sweep, out: Path) -> list[Work]:
    """All work, in the order of the combinations and, within one, of the seeds; errors in any of them are found."""
    points = sweep.points()
    for point in points:
        point.settings.check_vocabulary(TopicModel.from_settings(point.settings.documents).vocabulary)
    return [(point, _task(point, seeds, out)) for point in points for seeds in sweep.groups()]


def _task(point: Point, seeds: tuple[int, ...], out: Path) -> Task[Group]:
    # Threads are part of the settings: left open, they would depend on the machine.
    training = dataclasses.replace(point.settings.training, threads=point.settings.training.threads or 1)
    settings = dataclasses.replace(point.settings, training=training)
    name = " ".join(f"{name.rpartition('.')[2]} {brief(value)}" for name, value in point.values.items())
    # Settings by name, the files that they name by their content; seeds are separate.
    table = flat(to_table(settings)) | {"seed": None}
    for setting in FILE_SETTINGS:
        if table[setting]:
            table[setting] = _digest(setting, Path(table[setting]))
    group = Group(point.values, settings, seeds, out, "")
    task = Task(name, {"version": VERSION, "settings": table, "seeds": list(seeds)}, group)
    return dataclasses.replace(task, argument=dataclasses.replace(group, name=task.path(out).stem))


def _digest(setting: str, path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"{setting} = {path} cannot be read ({error.strerror}): give an existing file.") from None


def _cost(work: Work) -> float:
    """About how much work a group is: multiply-adds of all steps of all runs."""
    from topicscope.training.machine import step_size

    settings = work[0].settings
    return float(step_size(settings)) * settings.training.steps * len(work[1].argument.seeds)


def holds_sweep(sweep: Sweep, out: Path, *, resume: bool) -> bool:
    """Whether the folder holds this sweep already; refuse one that holds anything else, or needs ``resume``."""
    path = out / "sweep.toml"
    if not holds_something(out):
        return False
    if not path.exists():
        raise InputError(
            f"--out {out} holds no sweep to resume: give the folder of a sweep."
            if resume
            else f"--out {out} is not empty and holds no sweep: choose another folder."
        )
    if not resume:
        raise InputError(f"--out {out} is not empty: choose another folder, or add --resume to resume the sweep in it.")
    if different := sweep_differences(sweep, load_sweep(path)):
        more = [f"and {len(different) - MOST_NAMES} more"] if len(different) > MOST_NAMES else []
        named = ", ".join([*different[:MOST_NAMES], *more])
        raise InputError(
            f"--out {out} holds another sweep (it differs in {named}): leave SWEEP.toml out to resume it, or choose "
            "another --out."
        )
    return True


def _draw(sweep: Sweep, result: SweepResult) -> list[Path]:
    """The figure of the measures that have several numbers."""
    from topicscope.reporting.figures import save_figure
    from topicscope.reporting.figures.sweep import sweep_figure

    # Attention that is not trained is what it was at the start.
    frozen = not any(ATTENTION_PARTS & set(point.settings.model.trained_parts) for point in sweep.points())
    usual = [name for name in DRAWN if not (frozen and name.startswith("attention_"))]
    rows = result.cells()
    measures = [name for name in usual if len({row[name] for row in rows} - {None}) > 1]
    figure = sweep_figure(rows, settings=list(sweep.vary), measures=measures)
    (result.out / "figures").mkdir(exist_ok=True)
    return save_figure(figure, result.out / "figures" / "sweep") if figure else []


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    sweep: Annotated[Path | None, POSITIONAL] = None
    """SWEEP.toml; can be left out with --resume."""

    out: Path
    """The sweep's folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Resume the sweep in --out."""

    dry_run: bool = False
    """Print how many runs there are, and how many of them are finished; write nothing."""

    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or Ray (pip install "topicscope[scale]")."""

    address: str | None = None
    """A Ray cluster, HOST:PORT or auto, instead of a Ray on this machine; --out must be on a disk it shares."""

    workers: int | None = None
    """How many groups of runs are trained at once; by default as many as there are cores."""

    quiet: bool = False
    """Print no progress bar and no messages."""

    json: bool = False
    """Print the table's rows as JSON on standard output, and nothing else."""


def main(words: list[str]) -> None:
    """Parse, run, print where the table is."""
    check_out_is_given(words, "sweep")
    options = parse(Options, words, command="sweep", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    check_engine(options.engine, address=options.address, workers=options.workers)
    asked = load_sweep(options.sweep or _stored(options))
    if options.dry_run:
        _print_count(asked, options)
        return
    with progress_bar("training", quiet=options.quiet) as report:
        result = sweep(asked, **keywords(options, without=("dry_run", "sweep")), report=report)
    if options.json:
        print_json(result.cells())
    elif not options.quiet:
        _print_result(result)


def _stored(options: Options) -> Path:
    """The sweep in --out."""
    if not options.resume:
        raise InputError("SWEEP.toml is missing: give a sweep, or --resume with the --out of one that was begun.")
    stored = options.out / "sweep.toml"
    if not stored.exists():
        what = "holds no sweep" if options.out.exists() else "does not exist"
        raise InputError(
            f"--out {options.out} {what}: give the folder of a sweep that was begun, or SWEEP.toml to begin one."
        )
    return stored


def _print_count(asked: Sweep, options: Options) -> None:
    out = options.out.resolve()
    holds_sweep(asked, out, resume=options.resume)
    work = tasks(asked, out)
    points, done = len(asked.points()), sum(task.path(out / "work").exists() for _, task in work)
    count = {"combinations": points, "runs": points * len(asked.seeds), "groups": len(work), "finished": done}
    if options.json:
        print_json(count)
    else:
        finished = f", {done} of them finished" if done else ""
        console().print(f"{count['runs']} runs: {points} combinations, trained in {len(work)} groups{finished}.")


def _print_result(result: SweepResult) -> None:
    """One row per combination: means over its seeds."""
    rows = result.cells()
    settings = list(result.rows[0].settings)
    by_combination: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in rows:
        by_combination.setdefault(tuple(row[name] for name in settings), []).append(row)
    seeds = len({row["seed"] for row in rows})
    means = "" if seeds == 1 else f", mean ± half of the 95 % interval over {seeds} seeds"
    console().print(f"{len(rows)} runs: {len(by_combination)} combinations{means}")
    table = Table(box=SIMPLE)
    printed = [name for name in PRINTED if any(row[name] is not None for row in rows)]
    for name in [*settings, *printed]:
        # With spaces a narrow terminal breaks the heading instead of cutting it.
        table.add_column(name.rpartition(".")[2].replace("_", " "), justify="right")
    for values, group in list(by_combination.items())[:MOST_ROWS]:
        table.add_row(*map(brief, values), *(_printed_cell(group, name) for name in printed))
    console().print(table)
    if len(by_combination) > MOST_ROWS:
        console().print(f"… and {len(by_combination) - MOST_ROWS} more combinations.")
    if diverged := sum(row.diverged for row in result.rows):
        console().print(f"{diverged} of the runs diverged: they have no measures.")
    console().print(f"{result.out / 'sweep.csv'}: all columns; {len(result.figures)} figure files beside it.")
    console().print(f"{result.out / 'report.html'}: open it in any browser.", soft_wrap=True)


def _printed_cell(rows: Sequence[dict[str, Any]], measure: str) -> str:
    from topicscope.reporting.figures.sweep import over_seeds

    interval = over_seeds(rows, measure)
    if interval is None:
        return "–"
    half = interval.high - interval.value
    return readable(interval.value) + (f" ± {readable(half, 1)}" if math.isfinite(half) else "")
