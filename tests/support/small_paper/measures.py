"""What its claims measure, and its figure."""

from typing import Any

from matplotlib.figure import Figure
from threadpoolctl import threadpool_info

from topicscope.papers.claim import Measurement, exact, over_seeds, per_run
from topicscope.reporting.figures import Panel, Series, curves


def nothing(results: Any) -> Measurement:
    threads = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
    return exact(0.0, threads=max(threads))


def numbers(results: Any) -> Measurement:
    return over_seeds(results["figure2/long"], note="a note")


@per_run
def rows(values: list[float]) -> Measurement:
    return over_seeds(values)


def loss(results: Any) -> Measurement:
    return over_seeds(results["small/run"].final["held_out_loss"])


def figure2(results: Any, *, title: str) -> Figure:
    numbers = results["figure2/long"]
    return curves(title, [Panel(series=[Series(x=range(len(numbers)), y=numbers)])])
