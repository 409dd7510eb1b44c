"""One self-contained HTML file from claims, run folders, landscapes, probes and sweeps.

The file holds every array packed and gzipped, and a content-security policy that forbids all network. Text that came
from outside is escaped where it is written, by Jinja2 in HTML and as text nodes by the script.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from topicscope.measure.run import Run
from topicscope.reporting.page.claims import YOURS, article, claims_section, example_document
from topicscope.reporting.page.probes import probe_section
from topicscope.reporting.page.runs import (
    film_caption,
    landscape_sections,
    outcome,
    players_of,
    run_sections,
    shown_runs,
    theory_run,
    two_stage_run,
)
from topicscope.reporting.page.store import Found, find, script_json
from topicscope.reporting.page.sweeps import sweep_section
from topicscope.reporting.page.texts import text_run
from topicscope.reporting.playground import asset, content_policy, playground, template
from topicscope.reporting.symbols import typeset
from topicscope.store import Row, write_atomically
from topicscope.work import package_versions

# The end of a page's title identifies it as ours; it is well within this many bytes.
MARK, HEAD_BYTES = " · topicscope</title>".encode(), 65_536

SCRIPTS = ("player.js", "widgets.js", "page.js")
OWN = "topicscope.reporting.page"


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
    """The page about these folders."""
    found = find([Path(folder) for folder in folders])
    contents = _contents(found)
    # It belongs beside models trained on documents of a topic model; a page of probes or of text has another subject.
    try_it = playground() if contents["claims"] or found.runs or contents["landscapes"] else None
    contents["links"] = _links(contents, try_it=try_it is not None)
    data = {
        "runs": contents["runs"],
        "players": list(contents["players"].values()),
        "landscapes": contents["landscapes"],
        "drawings": found.drawings,
        "sweeps": [section["columns"] for section in contents["sweeps"]],
        "arrays": found.store.index,
    }
    pieces = [playground().kit, *(asset(OWN, name) for name in SCRIPTS), *([try_it.script] if try_it else [])]
    script = "\n".join(pieces)
    html = template(
        OWN,
        "page.html",
        filters={"symbols": typeset, "cells": _cells},
        title=_title(folders),
        heading=contents["heading"],
        lede=contents["lede"],
        yours=YOURS,
        folders=[str(folder) for folder in folders],
        version=package_versions(("topicscope",))["topicscope"],
        contents=contents,
        notes=found.notes,
        present=present,
        playground=try_it,
        policy=content_policy(script, workers=try_it is not None),
        style=playground().style + asset(OWN, "page.css"),
        script=script,
        data=script_json(data),
        arrays=found.store.packed(),
    )
    return Page(html, tuple(found.notes))


def _cells(row: Mapping[str, Any], columns: Iterable[str] | None = None) -> list[Any]:
    return [row[name] for name in columns or row]


def _contents(found: Found) -> dict[str, Any]:
    """Everything on the page, by kind: what the template needs for each section."""
    makers = {"claims": claims_section, "probes": probe_section, "sweeps": sweep_section}
    contents: dict[str, Any] = {}
    for kind, make in makers.items():
        made = [make(folder, number, found) for number, folder in enumerate(getattr(found, kind))]
        contents[kind] = [section for section in made if section]
    shown, landscapes = shown_runs(found.runs, found), landscape_sections(found)
    first = [run.name for run in (theory_run(shown), two_stage_run(shown)) if run]
    texts = [run for folder in found.texts if (run := text_run(folder, found))]
    runs = [*run_sections(shown, found.store, first=first), *texts]
    contents |= {"runs": runs, "landscapes": landscapes}
    # The article is about the first folder that has one; those with words alone have no section of claims.
    first_claims = next(iter(contents["claims"]), None)
    contents["claims"] = [section for section in contents["claims"] if section["claims"]]
    places = {run["name"]: place for place, run in enumerate(runs)}
    # A page with one run is about this run.
    played = two_stage_run(shown) is not None and bool(contents["claims"] or len(shown) > 1)
    told = article(first_claims, {"landscape": bool(landscapes), "player": played})
    parts = [part for section in (told["sections"] if told else []) for part in section["parts"]]
    players = players_of(
        shown, places, article=told is not None, stages=any(part["kind"] == "player" for part in parts)
    )
    in_article = {part["figure"]["name"] for part in parts if part["kind"] == "figure"}
    for section in contents["claims"]:
        for figure in section["figures"]:
            figure["in_article"] = section is first_claims and figure["name"] in in_article
    return contents | {
        "article": told,
        "document": example_document(),
        "players": players,
        "film_caption": film_caption(theory_run(shown)),
        "landscape_in_article": any(part["kind"] == "landscape" for part in parts),
        **_heading(shown, told, contents),
    }


def _heading(runs: Sequence[Run], told: Row | None, contents: Mapping[str, Any]) -> Row:
    """The page's heading: the paper's question, or, for one thing alone, what it is, and how a run ended."""
    alone = [kind for kind in ("probes", "sweeps", "landscapes") if contents[kind]]
    if len(contents["runs"]) == 1 and not told and not alone:
        lede = [typeset(outcome(run)) for run in runs]
        return {"heading": typeset(contents["runs"][0]["title"]), "lede": lede}
    named = {"probes": "Topic structure in language models", "sweeps": "A sweep over settings"}
    only = len(alone) == 1 and not contents["runs"] and not contents["claims"]
    return {"heading": named.get(alone[0] if only else "", "How transformers learn topic structure"), "lede": []}


def _links(contents: Mapping[str, Any], *, try_it: bool) -> list[tuple[str, str | Markup]]:
    """Links to the sections of this page, in their order."""
    players, told = contents["players"], contents["article"]
    links: list[tuple[str, str | Markup]] = [("findings", "Findings")] if told and told["findings"] else []
    links += [("film", "Training")] if "film" in players else []
    links += [(section["anchor"], section["title"].partition(":")[0]) for section in told["sections"]] if told else []
    for kind, name in {"probes": "Probe", "sweeps": "Sweep"}.items():
        for each in contents[kind]:
            which = "" if len(contents[kind]) == 1 else f": {'/'.join(Path(each['folder']).parts[-2:])}"
            links.append((each["anchor"], name + which))
    if contents["landscapes"] and not contents["landscape_in_article"]:
        links.append(("landscapes", "Landscape"))
    links += [("try", "Try it")] if try_it else []
    links += [("yours", "Now yours")] if told else []
    links += [("training", "All runs")] if "runs" in players else []
    return links + [(f"claims-{number}", "All claims") for number, _ in enumerate(contents["claims"])]


def _title(folders: Sequence[Path]) -> str:
    names = [Path(folder).resolve().name for folder in folders]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
