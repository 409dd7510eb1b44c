"""``topicscope reproduce``: run the paper's claims, cheapest first, and write verdicts and figures as they come.

What is finished is kept in the folder (``work/``, named by content): the same command goes on where it was stopped.
"""

import csv
import heapq
import io
import json
import operator
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text
from safetensors.numpy import save
from threadpoolctl import threadpool_limits

from topicscope import scale
from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import call, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json
from topicscope.errors import InputError, check_at_least, check_one_of, refuse
from topicscope.files import Row, write_atomically
from topicscope.paper.claim import (
    MEASURING,
    PRESETS,
    Claim,
    Drawing,
    Measurement,
    Need,
    NeedItem,
    Preset,
    Seeds,
    corrected_verdicts,
    measured,
    need_item,
    row,
)
from topicscope.paper.figures6_9 import write_landscapes
from topicscope.paper.registry import Registry, registry
from topicscope.probing.settings import check_names
from topicscope.records import read_reproduce_settings
from topicscope.reporting.rounding import claim_text

# Seeds of one ``seed`` are shared with no other.
MOST_SEEDS = 1_000
# Claims about the loss over attention's weights have figures of these names.
LANDSCAPES = ("figure6", "figure7", "figure8", "figure9")
# Whose a claim is, and why one does not hold, in words.
KINDS = {
    "paper": "the paper's",
    "elsewhere": "the paper's, on another model or corpus",
    "ours": "ours",
    "check": "checks, not counted",
}
CAUSES = {
    "error": "an error in the paper",
    "wording": "a matter of wording",
    "settings": "a matter of settings",
    "power": "too few runs to tell",
    "unknown": "not explained",
}
COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow", "not run": "dim"}
DESCRIPTION = """Run the paper's claims: theorems exactly, experiments with several seeds. Each gets a verdict by a rule
fixed beforehand. Writes claims.json, claims.csv and figures; run again with the same --out, it does what is missing.

examples:
  topicscope reproduce --out results
  topicscope reproduce --out results --only theorem2 figure2/squared-adam
  topicscope reproduce --preset paper --out results-paper
  topicscope reproduce --list
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("results")
    """Where claims, figures and finished work go."""

    preset: Literal["quick", "paper"] = "quick"
    """"quick": 10 seeds, minutes. "paper": 20 seeds, fuller grids, about an hour."""

    only: tuple[str, ...] = ()
    """Run only these claims: ids, beginnings of ids, or sources such as figure2."""

    list: bool = False
    """Print the claims and run nothing."""

    seeds: int | None = None
    """Runs of each experiment, instead of the preset's number."""

    seed: int = 0
    """Another seed gives other documents, masks and initial weights to every run."""

    models: tuple[str, ...] = ()
    """Language models that claims about natural text probe, instead of their own choice."""

    workers: int | None = None
    """Processes to work in; as many as there are cores if not given. Results do not depend on it."""

    engine: str = "local"
    """Where work is done: "local" for processes on this machine, "ray" for a Ray cluster (topicscope[scale])."""

    address: str | None = None
    """Of a running Ray cluster, with --engine ray; one is started on this machine if not given."""

    timeout: float | None = None
    """Seconds that one experiment, all its seeds together, may take; over it it is tried again, three times in all."""

    strict: bool = False
    """Exit with 1 if a claim fails."""

    quiet: bool = False
    """No line for each finished claim."""

    json: bool = False
    """Print the rows of claims.json on standard output, and nothing else."""


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
        from topicscope.reporting.notebook import claims_html

        return claims_html(self.rows, str(self.out))

    @property
    def failed(self) -> list[str]:
        """Claims that fail."""
        return [row["id"] for row in self.rows if row["verdict"] == "fails"]


def list_claims(*, preset: str = "quick", only: Sequence[str] = (), models: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What would be run: id, source, statement, expected and rule of each claim."""
    check_one_of("--preset", preset, tuple(PRESETS))
    shown = ("id", "source", "statement", "expected", "unit", "rule", "kind", "figure")
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
    if models:
        check_names(models, ())
    everything = registry(Preset(preset, count, tuple(models)))
    selected = everything.select(tuple(only))
    asked = {"preset": preset, "seeds": count, "seed": seed, "models": list(models)}
    # Refused before anything is made; asked again with the lock, as another command may have begun here meanwhile.
    _check_folder(out, asked)
    # Linear algebra on one thread: the last bits of a number depend on how many there are, and workers need the cores.
    with locked(out), threadpool_limits(1):
        _check_folder(out, asked)
        (out / "figures").mkdir(exist_ok=True)
        write_atomically(out / "settings.json", json.dumps(asked, indent=2) + "\n")
        numbers = tuple(range(seed * MOST_SEEDS, seed * MOST_SEEDS + count))
        run = _Reproducing(out, everything, selected, numbers, report or (lambda progress: None))
        run.work(engine=engine, workers=workers, address=address, timeout=timeout)
        # The page has sliders for landscapes, where claims are about them.
        about_landscapes = any(claim.figure.startswith(LANDSCAPES) for claim in selected)
        if about_landscapes and not (out / "landscapes.json").exists():
            write_landscapes(out)
        from topicscope.reporting.page import write_report

        write_report([out], out / "report.html")
        drawn = [path for drawing in run.drawings for path in run.files(drawing) if path.exists()]
        return Reproduction(run.rows(selected), drawn, out)


def _check_folder(out: Path, asked: dict[str, Any]) -> None:
    """Refuse a folder that holds something else, or claims of other settings."""
    if not is_begun(out, "settings.json", what="claims", command="reproduce"):
        return
    stored = read_reproduce_settings(out / "settings.json")

    def given(value: Any) -> str:
        return (" ".join(value) or "not given") if isinstance(value, list) else str(value)

    found = [
        f"--{name} {given(stored.get(name))} there, {given(value)} here"
        for name, value in asked.items()
        if stored.get(name) != value
    ]
    if found:
        raise InputError(
            f"--out {out} holds claims of other settings ({'; '.join(found)}): give those, or another --out."
        )


class _Reproducing:
    """The state between claims: what is measured, worked out and drawn so far.

    In ``work`` is kept, named by content, what claims need, each claim's measurement, and which figures are drawn.
    claims.json, claims.csv and progress.json follow from the measurements.
    """

    def __init__(
        self,
        out: Path,
        everything: Registry,
        selected: Sequence[Claim],
        seeds: Seeds,
        report: Callable[[Progress], None],
    ) -> None:
        self.out, self.everything, self.selected, self.seeds, self.report = out, everything, selected, seeds, report
        self.items: dict[str, NeedItem] = {}
        self.results: dict[str, Any] = {}
        # What was measured before is taken up, claims that are not asked for now included.
        before = everything.claims if (out / "work" / "claims").is_dir() else ()
        kept = {claim.id: scale.read_result(self._path(claim)) for claim in before if not claim.unavailable}
        self.measured = {name: Measurement.restore(content) for name, content in kept.items() if content is not None}
        cheapest_first = sorted(selected, key=lambda claim: claim.cost)
        self.pending = [claim for claim in cheapest_first if claim.id not in self.measured and not claim.unavailable]
        known = [claim for claim in cheapest_first if claim not in self.pending]
        for place, claim in enumerate(known, start=1):
            report(Progress(place, len(selected), self.rows([claim])[0], None))
        shown = {claim.figure for claim in selected}
        self.drawings = [drawing for drawing in everything.drawings if drawing.name in shown]
        # A figure is drawn if all of its claims are asked for, or if nothing more has to be done for it.
        incomplete = {claim.figure for claim in everything.claims if claim not in selected}
        coming = {self._item(need).digest for claim in self.pending for need in claim.needs}
        self.undrawn = [
            drawing
            for drawing in self.drawings
            if drawing.name not in incomplete
            or all(self._item(need).digest in coming or self._there(need) for need in drawing.needs)
            if scale.read_result(self._path(drawing)) is None or not all(path.exists() for path in self.files(drawing))
        ]

    def work(self, *, workers: int | None, **where: Any) -> None:
        """Do what is missing, cheapest claims first and equal work once; go on with each claim as soon as it can be.

        Without a number of workers, the engine uses what it finds.
        """
        self._write()
        self._measure_and_draw()
        alike: dict[str, list[Need]] = {}
        for need in self._wanted():
            alike.setdefault(self._item(need).digest, []).append(need)
        groups = list(alike.values())
        clock = Clock(
            {place: need.cost for place, (need, *_) in enumerate(groups) if not self._there(need)},
            workers or scale.available_cores(),
        )
        items = [self._item(need) for need, *_ in groups]
        for place, content in scale.completed(
            operator.call, items, folder=self.out / "work" / "needs", workers=workers, **where
        ):
            result = groups[place][0].restore(content)
            self.results |= {need.name: result for need in groups[place]}
            if film := getattr(result, "film", None):
                # An experiment's matrices over training, where the page finds them.
                name = json.loads(film["about"].tobytes())["name"]
                path = self.out / "runs" / name / "trained.safetensors"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, save(dict(film)))
            clock.finished(place)
            self._measure_and_draw(clock.seconds_left)
            # Twenty seeds of all experiments would fill the memory: let go of what no claim or drawing waits for.
            wanted = {need.name for need in self._wanted()}
            self.results = {name: result for name, result in self.results.items() if name in wanted}

    def rows(self, claims: Sequence[Claim]) -> list[Row]:
        """Rows of what is known of these claims; corrected for all that is measured in the folder."""
        measured = [claim for claim in self.everything.claims if claim.id in self.measured]
        pairs = [(claim.source, claim.rule, self.measured[claim.id]) for claim in measured]
        corrected = dict(zip([claim.id for claim in measured], corrected_verdicts(pairs), strict=True))
        rows = []
        for claim in claims:
            if found := self.measured.get(claim.id):
                rows.append(row(claim, found, corrected[claim.id], seeds=len(self.seeds)))
            elif claim.unavailable and claim in self.selected:
                rows.append(row(claim, None, "not run"))
        return rows

    def files(self, drawing: Drawing) -> list[Path]:
        """A figure's files."""
        return [self.out / "figures" / f"{drawing.name}.{kind}" for kind in ("png", "svg", "csv")]

    def _measure_and_draw(self, seconds_left: float | None = None) -> None:
        """Measure and draw all for which everything needed is there: claims first, they are what is waited for."""
        try:
            for claim in [claim for claim in self.pending if self._ready(claim)]:
                results = {need.name: self.results[need.name] for need in claim.needs}
                self.measured[claim.id] = measured(claim, results)
                scale.write_result(self._path(claim), self.measured[claim.id].dump())
                self.pending.remove(claim)
                done = len(self.selected) - len(self.pending)
                self.report(Progress(done, len(self.selected), self.rows([claim])[0], seconds_left))
        finally:
            # Once for all of them, and also when one is interrupted.
            self._write()
        for drawing in [drawing for drawing in self.undrawn if self._ready(drawing)]:
            from topicscope.reporting.figures import save_figure

            drawn = drawing.draw({need.name: self.results[need.name] for need in drawing.needs})
            save_figure(drawn, self.out / "figures" / drawing.name)
            names = [file.name for file in self.files(drawing)]
            scale.write_result(self._path(drawing), json.dumps(names).encode())
            self.undrawn.remove(drawing)

    def _write(self) -> None:
        """Claims that are known, as JSON and as a table; and how many are done, for the page of a stopped run."""
        rows = self.rows(self.everything.claims)
        text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(self.out / "claims.json", text + "\n")
        table = io.StringIO()
        writer = csv.DictWriter(table, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {
                name: json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
                for name, value in row.items()
            }
            for row in rows
        )
        write_atomically(self.out / "claims.csv", table.getvalue())
        progress = {"asked": len(self.selected), "measured": len(self.selected) - len(self.pending)}
        write_atomically(self.out / "progress.json", json.dumps(progress) + "\n")

    def _item(self, need: Need) -> NeedItem:
        if need.name not in self.items:
            self.items[need.name] = need_item(need, self.seeds)
        return self.items[need.name]

    def _there(self, need: Need) -> bool:
        return self._item(need).path(self.out / "work" / "needs").exists()

    def _path(self, asked: Claim | Drawing) -> Path:
        """Where it is kept that this claim was measured, or this figure drawn: that depends on needs and on code."""
        kind, name = ("claim", asked.id) if isinstance(asked, Claim) else ("drawing", asked.name)
        needs = [self._item(need).digest for need in asked.needs]
        key = {kind: name, "needs": needs, "code": scale.code_digest(MEASURING)}
        folder = self.out / "work" / ("claims" if isinstance(asked, Claim) else "figures")
        return scale.Item(name, key, asked, suffix=".json").path(folder)

    def _wanted(self) -> list[Need]:
        waiting: list[Claim | Drawing] = [*self.pending, *self.undrawn]
        return [need for asked in waiting for need in asked.needs]

    def _ready(self, asked: Claim | Drawing) -> bool:
        return all(need.name in self.results for need in asked.needs)


class Clock:
    """Estimates the time until all work is finished.

    Workers take up work in order, each a new piece when it has finished one. Costs need only be right relative to each
    other: what a unit of cost takes is learnt on the way.
    """

    def __init__(self, costs: Mapping[int, float], workers: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._costs, self._now = dict(costs), now
        self._waiting = list(costs)
        self._began: dict[int, float] = {}
        self._spent = self._done = 0.0
        for _ in range(workers):
            self._take_up()

    def finished(self, place: int) -> None:
        """One piece less; those that were there before do not count."""
        if place in self._costs:
            began = self._began.pop(place, None)
            if began is None:
                self._waiting.remove(place)
                return
            self._spent += self._now() - began
            self._done += self._costs[place]
            self._take_up()

    @property
    def seconds_left(self) -> float | None:
        """None until a first piece is finished, and when nothing is left."""
        if not self._done or not self._began:
            return None
        rate, now = self._spent / self._done, self._now()
        # When each worker is free, as far as one can tell; a piece that takes longer than thought may end any moment.
        free = [max(0.0, rate * self._costs[place] - (now - began)) for place, began in self._began.items()]
        heapq.heapify(free)
        for place in self._waiting:
            heapq.heapreplace(free, free[0] + rate * self._costs[place])
        return max(free)

    def _take_up(self) -> None:
        if self._waiting:
            self._began[self._waiting.pop(0)] = self._now()


def main(words: list[str]) -> int:
    """Parse, run, print the table; 1 if --strict and a claim fails."""
    options = parse(Options, words, command="reproduce", description=DESCRIPTION)
    # Such as after an empty variable of a shell, which must not start everything.
    if "--only" in words and not options.only:
        raise InputError("--only has no claim: give an id, its beginning or a source, or leave it out to run all.")
    log_to_terminal(quiet=True)
    # Before NumPy is loaded: this process measures beside the workers, and must not take their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    if options.list:
        claims = list_claims(preset=options.preset, only=options.only, models=options.models)
        print_json(claims) if options.json else _print_list(claims)
        return 0
    report = None if options.quiet else _print_line
    result = call(reproduce, options, without=("list", "strict"), report=report)
    if options.json:
        print_json(result.rows)
    else:
        _print_table(result.rows)
        _print_diagnoses(result.rows)
        _print_sources(result.rows)
        console().print(
            f"written: {options.out}/report.html, claims.json, claims.csv, figures/ ({len(result.figures)} files)"
        )
    return 1 if options.strict and result.failed else 0


def _print_line(progress: Progress) -> None:
    row = progress.row
    left = ""
    if (seconds := progress.seconds_left) is not None:
        left = f"   {seconds / 60:.0f} min left" if seconds >= 90 else f"   {seconds:.0f} s left"
    line = Text(f"{progress.done:>4}/{progress.total}  ")
    line.append(f"{row['verdict']:<10}", style=COLOURS[row["verdict"]])
    line.append(f"{row['id']:<44} {claim_text(row)}{left}")
    console(to_errors=True).print(line, no_wrap=True, overflow="ellipsis")


def _print_table(rows: list[Row]) -> None:
    table = Table(title="The paper's claims, and ours beside them")
    table.add_column("claim", overflow="fold")
    for name in ("verdict", "measured [95 % interval]", "expected"):
        table.add_column(name, no_wrap=True)
    for each in rows:
        # With a star if correcting for the number of claims leaves it undecided.
        star = "" if each["verdict_corrected"] == each["verdict"] else "*"
        verdict = Text(each["verdict"] + star, style=COLOURS[each["verdict"]])
        expected = each["rule"] if isinstance(each["expected"], str) else f"{each['expected']:.5g}"
        table.add_row(_name(each), verdict, claim_text(each), expected)
    console().print(table)
    console().print("\n".join(_summary(rows)), highlight=False)


def _summary(rows: list[Row]) -> list[str]:
    """How many claims of each kind have which verdict, and what that depends on."""
    lines = []
    for kind, words in KINDS.items():
        some = [row for row in rows if row["kind"] == kind]
        if some:
            lines.append(f"{words}: {_counts(some, 'verdict')}.")
    if any(row["verdict_corrected"] != row["verdict"] for row in rows):
        counted = [row for row in rows if row["kind"] != "check"]
        lines.append(
            f"* undecided after correction for the number of claims within a source; then in all, checks "
            f"apart: {_counts(counted, 'verdict_corrected')}."
        )
    chosen = [row for row in rows if row["sensitivity"]]
    if chosen:
        turning = [row for row in chosen if set(row["sensitivity"].values()) != {row["verdict"]}]
        lines.append(
            f"{len(chosen)} verdicts rest on a threshold that was chosen here; a third or three times of it turns "
            f"{len(turning)} of them (claims.json has which)."
        )
    return lines


def _counts(rows: list[Row], kind: str) -> str:
    """How many claims have each verdict, in words."""
    counts = {verdict: sum(row[kind] == verdict for row in rows) for verdict in COLOURS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _print_sources(rows: list[Row]) -> None:
    """One line per source, with a column for each kind of claim."""
    kinds = [kind for kind in KINDS if any(row["kind"] == kind for row in rows)]
    table = Table("source", *(KINDS[kind] for kind in kinds), title="By source")
    for source in dict.fromkeys(each["source"] for each in rows):
        chosen = [[row for row in rows if (row["source"], row["kind"]) == (source, kind)] for kind in kinds]
        table.add_row(source, *(_counts(some, "verdict") for some in chosen))
    console().print(table)


def _print_diagnoses(rows: list[Row]) -> None:
    """Why each claim that fails or is undecided does so."""
    for each in rows:
        if each["verdict"] in ("fails", "undecided"):
            found = each["diagnosis"]
            parts = [f"{_name(each)} {each['verdict']} ({CAUSES[found['cause']]}). {found['explanation']}"]
            parts += [f"It holds {found['holds']}."] if found["holds"] else []
            parts += [f"See {', '.join(found['see'])}."] if found["see"] else []
            console().print(Text(" ".join(parts)))


def _print_list(claims: list[Row]) -> None:
    """Three lines per claim, and none of them broken: statements are long, and lines are for copying and searching."""
    for claim in claims:
        rule = f"{claim['unit']} {claim['rule']}".strip()
        console().print(Text(f"{_name(claim)}   {claim['source']}", style="bold"), soft_wrap=True)
        console().print(Text(f"    {claim['statement']}\n    holds if {rule}"), soft_wrap=True)
    counts = {words: sum(claim["kind"] == kind for claim in claims) for kind, words in KINDS.items()}
    console().print(f"{len(claims)} claims. " + ", ".join(f"{words}: {count}" for words, count in counts.items()) + ".")


def _name(row: Row) -> str:
    """A claim's id, and whose it is unless it is the paper's own."""
    return row["id"] if row["kind"] == "paper" else f"{row['id']} ({row['kind']})"
