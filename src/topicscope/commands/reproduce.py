"""``topicscope reproduce``: run the paper's claims, cheapest first, and write verdicts and figures as they come.

What is finished is kept in the folder (``work/``, named by content): the same command goes on where it was stopped.
"""

import heapq
import json
import operator
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from rich.columns import Columns
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text
from safetensors.numpy import save
from threadpoolctl import threadpool_limits

from topicscope import scale
from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json
from topicscope.errors import InputError, check_at_least, check_one_of, listed, path_of, refuse
from topicscope.files import Row, frame_of, table_text, write_atomically
from topicscope.paper import Registry, registry
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
from topicscope.paper.probe_experiment import why_unavailable
from topicscope.probing.settings import check_names
from topicscope.records import read_reproduce_settings
from topicscope.reporting.rounding import claim_text, powers
from topicscope.reporting.verdicts import KINDS, findings, headline, latex, what_does_not_hold

# The most runs of an experiment; up to this number, no two values of ``seed`` share seeds of runs.
MOST_SEEDS = 1_000
# Claims about the loss over attention's weights have figures of these names.
LANDSCAPES = ("figure6", "figure7", "figure8", "figure9")
COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow", "not run": "dim"}
# Seconds of work on short pieces before the longest are begun.
FIRST_SECONDS = 60.0
# Until this many seconds of work are done, the time left follows the costs more than the measured times.
TRUSTED_SECONDS = 30.0
FIRST_PAGE_SECONDS, NEXT_PAGE_SECONDS = 45.0, 120.0
DESCRIPTION = """Run the paper's claims: theorems exactly, experiments with several seeds. Each gets a verdict by a rule
fixed beforehand. The command writes claims.json, claims.csv and figures; run again with the same --out, it does what is
missing.

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
    """How many processes work at once; by default as many as there are cores. Results do not depend on it."""

    engine: str = "local"
    """Where work is done: "local" for processes on this machine, "ray" for a Ray cluster (topicscope[scale])."""

    address: str | None = None
    """The address of a running Ray cluster, with --engine ray; by default one is started on this machine."""

    timeout: float | None = None
    """Seconds that one experiment may take with all its seeds; beyond that it is tried again, three times in all."""

    strict: bool = False
    """Exit with 1 if a claim fails."""

    quiet: bool = False
    """Print no line for each finished claim."""

    json: bool = False
    """Print the rows of claims.json on standard output, and nothing else."""


@dataclass(frozen=True)
class Progress:
    """A claim was finished."""

    done: int
    total: int
    row: Row
    seconds_left: float | None
    """None before work has begun, and when none is left."""

    running: tuple[str, ...] = ()
    """What is worked on now."""


@dataclass(frozen=True)
class Reproduction:
    """The results: a row of claims.json for each claim asked for, and the figures."""

    rows: list[Row]
    figures: list[Path]
    out: Path = Path()

    def to_frame(self) -> Any:
        """The claims as a pandas DataFrame."""
        return frame_of(self.rows)

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
    out: Path | str,
    *,
    preset: str = "quick",
    only: Sequence[str] | str = (),
    seeds: int | None = None,
    seed: int = 0,
    models: Sequence[str] | str = (),
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    report: Callable[[Progress], None] | None = None,
) -> Reproduction:
    """Run the claims of a preset (or those named in ``only``) into a folder, and return their rows.

    Finished claims and work found in the folder are not computed again; a folder with other settings is refused.
    ``workers``, ``engine``, ``address`` and ``timeout`` (for one experiment with all its seeds, or other work that
    claims need) are those of ``scale.completed``; no result depends on them.
    """
    out, only, models = path_of(out, "out"), listed(only, "only"), listed(models, "models")
    check_one_of("--preset", preset, tuple(PRESETS))
    scale.check_engine(engine, address=address, workers=workers, timeout=timeout)
    check_at_least("--seed", seed, 0)
    count = PRESETS[preset].seeds if seeds is None else seeds
    if not 1 <= count <= MOST_SEEDS:
        raise refuse("--seeds", count, f"give a number from 1 to {MOST_SEEDS}")
    if "" in models:
        raise InputError("--models names no model: give a name or a folder, or leave it out for minilm.")
    if models:
        check_names(models, ())
    for model in models:
        if reason := why_unavailable(model):
            raise InputError(reason)
    everything = registry(Preset(preset, count, tuple(models)))
    selected = everything.select(tuple(only))
    asked = {"preset": preset, "seeds": count, "seed": seed, "models": list(models)}
    # Refused before anything is made, and checked again under the lock: another command may have begun here meanwhile.
    _check_folder(out, asked)
    # Linear algebra uses one thread: the last bits of results depend on how many, and workers need the cores.
    from topicscope.reporting.page import write_report

    with locked(out), threadpool_limits(1):
        _check_folder(out, asked)
        # The settings come first: they identify a folder that was begun.
        write_atomically(out / "settings.json", json.dumps(asked, indent=2) + "\n")
        (out / "figures").mkdir(exist_ok=True)
        numbers = tuple(range(seed * MOST_SEEDS, seed * MOST_SEEDS + count))
        run = _Reproducing(out, everything, selected, numbers, report or (lambda progress: None))
        run.advance()
        groups = run.groups()
        missing = {group[0].name: group[0].cost for group in groups if not run.is_there(group[0])}
        clock = Clock(missing, workers or scale.available_cores())
        # A page to look at while work goes on.
        page_due = time.monotonic() + FIRST_PAGE_SECONDS
        for place, content in scale.completed(
            operator.call,
            [run.item(group[0]) for group in groups],
            folder=out / "work" / "needs",
            workers=workers,
            engine=engine,
            address=address,
            timeout=timeout,
        ):
            clock.finished(groups[place][0].name)
            run.advance(groups[place], content, clock)
            if time.monotonic() > page_due:
                write_report([out], out / "report.html")
                page_due = time.monotonic() + NEXT_PAGE_SECONDS
        # The page has sliders for landscapes, where claims are about them.
        about_landscapes = any(claim.figure.startswith(LANDSCAPES) for claim in selected)
        if about_landscapes and not (out / "landscapes.json").exists():
            write_landscapes(out)
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
    """The state between claims: what is measured, computed and drawn so far.

    ``work`` keeps, named by content, what claims need, each claim's measurement, and which figures are drawn.
    claims.json, claims.csv, claims.tex and progress.json follow from the measurements.
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
        # What was measured before is kept, also for claims that are not asked for now.
        before = everything.claims if (out / "work" / "claims").is_dir() else ()
        kept = {claim.id: scale.read_result(self._path(claim)) for claim in before if not claim.unavailable}
        self.measured = {name: Measurement.restore(content) for name, content in kept.items() if content is not None}
        cheapest_first = sorted(selected, key=lambda claim: claim.cost)
        self.pending = [claim for claim in cheapest_first if claim.id not in self.measured and not claim.unavailable]
        known = [claim for claim in cheapest_first if claim not in self.pending]
        self.corrected = corrected_verdicts(everything.claims, self.measured)
        for place, claim in enumerate(known, start=1):
            report(Progress(place, len(selected), self.rows([claim])[0], None))
        shown = {claim.figure for claim in selected}
        self.drawings = [drawing for drawing in everything.drawings if drawing.name in shown]
        # A figure is drawn if all of its claims are asked for, or if nothing more has to be done for it.
        incomplete = {claim.figure for claim in everything.claims if claim not in selected}
        coming = {self.item(need).digest for claim in self.pending for need in claim.needs}
        self.undrawn = [
            drawing
            for drawing in self.drawings
            if drawing.name not in incomplete
            or all(self.item(need).digest in coming or self.is_there(need) for need in drawing.needs)
            if scale.read_result(self._path(drawing)) is None or not all(path.exists() for path in self.files(drawing))
        ]

    def groups(self) -> list[list[Need]]:
        """Work that is needed, equal work together, in the order in which it is begun.

        Short pieces come first, so that there is something to see; then the longest, so that no worker is left with
        one at the end while the others are idle.
        """
        alike: dict[str, list[Need]] = {}
        for need in self._wanted():
            alike.setdefault(self.item(need).digest, []).append(need)
        shortest_first = sorted(alike.values(), key=lambda group: group[0].cost)
        first = sum(spent <= FIRST_SECONDS for spent in accumulate(group[0].cost for group in shortest_first))
        return shortest_first[:first] + shortest_first[first:][::-1]

    def advance(self, group: Sequence[Need] = (), content: bytes = b"", clock: "Clock | None" = None) -> None:
        """Take the result of a piece of work, if any, then measure and draw everything whose needs are met.

        Claims come before figures, because users wait for them.
        """
        if group:
            result = group[0].restore(content)
            self.results |= {need.name: result for need in group}
            if film := getattr(result, "film", None):
                # The page looks here for an experiment's matrices over training.
                path = self.out / "runs" / json.loads(film["about"].tobytes())["name"] / "trained.safetensors"
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, save(dict(film)))
        try:
            for claim in [claim for claim in self.pending if self._ready(claim)]:
                results = {need.name: self.results[need.name] for need in claim.needs}
                self.measured[claim.id] = measured(claim, results)
                scale.write_result(self._path(claim), self.measured[claim.id].dump())
                self.corrected = corrected_verdicts(self.everything.claims, self.measured)
                self.pending.remove(claim)
                done = len(self.selected) - len(self.pending)
                left, running = (clock.seconds_left, clock.running) if clock else (None, ())
                self.report(Progress(done, len(self.selected), self.rows([claim])[0], left, running))
        finally:
            # Once for all of them, and also when one is interrupted.
            rows = self.rows(self.everything.claims)
            text = json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False)
            write_atomically(self.out / "claims.json", text + "\n")
            write_atomically(self.out / "claims.csv", _table(rows))
            write_atomically(self.out / "claims.tex", latex(rows))
            progress = {"asked": len(self.selected), "measured": len(self.selected) - len(self.pending)}
            write_atomically(self.out / "progress.json", json.dumps(progress) + "\n")
        for drawing in [drawing for drawing in self.undrawn if self._ready(drawing)]:
            from topicscope.reporting.figures import save_figure

            drawn = drawing.draw({need.name: self.results[need.name] for need in drawing.needs})
            save_figure(drawn, self.out / "figures" / drawing.name)
            names = [file.name for file in self.files(drawing)]
            scale.write_result(self._path(drawing), json.dumps(names).encode())
            self.undrawn.remove(drawing)
        # Twenty seeds of all experiments would fill the memory: drop what no claim or drawing needs any more.
        wanted = {need.name for need in self._wanted()}
        self.results = {name: result for name, result in self.results.items() if name in wanted}

    def rows(self, claims: Sequence[Claim]) -> list[Row]:
        """Rows of these claims as far as they are known, corrected for everything that is measured in the folder."""
        return [
            row(claim, self.measured.get(claim.id), self.corrected.get(claim.id, "not run"), seeds=len(self.seeds))
            for claim in claims
            if claim.id in self.measured or (claim.unavailable and claim in self.selected)
        ]

    def files(self, drawing: Drawing) -> list[Path]:
        """A figure's files."""
        return [self.out / "figures" / f"{drawing.name}.{kind}" for kind in ("png", "svg", "csv")]

    def item(self, need: Need) -> NeedItem:
        """A need as work for any process."""
        if need.name not in self.items:
            self.items[need.name] = need_item(need, self.seeds)
        return self.items[need.name]

    def is_there(self, need: Need) -> bool:
        """Whether it was done before."""
        return self.item(need).path(self.out / "work" / "needs").exists()

    def _path(self, asked: Claim | Drawing) -> Path:
        """The file that records that this claim was measured, or this figure drawn; it depends on needs and on code."""
        kind, name = ("claim", asked.id) if isinstance(asked, Claim) else ("drawing", asked.name)
        needs = [self.item(need).digest for need in asked.needs]
        key = {kind: name, "needs": needs, "code": scale.code_digest(MEASURING)}
        folder = self.out / "work" / ("claims" if isinstance(asked, Claim) else "figures")
        return scale.Item(name, key, asked, suffix=".json").path(folder)

    def _wanted(self) -> list[Need]:
        waiting: list[Claim | Drawing] = [*self.pending, *self.undrawn]
        return [need for asked in waiting for need in asked.needs]

    def _ready(self, asked: Claim | Drawing) -> bool:
        return all(need.name in self.results for need in asked.needs)


def _table(rows: list[Row]) -> str:
    """The rows as CSV; dictionaries are written as JSON."""
    return table_text(
        [
            {
                name: json.dumps(cell, ensure_ascii=False) if isinstance(cell, dict) else cell
                for name, cell in row.items()
            }
            for row in rows
        ]
    )


class Clock:
    """Estimates the time until all work is finished.

    Workers take work in order, each a new piece when it has finished one. Costs are seconds on an idle core; how much
    longer this machine takes is learnt on the way.
    """

    def __init__(self, costs: Mapping[str, float], workers: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._costs, self._now = dict(costs), now
        self._waiting = list(costs)
        self._began: dict[str, float] = {}
        self._spent = self._done = 0.0
        for _ in range(min(workers, len(costs))):
            self._take_up()

    def finished(self, name: str) -> None:
        """Count a finished piece; those that were finished before do not count."""
        if name in self._costs:
            began = self._began.pop(name, None)
            if began is None:
                self._waiting.remove(name)
                return
            self._spent += self._now() - began
            self._done += self._costs[name]
            self._take_up()

    @property
    def running(self) -> tuple[str, ...]:
        """The pieces that are being worked on."""
        return tuple(self._began)

    @property
    def seconds_left(self) -> float | None:
        """The estimate; None when nothing is left."""
        if not self._began:
            return None
        # As long as little is finished, this follows mostly the costs.
        rate, now = (self._spent + TRUSTED_SECONDS) / (self._done + TRUSTED_SECONDS), self._now()
        # When each worker will be free, as far as is known; a piece that takes longer than expected may end any moment.
        free = [max(0.0, rate * self._costs[name] - (now - began)) for name, began in self._began.items()]
        heapq.heapify(free)
        for name in self._waiting:
            heapq.heapreplace(free, free[0] + rate * self._costs[name])
        return max(free)

    def _take_up(self) -> None:
        if self._waiting:
            self._began[self._waiting.pop(0)] = self._now()


def main(words: list[str]) -> int:
    """Parse, run, print the answer; 1 if --strict and a claim fails."""
    options = parse(Options, words, command="reproduce", description=DESCRIPTION)
    # An empty shell variable, for example, must not start everything.
    if "--only" in words and not options.only:
        raise InputError("--only has no claim: give an id, its beginning or a source, or leave it out to run all.")
    if "--models" in words and not options.models:
        raise InputError("--models names no model: give a name or a folder, or leave it out for minilm.")
    log_to_terminal(quiet=True)
    # Torch reads this when it is loaded: this process measures beside the workers, and must not take their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    if options.list:
        claims = list_claims(preset=options.preset, only=options.only, models=options.models)
        print_json(claims) if options.json else _print_list(claims)
        return 0
    with _progress_shown(quiet=options.quiet) as report:
        result = reproduce(**keywords(options, without=("list", "strict")), report=report)
    if options.json:
        print_json(result.rows)
    else:
        _print_answer(result.rows)
        console().print(
            f"written: {options.out}/report.html, claims.json, claims.csv, claims.tex, "
            f"figures/ ({len(result.figures)} files)"
        )
    return 1 if options.strict and result.failed else 0


@contextmanager
def _progress_shown(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """One live display on a terminal, a short line for each claim elsewhere, nothing if quiet."""
    out = console(to_errors=True)
    if quiet:
        yield None
    elif not out.is_terminal:
        yield lambda progress: out.print(_line(progress), no_wrap=True, overflow="ellipsis")
    else:
        display = _Display()
        with Live(display, console=out, transient=True, refresh_per_second=2):
            yield display.show


class _Display:
    """Claims done, the last one, what runs now and the time left, which counts down by itself."""

    def __init__(self) -> None:
        self._last: Progress | None = None
        self._at = time.monotonic()

    def show(self, progress: Progress) -> None:
        self._last, self._at = progress, time.monotonic()

    def __rich__(self) -> Group:
        last = self._last
        if last is None:
            return Group(Text("reading the claims"))
        left = None if last.seconds_left is None else max(last.seconds_left - (time.monotonic() - self._at), 0.0)
        bar = ProgressBar(total=last.total, completed=last.done, width=40)
        state = Text(f" {last.done} of {last.total} claims{_time(left)}")
        now = Text(f"now  {', '.join(last.running) or 'measuring'}", no_wrap=True, overflow="ellipsis", style="dim")
        return Group(Columns([bar, state]), Text("last ").append(_line(last)), now)


def _line(progress: Progress) -> Text:
    """A claim that was just finished."""
    row = progress.row
    line = Text(f"{progress.done:>4}/{progress.total}  ", no_wrap=True, overflow="ellipsis")
    line.append(f"{row['verdict']:<10}", style=COLOURS[row["verdict"]])
    return line.append(f"{row['id']:<44} {claim_text(row)}{_time(progress.seconds_left)}")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def _print_answer(rows: list[Row]) -> None:
    """The headline, the findings, and what does not hold and why; the table of all claims is in the files."""
    out = console()
    for line in headline(rows):
        out.print(Text(line, style="bold"))
    if found := findings(rows):
        out.print(Text("\nFindings", style="bold"))
        for place, sentence in enumerate(found, start=1):
            out.print(Padding(Text(f"{place}. {sentence}"), (0, 0, 0, 2), expand=False))
    if broken := what_does_not_hold(rows):
        out.print(Text("\nWhat does not hold, and why", style="bold"))
        for each, explained in broken:
            named = Text(f"{each['verdict']}  ", style=COLOURS[each["verdict"]])
            named.append(f"{_name(each)}  {claim_text(each)}, asked for {powers(each['rule'])}", style="default")
            out.print(Padding(named, (0, 0, 0, 2), expand=False))
            out.print(Padding(Text(powers(f"{each['statement']} {explained}")), (0, 0, 0, 6), expand=False))
    out.print()


def _print_list(claims: list[Row]) -> None:
    """Three lines per claim, and none of them broken: statements are long, and lines are for copying and searching."""
    for claim in claims:
        rule = powers(f"{claim['unit']} {claim['rule']}".strip())
        console().print(Text(f"{_name(claim)}   {claim['source']}", style="bold"), soft_wrap=True)
        console().print(Text(f"    {powers(claim['statement'])}\n    holds if {rule}"), soft_wrap=True)
    counts = {words: sum(claim["kind"] == kind for claim in claims) for kind, words in KINDS.items()}
    console().print(f"{len(claims)} claims. " + ", ".join(f"{words}: {count}" for words, count in counts.items()) + ".")


def _name(row: Row) -> str:
    """A claim's id, and whose it is unless it is the paper's own."""
    return row["id"] if row["kind"] == "paper" else f"{row['id']} ({row['kind']})"
