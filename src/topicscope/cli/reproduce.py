"""``topicscope reproduce``: the paper's claims, their verdicts and figures."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro
from rich.table import Table
from rich.text import Text

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json

if TYPE_CHECKING:
    from topicscope.commands.reproduce import Progress

DESCRIPTION = """Run the paper's claims: theorems exactly, experiments with several seeds. Each gets a verdict by a rule
fixed beforehand. Writes claims.json, claims.csv and figures; run again with the same --out, it does what is missing.

examples:
  topicscope reproduce --out results
  topicscope reproduce --out results --only theorem2 figure2/squared-adam
  topicscope reproduce --preset paper --out results-paper
  topicscope reproduce --list
"""

COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow", "not run": "dim"}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("results")
    """Where claims, figures and finished work go."""

    preset: Literal["quick", "paper"] = "quick"
    """"quick": 5 seeds, minutes. "paper": 20 seeds, fuller grids, about an hour."""

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


def main(words: "list[str]") -> int:
    """Parse, run, print the table; 1 if --strict and a claim fails."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope reproduce", description=DESCRIPTION))
    log_to_terminal(quiet=True)
    # Before NumPy is loaded: this process measures beside the workers, and must not take their cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from topicscope.commands.reproduce import list_claims, reproduce

    if options.list:
        claims = list_claims(preset=options.preset, only=options.only, models=options.models)
        print_json(claims) if options.json else _print_list(claims)
        return 0
    result = reproduce(
        options.out,
        preset=options.preset,
        only=options.only,
        seeds=options.seeds,
        seed=options.seed,
        models=options.models,
        workers=options.workers,
        engine=options.engine,
        address=options.address,
        timeout=options.timeout,
        report=None if options.quiet else _print_line,
    )
    if options.json:
        print_json(result.rows)
    else:
        _print_table(result.rows)
        _print_sources(result.rows)
        console().print(
            f"written: {options.out}/report.html, claims.json, claims.csv, figures/ ({len(result.figures)} files)"
        )
    return 1 if options.strict and result.failed else 0


def _print_line(progress: "Progress") -> None:
    row = progress.row
    left = "" if progress.seconds_left is None else f"   {_duration(progress.seconds_left)} left"
    line = Text(f"{progress.done:>4}/{progress.total}  ")
    line.append(f"{row['verdict']:<10}", style=COLOURS[row["verdict"]])
    line.append(f"{row['id']:<44} {_measured(row)}{left}")
    console(to_errors=True).print(line, no_wrap=True, overflow="ellipsis")


def _print_table(rows: "list[dict[str, Any]]") -> None:
    table = Table(title="The paper's claims, and ours beside them")
    table.add_column("claim", overflow="fold")
    for name in ("verdict", "measured [95 % interval]", "expected"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        name = row["id"] + (" (ours)" if row["ours"] else "")
        table.add_row(name, _verdict(row), _measured(row), _shown(row))
    console().print(table)
    console().print(_counts(rows, "verdict") + ".")
    if any(row["verdict_corrected"] != row["verdict"] for row in rows):
        console().print("* undecided after correction for the number of claims.")
        console().print(f"After correction: {_counts(rows, 'verdict_corrected')}.")


def _counts(rows: "list[dict[str, Any]]", kind: str) -> str:
    """How many claims have each verdict, in words."""
    counts = {verdict: sum(row[kind] == verdict for row in rows) for verdict in COLOURS}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _print_sources(rows: "list[dict[str, Any]]") -> None:
    """One line a source: how the paper's claims fared, and ours; in brackets after correction, where that differs."""
    verdicts = [
        verdict for verdict in COLOURS if verdict != "not run" or any(row["verdict"] == verdict for row in rows)
    ]
    table = Table(title="By source (after correction for the number of claims)")
    table.add_column("source")
    for prefix in ("", "ours: "):
        for verdict in verdicts:
            table.add_column((prefix if verdict == "holds" else "") + verdict, justify="right")
    for source in dict.fromkeys(row["source"] for row in rows):
        chosen = [[row for row in rows if (row["source"], row["ours"]) == (source, ours)] for ours in (False, True)]
        table.add_row(source, *(_count(some, verdict) for some in chosen for verdict in verdicts))
    console().print(table)


def _count(rows: "list[dict[str, Any]]", verdict: str) -> str:
    """How many have this verdict, and how many after correction; empty for none."""
    plain, corrected = (sum(row[kind] == verdict for row in rows) for kind in ("verdict", "verdict_corrected"))
    if plain == corrected:
        return str(plain) if plain else ""
    return f"{plain} ({corrected})"


def _print_list(claims: "list[dict[str, Any]]") -> None:
    """Three lines a claim, and none of them broken: statements are long, and lines are for copying and searching."""
    for claim in claims:
        name = claim["id"] + (" (ours)" if claim["ours"] else "")
        rule = f"{claim['unit']} {claim['rule']}".strip()
        console().print(Text(f"{name}   {claim['source']}", style="bold"), soft_wrap=True)
        console().print(Text(f"    {claim['statement']}\n    holds if {rule}"), soft_wrap=True)
    ours = sum(claim["ours"] for claim in claims)
    console().print(f"{len(claims)} claims: {len(claims) - ours} of the paper's, {ours} of ours.")


def _verdict(row: "dict[str, Any]") -> Text:
    """The verdict, with a star if correcting for the number of claims leaves it undecided."""
    star = "" if row["verdict_corrected"] == row["verdict"] else "*"
    return Text(row["verdict"] + star, style=COLOURS[row["verdict"]])


def _measured(row: "dict[str, Any]") -> str:
    if row["measured"] is None:
        return "–"
    interval = "" if row["low"] is None else f" [{row['low']:.5g}, {row['high']:.5g}]"
    return f"{row['measured']:.5g}{interval}"


def _shown(row: "dict[str, Any]") -> str:
    """What is expected: a number, or the rule."""
    return row["rule"] if isinstance(row["expected"], str) else f"{row['expected']:.5g}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
