"""``topicscope sweep``: train many settings and seeds into one folder: a table, a figure and a page.

The runs of one combination that are trained together are a task (``work``). What is finished is kept in ``work/`` and
``runs/``: with ``resume`` the same sweep resumes, on either engine and with any number of workers, and ends with the
same table.
"""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import POSITIONAL, keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import DivergedError, InputError, path_of
from topicscope.measure.run import Run, read_run
from topicscope.measure.stages import norm_stages
from topicscope.records import SWEEP, SweepRow, frame_of, sweep_table, table_html
from topicscope.settings.sweep import Point, Sweep, dump_sweep, load_sweep
from topicscope.settings.toml import comparable
from topicscope.store import as_before_if_refused, struct_text, table_text, write_atomically
from topicscope.synthetic.topics import TopicModel
from topicscope.work import Report, Task, check_engine, map_tasks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from topicscope.reporting.figures import Panel

DESCRIPTION = """Train many settings, each with several seeds, into one folder.

SWEEP.toml says which settings vary over what (examples/sweep.toml).

The folder has the runs, sweep.csv, a figure and report.html.

If interrupted, a sweep resumes with --resume.

examples:
  topicscope sweep examples/sweep.toml --out sweeps/first
  topicscope sweep examples/sweep.toml --out sweeps/first --dry-run
  topicscope sweep --out sweeps/first --resume
  topicscope sweep examples/sweep.toml --out sweeps/ray --engine ray --workers 2
  topicscope sweep SWEEP.toml --out /shared/sweep --engine ray --address auto
"""

# Raised when training or a measure changes, so that what an older version finished is computed again.
VERSION = 2

# Measures that are drawn if they differ between runs.
DRAWN = (
    "validation_loss", "excess_loss", "distance_to_optimum", "excess_over_optimum",
    "contrast_value", "contrast_embedding", "attention_same_topic",
)  # fmt: skip

# More curves than this in a panel cannot be distinguished, nor more ticks.
MOST_CURVES = 6

# Numbers on an axis that differ by this factor get a logarithmic scale.
FAR_APART = {"x": 8, "y": 100}

# Measures in the table of a notebook, and the most rows that it has.
SHOWN = ("loss", "validation_loss", "excess_over_optimum", "contrast_value")
MOST_ROWS = 20


@dataclass(frozen=True)
class SweepResult:
    """The rows of the table, and the files of its figure."""

    out: Path
    rows: list[SweepRow]
    figures: list[Path]

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame_of(sweep_table(self.rows))

    def _repr_html_(self) -> str:
        shown = [*self.rows[0].settings, "seed", *SHOWN]
        cells = [[row.get(name) for name in shown] for row in sweep_table(self.rows)[:MOST_ROWS]]
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
    """Train every combination with every seed into ``out``, and write sweep.csv, a figure and a page.

    ``workers``, ``engine`` and ``address`` are those of ``work.completed``; the table depends on none of them.
    """
    from topicscope.reporting.figures import save_figure
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
        options = {"workers": workers, "engine": engine, "address": address, "report": report}
        contents = map_tasks(train_group, work, out / "work", **options)
        rows = [row for content in contents for row in msgspec.json.decode(content, type=list[SweepRow])]
        table = sweep_table(rows)
        SWEEP.write(out, rows)
        write_atomically(out / "sweep.csv", table_text(table))
        (out / "figures").mkdir(exist_ok=True)
        figure = sweep_figure(table, list(asked.vary))
        figures = save_figure(figure, out / "figures" / "sweep") if figure else []
        write_report([out], out / "report.html")
        return SweepResult(out, rows, figures)


def holds_sweep(sweep: Sweep, out: Path, *, resume: bool) -> bool:
    """Whether the folder holds this sweep already; refuse one that holds anything else, or needs ``resume``."""
    if not is_begun(out, "sweep.toml", what="sweep", command="sweep"):
        return False
    if not resume:
        raise InputError(f"--out {out} is not empty: choose another folder, or add --resume to resume the sweep in it.")
    there = load_sweep(out / "sweep.toml")
    if (sweep.points(), sweep.groups()) != (there.points(), there.groups()):
        raise InputError(
            f"--out {out} holds another sweep: leave SWEEP.toml out to resume it, or choose another --out."
        )
    return True


# The work: training a group of runs, and measuring each.


@dataclass(frozen=True)
class Group:
    """Runs of one combination that are trained in one tensor."""

    point: Point
    seeds: tuple[int, ...]
    sweep: Path
    """The sweep's folder."""

    name: str
    """The group's folder in ``runs``."""


def tasks(sweep: Sweep, out: Path) -> list[Task[Group]]:
    """A task for each group, in the order of the combinations and their seeds; what is wrong with any is refused."""
    points = sweep.points()
    for point in points:
        point.settings.check_vocabulary(TopicModel.from_settings(point.settings.documents).vocabulary)
    return [_task(point, seeds, out) for point in points for seeds in sweep.groups()]


def _task(point: Point, seeds: tuple[int, ...], out: Path) -> Task[Group]:
    # Threads are part of the settings: left open, they would depend on the machine.
    training = dataclasses.replace(point.settings.training, threads=point.settings.training.threads or 1)
    point = Point(point.values, dataclasses.replace(point.settings, training=training))
    label = " ".join(f"{name.rpartition('.')[2]} {_brief(value)}" for name, value in point.values.items())
    # Settings by name, the files that they name by their content; seeds are separate.
    key = {"version": VERSION, "settings": comparable(point.settings) | {"seed": None}, "seeds": list(seeds)}
    name = Task(label, key, None).path(out).stem
    return Task(label, key, Group(point, seeds, out, name))


def train_group(group: Group) -> bytes:
    """Train the seeds, from their last checkpoint if they were begun before; the table's rows, as JSON."""
    from topicscope.training.loop import train

    folder, began = Path("runs", group.name), time.perf_counter()
    with contextlib.suppress(DivergedError):
        out = group.sweep / folder
        train(group.point.settings, out, seeds=group.seeds, resume=True, interruptible=False)
    seconds, run = (time.perf_counter() - began) / len(group.seeds), read_run(group.sweep / folder)
    rows = [
        _row(run, place, settings=dict(group.point.values), seed=seed, train_seconds=seconds, run=str(folder))
        for place, seed in enumerate(group.seeds)
    ]
    return struct_text(rows)


def _row(trained: Run, place: int, **known: Any) -> SweepRow:
    """The row of the run's seed at this place; without measures if it did not finish."""
    metrics = {name: values[place] for name, values in trained.metrics.items()}
    recorded = np.flatnonzero(np.isfinite(metrics["loss"]))
    last = int(trained.steps[recorded[-1]]) if len(recorded) else 0
    finished = last == trained.settings.training.steps
    measures = _measures(trained, metrics, place) if finished else {}
    return SweepRow(diverged=not finished, last_step=last, measures=measures, **known)


def _measures(run: Run, metrics: Mapping[str, np.ndarray], place: int) -> dict[str, float | bool | None]:
    """The final numbers of one seed."""
    from topicscope.training.reference import optimum_measures

    norms = {name[5:]: np.linalg.norm(values, axis=1) for name, values in metrics.items() if name.startswith("norm/")}
    stages = norm_stages(run.steps, *(norms[name] for name in ("key", "query", "value")))
    final = {name: float(np.mean(values[-1])) for name, values in metrics.items()}
    held_out = final.get("validation_loss")
    floor = run.reference.bayes_floor.loss if run.reference else None
    attention: dict[str, float | None] = {}
    if len(run.frame_steps) and run.frame_steps[-1] == run.settings.training.steps:
        # By class of word pairs, averaged over layers and heads.
        classes = ("same_word", "same_topic", "different_topic")
        averages = run.frames["attention"][place, -1].reshape(len(classes), -1).mean(axis=1).tolist()
        attention = {f"attention_{name}": average for name, average in zip(classes, averages, strict=True)}
    return {
        "loss": final["loss"],
        "validation_loss": held_out,
        "bayes_floor": floor,
        "excess_loss": None if floor is None or held_out is None else held_out - floor,
        **optimum_measures(run.settings, run.weights["value"][place]),
        "contrast_value": final.get("contrast/value"),
        "contrast_embedding": final.get("contrast/embedding"),
        **attention,
        "stage_1_end": stages.end,
        "stage_1_growth": stages.growth,
        "two_stages": stages.two,
        **{f"norm_{name}": float(norm[-1]) for name, norm in norms.items()},
    }


# What is shown.


def sweep_figure(rows: Sequence[Mapping[str, Any]], settings: Sequence[str]) -> "Figure | None":
    """A panel for each measure that differs between runs; None if there is none, or nothing varied."""
    from topicscope.reporting.figures import curves

    varied = [name for name in settings if len({row[name] for row in rows}) > 1]
    measures = [name for name in DRAWN if len({row.get(name) for row in rows} - {None}) > 1]
    if not (varied and measures):
        return None
    # Numbers go across, if there are any.
    across, *others = sorted(varied, key=lambda name: isinstance(rows[0][name], str))
    fewer = "; runs that diverged are left out" if any(row["diverged"] for row in rows) else ""
    panels = [_panel([row for row in rows if row[name] is not None], across, others, name) for name in measures]
    return curves(f"a dot per run, and means{fewer}", panels)


def _panel(rows: Sequence[Mapping[str, Any]], across: str, others: Sequence[str], measure: str) -> "Panel":
    """A measure against one setting: dots, and means in a colour for each combination of the other settings."""
    from topicscope.reporting.figures import Panel, Series
    from topicscope.reporting.palette import PALETTE

    values = list(dict.fromkeys(row[across] for row in rows))
    words = any(isinstance(value, str) for value in values)
    places = {value: float(place) if words else float(value) for place, value in enumerate(values)}
    kinds = list(dict.fromkeys(tuple(row[name] for name in others) for row in rows))
    if len(kinds) > MOST_CURVES:
        others, kinds = (), [()]
    series = []
    for kind, colour in zip(kinds, PALETTE, strict=False):
        own = [row for row in rows if tuple(row[name] for name in others) == kind]
        dots = {"marker": "o", "linestyle": "none", "markersize": 4, "alpha": 0.6}
        x, y = [places[row[across]] for row in own], [row[measure] for row in own]
        series.append(Series(x=x, y=y, colour=colour, style=dots))
        means = {at: np.mean([row[measure] for row in own if places[row[across]] == at]) for at in sorted(set(x))}
        # Words have no distance, so nothing joins them.
        style = {"marker": "_", "markersize": 16, "linestyle": "none"} if words else {"linewidth": 1.2}
        label = ", ".join(f"{name.rpartition('.')[2]} {_brief(at)}" for name, at in zip(others, kind, strict=True))
        series.append(Series(x=list(means), y=list(means.values()), label=label, colour=colour, style=style))
    # One wild run would hide the others.
    scales = {"x": [] if words else list(places.values()), "y": [row[measure] for row in rows]}
    log = "".join(side for side, own in scales.items() if own and 0 < min(own) <= max(own) / FAR_APART[side])
    ticks = {at: _brief(value) for value, at in places.items()} if words or len(values) <= MOST_CURVES else {}
    return Panel(series=series, x=across, y=measure.replace("_", " "), log=log, ticks=ticks)


def _print_result(result: SweepResult) -> None:
    from topicscope.reporting.page.sections import smallest

    diverged = sum(row.diverged for row in result.rows)
    lines = [
        f"{len(result.rows)} runs. {smallest(result.rows)}".strip(),
        f"{diverged} of the runs diverged: they have no measures." if diverged else "",
        f"{result.out / 'sweep.csv'}: all columns; {len(result.figures)} figure files beside it.",
        f"{result.out / 'report.html'}: open it in any browser.",
    ]
    for line in filter(None, lines):
        console().print(line, soft_wrap=True)


def _brief(value: Any) -> str:
    """A setting's value for people, with four digits; a table has them all."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    options = parse(Options, words, command="sweep", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    check_engine(options.engine, address=options.address, workers=options.workers)
    if not options.sweep and not options.resume:
        raise InputError("SWEEP.toml is missing: give a sweep, or --resume with the --out of one that was begun.")
    asked = load_sweep(options.sweep or options.out / "sweep.toml")
    if options.dry_run:
        _print_count(asked, options)
        return
    with progress_bar("training", quiet=options.quiet) as report:
        result = sweep(asked, **keywords(options, without=("dry_run", "sweep")), report=report)
    if options.json:
        print_json(sweep_table(result.rows))
    elif not options.quiet:
        _print_result(result)


def _print_count(asked: Sweep, options: Options) -> None:
    out = options.out.resolve()
    holds_sweep(asked, out, resume=options.resume)
    work, points = tasks(asked, out), len(asked.points())
    done = sum(task.path(out / "work").exists() for task in work)
    count = {"combinations": points, "runs": points * len(asked.seeds), "groups": len(work), "finished": done}
    if options.json:
        print_json(count)
    else:
        finished = f", {done} of them finished" if done else ""
        console().print(f"{count['runs']} runs: {points} combinations, trained in {len(work)} groups{finished}.")
