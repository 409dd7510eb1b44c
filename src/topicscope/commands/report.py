"""``topicscope report``: one page from finished work; and the same shown in a notebook."""

import html
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from topicscope.commands.options import POSITIONAL, keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json
from topicscope.errors import InputError, listed, path_of

DESCRIPTION = """One HTML page from finished work: claims, training, landscapes, probes, sweeps. It needs no network.

Folders are recognised by the files in them, and searched for others inside.

examples:
  topicscope report results --out report.html
  topicscope report runs/figure2 landscape --out look.html
"""

FILE = "report.html"
SUFFIXES = (".html", ".htm")

logger = logging.getLogger(__name__)


def report(folders: Sequence[Path | str] | Path | str, out: Path | str = FILE) -> Path:
    """Write a page about these folders: results of ``reproduce``, runs, landscapes, probes, sweeps.

    What is missing, damaged or not finished is named on the page, and logged.
    """
    from topicscope.reporting.page import page_of, write_page

    file = path_of(out, "out")
    paths = [path_of(folder, "folders") for folder in listed(folders, "folders")]
    if not paths:
        raise InputError(
            "no folder is given: name at least one that reproduce, train, landscape, probe or sweep wrote."
        )
    check_page(file, FILE)
    page = page_of(paths)
    for note in page.notes:
        logger.warning("%s", note)
    write_page(page.html, file)
    return file


def check_page(file: Path, example: str) -> None:
    """Refuse a name that does not end in .html, and an existing file that is not a page of ours."""
    from topicscope.reporting.page import is_page

    if file.is_dir():
        raise InputError(f"--out {file} is a folder: give a file, such as {file / example}.")
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {file} is not the name of a page: give one that ends in .html, such as {example}.")
    if file.exists() and not is_page(file):
        raise InputError(f"--out {file} exists and is not a page of topicscope: choose another name.")


@dataclass(frozen=True, repr=False)
class Shown:
    """A page, shown by notebooks in a frame of its own."""

    page: str

    def __repr__(self) -> str:
        return f"<page of {len(self.page) / 1e6:.1f} MB: a notebook shows it; topicscope.report writes one to a file>"

    def _repr_html_(self) -> str:
        # Without allow-same-origin the page cannot reach the notebook; its own policy keeps it off the network.
        return (
            f'<iframe srcdoc="{html.escape(self.page)}" sandbox="allow-scripts allow-downloads" '
            'style="width: 100%; height: 900px; border: 1px solid #888" title="topicscope report"></iframe>'
        )


def show(*results: Any) -> Shown:
    """Show figures and sliders of runs, folders or results of commands in a notebook, large: ``ts.show(run)``."""
    from topicscope.reporting.page import page_of

    what = "give it a run, a result of reproduce or probe, or a folder."
    if not results:
        raise InputError(f"show has nothing to show: {what}")
    folders = []
    for result in results:
        # Where a result is on disk: a path, or an object that has one.
        path = Path(result) if isinstance(result, str | Path) else getattr(result, "path", None)
        path = path or getattr(result, "out", None)
        if not isinstance(path, Path):
            raise InputError(f"show cannot show what is of type {type(result).__name__}: {what}")
        folders.append(path)
    return Shown(page_of(folders, present=True).html)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    folders: Annotated[tuple[Path, ...], POSITIONAL]
    """Folders that reproduce, train, landscape, probe or sweep wrote."""

    out: Path = Path(FILE)
    """The file to write."""

    json: bool = False
    """Print the file's path and size as JSON."""


def main(words: list[str]) -> None:
    """Parse, write, print where the page is."""
    options = parse(Options, words, command="report", description=DESCRIPTION)
    log_to_terminal(quiet=False)
    print_page(report(**keywords(options)), as_json=options.json)


def print_page(file: Path, *, as_json: bool) -> None:
    """Print where a page is, and how large."""
    size = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "bytes": size})
    else:
        console().print(f"{file}: {size / 1e6:.1f} MB; open it in any browser.")
