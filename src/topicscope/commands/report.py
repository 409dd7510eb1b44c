"""``topicscope report``: one page from finished work; and the same shown in a notebook."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from topicscope.commands.options import POSITIONAL, keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json
from topicscope.errors import InputError, listed, path_of

if TYPE_CHECKING:
    from topicscope.reporting.notebook import Shown

DESCRIPTION = """One HTML page from finished work: claims, training, landscapes, probes, sweeps. It needs no network.

Folders are recognised by the files in them, and looked through for others inside.

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
    _check_results(paths)
    page = page_of(paths)
    for note in page.notes:
        logger.warning("%s", note)
    write_page(page.html, file)
    return file


def _check_results(folders: Sequence[Path]) -> None:
    """Refuse folders in which there is nothing to show; one beside others that have something is named on the page."""
    from topicscope.reporting.page.store import find

    found = find(list(folders))
    if not len(found):
        said = " ".join(found.notes).removesuffix(".")
        raise InputError(f"{said}: give a folder that reproduce, train, landscape, probe or sweep wrote.")


def check_page(file: Path, example: str) -> None:
    """Refuse a name that does not end in .html, and an existing file that is not a page of ours."""
    from topicscope.reporting.page import is_page

    if file.is_dir():
        raise InputError(f"--out {file} is a folder: give a file, such as {file / example}.")
    if file.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out {file} is not the name of a page: give one that ends in .html, such as {example}.")
    if file.exists() and not is_page(file):
        raise InputError(f"--out {file} exists and is not a page of topicscope: choose another name.")


def show(*results: Any) -> "Shown":
    """Show figures and sliders of runs, folders or results of commands in a notebook, large: ``ts.show(run)``."""
    from topicscope.reporting.notebook import Shown
    from topicscope.reporting.page import page_of

    folders = [_folder(result) for result in results]
    if not folders:
        raise InputError("show has nothing to show: give it a run, a result of reproduce or probe, or a folder.")
    _check_results(folders)
    return Shown(page_of(folders, present=True).html)


def _folder(result: Any) -> Path:
    """Where a result is on disk, from a path or an object that has one."""
    if isinstance(result, str | Path):
        return Path(result)
    path = getattr(result, "path", None) or getattr(result, "out", None)
    if not isinstance(path, Path):
        raise InputError(
            f"show cannot show what is of type {type(result).__name__}: "
            "give it a run, a result of reproduce or probe, or a folder."
        )
    return path


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
    say_where(report(**keywords(options)), as_json=options.json)


def say_where(file: Path, *, as_json: bool) -> None:
    """Print where a page is, and how large."""
    size = file.stat().st_size
    if as_json:
        print_json({"file": str(file), "bytes": size})
    else:
        said = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
        console().print(f"{file}: {said}; open it in any browser.")
