"""``topicscope reproduce``: the paper's Figure 2 beside theory."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import Report, console, log_to_terminal, print_json, progress_bar
from topicscope.errors import InputError
from topicscope.settings.checks import check_at_least

DESCRIPTION = """Train the paper's Figure 2 setting (one-hot embeddings, uniform attention, L2) with each of its losses
and optimisers, and lay W^V beside Theorem 2's matrix and the finite-document optimum.

examples:
  topicscope reproduce --out results
  topicscope reproduce --out results-1 --seed 1 --json
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("results")
    """Where runs, figure and table go; finished runs found there are not trained again."""

    seed: int = 0
    """Seed of documents, masks and initial weights."""

    steps: int = 3000
    """Training steps of each run."""

    quiet: bool = False
    """No progress bars."""

    json: bool = False
    """Print the table as JSON."""


def main(words: list[str]) -> None:
    """Parse, train, print the table."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope reproduce", description=DESCRIPTION))
    check_at_least("--seed", options.seed, 0)
    check_at_least("--steps", options.steps, 1)
    if options.out.exists() and not options.out.is_dir():
        raise InputError(f"--out {options.out} is a file: give a folder.")
    log_to_terminal(quiet=True)
    from topicscope.commands.reproduce import reproduce

    with progress_bar("training", quiet=options.quiet or options.json) as bar:

        def report_for(name: str) -> Report:
            return lambda done, total, state: bar(done, total, f"{name}: {state}")

        result = reproduce(options.out, seed=options.seed, steps=options.steps, report_for=report_for)
    if options.json:
        print_json(result.table)
        return
    table = Table(title="W^V: averages over classes of entries, and exact population loss")
    table.add_column("matrix", no_wrap=True)
    for name in ("[MASK] column", "same word", "same topic", "different topic", "squared loss"):
        table.add_column(name, justify="right")
    for row in result.table:
        numbers = ("mask_column", "same_word", "same_topic", "different_topic", "population_loss")
        table.add_row(row["matrix"], *("–" if row[key] is None else f"{row[key]:.5f}" for key in numbers))
    console().print(table)
    console().print("written: " + ", ".join(str(path) for path in result.files))
