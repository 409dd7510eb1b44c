"""The figure of the small paper."""

from typing import Any

from matplotlib.figure import Figure

from topicscope.reporting.figures import Panel, Series, curves


def figure2(results: Any, *, title: str) -> Figure:
    numbers = results["figure2/long"]
    return curves(title, [Panel(series=[Series(x=range(len(numbers)), y=numbers)])])
