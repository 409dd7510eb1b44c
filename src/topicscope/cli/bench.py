"""``topicscope bench``: side-by-side measurements of a training step."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro
from rich.table import Table

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, print_json, progress_bar
from topicscope.settings.checks import check_at_least

if TYPE_CHECKING:
    from topicscope.commands.bench import Bench

DESCRIPTION = """Measure a training step of the paper's setting, side by side: Hugging Face's one-layer BERT, our
reference, the bag engine, and the bag engine with eight seeds in one tensor. They take turns, one thread each.

examples:
  topicscope bench
  topicscope bench --rounds 100 --json
"""

TITLES = {
    "huggingface": "Hugging Face BERT, one layer",
    "reference": "reference engine",
    "bag": "bag engine",
    "ensemble": "bag engine, 8 seeds, per seed",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    rounds: int = 30
    """Turns of each; medians and quartiles are over them."""

    json: bool = False
    """Print the numbers as JSON."""

    quiet: bool = False
    """No progress bar."""


def main(words: list[str]) -> None:
    """Parse, measure, print."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope bench", description=DESCRIPTION))
    check_at_least("--rounds", options.rounds, 1)
    from topicscope.commands.bench import bench

    with progress_bar("measuring", quiet=options.quiet) as report:
        found = bench(rounds=options.rounds, report=report)
    if options.json:
        print_json(found.table())
    else:
        console().print(_table(found))
        share = found.fresh_fraction("bag"), found.fresh_fraction("ensemble")
        console().print(
            f"Sampling, masking and counting fresh documents: {share[0]:.0%} of a step (bag), {share[1]:.0%} (ensemble)."
        )


def _table(found: "Bench") -> Table:
    table = Table(title="A training step at the paper's setting, for one seed")
    for title in ("", "steps/s", "× Hugging Face (quartiles)", "× reference", "matrix products", "peak memory"):
        table.add_column(title, justify="left" if not title else "right")
    for name, one in found.measurements.items():
        low, high = found.ratio_quartiles[name]
        table.add_row(
            TITLES[name],
            f"{1 / one.seconds:,.1f}",
            f"{found.ratio(name):.1f} ({low:.1f}–{high:.1f})",
            f"{found.ratio(name, 'reference'):.1f}",
            f"{one.matrix_products:.0%}",
            f"{one.peak_megabytes:.0f} MB",
        )
    return table
