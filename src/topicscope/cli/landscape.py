"""``topicscope landscape``: options, files and a short summary."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, print_json
from topicscope.cli.theory import NOT_ATTAINED
from topicscope.commands.landscape import POINTS, Value, check_empty, landscape, write_landscape
from topicscope.commands.setting import TheorySetting

DESCRIPTION = """The exact loss over attention's weights α and β: grid, numbers and figure.

Writes landscape.npz, landscape.json, landscape.png and landscape.svg.

examples:
  topicscope landscape --out landscape
  topicscope landscape --value diagonal --out landscape-diagonal
  topicscope landscape --topics 100000000 --per-document 3000 --out limit
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The folder to write to; new or empty."""

    setting: Annotated[TheorySetting, tyro.conf.arg(name="")] = TheorySetting()

    value: Value = "block"
    """W^V: "block" is Theorem 2's, "diagonal" that of appendix D.4."""

    points: int = POINTS
    """Grid points along each axis."""

    json: bool = False
    """Print the numbers of landscape.json."""


def main(words: list[str]) -> None:
    """Parse, compute, write, print where and what."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope landscape", description=DESCRIPTION))
    check_empty(options.out)
    result = landscape(options.setting, value=options.value, points=options.points)
    write_landscape(result, options.out)
    if options.json:
        print_json(result.to_dict())
        return
    best = result.optimum
    screen = console()
    screen.print(
        f"smallest loss {best.loss:.8g} at α = {best.alpha:.6g}, β = {best.beta:.6g} "
        f"(average {best.weighted_average:.6g}); {best.loss_uniform:.8g} at α = β = 1"
    )
    if not best.attained:
        screen.print(NOT_ATTAINED)
    if best.flat:
        screen.print(f"flat: {best.flat}")
    for text in result.theorem3.violated:
        screen.print(f"Theorem 3 does not apply: {text}")
    screen.print(f"{options.out}: landscape.npz, landscape.json, landscape.png, landscape.svg")
