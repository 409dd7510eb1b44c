"""The claims table: rows of claims.json, with the command, the drawing and the place in the paper for each."""

import re
import shlex
from pathlib import Path

from topicscope.files import Row
from topicscope.records import read_claims, read_progress, read_reproduce_settings
from topicscope.reporting.page.article import title_of
from topicscope.reporting.page.folders import Found
from topicscope.reporting.page.store import Store, image_of
from topicscope.reporting.rounding import claim_interval, claim_number

VERDICTS = ("holds", "fails", "undecided", "not run")

KINDS = {
    "paper": "the paper's claims",
    "elsewhere": "the paper's claims on another model or corpus",
    "ours": "ours, beside them",
    "check": "checks, which cannot fail if the program is right",
}

# Why a claim does not hold, and by how much a threshold is moved.
CAUSES = {
    "error": "An error in the paper",
    "wording": "A matter of wording",
    "settings": "A matter of settings",
    "power": "Too few runs to tell",
    "unknown": "Not explained",
}
FACTORS = {"third": "a third of the threshold", "triple": "three times the threshold"}

# A sign beside the word, so that colour says nothing alone.
SIGNS = {"holds": "✓", "fails": "✗", "undecided": "?", "not run": "–"}

PAPER = "https://ar5iv.labs.arxiv.org/html/2303.04245"

# Where the paper states each source, when its own name does not say.
SECTIONS = {
    "Lemma 1": "A.1",
    "Theorem 1": "4",
    "Theorem 2": "5.2",
    "Theorem 3": "5.3",
    "Assumption 2": "5.3",
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


def claims_section(folder: Path, number: int, store: Store, found: Found) -> Row | None:
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
        image = image_of(folder / "figures" / f"{name}.svg", anchor, store, found)
        shown = [row for row in rows if row["figure"] == name]
        title = title_of(name, shown)
        figures.append({"anchor": anchor, "name": name, "title": title, "image": image, "claims": shown})
    return {
        "folder": str(folder),
        "ran": ", ".join(f"{name} {value}" for name, value in settings.items() if value not in (None, [], "")),
        "rows": rows,
        "counts": [(verdict, sum(row["verdict"] == verdict for row in rows)) for verdict in VERDICTS],
        "kinds": [
            (
                kind,
                words,
                [
                    (verdict, sum((row["kind"], row["verdict"]) == (kind, verdict) for row in rows))
                    for verdict in VERDICTS
                ],
            )
            for kind, words in KINDS.items()
            if any(row["kind"] == kind for row in rows)
        ],
        "sources": list(dict.fromkeys(row["source"] for row in rows)),
        "figures": figures,
    }


def section_of(source: str) -> tuple[str, str]:
    """The paper's section that a source stands in, and the address of it."""
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
    return {
        **nothing,
        **row,
        # Folders of version 0.1 say whether a claim is ours, and no more.
        "kind": row.get("kind") or ("ours" if row.get("ours") else "paper"),
        "before": _before(row),
        "diagnosis": _diagnosis(row),
        "sensitivity": _sensitivity(row),
        "section": section,
        "link": link,
        "expected": claim_number(row["expected"]),
        "measured": claim_number(row["measured"]),
        "interval": claim_interval(row),
        "corrected": row.get("verdict_corrected") or row["verdict"],
        "sign": SIGNS.get(row["verdict"], ""),
        "command": _command(row["id"], folder, settings),
        "details": [(name, claim_number(value)) for name, value in (row.get("details") or {}).items()],
        # As they are, for sentences.
        "order": row["measured"],
        "numbers": row.get("details") or {},
    }


def _before(row: Row) -> str:
    if not row.get("verdict_before"):
        return ""
    return f"{row['verdict_before']}, by what an earlier version asked for: {row.get('asked_before') or 'not recorded'}"


def _diagnosis(row: Row) -> str:
    found = row.get("diagnosis")
    if not found:
        return ""
    holds = f" It holds {found['holds']}." if found["holds"] else ""
    see = f" See {', '.join(found['see'])}." if found["see"] else ""
    return f"{CAUSES.get(found['cause'], found['cause'])}. {found['explanation']}{holds}{see}"


def _sensitivity(row: Row) -> str:
    found = row.get("sensitivity")
    if not found:
        return ""
    return ", ".join(f"{verdict} with {FACTORS.get(name, name)}" for name, verdict in found.items())


def _command(identifier: str, folder: Path, settings: Row) -> str:
    """What measures this claim again, in a folder of its own."""
    words = ["topicscope", "reproduce", "--only", identifier]
    for name in ("preset", "seeds", "seed"):
        if name in settings:
            words += [f"--{name}", str(settings[name])]
    if settings.get("models"):
        words += ["--models", *map(str, settings["models"])]
    return shlex.join([*words, "--out", f"{folder}-again"])
