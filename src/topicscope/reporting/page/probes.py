"""A probe of language models: Table 1 with intervals, figures, topics, and notes about the numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topicscope.records import (
    Comparison,
    CorpusRow,
    PairedRow,
    ProbeRow,
    TopicWord,
    WordMap,
    read_corpora,
    read_paired,
    read_probe,
    read_topic_words,
)
from topicscope.reporting.answer import (
    PAIRED,
    answers,
    labels_of,
    model_label,
    paired,
    paired_answers,
    paired_verdict,
    sink_text,
)
from topicscope.reporting.figures.probe import MEASURES, map_label, measured, threshold
from topicscope.reporting.page.store import Found
from topicscope.reporting.rounding import NOTHING, comparison_text, is_significant, readable, with_interval

# Drawings of a probe by the beginnings of their names, in the order of the page.
DRAWN = ("depth", "topics-", "topic-map", "ratios-", "heads-", "sink", "words", "checkpoints")
MOST_TOPICS = 300
# How many words a note lists.
LISTED = 20

Cells = dict[str, str]


def probe_images(folder: Path) -> list[Path]:
    """The drawings of a probe, those that answer its question first: depth, topics and their maps."""
    drawn = sorted(path for path in (folder / "figures").glob("*.svg") if path.stem.startswith(DRAWN))
    return sorted(drawn, key=lambda path: next(at for at, name in enumerate(DRAWN) if path.stem.startswith(name)))


def probe_section(folder: Path, number: int, found: Found) -> dict[str, Any] | None:
    """What the page shows of the probe in a folder; None, with a note, if it has no rows yet.

    A table's rows are cells by the names of its columns.
    """
    rows = found.read(read_probe, folder / "probe.json")
    if not rows:
        if rows is not None:
            found.notes.append(f"{folder}: the probe has measured nothing yet; run it again to resume.")
        return None
    anchor, labels = f"probe-{number}", labels_of(rows)
    comparisons = found.read(read_paired, folder / "comparisons.json") or []
    topics, kept = _topics(found.read(read_topic_words, folder / "topics.csv") or [])
    return {
        "anchor": anchor,
        "folder": str(folder),
        "notes": probe_notes(found.read(read_corpora, folder / "corpus.json") or [], rows),
        "conclusion": answers(rows),
        "compared": paired_answers(comparisons, labels),
        "comparisons": [_paired_row(row, labels) for row in paired(comparisons)],
        # Own topics come from no LDA.
        "lda": any(row.fraction is not None for row in rows),
        "rows": [table_row(row, sinks=any(each.sink for each in rows)) for row in rows],
        # A topic's name with its words, and the meaning of the sign beside a word.
        "topics": topics,
        "kept": kept,
        "images": found.images(probe_images(folder), anchor),
    }


def table_row(row: ProbeRow, *, sinks: bool = False) -> Cells:
    """A row of probe.json in words."""
    return {
        "model": model_label(row),
        "fraction": threshold(row.fraction, "own topics"),
        "assignment": row.assignment,
        "embedding": row.embedding,
        "words": str(row.words),
        "topics": str(row.topics),
        "centred": "yes" if row.centred else "no",
        **{label: ratio_text(measured(row, name)) for name, label in MEASURES.items()},
        **({"sink": sink_text(row)} if sinks else {}),
    }


def _paired_row(row: PairedRow, labels: Mapping[str, str]) -> Cells:
    """A row of comparisons.json in words."""
    numbers = {
        "ratio of ratios": (row.ratio_of_ratios, row.low, row.high),
        "difference": (row.difference, row.difference_low, row.difference_high),
        "difference of AUC": (row.auc_difference, row.auc_difference_low, row.auc_difference_high),
    }
    return {
        "model": labels.get(row.model, row.model),
        "against": labels.get(row.against, row.against),
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


def _topics(rows: Sequence[TopicWord]) -> tuple[list[tuple[str, str]], str]:
    """Words of each topic at the widest threshold, those that the narrowest keeps too marked."""
    if not rows:
        return [], ""
    first = [row for row in rows if (row.seed, row.assignment) == (rows[0].seed, rows[0].assignment)]
    fractions = sorted({row.fraction for row in first}, key=lambda fraction: fraction or 0.0)
    narrow, wide = fractions[0], fractions[-1]
    kept = {(row.topic, row.word) for row in first if row.fraction == narrow}
    words: dict[str, list[str]] = {}
    for row in first:
        if row.fraction == wide:
            sign = " ✓" if (row.topic, row.word) in kept else ""
            words.setdefault(row.topic, []).append(row.word + sign)
    meaning = f"✓: kept at threshold {narrow:g} too; all at {wide:g}" if narrow and narrow != wide else "all kept"
    return [(topic, ", ".join(listed)) for topic, listed in list(words.items())[:MOST_TOPICS]], meaning


# Notes about a probe's numbers: its corpus, what is left out, and its topics' quality.


def probe_notes(corpora: Sequence[CorpusRow], rows: Sequence[ProbeRow]) -> list[str]:
    """Sentences from rows of corpus.json; with several tokenizers or lengths, each begins with the models it is for.

    rows: those of probe.json, which say what each model was measured on.
    """
    several = len(corpora) > 1
    return [
        (f"{_models(about, rows)}: " if several else "") + sentence for about in corpora for sentence in _notes(about)
    ]


def _notes(about: CorpusRow) -> list[str]:
    size = f"{about.articles:,} articles, {about.passages:,} passages; measured on {about.measured:,}"
    notes = [f"{about.source}: {size}.", *about.problems]
    if about.words_left_out:
        splits = f'the tokenizer of "{about.tokenizer_name}" splits these words, which are left out'
        remedy = "--several-tokens measures them too"
        notes.append(f"own topics: {splits} ({remedy}): {_listed(about.words_left_out)}.")
    if absent := about.words_without_attention:
        count = f"{len(absent):,} of {about.words:,} words"
        unseen = f"{count} are in no passage that is measured, and have no attention"
        notes.append(f"own topics: {unseen}: {_listed(absent)}.")
    quality = {name: value for name, value in (about.topic_quality or {}).items() if value is not None}
    known = [f"{name} {value:.3f}" for name, value in quality.items()]
    weak = " Topics may be weak: with c_npmi below 0, their likeliest words occur together less often than by chance."
    return [*notes, f"topics: {', '.join(known)}.{weak * (quality.get('c_npmi', 0) < 0)}"] if known else notes


def word_notes(maps: Sequence[WordMap]) -> list[str]:
    """A sentence for each list of words that Figure 3 lacks, with the models that lack them, from words.json."""
    models: dict[tuple[str, ...], list[str]] = {}
    for each in maps:
        if each.left_out:
            models.setdefault(tuple(each.left_out), []).append(map_label(each))
    return [
        f"Figure 3 of {', '.join(names)} lacks words that the tokenizer splits: {', '.join(words)}."
        for words, names in models.items()
    ]


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED
    return ", ".join(words[:LISTED]) + (f" and {more:,} more" if more > 0 else "")


def _models(about: CorpusRow, rows: Sequence[ProbeRow]) -> str:
    """``for bert and 2 more (tokenizer 0ca024b4, passages of 126 tokens)``."""
    ground = (about.tokenizer, about.length)
    names = list(dict.fromkeys(row.title for row in rows if (row.tokenizer, row.length) == ground))
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    shown = names[0] if names else "no model"
    return f"for {shown}{more} (tokenizer {about.tokenizer[:8]}, passages of {about.length} tokens)"
