"""``topicscope sweep``: train many settings and seeds into one folder, one table and figures.

The runs of one combination that are trained together are a group, which is a work item. What is finished is kept
(in ``work/``, named by content, and in ``runs/``): with ``resume`` the same sweep goes on where it was stopped, on
either engine and with any number of workers, and ends with the same table.
"""

import dataclasses
import hashlib
import heapq
import io
import itertools
import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from topicscope import scale
from topicscope.commands.folders import holds_something, locked
from topicscope.commands.options import POSITIONAL, check_out_is_given, keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError, listed, path_of
from topicscope.files import Row, as_before_if_refused, frame_of, table_text, write_atomically
from topicscope.reporting.rounding import readable
from topicscope.scale import Item
from topicscope.settings import ATTENTION_PARTS, EXTRAS, PARTS
from topicscope.settings.sweep import Point, Sweep, brief, dump_sweep, load_sweep, sweep_differences
from topicscope.settings.toml import FILE_SETTINGS, flat, to_table
from topicscope.synthetic.topics import TopicModel
from topicscope.training.runs import made_with
from topicscope.training.sweep import MEASURES, Group, file_digest, train_group

logger = logging.getLogger(__name__)

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

# Measures that are drawn unless others are asked for; those that say nothing in a sweep are left out.
DRAWN = (
    "validation_loss", "excess_loss", "distance_to_optimum", "excess_over_optimum",
    "contrast_value", "contrast_embedding", "attention_same_topic",
)  # fmt: skip

# How many differences between two sweeps are named; of the others only the number is given.
MOST_NAMES = 3

# Measures in the table on the terminal, and the most combinations that it has.
PRINTED = ("loss", "validation_loss", "excess_over_optimum", "contrast_value")
MOST_ROWS = 20

# How many groups are tried, the cheapest, the dearest and some between; and the steps of two of the trials.
TRIALS = 3
SHORT, LONG = 10, 40


@dataclass(frozen=True)
class SweepResult:
    """The results: the table's rows, and the figures."""

    out: Path
    rows: list[Row]
    figures: list[Path]

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame_of(self.rows)

    def _repr_html_(self) -> str:
        from topicscope.reporting.notebook import table_html

        shown = [name for name in self.rows[0] if "." in name or name in ("seed", *PRINTED)]
        cells = [[row[name] for name in shown] for row in self.rows[:MOST_ROWS]]
        return table_html(shown, cells, f"{len(self.rows)} runs of the sweep in {self.out}")


def sweep(
    sweep: Sweep | Path | str,
    out: Path | str,
    *,
    resume: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    measures: Sequence[str] | str = (),
    report: scale.Report | None = None,
) -> SweepResult:
    """Train every combination with every seed into ``out``, and write sweep.csv, sweep.parquet and figures.

    ``workers``, ``engine``, ``address`` and ``timeout`` (for runs trained together) are those of ``scale.completed``;
    the table depends on none of them.
    """
    from topicscope.reporting.page import write_report

    asked = sweep if isinstance(sweep, Sweep) else load_sweep(path_of(sweep, "sweep"))
    out = path_of(out, "out").resolve()
    measures = listed(measures, "measures")
    scale.check_engine(engine, address=address, workers=workers, timeout=timeout)
    # This is checked before hours of training, not after.
    known = [*MEASURES, *(f"norm_{part}" for part in PARTS + EXTRAS)]
    for name in measures:
        if name not in known:
            raise InputError(f'--measures "{name}" is not a measure of a sweep: give any of {", ".join(known)}.')
    check_points(asked)
    # Refused before anything is made, and checked again under the lock: another command may have begun here meanwhile.
    holds_sweep(asked, out, resume=resume)
    with as_before_if_refused(out, locked(out), lambda: any((out / "work").glob("[!.]*"))):
        if not holds_sweep(asked, out, resume=resume):
            write_atomically(out / "sweep.toml", dump_sweep(asked))
        work = group_items(asked, out)
        for _, item in work:
            if forget_damaged(item, out):
                logger.warning("the runs of %s are damaged: training them again.", item.name)
        # The longest come first, so that no worker is left with a long one at the end.
        order = sorted(range(len(work)), key=lambda place: -cost(work[place][1]))
        contents = scale.map_items(
            train_group,
            [work[place][1] for place in order],
            folder=out / "work",
            workers=workers,
            engine=engine,
            address=address,
            timeout=timeout,
            report=report,
        )
        by_place = dict(zip(order, contents, strict=True))
        found = [(point.values, json.loads(by_place[place])["rows"]) for place, (point, _) in enumerate(work)]
        rows = table_rows(found)
        write_table(rows, out)
        figures = _draw(asked, rows, measures, out)
        write_report([out], out / "report.html")
        return SweepResult(out, rows, figures)


def check_points(sweep: Sweep) -> None:
    """Find errors in any combination before the first is trained."""
    for point in sweep.points():
        point.settings.check_vocabulary(TopicModel.from_settings(point.settings.data).vocabulary)


def cost(item: scale.Item) -> float:  # type: ignore[type-arg]
    """About how much work a group is, for packing: multiply-adds of all steps of all runs."""
    from topicscope.training.machine import step_size

    settings = item.argument.settings
    vocabulary = TopicModel.from_settings(settings.data).vocabulary
    return float(step_size(settings, vocabulary)) * settings.training.steps * len(item.argument.seeds)


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
        raise InputError(
            f"--out {out} is not empty: choose another folder, or add --resume to go on with the sweep in it."
        )
    if different := sweep_differences(sweep, load_sweep(path)):
        more = [f"and {len(different) - MOST_NAMES} more"] if len(different) > MOST_NAMES else []
        named = ", ".join([*different[:MOST_NAMES], *more])
        raise InputError(
            f"--out {out} holds another sweep (it differs in {named}): leave SWEEP.toml out to go on with it, or "
            "choose another --out."
        )
    return True


def _draw(sweep: Sweep, rows: Sequence[Row], asked: Sequence[str], out: Path) -> list[Path]:
    """Figures of the measures asked for, or else of the usual ones, that have numbers."""
    from topicscope.reporting.figures import save_figure
    from topicscope.reporting.figures.sweep import sweep_figures

    # Figures that an earlier call drew, perhaps of other measures or by older code, go; all other files stay.
    names = [f"by-{name}" for name in sweep.vary]
    names += [f"map-{first}-{second}" for first, second in itertools.permutations(sweep.vary, 2)]
    for name, kind in itertools.product(names, ("png", "svg", "csv")):
        (out / "figures" / f"{name}.{kind}").unlink(missing_ok=True)
    # Attention that is not trained is what it was at the start.
    frozen = not any(ATTENTION_PARTS & set(point.settings.model.trained_parts) for point in sweep.points())
    usual = [name for name in DRAWN if not (frozen and name.startswith("attention_"))]
    numbers = {name: {row.get(name) for row in rows} - {None} for name in asked or usual}
    # One number for all runs is worth a figure only if somebody asked for it.
    measures = [name for name, found in numbers.items() if len(found) > (0 if asked else 1)]
    if not measures:
        return []
    (out / "figures").mkdir(exist_ok=True)
    figures = sweep_figures(rows, settings=list(sweep.vary), measures=measures, connected=sweep.method == "grid")
    return [path for name, figure in figures.items() for path in save_figure(figure, out / "figures" / name)]


def group_items(sweep: Sweep, out: Path) -> list[tuple[Point, Item[Group]]]:
    """All work, in the order of the combinations and, within one, of the seeds."""
    return [(point, _item(point, seeds, out)) for point in sweep.points() for seeds in sweep.groups()]


def is_finished(item: Item[Group], out: Path) -> bool:
    """Whether a group's result is there and every file that training wrote is as it was."""
    recorded, whole = _files_there(item, out)
    return bool(recorded) and whole == recorded


def forget_damaged(item: Item[Group], out: Path) -> bool:
    """Remove a group if one of its files has changed since it was finished, and return whether it was removed.

    Files that the user put into its run folders do not count and are not touched.
    """
    recorded, whole = _files_there(item, out)
    if whole == recorded:
        return False
    item.path(out / "work").unlink()
    for name in recorded:
        # The settings identify a run's folder, even if it holds other files too.
        if name not in whole or Path(name).name != "settings.toml":
            (item.argument.folder / name).unlink(missing_ok=True)
    return True


def _item(point: Point, seeds: tuple[int, ...], out: Path) -> Item[Group]:
    # Threads are part of the settings: left open, they would depend on the machine.
    training = dataclasses.replace(point.settings.training, threads=point.settings.training.threads or 1)
    settings = dataclasses.replace(point.settings, training=training)
    name = " ".join(f"{name.rpartition('.')[2]} {brief(value)}" for name, value in point.values.items())
    # Settings by name, the files that they name by their content; seeds are separate.
    table = flat(to_table(settings)) | {"seed": None}
    for setting in map(".".join, FILE_SETTINGS):
        if table[setting]:
            try:
                table[setting] = hashlib.sha256(Path(table[setting]).read_bytes()).hexdigest()
            except OSError as error:
                raise InputError(
                    f"{setting} = {table[setting]} cannot be read ({error.strerror}): give an existing file."
                ) from None
    key = {"settings": table, "seeds": list(seeds), **made_with()}
    group = Group(settings, seeds, Path())
    item = Item(name, key, group, suffix=".json", threads=training.threads)
    folder = out / "runs" / item.path(out / "work").stem
    return dataclasses.replace(item, argument=dataclasses.replace(group, folder=folder))


def _files_there(item: Item[Group], out: Path) -> tuple[set[str], set[str]]:
    """The files that a finished group recorded, none if it is not finished; and those that are still what they were."""
    content = scale.read_result(item.path(out / "work"))
    recorded = json.loads(content)["files"] if content is not None else {}
    whole = {name for name, digest in recorded.items() if file_digest(item.argument.folder / name) == digest}
    return set(recorded), whole


def table_rows(points: Sequence[tuple[Mapping[str, Any], Sequence[Row]]]) -> list[Row]:
    """One row per run: the varied settings by dotted name, the seed and the measures; all have the same columns."""
    # A setting that is a list becomes its JSON text: a table's cell is one value.
    rows = [
        {name: json.dumps(value) if isinstance(value, list | tuple) else value for name, value in values.items()} | run
        for values, runs in points
        for run in runs
    ]
    # A run that diverged has fewer measures than the others, and models of different kinds have different parts.
    found = dict.fromkeys(name for row in rows for name in row)
    columns = [name for name in found if name not in ("train_seconds", "run")] + ["train_seconds", "run"]
    return [{name: row.get(name) for name in columns} for row in rows]


def write_table(rows: Sequence[Row], out: Path) -> None:
    """Write sweep.csv and sweep.parquet; the same rows give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_atomically(out / "sweep.csv", table_text(rows))
    buffer = io.BytesIO()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    pq.write_table(pa.table(columns), buffer)
    write_atomically(out / "sweep.parquet", buffer.getvalue())


@dataclass(frozen=True)
class Estimate:
    """The size of a sweep, and about how long it would take."""

    combinations: int
    runs: int
    groups: int
    """Work items: runs that are trained together."""

    finished: int
    """Groups that are already trained."""

    workers: int
    compute_seconds: float = 0.0
    """Seconds for all other groups in sequence; those that were begun count in full."""

    wall_seconds: float = 0.0
    """Seconds with this many workers, each of which takes the longest group left; starting them, figures and the page
    are not counted."""


def estimate_sweep(
    sweep: Sweep,
    out: Path,
    *,
    workers: int,
    resume: bool = False,
    counted: Callable[[Estimate], None] = lambda count: None,
) -> Estimate:
    """Count what there is to train, and try a few groups for a few steps; nothing is written to ``out``.

    A folder that ``sweep`` would refuse is refused; with ``resume``, finished work in it counts. ``counted`` is called
    with what is known before the trial, which takes a while.
    """
    out = out.resolve()
    check_points(sweep)
    holds_sweep(sweep, out, resume=resume)
    items = [item for _, item in group_items(sweep, out)]
    missing = [item for item in items if not is_finished(item, out)]
    points = len(sweep.points())
    count = Estimate(points, points * len(sweep.seeds), len(items), len(items) - len(missing), workers)
    counted(count)
    seconds = _group_seconds(missing) if missing else []
    total = sum(seconds, start=0.0)
    return dataclasses.replace(count, compute_seconds=total, wall_seconds=packed(seconds, workers))


def packed(seconds: Sequence[float], workers: int) -> float:
    """When the last worker is done, if each takes the longest that is left as soon as it is free."""
    # Workers may be given by the billion: those without work need no place.
    free = [0.0] * max(1, min(workers, len(seconds)))
    for each in sorted(seconds, reverse=True):
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def _group_seconds(items: Sequence[Item[Group]]) -> list[float]:
    """Each group's seconds, interpolated between groups that are tried, by the work of a step."""
    steps = np.array([item.argument.settings.training.steps for item in items])
    costs = np.array([cost(item) for item in items]) / steps
    order = np.argsort(costs, kind="stable")
    tried = order[np.unique(np.linspace(0, len(items) - 1, TRIALS).round().astype(int))]
    with tempfile.TemporaryDirectory() as folder:
        starts, paces = zip(*(_trial(items[place], Path(folder)) for place in tried), strict=True)
    seconds = np.interp(costs, costs[tried], starts) + np.interp(costs, costs[tried], paces) * steps
    return seconds.tolist()


def _trial(item: Item[Group], folder: Path) -> tuple[float, float]:
    """Seconds that a group takes to begin, and those of each step."""
    # One step comes before the two that are compared: what is computed once per setting belongs to the beginning.
    start, short, long = (_seconds(item, folder, steps) for steps in (1, SHORT, LONG))
    return start, max(0.0, long - short) / (LONG - SHORT)


def _seconds(item: Item[Group], folder: Path, steps: int) -> float:
    group = item.argument
    training = dataclasses.replace(group.settings.training, steps=steps, stage_steps=0)
    settings = dataclasses.replace(group.settings, training=training)
    began = time.perf_counter()
    train_group(dataclasses.replace(group, settings=settings, folder=folder / f"{item.digest}-{steps}"))
    return time.perf_counter() - began


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    sweep: Annotated[Path | None, POSITIONAL] = None
    """SWEEP.toml; can be left out with --resume."""

    out: Path
    """The sweep's folder, which must be given; new or empty, unless --resume is given."""

    resume: bool = False
    """Go on with the sweep in --out."""

    dry_run: bool = False
    """Print how many runs there are and about how long they take, from a short trial; write nothing. With --resume,
    only what is not yet finished counts."""

    engine: Literal["local", "ray"] = "local"
    """Processes on this machine, or Ray (pip install "topicscope[scale]")."""

    address: str | None = None
    """A Ray cluster, HOST:PORT or auto, instead of a Ray on this machine; --out must be on a disk it shares."""

    workers: int | None = None
    """How many groups of runs are trained at once; by default as many as there are cores."""

    timeout: float | None = None
    """Seconds that runs trained together may take; if they take longer they are tried again, three times in all."""

    measures: tuple[str, ...] = ()
    """What is drawn, instead of the usual ones: loss, validation_loss, bayes_floor, excess_loss, distance_to_optimum,
    excess_over_optimum, share_of_optimum, contrast_value, contrast_embedding, attention_same_word,
    attention_same_topic, attention_different_topic, stage_1_end, stage_1_growth, two_stages, or norm_ and a part of
    the model, such as norm_value."""

    quiet: bool = False
    """Print no progress bar and no messages."""

    json: bool = False
    """Print the table's rows (or the estimate) as JSON on standard output, and nothing else."""


def main(words: list[str]) -> None:
    """Parse, run, print where the table is."""
    check_out_is_given(words, "sweep")
    options = parse(Options, words, command="sweep", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    scale.check_engine(options.engine, address=options.address, workers=options.workers, timeout=options.timeout)
    asked = load_sweep(options.sweep or _stored(options))
    if options.dry_run:
        _print_estimate(asked, options)
        return
    with progress_bar("training", quiet=options.quiet) as report:
        result = sweep(asked, **keywords(options, without=("dry_run", "sweep")), report=report)
    if options.json:
        print_json(result.rows)
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


def _print_estimate(asked: Sweep, options: Options) -> None:
    def print_count(count: Estimate) -> None:
        finished = f", {count.finished} of them finished" if count.finished else ""
        runs = f"{count.runs} runs: {count.combinations} combinations, trained in {count.groups} groups{finished}."
        done = count.finished == count.groups
        console().print(f"{runs} Nothing is left to train." if done else runs)
        if not options.quiet and not done:
            console(to_errors=True).print("timing a short trial …")

    tell: dict[str, Any] = {} if options.json else {"counted": print_count}
    workers = options.workers or scale.available_cores()
    found = estimate_sweep(asked, options.out, resume=options.resume, workers=workers, **tell)
    if options.json:
        print_json(dataclasses.asdict(found))
    elif found.finished < found.groups:
        wall, computing = _duration(found.wall_seconds), _duration(found.compute_seconds)
        console().print(
            f"About {wall} with {found.workers} workers ({computing} of computing), estimated from a short trial; "
            "starting them, figures and the page come on top."
        )


def _print_result(result: SweepResult) -> None:
    """One row per combination: means over its seeds."""
    settings = [name for name in result.rows[0] if "." in name]
    by_combination: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for row in result.rows:
        by_combination.setdefault(tuple(row[name] for name in settings), []).append(row)
    seeds = len({row["seed"] for row in result.rows})
    means = "" if seeds == 1 else f", mean ± half of the 95 % interval over {seeds} seeds"
    console().print(f"{len(result.rows)} runs: {len(by_combination)} combinations{means}")
    table = Table(box=SIMPLE)
    printed = [name for name in PRINTED if any(row[name] is not None for row in result.rows)]
    for name in [*settings, *printed]:
        # With spaces a narrow terminal breaks the heading instead of cutting it.
        table.add_column(name.rpartition(".")[2].replace("_", " "), justify="right")
    for values, rows in list(by_combination.items())[:MOST_ROWS]:
        table.add_row(*map(brief, values), *(_printed_cell(rows, name) for name in printed))
    console().print(table)
    if len(by_combination) > MOST_ROWS:
        console().print(f"… and {len(by_combination) - MOST_ROWS} more combinations.")
    if diverged := sum(row["diverged"] for row in result.rows):
        console().print(f"{diverged} of the runs diverged: they have no measures.")
    console().print(f"{result.out / 'sweep.csv'}: all columns; {len(result.figures)} figure files beside it.")
    console().print(f"{result.out / 'report.html'}: open it in any browser.", soft_wrap=True)


def _printed_cell(rows: Sequence[dict[str, Any]], measure: str) -> str:
    from topicscope.reporting.figures.sweep import over_seeds

    found = over_seeds(rows, measure)
    if found is None:
        return "–"
    half = found.high - found.value
    return readable(found.value) + (f" ± {readable(half, 1)}" if math.isfinite(half) else "")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
