"""Figures of ``topicscope probe`` from its rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from topicscope.commands.probe_folder import Row
from topicscope.files import write_atomically
from topicscope.report.figures import save_figure
from topicscope.report.probe import (
    MEASURES,
    Ratio,
    RatioRow,
    head_maps,
    over_checkpoints,
    ratio_table,
    ratio_text,
    word_maps,
)

TOPICS = {"one": "one topic a word", "several": "several topics a word"}
# Level of the tests that the map of heads marks.
SIGNIFICANT = 0.05


def draw(rows: Sequence[Row], maps: Sequence[Row], folder: Path) -> list[Path]:
    """Table 1 as text and picture, the map of heads, the words' cosines, and topic structure over checkpoints."""
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    for assignment in dict.fromkeys(row["assignment"] for row in rows):
        for embedding in dict.fromkeys(row["embedding"] for row in rows):
            table = [_ratios(row) for row in _chosen(rows, assignment=assignment, embedding=embedding)]
            name = f"ratios-{assignment}-{embedding}"
            write_atomically(folder / f"{name}.txt", ratio_text(table) + "\n")
            title = f"Same- over different-topic averages, {TOPICS[assignment]}, embedding: {embedding}"
            written += [folder / f"{name}.txt", *save_figure(ratio_table(table, title=title), folder / name)]
    written += _heads(rows, folder)
    written += _words(maps, folder)
    for number, model in enumerate(_trained_on(rows)):
        of_model = [row for row in rows if row["model"] == model]
        written += _checkpoints(of_model, folder / (f"checkpoints-{number + 1}" if number else "checkpoints"))
    return written


def _heads(rows: Sequence[Row], folder: Path) -> list[Path]:
    written = []
    first = _chosen(rows, assignment=rows[0]["assignment"], embedding=rows[0]["embedding"])
    for fraction in dict.fromkeys(row["fraction"] for row in first):
        panels = {}
        for row in first:
            if row["fraction"] == fraction:
                heads = row["attention_by_layer_head"]
                ratio = np.array([[_number(head["ratio"]) for head in layer] for layer in heads])
                p = np.array([[1.0 if head["p"] is None else head["p"] for head in layer] for layer in heads])
                with np.errstate(divide="ignore", invalid="ignore"):
                    panels[_model(row)] = (np.log2(ratio), p < SIGNIFICANT)
        shown = "own topics" if fraction is None else f"threshold {fraction:g}"
        title = f"Attention by head, same over different topic, {shown}, {TOPICS[first[0]['assignment']]}"
        figure = head_maps(panels, title=title)
        written += save_figure(figure, folder / f"heads-{'own' if fraction is None else f'{fraction:g}'}")
    return written


def _words(maps: Sequence[Row], folder: Path) -> list[Path]:
    """One figure a list of words: tokenizers may keep different ones of the paper's nine."""
    written = []
    for number, words in enumerate(dict.fromkeys(tuple(each["words"]) for each in maps)):
        panels = {each["model"]: np.array(each["cosine"]) for each in maps if tuple(each["words"]) == words}
        figure = word_maps(panels, words, title="Cosine similarity of word embeddings (Figure 3)")
        written += save_figure(figure, folder / (f"words-{number + 1}" if number else "words"))
    return written


def _trained_on(rows: Sequence[Row]) -> list[str]:
    """Models of which there are several checkpoints."""
    pairs = dict.fromkeys((row["model"], row["revision"]) for row in rows)
    models = [model for model, _ in pairs]
    return [model for model in dict.fromkeys(models) if models.count(model) > 1]


def _checkpoints(rows: Sequence[Row], path: Path) -> list[Path]:
    """Of one model."""
    revisions = list(dict.fromkeys(row["revision"] for row in rows))
    chosen = _chosen(rows, assignment=rows[0]["assignment"], embedding="matrix")
    fractions = dict.fromkeys(row["fraction"] for row in chosen)
    lines = {
        measure: {
            "own" if fraction is None else f"{fraction:g}": [
                _ratios(row).ratios[measure]
                for revision in revisions
                for row in chosen
                if row["revision"] == revision and row["fraction"] == fraction
            ]
            for fraction in fractions
        }
        for measure in MEASURES
    }
    figure = over_checkpoints(revisions, lines, title=f"Topic structure over the training of {rows[0]['model']}")
    return save_figure(figure, path)


def _chosen(rows: Sequence[Row], *, assignment: str, embedding: str) -> list[Row]:
    wanted = {"assignment": assignment, "embedding": embedding, "centred": False}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def _ratios(row: Row) -> RatioRow:
    return RatioRow(_model(row), row["fraction"], {name: Ratio.of(row[name]) for name in MEASURES})


def _model(row: Row) -> str:
    return f"{row['model']} {row['revision']}".strip()


def _number(value: float | None) -> float:
    return np.nan if value is None else value
