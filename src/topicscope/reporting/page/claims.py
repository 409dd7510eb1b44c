"""The claims table: rows of claims.json, with the command, the drawing and the place in the paper for each."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.files import Row
from topicscope.records import read_claims, read_progress, read_reproduce_settings
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.store import Image, Store, image_of
from topicscope.reporting.rounding import claim_interval, claim_number

VERDICTS = ("holds", "fails", "undecided", "not run")

# A sign beside the word, so that colour says nothing alone.
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}

PAPER = "https://ar5iv.labs.arxiv.org/html/2303.04245"

# Where the paper states each source, when its own name does not say.
SECTIONS = {
    "Lemma 1": "A.1",
    "Theorem 1": "4",
    "Theorem 2": "5.2",
    "Theorem 3": "5.3",
    "Remark 1": "3.2",
    "Remark 2": "4",
    "Remark 3": "4",
    "Remark 4": "5.3",
    "Remark 5": "5.3",
    "Remark 6": "5.3",
    "Remark 7": "5.3",
    "Remark 8": "A.1",
    "Figure 1": "6.1",
    "Figure 2": "6.1",
    "Figure 3": "6.2",
    "Figure 4": "8.1",
    "Figure 5": "8.1",
    "Figure 6": "D.5",
    "Figure 7": "D.5",
    "Figure 8": "D.5",
    "Figure 9": "D.5",
    "Figure 10": "E.1",
    "Table 1": "6.2",
    "Table 2": "6.2",
    "Table 3": "E.2",
    "Table 5": "E.3",
}


@dataclass(frozen=True)
class ClaimRow:
    """A claim in words."""

    place: int
    anchor: str
    id: str
    source: str
    section: str
    link: str
    statement: str
    expected: str
    measured: str
    interval: str
    unit: str
    verdict: str
    corrected: str
    sign: str
    ours: bool
    rule: str
    seeds: int
    figure: str
    command: str
    details: tuple[tuple[str, str], ...]
    order: float | None
    """The measured number, to sort by."""


@dataclass(frozen=True)
class StaticFigure:
    """A drawing of the folder, and the claims that it shows."""

    anchor: str
    name: str
    image: Image | None
    claims: tuple[ClaimRow, ...]


@dataclass(frozen=True)
class ClaimsSection:
    """All claims of one folder."""

    folder: str
    ran: str
    rows: tuple[ClaimRow, ...]
    counts: tuple[tuple[str, int], ...]
    sources: tuple[str, ...]
    figures: tuple[StaticFigure, ...]


def claims_section(folder: Path, number: int, store: Store, found: Found) -> ClaimsSection | None:
    """The claims of a folder; None, with a note, if there are none."""
    content = found.read(read_claims, folder / "claims.json")
    if not content:
        if content is not None:
            found.notes.append(f"{folder}: no claim is measured yet; run topicscope reproduce --out {folder} to go on.")
        return None
    settings = found.read(read_reproduce_settings, folder / "settings.json") or {}
    _say_if_unfinished(folder, found)
    rows = tuple(_row(row, place, number, folder, settings) for place, row in enumerate(content))
    figures = _figures(folder, rows, number, store, found)
    return ClaimsSection(
        folder=str(folder),
        ran=", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, [], "")),
        rows=rows,
        counts=tuple((verdict, sum(row.verdict == verdict for row in rows)) for verdict in VERDICTS),
        sources=tuple(dict.fromkeys(row.source for row in rows)),
        figures=figures,
    )


def section_of(source: str) -> tuple[str, str]:
    """The paper's section that a source stands in, and the address of it."""
    section = SECTIONS.get(source, source.removeprefix("§"))
    if not re.fullmatch(r"[0-9A-E](\.\d+)*", section):
        return "the paper", PAPER
    first, *rest = section.split(".")
    head = f"S{first}" if first.isdigit() else f"A{'ABCDE'.index(first) + 1}"
    return f"§{section}", PAPER + "#" + ".".join([head, *(f"SS{part}" for part in rest[:1])])


def _say_if_unfinished(folder: Path, found: Found) -> None:
    progress = found.read(read_progress, folder / "progress.json")
    if progress and progress["measured"] < progress["asked"]:
        found.notes.append(
            f"{folder} is not finished: {progress['measured']} of {progress['asked']} claims are measured; "
            f"run topicscope reproduce --out {folder} again to go on."
        )


def _row(row: Row, place: int, number: int, folder: Path, settings: dict[str, Any]) -> ClaimRow:
    section, link = section_of(row["source"])
    return ClaimRow(
        place=place,
        anchor=f"claim-{number}-{place}",
        id=row["id"],
        source=row["source"],
        section=section,
        link=link,
        statement=row["statement"],
        expected=claim_number(row["expected"]),
        measured=claim_number(row["measured"]),
        interval=claim_interval(row),
        unit=row.get("unit", ""),
        verdict=row["verdict"],
        corrected=row.get("verdict_corrected") or row["verdict"],
        sign=SIGNS.get(row["verdict"], ""),
        ours=bool(row.get("ours")),
        rule=row.get("rule", ""),
        seeds=row.get("seeds", 0),
        figure=row.get("figure", ""),
        command=_command(row["id"], folder, settings),
        details=tuple((name, claim_number(value)) for name, value in (row.get("details") or {}).items()),
        order=row["measured"],
    )


def _command(identifier: str, folder: Path, settings: dict[str, Any]) -> str:
    """What measures this claim again, in a folder of its own."""
    words = ["topicscope", "reproduce", "--only", identifier]
    for name in ("preset", "seeds", "seed"):
        if name in settings:
            words += [f"--{name}", str(settings[name])]
    if settings.get("models"):
        words += ["--models", *map(str, settings["models"])]
    return shlex.join([*words, "--out", f"{folder}-again"])


def _figures(
    folder: Path, rows: tuple[ClaimRow, ...], number: int, store: Store, found: Found
) -> tuple[StaticFigure, ...]:
    figures: list[StaticFigure] = []
    for name in dict.fromkeys(row.figure for row in rows if row.figure):
        anchor = f"figure-{number}-{len(figures)}"
        image = image_of(folder / "figures" / f"{name}.svg", anchor, store, found)
        shown = tuple(row for row in rows if row.figure == name)
        figures.append(StaticFigure(anchor, name, image, shown))
    return tuple(figures)
