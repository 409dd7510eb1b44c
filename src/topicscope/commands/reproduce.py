"""``topicscope reproduce``: run the paper's claims, cheapest first, and write verdicts and figures as they come.

What is finished is kept in the folder (``work/``, named by content): the same command goes on where it was stopped.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope import scale
from topicscope.commands.results_folder import ResultsFolder, Row
from topicscope.paper.claims import PRESETS, Claim, Drawing, Preset, corrected_verdicts, row
from topicscope.paper.experiments import Trained
from topicscope.paper.registry import Registry, registry
from topicscope.paper.storage import restore
from topicscope.paper.work import Measured, Run, claim_item, drawing_item, experiment_item, train_item
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
    """None as long as nothing was trained, or nothing is left to train."""


@dataclass(frozen=True)
class Reproduction:
    """What came out: a row of claims.json for each claim asked for, and the figures."""

    rows: list[Row]
    figures: list[Path]

    @property
    def failed(self) -> list[str]:
        """Claims that fail."""
        return [row["id"] for row in self.rows if row["verdict"] == "fails"]


def list_claims(*, preset: str = "quick", only: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What would be run: id, source, statement, expected and rule of each claim."""
    check_one_of("--preset", preset, tuple(PRESETS))
    shown = ("id", "source", "statement", "expected", "unit", "rule", "ours", "figure")
    claims = registry(PRESETS[preset]).select(tuple(only))
    rows = [row(claim, None, "not run") for claim in claims]
    return [{name: each[name] for name in shown} for each in rows]


def reproduce(
    out: Path,
    *,
    preset: str = "quick",
    only: Sequence[str] = (),
    seeds: int | None = None,
    seed: int = 0,
    workers: int | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Run the claims of a preset (or those named in ``only``) into a folder, and return their rows.

    Finished claims and trained experiments found in the folder are not computed again; a folder with other settings
    is refused.
    """
    check_one_of("--preset", preset, tuple(PRESETS))
    check_at_least("--seed", seed, 0)
    count = PRESETS[preset].seeds if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise refuse("--seeds", count, f"give a number from 1 to {MOST_SEEDS}")
    workers = len(os.sched_getaffinity(0)) if workers is None else workers
    check_at_least("--workers", workers, 1)
    everything = registry(Preset(preset, count))
    selected = everything.select(tuple(only))
    folder = ResultsFolder(out)
    folder.open({"preset": preset, "seeds": count, "seed": seed})
    with folder.locked():
        numbers = tuple(range(seed * MOST_SEEDS, seed * MOST_SEEDS + count))
        run = _Reproducing(folder, everything, selected, numbers, report or (lambda progress: None))
        run.recall()
        run.take_what_can_be()
        run.train(workers)
        return Reproduction(run.rows(selected), run.figures())


class _Clock:
    """How long the rest of training takes, if it goes on as so far."""

    def __init__(self, costs: dict[int, float]) -> None:
        self.left, self.done, self.began = dict(costs), 0.0, time.perf_counter()

    def finished(self, place: int) -> None:
        """One item less; those that were there before do not count."""
        self.done += self.left.pop(place, 0.0)

    @property
    def seconds_left(self) -> float | None:
        """None at the beginning and at the end."""
        rest = sum(self.left.values())
        return (time.perf_counter() - self.began) * rest / self.done if self.done and rest else None


class _Reproducing:
    """The state between claims: what is measured, trained and drawn so far."""

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
        self.trained: dict[str, Trained] = {}
        self.pending = sorted(selected, key=lambda claim: claim.cost)
        names = {claim.figure for claim in selected}
        self.drawings = [drawing for drawing in everything.drawings if drawing.name in names]
        self.undrawn = [drawing for drawing in self.drawings if not self._drawn(drawing)]

    def recall(self) -> None:
        """Take up what was measured before, claims that are not asked for now included."""
        for claim in self.everything.claims:
            content = scale.read_result(claim_item(claim, self.seeds).path(self.folder.work / "claims"))
            if content is not None:
                self.measured[claim.id] = Measured.restore(content)
        recalled = [claim for claim in self.pending if claim.id in self.measured]
        self.pending = [claim for claim in self.pending if claim.id not in self.measured]
        for done, claim in enumerate(recalled, start=1):
            self.report(Progress(done, len(self.selected), self._row(claim), None))
        self._write()

    def take_what_can_be(self, seconds_left: float | None = None) -> None:
        """Measure and draw all for which everything needed is trained: claims first, they are what is waited for."""
        for claim in [claim for claim in self.pending if self._ready(claim)]:
            self._measure(claim, seconds_left)
        for drawing in [drawing for drawing in self.undrawn if self._ready(drawing)]:
            self._draw(drawing)

    def train(self, workers: int) -> None:
        """Train what is missing, cheapest claims first, and go on with each claim as soon as it can be."""
        items, names = self._experiments()
        stored = self.folder.work / "trained"
        clock = _Clock(
            {place: item.argument[0].cost for place, item in enumerate(items) if not item.path(stored).exists()}
        )
        for place, content in scale.completed(train_item, items, folder=stored, workers=workers):
            experiment = items[place].argument[0]
            for name in names[items[place].digest]:
                self.trained[name] = restore(content, experiment)
            clock.finished(place)
            self.take_what_can_be(clock.seconds_left)
            self._forget()

    def rows(self, claims: Sequence[Claim]) -> list[Row]:
        """Rows of the measured ones among these claims; corrected for all that is measured in the folder."""
        known = [claim for claim in self.everything.claims if claim.id in self.measured]
        pairs = [(claim.rule, self.measured[claim.id].measurement) for claim in known]
        corrected = dict(zip([claim.id for claim in known], corrected_verdicts(pairs), strict=True))
        return [
            row(claim, found.measurement, corrected[claim.id], seconds=found.seconds, seeds=len(self.seeds))
            for claim in claims
            if (found := self.measured.get(claim.id))
        ]

    def figures(self) -> list[Path]:
        """The files of all figures that belong to the selected claims."""
        return [path for drawing in self.drawings for path in self._files(drawing) if path.exists()]

    def _experiments(self) -> tuple[list[scale.Item[Run]], dict[str, list[str]]]:
        """What must be trained, in the order of claims, equal settings once; and the names that each goes by."""
        items: dict[str, scale.Item[Run]] = {}
        names: dict[str, list[str]] = {}
        needs = [claim.needs for claim in self.pending] + [drawing.needs for drawing in self.undrawn]
        for experiment in itertools.chain(*needs):
            item = experiment_item(experiment, self.seeds)
            items.setdefault(item.digest, item)
            names.setdefault(item.digest, []).append(experiment.name)
        return list(items.values()), names

    def _forget(self) -> None:
        """Let go of what no claim or drawing waits for: twenty seeds of all experiments would fill the memory."""
        needs = [claim.needs for claim in self.pending] + [drawing.needs for drawing in self.undrawn]
        wanted = {experiment.name for experiment in itertools.chain(*needs)}
        self.trained = {name: trained for name, trained in self.trained.items() if name in wanted}

    def _ready(self, asked: Claim | Drawing) -> bool:
        return all(experiment.name in self.trained for experiment in asked.needs)

    def _measure(self, claim: Claim, seconds_left: float | None) -> None:
        began = time.perf_counter()
        measurement = claim.measure({each.name: self.trained[each.name] for each in claim.needs})
        seconds = time.perf_counter() - began + sum(self.trained[each.name].seconds for each in claim.needs)
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

        figure = drawing.draw({each.name: self.trained[each.name] for each in drawing.needs})
        save_figure(figure, self.folder.figures / drawing.name)
        path = drawing_item(drawing, self.seeds).path(self.folder.work / "figures")
        path.parent.mkdir(parents=True, exist_ok=True)
        scale.write_result(path, json.dumps([file.name for file in self._files(drawing)]).encode())
        self.undrawn.remove(drawing)

    def _drawn(self, drawing: Drawing) -> bool:
        record = scale.read_result(drawing_item(drawing, self.seeds).path(self.folder.work / "figures"))
        return record is not None and all(path.exists() for path in self._files(drawing))

    def _files(self, drawing: Drawing) -> list[Path]:
        return [self.folder.figures / f"{drawing.name}.{kind}" for kind in ("png", "svg")]

    def _row(self, claim: Claim) -> Row:
        return self.rows([claim])[0]

    def _write(self) -> None:
        self.folder.write_claims(self.rows(self.everything.claims))
