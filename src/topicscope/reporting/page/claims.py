"""Drawings of a folder that the page shows as they are, with the numbers that they show."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from topicscope.reporting.page.folders import Found, Row, read_json
from topicscope.reporting.page.store import Reference, Store

# Larger ones, drawn with thousands of marks, would fill the page; they stay in the folder.
LARGEST = 1_500_000


MOST_NUMBERS = 400_000


# Points of a drawing that are kept to seven digits; of more there are four.
MOST_EXACT, EXACT_DIGITS, DIGITS = 2_000, 7, 4


@dataclass(frozen=True)
class Image:
    """An SVG file, under the name that links lead to."""

    anchor: str
    name: str
    reference: Reference
    numbers: dict[str, Any] | None
    """For the script: the table of the drawing; None if it was not written beside it."""

    @property
    def rounded(self) -> bool:
        """Whether the page has fewer digits of its points than the table beside the drawing."""
        return self.numbers is not None and self.numbers["digits"] < EXACT_DIGITS


def image_of(path: Path, anchor: str, store: Store, found: Found) -> Image | None:
    """The drawing; None, with a note, if it is not there or too large."""
    if not path.exists():
        found.notes.append(f"{path} is not drawn yet.")
        return None
    if path.stat().st_size > LARGEST:
        found.notes.append(f"{path} is too large for the page.")
        return None
    numbers = path.with_suffix(".csv")
    points = _numbers(numbers, store, found) if store.points and numbers.exists() else None
    return Image(anchor, path.stem, store.text(path.read_bytes()), points)


def images_of(paths: Sequence[Path], anchor: str, store: Store, found: Found) -> tuple[Image, ...]:
    """Those of several drawings that can be shown."""
    images = [image_of(path, f"{anchor}-image-{place}", store, found) for place, path in enumerate(paths)]
    return tuple(image for image in images if image)


def _numbers(path: Path, store: Store, found: Found) -> dict[str, Any] | None:
    """A drawing's table, by column: numbers as an array; words, many of them alike, as a list and places in it."""
    try:
        texts = dict.fromkeys(csv.open_csv(path).schema.names, pa.string())
        options = csv.ConvertOptions(column_types=texts, strings_can_be_null=True)
        table = csv.read_csv(path, convert_options=options).combine_chunks()
    except (OSError, ValueError, pa.ArrowInvalid) as error:
        found.notes.append(f"{path} cannot be read ({str(error).splitlines()[0]}); its numbers are left out.")
        return None
    if not 0 < len(table) <= MOST_NUMBERS:
        found.notes.append(f"{path} has {len(table):,} points, which the page leaves out.")
        return None
    exact = len(table) <= MOST_EXACT
    columns = [_column(table[name].combine_chunks(), store, exact) for name in table.column_names]
    return {
        "names": table.column_names,
        "columns": columns,
        "rows": len(table),
        "digits": EXACT_DIGITS if exact else DIGITS,
    }


def _column(cells: pa.StringArray, store: Store, exact: bool) -> dict[str, Any]:
    try:
        return {"numbers": store.rounded(cells.cast(pa.float64()).to_numpy(zero_copy_only=False), exact=exact)}
    except pa.ArrowInvalid:
        words = cells.fill_null("").dictionary_encode()
        return {"words": words.dictionary.to_pylist(), "numbers": store.rounded(words.indices.to_numpy())}


# The claims table: rows of claims.json as they are read, with the command and the place in the paper for each.


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
    content = read_json(folder / "claims.json", found)
    if content is None:
        return None
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        found.notes.append(f"{folder / 'claims.json'} is not a list of claims; it is left out.")
        return None
    if not content:
        found.notes.append(f"{folder}: no claim is measured yet; run topicscope reproduce --out {folder} to go on.")
        return None
    settings = (read_json(folder / "settings.json", found) if (folder / "settings.json").exists() else None) or {}
    _say_if_unfinished(folder, len(content), found)
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


def number_text(value: Any) -> str:
    """A number with five digits, text as it is."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.5g}"


def section_of(source: str) -> tuple[str, str]:
    """The paper's section that a source stands in, and the address of it."""
    section = SECTIONS.get(source, source.removeprefix("§"))
    if not re.fullmatch(r"[0-9A-E](\.\d+)*", section):
        return "the paper", PAPER
    first, *rest = section.split(".")
    head = f"S{first}" if first.isdigit() else f"A{'ABCDE'.index(first) + 1}"
    return f"§{section}", PAPER + "#" + ".".join([head, *(f"SS{part}" for part in rest[:1])])


def _say_if_unfinished(folder: Path, measured: int, found: Found) -> None:
    progress = read_json(folder / "progress.json", found) if (folder / "progress.json").exists() else None
    if isinstance(progress, dict) and progress.get("measured", 0) < progress.get("asked", 0):
        found.notes.append(
            f"{folder} is not finished: {progress['measured']} of {progress['asked']} claims are measured; "
            f"run topicscope reproduce --out {folder} again to go on."
        )


def _row(row: Row, place: int, number: int, folder: Path, settings: dict[str, Any]) -> ClaimRow:
    section, link = section_of(str(row["source"]))
    bounded = row.get("low") is not None and row.get("high") is not None
    return ClaimRow(
        place=place,
        anchor=f"claim-{number}-{place}",
        id=str(row["id"]),
        source=str(row["source"]),
        section=section,
        link=link,
        statement=str(row["statement"]),
        expected=number_text(row["expected"]),
        measured=number_text(row["measured"]),
        interval=f"[{row['low']:.5g}, {row['high']:.5g}]" if bounded else "",
        unit=str(row.get("unit", "")),
        verdict=str(row["verdict"]),
        corrected=str(row.get("verdict_corrected", row["verdict"])),
        sign=SIGNS.get(str(row["verdict"]), ""),
        ours=bool(row.get("ours")),
        rule=str(row.get("rule", "")),
        seeds=int(row.get("seeds", 0)),
        figure=str(row.get("figure", "")),
        command=_command(str(row["id"]), folder, settings),
        details=tuple((str(name), number_text(value)) for name, value in (row.get("details") or {}).items()),
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
