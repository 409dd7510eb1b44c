"""Rows of a probe in words and numbers, as its figures and table need them."""

import html
from typing import Any

import numpy as np

from topicscope.report.page.folders import Row

MEASURES = {"cosine": "cosine", "dot": "dot product", "attention": "attention"}
ASSIGNMENTS = {"one": "one topic a word", "several": "several topics a word"}
# Below this a difference is told from chance.
SIGNIFICANT = 0.05
# Blue, white and red of ColorBrewer, as in the pictures.
BLUES = ("#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0")
REDS = ("#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f")
DIVERGING = (*BLUES, "#f7f7f7", *REDS)
COLOURS = [[place / (len(DIVERGING) - 1), colour] for place, colour in enumerate(DIVERGING)]
Figure = dict[str, Any]


def plotted(text: object) -> str:
    """Text for a figure, where the plotting library would take tags for markup."""
    return html.escape(str(text), quote=False)


def model_name(row: Row) -> str:
    """The model and, where there is one, its revision."""
    return f"{row['model']} {row.get('revision') or ''}".strip()


def threshold_name(row: Row) -> str:
    """The ambiguity threshold, where topics were found and not given."""
    return "own topics" if row.get("fraction") is None else f"{row['fraction']:g}"


def assignment_name(row: Row) -> str:
    """How many topics a word may have."""
    assignment = str(row.get("assignment"))
    return ASSIGNMENTS.get(assignment, assignment)


def number(value: Any) -> float:
    """NaN where there is none."""
    return np.nan if value is None else float(value)
