"""Claims, probes, sweeps and landscapes as a page's template and script need them."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict

from topicscope.records import (
    ARTICLES,
    CLAIMS,
    COMPARISONS,
    CORPORA,
    LANDSCAPES,
    PROBE,
    REPRODUCE_SETTINGS,
    SWEEP,
    TOPICS,
    ArticlePart,
    Comparison,
    PairedRow,
    ProbeRow,
    ReproduceSettings,
    SweepRow,
    TopicWord,
    sweep_table,
)
from topicscope.reporting.answer import (
    MEASURES,
    PAIRED,
    answers,
    labels_of,
    model_label,
    paired,
    paired_answers,
    paired_verdict,
    probe_notes,
)
from topicscope.reporting.page.material import Material, Row
from topicscope.reporting.rounding import NOTHING, comparison_text, is_significant, readable, with_interval
from topicscope.reporting.verdicts import KINDS, counts, headline, source_table

# Drawings of a probe by the beginnings of their names, in the order of the page; the first two answer its question.
DRAWN = ("depth", "topics-", "ratios-", "heads", "words", "checkpoints-")
MOST_TOPICS, MOST_ROWS = 300, 1_000
# The most points of an axis of a landscape: a panel has no pixels for more.
GRID_POINTS = 61
# What people sweep for, in words; the first one that was measured counts.
SWEPT_FOR = {
    "excess_over_optimum": "excess loss over the exact optimum",
    "distance_to_optimum": "distance to the exact optimum",
    "excess_loss": "excess loss over the Bayes floor",
    "validation_loss": "validation loss",
    "loss": "loss of the batch",
}


def claims_section(folder: Path, number: int, material: Material) -> Row | None:
    """The claims of a folder and the words of its article; None, with a note, if it has no claims."""
    claims = material.read(CLAIMS, folder)
    if not claims:
        if claims is not None:
            again = f"run topicscope reproduce --out {folder} to resume"
            material.notes.append(f"{folder}: no claim is measured yet; {again}.")
        return None
    words = material.read(ARTICLES, folder) or []
    settings = material.read(REPRODUCE_SETTINGS, folder)
    captions = {name: caption for own in words for name, caption in own.captions.items()}
    # Some figures belong to no claim.
    others = [name for name in captions if (folder / "figures" / f"{name}.svg").exists()]
    names = dict.fromkeys([*(claim.figure for claim in claims if claim.figure), *others])
    images = material.images([folder / "figures" / f"{name}.svg" for name in names], f"figure-{number}")
    by_kind = {kind: [claim for claim in claims if claim.kind == kind] for kind in KINDS}
    return {
        "folder": str(folder),
        "options": _options(settings),
        "words": words,
        "headline": headline(claims),
        "table": source_table(claims, [group for own in words for group in own.groups]),
        "claims": claims,
        "counts": counts(claims),
        "kinds": [(kind, KINDS[kind], counts(some)) for kind, some in by_kind.items() if some],
        "sources": list(dict.fromkeys(claim.source for claim in claims)),
        "places": {
            source: section_of(own.html, at)
            for own in words
            for group in own.groups
            for source, at in group.sources.items()
        },
        "figures": {
            image["name"]: image | {"caption": captions.get(image["name"]) or image["name"].replace("-", " ")}
            for image in images
        },
    }


def section_of(html: str, section: str) -> tuple[str, str]:
    """The paper's section and its address, from its number ("5.2", "A.1"); nothing if either is not known."""
    if not html or not re.fullmatch(r"[0-9A-E](\.\d+)*", section):
        return "", ""
    first, *rest = section.split(".")
    head = f"S{first}" if first.isdigit() else f"A{'ABCDE'.index(first) + 1}"
    return f"§{section}", f"{html}#" + ".".join([head, *(f"SS{part}" for part in rest[:1])])


def _options(settings: ReproduceSettings | None) -> str:
    """The options of ``reproduce`` that claims were measured with."""
    if settings is None:
        return ""
    words = ["--preset", settings.preset, "--seeds", str(settings.seeds), "--seed", str(settings.seed)]
    return shlex.join([*words, *(["--models", *settings.models] if settings.models else [])])


def article(section: Row, *, player: bool, landscape: bool) -> Row | None:
    """The words of a folder's first paper with its claims by id; None if nothing that it speaks of was run.

    A section is left out of which nothing was run; ``player`` and ``landscape`` say whether they can be shown.
    """
    if not section["words"]:
        return None
    words = section["words"][0]
    claims = {claim.id: claim for claim in section["claims"] if claim.paper == words.paper}

    def was_run(part: ArticlePart) -> bool:
        return (
            bool(claims.keys() & part.claims) or part.figure in section["figures"] or (part.show == "player" and player)
        )

    # All the rest needs the section on documents, which is the first.
    sections = [own for place, own in enumerate(words.sections) if place == 0 or any(map(was_run, own.part))]
    parts = [part for own in sections for part in own.part]
    if not any(map(was_run, parts)):
        return None
    shown, figures = ({getattr(part, name) for part in parts} for name in ("show", "figure"))
    return {
        "words": words,
        "sections": sections,
        "claims": claims,
        "figures": {name: image for name, image in section["figures"].items() if name in figures},
        "player": player and "player" in shown,
        "landscape": landscape and "landscape" in shown,
    }


def probe_section(folder: Path, number: int, material: Material) -> Row | None:
    """What the page shows of the probe in a folder; None, with a note, if it has no rows yet.

    A table's rows are cells by the names of its columns.
    """
    rows = material.read(PROBE, folder)
    if not rows:
        if rows is not None:
            material.notes.append(f"{folder}: the probe has measured nothing yet; run it again to resume.")
        return None
    anchor, names = f"probe-{number}", labels_of(rows)
    comparisons = material.read(COMPARISONS, folder) or []
    drawn = [path for kind in DRAWN for path in sorted((folder / "figures").glob(f"{kind}*.svg"))]
    images = material.images(drawn, anchor)
    topic_words, corpora = material.read(TOPICS, folder), material.read(CORPORA, folder)
    return {
        "anchor": anchor,
        "folder": str(folder),
        "notes": probe_notes(corpora or [], rows),
        "conclusion": answers(rows),
        "compared": paired_answers(comparisons, names),
        "comparisons": [_paired_row(row, names) for row in paired(comparisons)],
        # Own topics come from no LDA.
        "lda": any(row.fraction is not None for row in rows),
        "rows": [table_row(row) for row in rows],
        "topics": _topics(topic_words or []),
        "answering": [image for image in images if image["name"].startswith(DRAWN[:2])],
        "images": [image for image in images if not image["name"].startswith(DRAWN[:2])],
    }


def table_row(row: ProbeRow) -> Row:
    """A row of probe.json in words."""
    return {
        "model": model_label(row),
        "fraction": "own topics" if row.fraction is None else f"{row.fraction:g}",
        "assignment": row.assignment,
        "embedding": row.embedding,
        "words": str(row.words),
        "topics": str(row.topics),
        "centred": "yes" if row.centred else "no",
        **{label: ratio_text(getattr(row, name) or Comparison()) for name, label in MEASURES.items()},
    }


def _paired_row(row: PairedRow, names: dict[str, str]) -> Row:
    """A row of comparisons.json in words."""
    numbers = {
        "ratio of ratios": (row.ratio_of_ratios, row.low, row.high),
        "difference": (row.difference, row.difference_low, row.difference_high),
        "difference of AUC": (row.auc_difference, row.auc_difference_low, row.auc_difference_high),
    }
    return {
        "model": names.get(row.model, row.model),
        "against": names.get(row.against, row.against),
        "measure": PAIRED[row.measure] + ("" if row.layer is None else f", layer {row.layer}"),
        "verdict": paired_verdict(row),
        **{
            label: NOTHING if value is None else with_interval(value, low, high)
            for label, (value, low, high) in numbers.items()
        },
        "p": NOTHING if row.p is None else readable(row.p, 3),
    }


def ratio_text(comparison: Comparison) -> str:
    """Same- over different-topic average with its interval; the difference where the ratio is not defined."""
    text = comparison_text(comparison, no_ratio="no ratio; difference")
    return text + (" *" if text != NOTHING and is_significant(comparison) else "")


def _topics(rows: Sequence[TopicWord]) -> list[tuple[str, str]]:
    """Words of each topic at the widest threshold, by the first seed and assignment."""
    first = [row for row in rows if (row.seed, row.assignment) == (rows[0].seed, rows[0].assignment)]
    widest, words = max((row.fraction or 0.0 for row in first), default=0.0), dict[str, list[str]]()
    for row in first:
        if (row.fraction or 0.0) == widest:
            words.setdefault(row.topic, []).append(row.word)
    return [(topic, ", ".join(listed)) for topic, listed in list(words.items())[:MOST_TOPICS]]


def sweep_section(folder: Path, number: int, material: Material) -> Row | None:
    """The sweep in a folder; None, with a note, if it is not finished."""
    if not (folder / "sweep.json").exists():
        again = f"topicscope sweep --out {folder} --resume resumes it"
        material.notes.append(f"{folder}: the sweep is not finished; {again}.")
    rows = material.read(SWEEP, folder)
    if not rows:
        return None
    table = sweep_table(rows)
    varied = [name for name in table[0] if len({row[name] for row in table}) > 1]
    names = [name for name in varied if name not in ("train_seconds", "run")]
    return {
        "anchor": f"sweep-{number}",
        "folder": str(folder),
        "names": names,
        # Each cell in full, and as it is shown.
        "rows": [{name: (str(row[name]), _brief(row[name])) for name in names} for row in table[:MOST_ROWS]],
        "summary": f"{len(rows)} runs. {smallest(rows)}".strip(),
        # Whether the runs themselves are there, for a separate page.
        "has_runs": (folder / "runs").is_dir(),
        "images": material.images(sorted((folder / "figures").glob("sweep.svg")), f"sweep-{number}"),
    }


def smallest(rows: Sequence[SweepRow]) -> str:
    """Where the measure that people sweep for is smallest, averaged over seeds; empty without it or with one place."""
    for measure, words in SWEPT_FOR.items():
        groups: dict[str, list[float]] = {}
        for row in rows:
            if (value := row.measures.get(measure)) is not None:
                settings = " and ".join(f"{name} = {_brief(setting)}" for name, setting in row.settings.items())
                groups.setdefault(settings, []).append(value)
        if len(groups) > 1:
            means = {settings: sum(values) / len(values) for settings, values in groups.items()}
            where = min(means, key=lambda settings: means[settings])
            return f"The {words} is smallest at {where}: {readable(means[where])} on average over seeds."
    return ""


def _brief(value: Any) -> str:
    """A number with a fraction to four digits; all else as it is."""
    return "" if value is None else readable(value) if isinstance(value, float) else str(value)


def landscape_sections(material: Material) -> list[Row]:
    """The loss over (α, β): one entry for every T, τ and W^V in the folders."""
    unique = {
        (own.value, own.topics, own.per_document, own.words): own
        for folder in material.folders["landscapes"]
        for own in material.read(LANDSCAPES, folder) or []
    }
    return [
        asdict(own) | {"weights": material.numbers(np.array(own.weights)), "grid": material.numbers(np.array(own.grid))}
        for _, own in sorted(unique.items())
    ]
