"""``topicscope reproduce``: measure a paper's claims, and write verdicts, figures and a page.

What claims rest on is kept in the folder (``work/``): the same command resumes where it was stopped. Claims and figures
are made anew each time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.columns import Columns
from rich.console import Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from threadpoolctl import threadpool_limits

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal
from topicscope.errors import InputError, check_at_least, check_one_of, listed, path_of, refuse
from topicscope.papers.claim import not_run
from topicscope.papers.needs import PRESETS, Preset
from topicscope.papers.paper import TOPIC_STRUCTURE, Paper, paper, selected
from topicscope.papers.reproduction import Progress, Reproducing, write_claims
from topicscope.records import REPRODUCE_SETTINGS, ArticleRecord, ClaimRecord, ReproduceSettings, frame_of, table_html
from topicscope.reporting.rounding import claim_text, powers
from topicscope.reporting.verdicts import (
    KINDS,
    counts_text,
    headline,
    margin_text,
    source_table,
    table,
    what_does_not_hold,
    why,
)
from topicscope.store import struct_text
from topicscope.work import check_engine

# The most runs of an experiment; up to this number, no two values of ``seed`` share seeds of runs.
MOST_SEEDS = 1_000
# Options that are not arguments of ``reproduce``.
OF_THE_COMMAND = ("list", "strict")
COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow", "not run": "dim"}
DESCRIPTION = """Measure the paper's claims: theorems exactly, experiments with several seeds. Each gets a verdict by a
rule fixed beforehand. The command writes claims.json, claims.csv, claims.tex, figures and a page; if it is interrupted,
the same command resumes.

examples:
  topicscope reproduce --out results
  topicscope reproduce --out results --only theorem2 figure2/blocks
  topicscope reproduce --preset paper --out results-paper
  topicscope reproduce --list
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is to be measured, and where."""

    out: Path = Path("results")
    """Where claims, figures and finished work go."""

    paper: tuple[str, ...] = (TOPIC_STRUCTURE,)
    """Whose claims: names of papers."""

    preset: Literal["quick", "paper"] = "quick"
    """"quick": 10 seeds, minutes. "paper": 20 seeds, fuller grids, about an hour."""

    only: tuple[str, ...] = ()
    """Measure only these claims: ids, beginnings of ids, or sources such as figure2."""

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

    def __post_init__(self) -> None:
        check_one_of("--preset", self.preset, tuple(PRESETS))
        check_engine(self.engine, address=self.address, workers=self.workers)
        check_at_least("--seed", self.seed, 0)
        if self.seeds is not None and not 1 <= self.seeds <= MOST_SEEDS:
            raise refuse("--seeds", self.seeds, f"give a number from 1 to {MOST_SEEDS}")
        if "" in self.models:
            raise InputError("--models names no model: give a name or a folder, or leave it out for minilm.")
        if len(set(self.models)) < len(self.models):
            raise refuse("--models", " ".join(self.models), "give each model once")

    @property
    def of_preset(self) -> Preset:
        """The preset with these models, and so many seeds."""
        preset = replace(PRESETS[self.preset], models=self.models)
        return preset if self.seeds is None else replace(preset, seeds=self.seeds)

    @property
    def settings(self) -> ReproduceSettings:
        """What the results depend on."""
        preset = self.of_preset
        return ReproduceSettings(preset=preset.name, seeds=preset.seeds, seed=self.seed, models=list(self.models))

    def papers(self) -> list[Paper]:
        """The papers, with what is needed; a model that was named and cannot be probed is refused."""
        papers = [paper(name, self.of_preset) for name in dict.fromkeys(self.paper)]
        for need in (need for own in papers for need in own.experiments.values()):
            if getattr(need, "model", None) in self.models and need.unavailable:
                raise InputError(need.unavailable)
        return papers


@dataclass(frozen=True, kw_only=True)
class Options(Asked):
    """Options of the command."""

    list: bool = False
    """Print the claims and run nothing."""

    strict: bool = False
    """Exit with 1 if a claim fails."""

    quiet: bool = False
    """Print no line for each finished claim."""

    json: bool = False
    """Print claims.json on standard output, and nothing else."""


@dataclass(frozen=True)
class Reproduction:
    """The results: the claims that were asked for, the figures, and the words of the papers."""

    claims: list[ClaimRecord]
    figures: list[Path]
    articles: list[ArticleRecord]
    out: Path = Path()

    def to_frame(self) -> Any:
        """The claims, and their rows, as a pandas DataFrame."""
        return frame_of(table(self.claims))

    def _repr_html_(self) -> str:
        cells = [(claim.verdict, claim.id, claim.statement, claim.rule, claim_text(claim)) for claim in self.claims]
        columns = ("verdict", "claim", "statement", "rule", "measured [95 % interval]")
        return table_html(columns, cells, f"{len(cells)} claims in {self.out}: {counts_text(self.claims) or 'none'}")

    @property
    def failed(self) -> list[str]:
        """Claims that fail."""
        return [claim.id for claim in self.claims if claim.verdict == "fails"]


def list_claims(**asked: Any) -> list[ClaimRecord]:
    """What would be measured; the arguments are those of ``reproduce``."""
    options = _asked(asked)
    chosen = selected(options.papers(), options.only)
    return [not_run(claim, own.name, own.missing(claim)) for own, claims in chosen for claim in claims]


def reproduce(out: Path | str, *, report: Callable[[Progress], None] | None = None, **asked: Any) -> Reproduction:
    """Measure the claims of papers (or those named in ``only``) into a folder, and return their records.

    The arguments are the command's options: ``paper``, ``preset``, ``only``, ``seeds``, ``seed``, ``models``,
    ``workers``, ``engine`` and ``address``. Finished work in the folder is not done again; a folder with other settings
    is refused.
    """
    options = _asked({"out": path_of(out, "out"), **asked})
    out = options.out
    chosen = selected(options.papers(), options.only)
    # Refused before anything is made, and checked again under the lock: another command may have begun here meanwhile.
    _check_folder(out, options.settings)
    from topicscope.reporting.page import write_report

    # Linear algebra uses one thread: the last bits of results depend on how many, and workers need the cores.
    with locked(out), threadpool_limits(1):
        _check_folder(out, options.settings)
        # The settings come first: they identify a folder that was begun.
        REPRODUCE_SETTINGS.write(out, options.settings)
        (out / "figures").mkdir(exist_ok=True)
        seeds = tuple(range(options.seed * MOST_SEEDS, options.seed * MOST_SEEDS + options.settings.seeds))
        papers = [Reproducing(own, claims, out, seeds, report or (lambda progress: None)) for own, claims in chosen]
        try:
            for own in papers:
                own.measure(workers=options.workers, engine=options.engine, address=options.address)
        finally:
            # Also if it is interrupted.
            articles = write_claims(out, papers)
        write_report([out], out / "report.html")
        claims = [record for own in papers for record in own.records()]
        return Reproduction(claims, [path for own in papers for path in own.drawn], articles, out)


def _asked(asked: dict[str, Any]) -> Asked:
    """The options, with a single paper, claim or model as a list of one."""
    lists: dict[str, Any] = {name: listed(asked[name], name) for name in ("paper", "only", "models") if name in asked}
    return Asked(**asked | lists)


def _check_folder(out: Path, asked: ReproduceSettings) -> None:
    """Refuse a folder that holds something else, or claims of other settings."""
    if not is_begun(out, "settings.json", what="claims", command="reproduce"):
        return
    stored = REPRODUCE_SETTINGS.read(out)

    def given(value: Any) -> str:
        return (" ".join(value) or "not given") if isinstance(value, list) else str(value)

    different = [
        f"--{name} {given(getattr(stored, name))} there, {given(getattr(asked, name))} here"
        for name in asked.__struct_fields__
        if getattr(stored, name) != getattr(asked, name)
    ]
    if different:
        raise InputError(
            f"--out {out} holds claims of other settings ({'; '.join(different)}): give those, or another --out."
        )


def main(words: list[str]) -> int:
    """Parse, measure, print the answer; 1 if --strict and a claim fails."""
    options = parse(Options, words, command="reproduce", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    # Torch reads this when it is loaded: this process measures beside the workers, and must not take their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.list:
        claims = list_claims(**keywords(options, without=OF_THE_COMMAND))
        _print_json(claims) if options.json else _print_list(claims)
        return 0
    with _progress_shown(quiet=options.quiet) as report:
        result = reproduce(**keywords(options, without=OF_THE_COMMAND), report=report)
    if options.json:
        _print_json(result.claims)
    else:
        _print_answer(result)
    return 1 if options.strict and result.failed else 0


@contextmanager
def _progress_shown(*, quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """One live display on a terminal, a short line for each claim elsewhere, nothing if quiet."""
    out = console(to_errors=True)
    if quiet:
        yield None
    elif out.is_terminal:
        with Live(Text("reading the claims"), console=out, transient=True, refresh_per_second=2) as live:
            yield lambda progress: live.update(_display(progress))
    else:

        def show(progress: Progress) -> None:
            if progress.last:
                out.print(_line(progress), no_wrap=True, overflow="ellipsis")

        yield show


def _display(progress: Progress) -> Group:
    """Claims and work done, and the last claim."""
    bar = ProgressBar(total=max(progress.all_work, 1), completed=progress.work, width=40)
    state = Text(
        f" {progress.work} of {progress.all_work} pieces of work, {progress.claims} of {progress.all_claims} claims"
    )
    return Group(Columns([bar, state]), _line(progress) if progress.last else Text())


def _line(progress: Progress) -> Text:
    """A claim that was just measured."""
    assert progress.last is not None
    claim = progress.last
    line = Text(f"{progress.claims:>4}/{progress.all_claims}  ", no_wrap=True, overflow="ellipsis")
    line.append(f"{claim.verdict:<10}", style=COLOURS[claim.verdict])
    return line.append(f"{claim.id:<40} {claim_text(claim)}")


def _print_json(claims: list[ClaimRecord]) -> None:
    console().file.write(struct_text(claims).decode())


def _print_answer(result: Reproduction) -> None:
    """The headline, a small table, the findings, and what does not hold and why; all claims are in the files."""
    out = console()
    for line in headline(result.claims):
        out.print(Text(line, style="bold"))
    groups = [group for words in result.articles for group in words.groups]
    verdicts = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("sources", "the paper's", "elsewhere and ours"):
        verdicts.add_column(name)
    for row in source_table(result.claims, groups):
        verdicts.add_row(*row.values())
    out.print("", verdicts)
    if found := [finding for words in result.articles for finding in words.findings]:
        out.print(Text("\nFindings", style="bold"))
        for place, finding in enumerate(found, start=1):
            sentence = Text(f"{place}. {finding.title} {powers(finding.sentence)}")
            out.print(Padding(sentence, (0, 0, 0, 2), expand=False))
    if broken := what_does_not_hold(result.claims):
        out.print(Text("\nWhat does not hold, and why", style="bold"))
        for claim in broken:
            named = Text(f"{claim.verdict}  ", style=COLOURS[claim.verdict])
            named.append(f"{_name(claim)}  {claim_text(claim)}, {margin_text(claim)}", style="default")
            out.print(Padding(named, (0, 0, 0, 2), expand=False))
            out.print(Padding(Text(powers(f"{claim.statement} {why(claim)}")), (0, 0, 0, 6), expand=False))
    files = f"report.html, claims.json, claims.csv, claims.tex, figures/ ({len(result.figures)} files)"
    out.print(f"\nwritten: {result.out}/{files}", soft_wrap=True)


def _print_list(claims: list[ClaimRecord]) -> None:
    """Three lines per claim, and none of them broken: statements are long, and lines are for copying and searching."""
    for claim in claims:
        rule = powers(f"{claim.unit} {claim.rule}".strip())
        console().print(Text(f"{_name(claim)}   {claim.source}", style="bold"), soft_wrap=True)
        console().print(Text(f"    {powers(claim.statement)}\n    holds if {rule}"), soft_wrap=True)
    counts = {words: sum(claim.kind == kind for claim in claims) for kind, words in KINDS.items()}
    console().print(f"{len(claims)} claims. " + ", ".join(f"{words}: {count}" for words, count in counts.items()) + ".")


def _name(claim: ClaimRecord) -> str:
    """A claim's id, and whose it is unless it is the paper's own."""
    return claim.id if claim.kind == "paper" else f"{claim.id} ({claim.kind})"
