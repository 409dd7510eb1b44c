"""One self-contained HTML file from claims, run folders, landscapes, probes and sweeps.

The file holds every array packed and gzipped, and a content-security policy that forbids all network. Text that came
from outside is escaped where it is written, by Jinja2 in HTML and as text nodes by the script.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from topicscope.measure.run import Run
from topicscope.reporting import verdicts
from topicscope.reporting.page.claims import YOURS, article, claims_section, example_document
from topicscope.reporting.page.runs import (
    film_caption,
    on_text,
    outcome,
    players_of,
    run_sections,
    shown_runs,
    theory_run,
    title_of,
    two_stage_run,
)
from topicscope.reporting.page.store import Found, find, script_json
from topicscope.reporting.page.studies import landscape_sections, probe_section, sweep_section
from topicscope.reporting.playground import asset, content_policy, playground, template
from topicscope.reporting.rounding import claim_number, claim_text
from topicscope.reporting.symbols import typeset
from topicscope.store import Row, write_atomically
from topicscope.work import package_versions

# The end of a page's title identifies it as ours; it is well within this many bytes.
MARK, HEAD_BYTES = " · topicscope</title>".encode(), 65_536

SCRIPTS = ("player.js", "landscape.js", "page.js")
OWN = "topicscope.reporting.page"
# What the template calls to write a claim and its parts.
FILTERS: dict[str, Callable[..., Any]] = {
    "symbols": typeset,
    "number": claim_number,
    "measured": claim_text,
    "margin": verdicts.margin_text,
    "why": verdicts.why,
}


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
    found = find([Path(folder) for folder in folders])
    contents = _contents(found)
    try_it = playground() if contents["try"] else None
    contents["links"] = _links(contents, try_it=try_it is not None)
    data = {
        "runs": contents["runs"],
        "players": list(contents["players"].values()),
        "landscapes": contents["landscapes"],
        "drawings": found.drawings,
        "arrays": found.store.index,
    }
    pieces = [playground().kit, *(asset(OWN, name) for name in SCRIPTS), *([try_it.script] if try_it else [])]
    script, names = "\n".join(pieces), [Path(folder).resolve().name for folder in folders]
    html = template(
        OWN,
        "page.html",
        filters=FILTERS,
        title=", ".join(names[:3]) + (" …" if len(names) > 3 else ""),
        yours=YOURS,
        signs=verdicts.SIGNS,
        verdicts=verdicts.VERDICTS,
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


def _contents(found: Found) -> Row:
    """Everything on the page, by kind: what the template needs for each section."""
    makers = {"claims": claims_section, "probes": probe_section, "sweeps": sweep_section}
    contents: Row = {
        kind: [part for at, folder in enumerate(getattr(found, kind)) if (part := make(folder, at, found))]
        for kind, make in makers.items()
    }
    runs, landscapes = shown_runs(found.runs, found), landscape_sections(found)
    film, staged = theory_run(runs), two_stage_run(runs)
    # The article is about the first folder that has one; those with words alone have no section of claims.
    first = next(iter(contents["claims"]), None)
    contents["claims"] = [section for section in contents["claims"] if section["claims"]]
    # A page with one run is about this run.
    played = staged is not None and bool(contents["claims"] or len(runs) > 1)
    told = article(first, {"landscape": bool(landscapes), "player": played})
    parts = [part for section in (told["sections"] if told else []) for part in section["parts"]]
    in_article = {part["figure"]["name"] for part in parts if part["kind"] == "figure"}
    for section in contents["claims"]:
        for figure in section["figures"]:
            figure["in_article"] = section is first and figure["name"] in in_article
    stages = any(part["kind"] == "player" for part in parts)
    return contents | {
        "runs": run_sections(runs, found, first=[run.name for run in (film, staged) if run]),
        "landscapes": landscapes,
        # The playground belongs beside models trained on documents of a topic model; other pages have another subject.
        "try": contents["claims"] or landscapes or not all(map(on_text, runs)),
        "article": told,
        "document": example_document(),
        "players": players_of(runs, article=told is not None, stages=stages),
        "film_caption": film_caption(film),
        "landscape_in_article": any(part["kind"] == "landscape" for part in parts),
        **_heading(runs, told, contents | {"landscapes": landscapes}),
    }


def _heading(runs: Sequence[Run], told: Row | None, contents: Mapping[str, Any]) -> Row:
    """The page's heading: the paper's question, or, for one thing alone, what it is, and how a run ended."""
    alone = [kind for kind in ("claims", "probes", "sweeps", "landscapes") if contents[kind]]
    heading, lede = "How transformers learn topic structure", []
    if len(runs) == 1 and not told and not alone:
        heading, lede = title_of(runs[0]), [typeset(outcome(runs[0]))]
    elif alone in (["probes"], ["sweeps"]) and not runs:
        heading = {"probes": "Topic structure in language models", "sweeps": "A sweep over settings"}[alone[0]]
    return {"heading": typeset(heading), "lede": lede}


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
