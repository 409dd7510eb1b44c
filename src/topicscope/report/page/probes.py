"""A probe of language models: Table 1 with intervals, its topics, and its figures."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.report.page.folders import Found, Row, read_json, read_table
from topicscope.report.page.images import Image, images_of
from topicscope.report.page.probe_figures import probe_figures
from topicscope.report.page.probe_heads import head_thresholds
from topicscope.report.page.probe_rows import MEASURES, SIGNIFICANT, model_name, threshold_name
from topicscope.report.page.store import Store
from topicscope.report.probe_notes import probe_notes
from topicscope.report.rounding import with_interval

MOST_TOPICS = 300
PLAIN = ("assignment", "embedding", "words", "topics")


@dataclass(frozen=True)
class ProbeSection:
    """One probe folder."""

    anchor: str
    folder: str
    notes: tuple[str, ...]
    """On the corpus and the topics."""
    columns: tuple[str, ...]
    rows: tuple[Mapping[str, str], ...]
    topics: tuple[tuple[str, str], ...]
    """A topic's name, and its words with what became of them."""
    kept: str
    """What the sign beside a word means."""
    figures: tuple[dict[str, Any], ...]
    thresholds: tuple[str, ...]
    """Of the maps of heads; the last is shown first."""
    images: tuple[Image, ...]


def probe_section(folder: Path, number: int, store: Store, found: Found) -> ProbeSection | None:
    """The probe in a folder; None, with a note, if it has no rows yet."""
    rows = read_json(folder / "probe.json", found)
    if not isinstance(rows, list) or not rows:
        found.notes.append(f"{folder}: the probe has measured nothing yet; run it again to go on.")
        return None
    anchor = f"probe-{number}"
    topics, kept = _topics(folder, found)
    maps = _optional(folder / "words.json", found)
    drawn = [] if maps else sorted((folder / "figures").glob("words*.svg"))
    return ProbeSection(
        anchor=anchor,
        folder=str(folder),
        notes=_notes(folder / "corpus.json", rows, found),
        columns=("model", "fraction", *PLAIN, "centred", *MEASURES.values()),
        rows=tuple(table_row(row) for row in rows),
        topics=topics,
        kept=kept,
        figures=tuple(probe_figures(rows, maps, anchor)),
        thresholds=tuple(head_thresholds(rows)),
        images=images_of(drawn, anchor, store, found),
    )


def _notes(path: Path, rows: list[Row], found: Found) -> tuple[str, ...]:
    try:
        return tuple(probe_notes(_optional(path, found), rows))
    except (KeyError, TypeError):
        found.notes.append(f"{path} is not one of this version's; what it says of the corpus is left out.")
        return ()


def _optional(path: Path, found: Found) -> list[Row]:
    """What a file holds that earlier versions did not write."""
    return (read_json(path, found) if path.exists() else None) or []


def table_row(row: Row) -> dict[str, str]:
    """A row of probe.json in words."""
    ratios = {label: ratio_text(row.get(name)) for name, label in MEASURES.items()}
    return {
        **{name: str(row.get(name, "")) for name in PLAIN},
        "model": model_name(row),
        "fraction": threshold_name(row),
        "centred": "yes" if row.get("centred") else "no",
        **ratios,
    }


def ratio_text(measure: Any) -> str:
    """Same- over different-topic average with its interval; the difference where the ratio is not defined."""
    if not isinstance(measure, dict):
        return "–"
    star = " *" if measure.get("p") is not None and measure["p"] < SIGNIFICANT else ""
    if measure.get("ratio") is None:
        difference = _with_interval(measure, "difference", "difference_low", "difference_high")
        return f"no ratio; difference {difference}{star}" if difference else "–"
    return _with_interval(measure, "ratio", "low", "high") + star


def _with_interval(measure: Row, name: str, low: str, high: str) -> str:
    """A number with its 95 % interval, or with the word that it has none; empty if there is no number."""
    if measure.get(name) is None:
        return ""
    return with_interval(measure[name], measure.get(low), measure.get(high))


def _topics(folder: Path, found: Found) -> tuple[tuple[tuple[str, str], ...], str]:
    """Words of each topic at the widest threshold, those that the narrowest keeps too marked."""
    path = folder / "topics.csv"
    rows = read_table(path, found) if path.exists() else []
    if not rows:
        return (), ""
    first = [row for row in rows if all(row.get(name) == rows[0].get(name) for name in ("seed", "assignment"))]
    fractions = sorted({row.get("fraction") or "" for row in first}, key=lambda text: float(text) if text else 0.0)
    narrow, wide = fractions[0], fractions[-1]
    kept = {(row.get("topic"), row.get("word")) for row in first if (row.get("fraction") or "") == narrow}
    words: dict[str, list[str]] = {}
    for row in first:
        if (row.get("fraction") or "") == wide:
            sign = " ✓" if (row.get("topic"), row.get("word")) in kept else ""
            words.setdefault(row.get("topic") or "", []).append((row.get("word") or "") + sign)
    said = f"✓: kept at threshold {narrow} too; all at {wide}" if narrow != wide else "all kept"
    return tuple((topic, ", ".join(listed)) for topic, listed in list(words.items())[:MOST_TOPICS]), said
