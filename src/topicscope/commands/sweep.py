"""``topicscope sweep``: many runs into one folder, one table and figures.

What is finished is kept (``work/``, named by content; ``runs/``): with ``resume`` the same sweep goes on where it was
stopped, on either engine and any number of workers, and ends with the same table.
"""

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topicscope import scale
from topicscope.commands.results_folder import locked
from topicscope.commands.sweep_runs import (
    MEASURES,
    Row,
    forget_damaged,
    found,
    group_items,
    train_group,
    work_folder,
)
from topicscope.commands.sweep_table import table_rows, write_table
from topicscope.errors import InputError
from topicscope.files import write_atomically
from topicscope.report.page import write_report
from topicscope.settings import EXTRAS, PARTS
from topicscope.settings.sweep import Sweep
from topicscope.settings.sweep_toml import dump_sweep, load_sweep, sweep_differences
from topicscope.synthetic.topics import TopicModel

logger = logging.getLogger(__name__)

# Drawn unless others are asked for; those that say nothing in a sweep are left out.
DRAWN = ("validation_loss", "excess_loss", "contrast_value", "contrast_embedding", "attention_same_topic")

# Differences between two sweeps that are named; of more, how many there are.
MOST_NAMES = 3


@dataclass(frozen=True)
class SweepResult:
    """What came out: the table's rows, and the figures."""

    out: Path
    rows: list[Row]
    figures: list[Path]


def sweep(
    sweep: Sweep | Path,
    out: Path,
    *,
    resume: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    measures: Sequence[str] = (),
    report: scale.Report | None = None,
) -> SweepResult:
    """Train every combination with every seed into ``out``, and write sweep.csv, sweep.parquet and figures.

    ``workers``, ``engine``, ``address`` and ``timeout`` (of runs trained together) are those of ``scale.completed``;
    the table depends on none of them.
    """
    asked = load_sweep(sweep) if isinstance(sweep, Path) else sweep
    out = out.resolve()
    scale.check_engine(engine, address=address, workers=workers, timeout=timeout)
    _check_measures(measures)
    check_points(asked)
    # Refused before anything is made; asked again with the lock, as another command may have begun here meanwhile.
    holds_sweep(asked, out, resume=resume)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        if not holds_sweep(asked, out, resume=resume):
            write_atomically(out / "sweep.toml", dump_sweep(asked))
        work = group_items(asked, out)
        for _, item in work:
            if forget_damaged(item, out):
                logger.warning("the runs of %s are damaged: training them again.", item.name)
        # The longest first, so that no worker is left with a long one at the end.
        order = sorted(range(len(work)), key=lambda place: -cost(work[place][1]))
        contents = scale.map_items(
            train_group,
            [work[place][1] for place in order],
            folder=work_folder(out),
            workers=workers,
            engine=engine,
            address=address,
            timeout=timeout,
            report=report,
        )
        by_place = dict(zip(order, contents, strict=True))
        rows = table_rows([(work[place][0].values, found(by_place[place]).rows) for place in range(len(work))])
        write_table(rows, out)
        figures = _draw(asked, rows, _drawable(measures, rows), out)
        write_report([out], out / "report.html")
        return SweepResult(out, rows, figures)


def check_points(sweep: Sweep) -> None:
    """Find what is wrong with any combination before the first is trained."""
    for point in sweep.points():
        point.settings.check_vocabulary(TopicModel.from_settings(point.settings.data).vocabulary)


def cost(item: scale.Item) -> float:  # type: ignore[type-arg]
    """About how much there is to compute, for packing: multiply-adds of all steps of all runs."""
    from topicscope.training.machine import step_size

    settings = item.argument.settings
    vocabulary = TopicModel.from_settings(settings.data).vocabulary
    return float(step_size(settings, vocabulary)) * settings.training.steps * len(item.argument.seeds)


def holds_sweep(sweep: Sweep, out: Path, *, resume: bool) -> bool:
    """Whether the folder holds this sweep already; refuse one that holds anything else, or may not be gone on with."""
    path = out / "sweep.toml"
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: give a folder.")
    if not out.is_dir() or not any(out.iterdir()):
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
        raise InputError(
            f"--out {out} holds another sweep (it differs in {_first(different)}): leave SWEEP.toml out to go "
            "on with it, or choose another --out."
        )
    return True


def _first(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are."""
    more = [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return ", ".join([*names[:MOST_NAMES], *more])


def _check_measures(asked: Sequence[str]) -> None:
    """Before hours of training, not after."""
    norms = [f"norm_{part}" for part in PARTS + EXTRAS]
    for name in asked:
        if name not in (*MEASURES, *norms):
            raise InputError(
                f'--measures "{name}" is not a measure of a sweep: give any of {", ".join([*MEASURES, *norms])}.'
            )


def _drawable(asked: Sequence[str], rows: Sequence[Row]) -> list[str]:
    """Of the measures asked for, or else of the usual ones, those that have numbers."""
    numbers = {name: {row.get(name) for row in rows} - {None} for name in asked or DRAWN}
    # One number for all runs is worth a figure only if somebody asked for it.
    return [name for name, found in numbers.items() if len(found) > (0 if asked else 1)]


def _draw(sweep: Sweep, rows: Sequence[Row], measures: Sequence[str], out: Path) -> list[Path]:
    from topicscope.report.figures import save_figure
    from topicscope.report.sweep import sweep_figures

    _remove_figures(sweep, out / "figures")
    if not measures:
        return []
    (out / "figures").mkdir(exist_ok=True)
    figures = sweep_figures(rows, settings=list(sweep.vary), measures=measures, connected=sweep.method == "grid")
    return [path for name, figure in figures.items() for path in save_figure(figure, out / "figures" / name)]


def _remove_figures(sweep: Sweep, folder: Path) -> None:
    """Figures that an earlier call drew, perhaps of other measures or by older code; all other files stay."""
    names = [f"by-{name}" for name in sweep.vary]
    names += [f"map-{first}-{second}" for first, second in itertools.permutations(sweep.vary, 2)]
    for name in names:
        for kind in ("png", "svg", "csv"):
            (folder / f"{name}.{kind}").unlink(missing_ok=True)
