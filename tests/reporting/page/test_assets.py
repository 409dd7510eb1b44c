"""The page's colours: what is drawn or written differs enough from what is behind it."""

import re

import pytest

from support.page_data import contrast
from topicscope.reporting.page import ASSETS


def test_colours_of_curves_have_three_to_one_contrast_with_both_papers() -> None:
    found = re.search(r"const COLOURS = \[(.*?)\]", (ASSETS / "core.js").read_text())
    assert found
    colours = re.findall(r"#[0-9a-f]{6}", found[1])
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", (ASSETS / "page.css").read_text())
    assert len(colours) == 6
    assert len(papers) == 2
    assert min(contrast(colour, paper) for colour in colours for paper in papers) >= 3
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#56b4e9", "#ffffff") < 3


def test_marks_on_the_landscape_have_an_edge_that_differs_from_every_colour_of_its_map() -> None:
    found = re.search(r"const MARKS = \{(.*?)\}", (ASSETS / "landscapes.js").read_text())
    assert found
    marks = dict(re.findall(r'(\w+): "(#[0-9a-f]{6})"', found[1]))
    # Cividis, as the plotting library has it: dark blue, grey, yellow.
    cividis = ["#00224e", "#1d3a6c", "#434e6c", "#5f636e", "#7c7b78", "#9a9376", "#bbaf71", "#dec958", "#fde737"]
    edge, halo = marks.pop("edge"), marks.pop("halo")
    assert len(marks) == 4
    assert min(max(contrast(colour, edge), contrast(colour, halo)) for colour in cividis) >= 3
    # Neither edge alone would do.
    assert min(contrast(colour, edge) for colour in cividis) < 3
    assert min(contrast(colour, halo) for colour in cividis) < 3
    papers = re.findall(r"--paper: (#[0-9a-f]{6})", (ASSETS / "page.css").read_text())
    # In the legend, a mark or its edge is seen on either paper.
    for mark in (marks["optimum"], marks["bound"], marks["limit"]):
        assert min(contrast(mark, paper) for paper in papers) >= 3
    assert min(max(contrast(marks["uniform"], paper), contrast(edge, paper)) for paper in papers) >= 3


def test_text_in_figures_has_contrast_with_both_papers() -> None:
    style = (ASSETS / "page.css").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in style.split("@media", 2)[:2])
    for colours in (light, dark):
        # Figures are written in ink and ruled in soft.
        assert contrast(colours["ink"], colours["paper"]) >= 4.5
        assert contrast(colours["soft"], colours["paper"]) >= 4.5
        assert contrast(colours["link"], colours["raised"]) >= 4.5
    assert contrast(light["ink"], dark["paper"]) < 4.5
