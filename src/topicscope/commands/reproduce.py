"""``topicscope reproduce``: run the paper's claims, cheapest first, and write verdicts and figures as they come.

What is finished is kept in the folder (``work/``, named by content): the same command goes on where it was stopped.
"""

import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from topicscope import scale
from topicscope.commands.clock import Clock
from topicscope.commands.results_folder import ResultsFolder, Row
from topicscope.commands.results_page import keep_film, write_page
from topicscope.paper.claims import PRESETS, Claim, Drawing, Preset, corrected_verdicts, row
from topicscope.paper.needs import Need
from topicscope.paper.registry import Registry, registry
from topicscope.paper.work import Measured, Run, claim_item, compute_need, drawing_item, need_item
from topicscope.settings.checks import check_at_least, check_one_of, refuse

# Seeds of one ``seed`` are shared with no other.
MOST_SEEDS = 1_000


@dataclass(frozen=True)
class Progress:
    """A claim was finished."""

    done: int
    total: int
    row: Row
    seconds_left: float | None
    """None until a first piece of work is finished, and when none is left."""


@dataclass(frozen=True)
class Reproduction:
    """What came out: a row of claims.json for each claim asked for, and the figures."""

    rows: list[Row]
    figures: list[Path]
    out: Path = Path()

    def _repr_html_(self) -> str:
        from topicscope.report.notebook import claims_html

        return claims_html(self.rows, str(self.out))

    @property
    def failed(self) -> list[str]:
        """Claims that fail."""
        return [row["id"] for row in self.rows if row["verdict"] == "fails"]


def list_claims(*, preset: str = "quick", only: Sequence[str] = (), models: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What would be run: id, source, statement, expected and rule of each claim."""
    check_one_of("--preset", preset, tuple(PRESETS))
    shown = ("id", "source", "statement", "expected", "unit", "rule", "ours", "figure")
    claims = registry(replace(PRESETS[preset], models=tuple(models))).select(tuple(only))
    rows = [row(claim, None, "not run") for claim in claims]
    return [{name: each[name] for name in shown} for each in rows]


def reproduce(
    out: Path,
    *,
    preset: str = "quick",
    only: Sequence[str] = (),
    seeds: int | None = None,
    seed: int = 0,
    models: Sequence[str] = (),
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Run the claims of a preset (or those named in ``only``) into a folder, and return their rows.

    Finished claims and work found in the folder are not computed again; a folder with other settings is refused.
    ``workers``, ``engine``, ``address`` and ``timeout`` (of one experiment with all its seeds, or other work that
    claims need) are those of ``scale.completed``; no result depends on them.
    """
    check_one_of("--preset", preset, tuple(PRESETS))
    scale.check_engine(engine, address=address, workers=workers, timeout=timeout)
    check_at_least("--seed", seed, 0)
    count = PRESETS[preset].seeds if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise refuse("--seeds", count, f"give a number from 1 to {MOST_SEEDS}")
    everything = registry(Preset(preset, count, tuple(models)))
    selected = everything.select(tuple(only))
    folder = ResultsFolder(out)
    asked = {"preset": preset, "seeds": count, "seed": seed, "models": list(models)}
    # Linear algebra on one thread: the last bits of a number depend on how many there are, and workers need the cores.
    with folder.opened(asked), threadpool_limits(1):
        numbers = tuple(range(seed * MOST_SEEDS, seed * MOST_SEEDS + count))
        run = _Reproducing(folder, everything, selected, numbers, report or (lambda progress: None))
        run.recall()
        run.take_what_can_be()
        run.work(engine=engine, workers=workers, address=address, timeout=timeout)
        rows = run.rows(selected)
        write_page(folder, rows)
        return Reproduction(rows, run.figures(), out)


class _Reproducing:
    """The state between claims: what is measured, worked out and drawn so far."""

    def __init__(
        self,
        folder: ResultsFolder,
        everything: Registry,
        selected: Sequence[Claim],
        seeds: tuple[int, ...],
        report: Callable[[Progress], None],
    ) -> None:
        self.folder, self.everything, self.selected, self.seeds = folder, everything, selected, seeds
        self.report = report
        self.measured: dict[str, Measured] = {}
        self.results: dict[str, Any] = {}
        self.pending = sorted(selected, key=lambda claim: claim.cost)
        self.undrawn: list[Drawing] = []

    def recall(self) -> None:
        """Take up what was measured before, claims that are not asked for now included; pass by what cannot be run."""
        for claim in self.everything.claims:
            content = scale.read_result(claim_item(claim, self.seeds).path(self.folder.work / "claims"))
            if content is not None and not claim.unavailable:
                self.measured[claim.id] = Measured.restore(content)
        done = [claim for claim in self.pending if self._known(claim)]
        self.pending = [claim for claim in self.pending if not self._known(claim)]
        self.undrawn = [drawing for drawing in self._drawings() if not self._drawn(drawing)]
        for place, claim in enumerate(done, start=1):
            self.report(Progress(place, len(self.selected), self._row(claim), None))
        self._write()

    def take_what_can_be(self, seconds_left: float | None = None) -> None:
        """Measure and draw all for which everything needed is there: claims first, they are what is waited for."""
        for claim in [claim for claim in self.pending if self._ready(claim)]:
            self._measure(claim, seconds_left)
        for drawing in [drawing for drawing in self.undrawn if self._ready(drawing)]:
            self._draw(drawing)

    def work(self, *, workers: int | None, **where: Any) -> None:
        """Do what is missing, cheapest claims first, and go on with each claim as soon as it can be.

        Without a number of workers, the engine uses what it finds.
        """
        items, names = self._items()
        costs = {place: item.argument[0].cost for place, item in enumerate(items) if not self._there(item)}
        clock = Clock(costs, workers or scale.available_cores())
        for place, content in scale.completed(compute_need, items, folder=self._stored, workers=workers, **where):
            result = items[place].argument[0].restore(content)
            self.results |= dict.fromkeys(names[items[place].digest], result)
            keep_film(self.folder, result)
            clock.finished(place)
            self.take_what_can_be(clock.seconds_left)
            self._forget()

    def rows(self, claims: Sequence[Claim]) -> list[Row]:
        """Rows of what is known of these claims; corrected for all that is measured in the folder."""
        measured = [claim for claim in self.everything.claims if claim.id in self.measured]
        pairs = [(claim.rule, self.measured[claim.id].measurement) for claim in measured]
        corrected = dict(zip([claim.id for claim in measured], corrected_verdicts(pairs), strict=True))
        rows = []
        for claim in claims:
            if found := self.measured.get(claim.id):
                verdict, count = corrected[claim.id], len(self.seeds)
                rows.append(row(claim, found.measurement, verdict, seconds=found.seconds, seeds=count))
            elif claim.unavailable and claim in self.selected:
                rows.append(row(claim, None, "not run"))
        return rows

    def figures(self) -> list[Path]:
        """The files of all figures that belong to the selected claims."""
        return [path for drawing in self._named_drawings() for path in self._files(drawing) if path.exists()]

    @property
    def _stored(self) -> Path:
        return self.folder.work / "needs"

    def _known(self, claim: Claim) -> bool:
        return claim.id in self.measured or bool(claim.unavailable)

    def _there(self, item: scale.Item[Any]) -> bool:
        return item.path(self._stored).exists()

    def _named_drawings(self) -> list[Drawing]:
        """Those that show a selected claim."""
        names = {claim.figure for claim in self.selected}
        return [drawing for drawing in self.everything.drawings if drawing.name in names]

    def _drawings(self) -> list[Drawing]:
        """Figures to draw: all of whose claims are asked for, or for which nothing more has to be done."""
        chosen = {claim.id for claim in self.selected}
        incomplete = {claim.figure for claim in self.everything.claims if claim.id not in chosen}
        coming = {need_item(need, self.seeds).digest for claim in self.pending for need in claim.needs}

        def free(need: Need) -> bool:
            item = need_item(need, self.seeds)
            return item.digest in coming or self._there(item)

        return [each for each in self._named_drawings() if each.name not in incomplete or all(map(free, each.needs))]

    def _items(self) -> tuple[list[scale.Item[Run]], dict[str, list[str]]]:
        """What must be done, in the order of claims, equal work once; and the names that each goes by."""
        items: dict[str, scale.Item[Run]] = {}
        names: dict[str, list[str]] = {}
        for need in self._wanted():
            item = need_item(need, self.seeds)
            items.setdefault(item.digest, item)
            names.setdefault(item.digest, []).append(need.name)
        return list(items.values()), names

    def _wanted(self) -> list[Need]:
        needs = [claim.needs for claim in self.pending] + [drawing.needs for drawing in self.undrawn]
        return list(itertools.chain(*needs))

    def _forget(self) -> None:
        """Let go of what no claim or drawing waits for: twenty seeds of all experiments would fill the memory."""
        wanted = {need.name for need in self._wanted()}
        self.results = {name: result for name, result in self.results.items() if name in wanted}

    def _ready(self, asked: Claim | Drawing) -> bool:
        return all(need.name in self.results for need in asked.needs)

    def _measure(self, claim: Claim, seconds_left: float | None) -> None:
        began = time.perf_counter()
        results = {need.name: self.results[need.name] for need in claim.needs}
        measurement = claim.measure(results)
        seconds = time.perf_counter() - began + sum(getattr(each, "seconds", 0.0) for each in results.values())
        self.measured[claim.id] = Measured(measurement, seconds)
        path = claim_item(claim, self.seeds).path(self.folder.work / "claims")
        path.parent.mkdir(parents=True, exist_ok=True)
        scale.write_result(path, self.measured[claim.id].dump())
        self.pending.remove(claim)
        self._write()
        done = len(self.selected) - len(self.pending)
        self.report(Progress(done, len(self.selected), self._row(claim), seconds_left))

    def _draw(self, drawing: Drawing) -> None:
        from topicscope.report.figures import save_figure

        figure = drawing.draw({need.name: self.results[need.name] for need in drawing.needs})
        save_figure(figure, self.folder.figures / drawing.name)
        path = drawing_item(drawing, self.seeds).path(self.folder.work / "figures")
        path.parent.mkdir(parents=True, exist_ok=True)
        scale.write_result(path, json.dumps([file.name for file in self._files(drawing)]).encode())
        self.undrawn.remove(drawing)

    def _drawn(self, drawing: Drawing) -> bool:
        record = scale.read_result(drawing_item(drawing, self.seeds).path(self.folder.work / "figures"))
        return record is not None and all(path.exists() for path in self._files(drawing))

    def _files(self, drawing: Drawing) -> list[Path]:
        return [self.folder.figures / f"{drawing.name}.{kind}" for kind in ("png", "svg", "csv")]

    def _row(self, claim: Claim) -> Row:
        return self.rows([claim])[0]

    def _write(self) -> None:
        self.folder.write_claims(self.rows(self.everything.claims))
        self.folder.write_progress(len(self.selected), len(self.selected) - len(self.pending))
