"""Its figure."""

from typing import Any

from matplotlib.figure import Figure


def figure2(results: Any) -> Figure:
    figure = Figure(figsize=(2, 2))
    figure.add_subplot().plot(results["figure2/long"])
    return figure
