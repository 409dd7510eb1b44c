"""The claims table: rows of claims.json, with the command, the drawing and the place in the paper for each."""

import re
import shlex
from pathlib import Path

from topicscope.files import Row
from topicscope.records import read_claims, read_progress, read_reproduce_settings
from topicscope.reporting.page.article import title_of
from topicscope.reporting.page.store import Found
from topicscope.reporting.rounding import claim_interval, claim_number
from topicscope.reporting.verdicts import why

KINDS = {
    "paper": "the paper's claims",
    "elsewhere": "the paper's claims on another model or corpus",
    "ours": "ours, beside them",
    "check": "checks, which cannot fail if the program is right",
}

# How a threshold is moved.
FACTORS = {"third": "a third of the threshold", "triple": "three times the threshold"}

# A sign beside the word, so that nothing depends on colour alone.
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}

PAPER = "https://ar5iv.labs.arxiv.org/html/2303.04245"

# The paper's section for each source whose name does not contain it.
SECTIONS = {
    source: section
    for section, sources in {
        "3.2": ("Remark 1",),
        "4": ("Theorem 1", "Remark 2", "Remark 3"),
        "5.2": ("Theorem 2",),
        "5.3": ("Theorem 3", "Assumption 2", "Remark 4", "Remark 5", "Remark 6", "Remark 7"),
        "6.1": ("Figure 1", "Figure 2"),
        "6.2": ("Figure 3", "Table 1", "Table 2"),
        "8.1": ("Figure 4", "Figure 5"),
        "A.1": ("Lemma 1", "Remark 8"),
        "D.5": ("Figure 6", "Figure 7", "Figure 8", "Figure 9"),
        "E.1": ("Figure 10",),
        "E.2": ("Table 3",),
        "E.3": ("Table 5",),
    }.items()
    for source in sources
}


def claims_section(folder: Path, number: int, found: Found) -> Row | None:
    """The claims of a folder, with drawings and the claims that each shows; None, with a note, if there are none."""
    content = found.read(read_claims, folder / "claims.json")
    if not content:
        if content is not None:
            found.notes.append(f"{folder}: no claim is measured yet; run topicscope reproduce --out {folder} to go on.")
        return None
    settings = found.read(read_reproduce_settings, folder / "settings.json") or {}
    progress = found.read(read_progress, folder / "progress.json")
    if progress and progress["measured"] < progress["asked"]:
        found.notes.append(
            f"{folder} is not finished: {progress['measured']} of {progress['asked']} claims are measured; "
            f"run topicscope reproduce --out {folder} again to go on."
        )
    rows = [_row(row, folder, settings) | {"anchor": f"claim-{number}-{at}"} for at, row in enumerate(content)]
    figures: list[Row] = []
    for name in dict.fromkeys(row["figure"] for row in rows if row["figure"]):
        anchor = f"figure-{number}-{len(figures)}"
        image = found.image(folder / "figures" / f"{name}.svg", anchor)
        shown = [row for row in rows if row["figure"] == name]
        title = title_of(name, shown)
        figures.append({"anchor": anchor, "name": name, "title": title, "image": image, "claims": shown})
    return {
        "folder": str(folder),
        "ran": ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, [], "")),
        "rows": rows,
        "counts": _counts(rows),
        "kinds": [
            (kind, words, _counts(some))
            for kind, words in KINDS.items()
            if (some := [row for row in rows if row["kind"] == kind])
        ],
        "sources": list(dict.fromkeys(row["source"] for row in rows)),
        "figures": figures,
    }


def _counts(rows: list[Row]) -> list[tuple[str, int]]:
    return [(verdict, sum(row["verdict"] == verdict for row in rows)) for verdict in SIGNS]


def section_of(source: str) -> tuple[str, str]:
    """The paper's section that contains a source, and its address."""
    section = SECTIONS.get(source, source.removeprefix("§"))
    if not re.fullmatch(r"[0-9A-E](\.\d+)*", section):
        return "the paper", PAPER
    first, *rest = section.split(".")
    head = f"S{first}" if first.isdigit() else f"A{'ABCDE'.index(first) + 1}"
    return f"§{section}", PAPER + "#" + ".".join([head, *(f"SS{part}" for part in rest[:1])])


def _row(row: Row, folder: Path, settings: Row) -> Row:
    """A claim in words; ``order`` is the measured number, to sort by."""
    section, link = section_of(row["source"])
    nothing: Row = {"unit": "", "rule": "", "seeds": 0, "figure": ""}
    before, asked = row.get("verdict_before"), row.get("asked_before") or "not recorded"
    moved = (row.get("sensitivity") or {}).items()
    return {
        **nothing,
        **row,
        # Folders of version 0.1 only say whether a claim is ours.
        "kind": row.get("kind") or ("ours" if row.get("ours") else "paper"),
        "before": f"{before}, by what an earlier version asked for: {asked}" if before else "",
        "diagnosis": why(row) if row.get("diagnosis") else "",
        "sensitivity": ", ".join(f"{verdict} with {FACTORS.get(name, name)}" for name, verdict in moved),
        "section": section,
        "link": link,
        "expected": claim_number(row["expected"]),
        "measured": claim_number(row["measured"]),
        "interval": claim_interval(row),
        "corrected": row.get("verdict_corrected") or row["verdict"],
        "sign": SIGNS.get(row["verdict"], ""),
        "command": _command(row["id"], folder, settings),
        "details": [(name, claim_number(value)) for name, value in (row.get("details") or {}).items()],
        # The plain numbers, for sentences.
        "order": row["measured"],
        "numbers": row.get("details") or {},
    }


def _command(identifier: str, folder: Path, settings: Row) -> str:
    """The command that measures this claim again, in a separate folder."""
    words = ["topicscope", "reproduce", "--only", identifier]
    for name in ("preset", "seeds", "seed"):
        if name in settings:
            words += [f"--{name}", str(settings[name])]
    if settings.get("models"):
        words += ["--models", *map(str, settings["models"])]
    return shlex.join([*words, "--out", f"{folder}-again"])
