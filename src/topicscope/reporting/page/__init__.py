"""One self-contained HTML file from claims, run folders, landscapes, probes and sweeps.

The file holds every array packed and gzipped, and a content-security policy that forbids all network. Text that came
from outside is escaped where it is written, by Jinja2 in HTML and as text nodes by the script.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from topicscope.reporting import verdicts
from topicscope.reporting.page.material import Material, Row, gather
from topicscope.reporting.page.runs import on_text, outcome, run_sections, shown_runs, theory_run, two_stage_run
from topicscope.reporting.page.sections import article, claims_section, landscape_sections, probe_section, sweep_section
from topicscope.reporting.playground import asset, content_policy, playground, template
from topicscope.reporting.rounding import claim_number, claim_text
from topicscope.reporting.symbols import typeset
from topicscope.store import write_atomically

# The end of a page's title identifies it as ours; it is well within this many bytes.
MARK, HEAD_BYTES = " · topicscope</title>".encode(), 65_536

OWN = "topicscope.reporting.page"
SCRIPTS = ("player.js", "landscape.js", "page.js")
# What the template calls to write text, a claim and its parts.
FILTERS: dict[str, Callable[..., Any]] = {
    "symbols": typeset,
    "number": claim_number,
    "measured": claim_text,
    "margin": verdicts.margin_text,
    "why": verdicts.why,
    "outcome": outcome,
    "shell": shlex.quote,
}
SECTIONS = {"claims": claims_section, "probes": probe_section, "sweeps": sweep_section}


@dataclass(frozen=True)
class Page:
    """A page as text, and the notices on it: what is missing, damaged or not finished."""

    html: str
    notes: tuple[str, ...]


def write_report(folders: Sequence[Path], file: Path) -> Path:
    """Write the page about these folders, whole or not at all; each is recognised by the files in it."""
    write_page(page_of(folders).html, file)
    return file


def write_page(html: str, file: Path) -> None:
    """Write a page, making its folders if needed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, html)


def is_page(file: Path) -> bool:
    """Whether a file is a page of ours, which may be overwritten."""
    with file.open("rb") as opened:
        return MARK in opened.read(HEAD_BYTES)


def page_of(folders: Sequence[Path], *, present: bool = False) -> Page:
    """The page about these folders; ``present`` shows figures and sliders alone, in large type."""
    material = gather([Path(folder) for folder in folders])
    contents = _contents(material)
    try_it = playground() if contents["playable"] else None
    data = {name: contents[name] for name in ("runs", "players", "landscapes")}
    pieces = [playground().kit, *(asset(OWN, name) for name in SCRIPTS), *([try_it.script] if try_it else [])]
    script, names = "\n".join(pieces), [Path(folder).resolve().name for folder in folders]
    html = template(
        OWN,
        "page.html",
        filters=FILTERS,
        title=", ".join(names[:3]) + (" …" if len(names) > 3 else ""),
        signs=verdicts.SIGNS,
        verdicts=verdicts.VERDICTS,
        given=list(map(str, folders)),
        version=version("topicscope"),
        notes=material.notes,
        present=present,
        playground=try_it,
        policy=content_policy(script, workers=try_it is not None),
        style=playground().style + asset(OWN, "page.css"),
        script=script,
        data=data | {"drawings": material.drawings, "arrays": material.arrays},
        arrays=material.packed(),
        **contents,
    )
    return Page(html, tuple(material.notes))


def _contents(material: Material) -> Row:
    """Everything on the page, by kind: what the template and the script need for each section."""
    contents: Row = {
        kind: [part for at, folder in enumerate(material.folders[kind]) if (part := make(folder, at, material))]
        for kind, make in SECTIONS.items()
    }
    runs, landscapes = shown_runs(material), landscape_sections(material)
    opens, staged = theory_run(runs), two_stage_run(runs)
    # A page with one run is about this run; the article is about the first folder.
    player, words = staged is not None and bool(contents["claims"] or len(runs) > 1), None
    if contents["claims"]:
        words = article(contents["claims"][0], player=player, landscape=bool(landscapes))
    # A player of an article plays one thing; without an article, or below it, one shows all of a run that is chosen.
    players = {}
    if opens:
        whole = {"kind": "all", "run": runs.index(opens)}
        players = {"film-player": whole | {"kind": "film"}, "runs": whole} if words else {"film-player": whole}
    if staged and words and words["player"]:
        players["stages-player"] = {"kind": "stages", "run": runs.index(staged)}
    several = words or landscapes or len(runs) > 1 or any(contents[kind] for kind in SECTIONS)
    return contents | {
        "article": words,
        "alone": None if several else opens,
        "runs": run_sections(runs, material, first=[run.name for run in (opens, staged) if run]),
        "players": players,
        "landscapes": landscapes,
        # The playground belongs beside models trained on documents of a topic model; other pages have another subject.
        "playable": bool(contents["claims"] or landscapes or not all(map(on_text, runs))),
    }
