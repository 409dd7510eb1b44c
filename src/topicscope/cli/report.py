"""``topicscope report``: which folders, and where the page goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from topicscope.cli.main import parse
from topicscope.cli.terminal import console, log_to_terminal, print_json

DESCRIPTION = """One HTML page from finished work: claims, training, landscapes, probes, sweeps. It needs no network.

Folders are recognised by the files in them, and looked through for others inside.

examples:
  topicscope report results --out report.html
  topicscope report runs/figure2 landscape --out look.html
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Folders that reproduce, train, landscape, probe or sweep wrote."""

    out: Path = Path("report.html")
    """The file to write."""

    json: bool = False
    """Print the file's path and size as JSON."""


def main(words: list[str]) -> None:
    """Parse, write, print where the page is."""
    options = parse(lambda: tyro.cli(Options, args=words, prog="topicscope report", description=DESCRIPTION))
    from topicscope.commands.report import report

    log_to_terminal(quiet=False)
    file = report(options.folders, options.out)
    size = file.stat().st_size
    if options.json:
        print_json({"file": str(file), "bytes": size})
    else:
        console().print(f"{file}: {size / 1e6:.1f} MB; open it in any browser.")
