"""``topicscope reproduce``: measure a paper's claims, and write verdicts, figures and a page.

What claims rest on is kept in the folder (``work/``): the same command resumes where it was stopped. Claims and figures
are made anew each time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from threadpoolctl import threadpool_limits

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, progress_bar
from topicscope.errors import InputError, check_at_least, check_one_of, listed, path_of, refuse
from topicscope.papers.claim import Claim, not_run
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
class Request:
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
    def settings(self) -> ReproduceSettings:
        """What the results depend on."""
        seeds = self.seeds or PRESETS[self.preset].seeds
        return ReproduceSettings(preset=self.preset, seeds=seeds, seed=self.seed, models=list(self.models))

    def chosen(self) -> list[tuple[Paper, tuple[Claim, ...]]]:
        """Each paper with the claims that are asked for; a model that was named and cannot be probed is refused."""
        preset = Preset(self.preset, self.settings.seeds, self.models)
        papers = [paper(name, preset) for name in dict.fromkeys(self.paper)]
        for need in (need for own in papers for need in own.experiments.values()):
            if getattr(need, "model", None) in self.models and need.unavailable:
                raise InputError(need.unavailable)
        return selected(papers, self.only)


@dataclass(frozen=True, kw_only=True)
class Options(Request):
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
    chosen = _requested(asked).chosen()
    return [not_run(claim, own.name, own.missing(claim)) for own, claims in chosen for claim in claims]


def reproduce(out: Path | str, *, report: Callable[[Progress], None] | None = None, **asked: Any) -> Reproduction:
    """Measure the claims of papers (or those named in ``only``) into a folder, and return their records.

    The arguments are the command's options: ``paper``, ``preset``, ``only``, ``seeds``, ``seed``, ``models``,
    ``workers``, ``engine`` and ``address``. Finished work in the folder is not done again; a folder with other settings
    is refused.
    """
    options = _requested({"out": path_of(out, "out"), **asked})
    out, chosen = options.out, options.chosen()
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


def _requested(asked: dict[str, Any]) -> Request:
    """The options, with a single paper, claim or model as a list of one."""
    lists: dict[str, Any] = {name: listed(asked[name], name) for name in ("paper", "only", "models") if name in asked}
    return Request(**asked | lists)


def _check_folder(out: Path, asked: ReproduceSettings) -> None:
    """Refuse a folder that holds something else, or claims of other settings."""
    if not is_begun(out, "settings.json", what="claims", command="reproduce"):
        return
    there, here = (
        {name: (" ".join(value) or "not given") if isinstance(value, list) else value for name, value in own.items()}
        for own in map(msgspec.structs.asdict, (REPRODUCE_SETTINGS.read(out), asked))
    )
    if different := [f"--{name} {there[name]} there, {here[name]} here" for name in here if there[name] != here[name]]:
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
def _progress_shown(*, quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar with the last claim on a terminal, a short line for each claim elsewhere, nothing if quiet."""
    out = console(to_errors=True)
    with progress_bar("work", quiet=quiet) as bar:

        def show(progress: Progress) -> None:
            claims = f"{progress.claims:>4}/{progress.all_claims}"
            last = f"{progress.last.id} {progress.last.verdict}" if progress.last else ""
            bar(progress.work, progress.all_work, f"{claims.strip()} claims {last}")
            if progress.last and not quiet and not out.is_terminal:
                line = f"{claims}  {progress.last.verdict:<10}{progress.last.id:<40} {claim_text(progress.last)}"
                out.print(line, no_wrap=True, overflow="ellipsis")

        yield show


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
    if findings := [finding for words in result.articles for finding in words.findings]:
        out.print(Text("\nFindings", style="bold"))
        for place, finding in enumerate(findings, start=1):
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
