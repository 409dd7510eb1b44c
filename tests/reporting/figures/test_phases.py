"""The figure of block against diagonal."""

import numpy as np

from topicscope.reporting.figures.phases import PhaseCurve, phase_figure


def test_each_axis_has_a_panel_and_zero_stands_at_the_left_end() -> None:
    curve = PhaseCurve(
        np.array([0.0, 0.1, 0.3]), np.array([[0.9, 0.8, 1.0], [0.1, 0.05, 0.2], [0.02, 0.01, 0.03]]), np.ones(3)
    )
    drawn = phase_figure({"keep": curve, "words": curve}, {"keep": (0.1, 0.48, 0.095)})
    first, second = drawn.figure.axes
    assert [len(axis.lines) for axis in (first, second)] == [len(second.lines) + 1, len(second.lines)]
    shown = np.asarray(first.lines[0].get_xdata())
    assert shown[0] > 0
    assert shown[0] < shown[1]
    assert [label.get_text() for label in first.get_xticklabels()] == ["0", "0.1", "0.3"]
    assert len(drawn.table) == 6
    assert drawn.table[1] == {"varied": "keep", "at": 0.1, "uniform": 1.0, "joint": 0.1}
