"""One self-contained HTML file from claims, run folders, landscapes, probes and sweeps.

The file holds the plotting library once, every array packed and gzipped, and a content-security policy that forbids all
network. Text that came from outside is escaped where it is written, by Jinja2 in HTML and by the script in figures.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from topicscope.files import Row, write_atomically
from topicscope.measure.film import RunView
from topicscope.reporting.page.article import PAPER, article, example_document, findings, opening, yours
from topicscope.reporting.page.claims import claims_section
from topicscope.reporting.page.probes import probe_section
from topicscope.reporting.page.runs import (
    FRAME_BYTES,
    film_caption,
    landscape_sections,
    outcome,
    players_of,
    run_sections,
    run_views,
    theory_run,
    title_of_run,
    two_stage_run,
)
from topicscope.reporting.page.store import Found, find, packed, script_json
from topicscope.reporting.page.sweeps import sweep_section
from topicscope.reporting.page.texts import text_section
from topicscope.reporting.playground import content_policy, playground
from topicscope.reporting.symbols import typeset
from topicscope.scale import package_versions

ASSETS = Path(__file__).parent / "assets"

# A page is at most 10 MB. This much is kept for its text and for errors of estimates.
MOST_BYTES, MARGIN = 10_000_000, 800_000

# The end of a page's title identifies it as ours; it is well within this many bytes.
MARK, HEAD_BYTES = " · topicscope</title>".encode(), 65_536

SCRIPTS = ("core.js", "figures.js", "sweeps.js", "claims.js", "player.js", "landscapes.js", "start.js")


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


def page_html(folders: Sequence[Path], *, present: bool = False) -> str:
    """The page as text; ``present`` shows figures and sliders alone, in large type."""
    return page_of(folders, present=present).html


def page_of(folders: Sequence[Path], *, present: bool = False) -> Page:
    """The page about these folders, without the points of drawings if they would make it too large."""
    page = _page(folders, points=True, present=present)
    return page if len(page.html.encode()) <= MOST_BYTES else _page(folders, points=False, present=present)


def _page(folders: Sequence[Path], *, points: bool, present: bool) -> Page:
    found = find([Path(folder) for folder in folders])
    found.store.points = points
    if not points:
        found.notes.append("The page would be too large with the points of all drawings: they are in figures/*.csv.")
    contents = _contents(found)
    # It belongs beside models trained on documents of a topic model; a page of probes or of text has another subject.
    try_it = playground() if contents["claims"] or contents["runs"] or contents["landscapes"] else None
    contents["links"] = _links(contents, try_it=try_it is not None)
    drawn = [figure["image"] for section in contents["claims"] for figure in section["figures"] if figure["image"]]
    drawn += [image for section in [*contents["probes"], *contents["sweeps"]] for image in section["images"]]
    data = {
        "runs": contents["runs"],
        "players": list(contents["players"].values()),
        "landscapes": contents["landscapes"],
        "figures": [
            figure for kind in ("texts", "probes") for section in contents[kind] for figure in section["figures"]
        ],
        "images": {image["anchor"]: {name: image[name] for name in ("drawing", "numbers")} for image in drawn},
        "sweeps": [section["columns"] for section in contents["sweeps"]],
        "arrays": found.store.index,
    }
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    environment = Environment(
        loader=PackageLoader("topicscope.reporting.page", "assets"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["symbols"] = typeset
    html = environment.get_template("page.html").render(
        title=_title(folders),
        heading=contents["heading"],
        lede=contents["lede"],
        opening=opening(),
        paper=PAPER,
        yours=yours(),
        folders=[str(folder) for folder in folders],
        version=package_versions(("topicscope",))["topicscope"],
        contents=contents,
        notes=found.notes,
        present=present,
        playground=try_it,
        policy=content_policy(_plotly(), script, *([try_it.script] if try_it else []), workers=try_it is not None),
        style=style + (try_it.style if try_it else ""),
        script=script,
        data=script_json(data),
        arrays=found.store.packed(),
        library=_library(),
    )
    return Page(html, tuple(found.notes))


@cache
def _plotly() -> str:
    return get_plotlyjs()


@cache
def _library() -> str:
    return packed(_plotly().encode())


def _contents(found: Found) -> dict[str, Any]:
    """Everything on the page, by kind: what the template needs for each section."""
    makers = {"claims": claims_section, "texts": text_section, "probes": probe_section, "sweeps": sweep_section}
    contents: dict[str, Any] = {}
    for kind, make in makers.items():
        made = [make(folder, number, found) for number, folder in enumerate(getattr(found, kind))]
        contents[kind] = [section for section in made if section]
    views, landscapes = run_views(found.runs, found), landscape_sections(found)
    # Matrices over training take the room that the rest leaves.
    room = MOST_BYTES - MARGIN - len(_library()) - found.store.estimate()
    first = [view.name for view in (theory_run(views), two_stage_run(views)) if view]
    runs = run_sections(views, found.store, min(FRAME_BYTES, 3 * room // 4), first=first)
    contents |= {"runs": runs, "landscapes": landscapes}
    rows = contents["claims"][0]["rows"] if contents["claims"] else []
    figures = {each["name"]: each for section in contents["claims"][:1] for each in section["figures"] if each["image"]}
    places = {run["name"]: place for place, run in enumerate(runs)}
    # A page with one run is about this run.
    played = two_stage_run(views) is not None and bool(rows or len(views) > 1)
    movable = {"document": True, "landscape": bool(landscapes), "stages": played}
    sections = article(rows, figures, movable)
    parts = [part for section in sections for part in section["parts"]]
    players = players_of(views, places, article=bool(sections), stages=any(part["kind"] == "player" for part in parts))
    in_article = {part["figure"]["name"] for part in parts if part["kind"] == "figure"}
    for section in contents["claims"]:
        for figure in section["figures"]:
            figure["in_article"] = section is contents["claims"][0] and figure["name"] in in_article
    return contents | {
        "article": sections,
        "findings": findings(rows, figures),
        "document": example_document(),
        "players": players,
        "film_caption": film_caption(theory_run(views)),
        "landscape_in_article": any(part["kind"] == "landscape" for part in parts),
        **_heading(views, sections, contents),
    }


def _heading(views: Sequence[RunView], sections: Sequence[Row], contents: Mapping[str, Any]) -> Row:
    """The page's heading: the paper's question, or, for one thing alone, what it is, and how a run ended."""
    alone = [kind for kind in ("probes", "sweeps", "texts", "landscapes") if contents[kind]]
    if len(views) == 1 and not sections and not alone:
        return {"heading": typeset(title_of_run(views[0])), "lede": [typeset(outcome(views[0]))]}
    named = {"probes": "Topic structure in language models", "sweeps": "A sweep over settings"}
    only = len(alone) == 1 and not views and not contents["claims"]
    return {"heading": named.get(alone[0] if only else "", "How transformers learn topic structure"), "lede": []}


def _links(contents: Mapping[str, Any], *, try_it: bool) -> list[tuple[str, Any]]:
    """Links to the sections of this page, in their order."""
    players = contents["players"]
    links: list[tuple[str, Any]] = [("film", "Training")] if "film" in players and not contents["article"] else []
    links += [("try", "Try it")] if try_it else []
    links += [(section["anchor"], section["title"].partition(":")[0]) for section in contents["article"]]
    links += [("findings", "Findings")] if contents["findings"] else []
    links += [("yours", "Now yours")] if contents["article"] else []
    for kind, name in {"probes": "Probe", "sweeps": "Sweep", "texts": "Training on text"}.items():
        for each in contents[kind]:
            which = "" if len(contents[kind]) == 1 else f": {'/'.join(Path(each['folder']).parts[-2:])}"
            links.append((each["anchor"], name + which))
    if contents["landscapes"] and not contents["landscape_in_article"]:
        links.append(("landscapes", "Landscape"))
    links += [("training", "All runs")] if "runs" in players else []
    return links + [(f"claims-{number}", "All claims") for number, _ in enumerate(contents["claims"])]


def _title(folders: Sequence[Path]) -> str:
    names = [Path(folder).resolve().name for folder in folders]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
