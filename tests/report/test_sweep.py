from typing import Any

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer

from topicscope.measure.uncertainty import student_interval
from topicscope.report.sweep import by_setting, map_of_two, over_seeds, sweep_figures


def table(*, rates: tuple[float, ...] = (0.01, 0.1), topics: tuple[int, ...] = (5, 10), seeds: int = 3) -> list[Any]:
    draw = np.random.default_rng(0)
    return [
        {"rate": rate, "topics": count, "seed": seed, "loss": float(draw.normal(loc=count)), "empty": None}
        for rate in rates
        for count in topics
        for seed in range(seeds)
    ]


def test_curves_are_means_over_seeds_with_students_intervals() -> None:
    rows = table()
    panel = by_setting(rows, "rate", measures=["loss"], others=["topics"]).axes[0]
    assert panel.get_xscale() == "log"
    curves = [found for found in panel.containers if isinstance(found, ErrorbarContainer)]
    assert len(curves) == 2
    for curve, topics in zip(curves, (5, 10), strict=True):
        for place, rate in enumerate((0.01, 0.1)):
            losses = np.array([row["loss"] for row in rows if (row["rate"], row["topics"]) == (rate, topics)])
            expected = student_interval(losses)
            segment = curve[2][0].get_segments()[place]
            np.testing.assert_allclose(curve[0].get_ydata()[place], expected.value)
            np.testing.assert_allclose(segment[:, 1], [expected.low, expected.high])


def test_many_other_settings_are_averaged_within_each_seed_so_the_interval_is_over_seeds() -> None:
    rows = table(topics=tuple(range(5, 15)))
    panel = by_setting(rows, "rate", measures=["loss"], others=["topics"]).axes[0]
    (curve,) = (found for found in panel.containers if isinstance(found, ErrorbarContainer))
    mine = [row for row in rows if row["rate"] == 0.01]
    by_seed = [np.mean([row["loss"] for row in mine if row["seed"] == seed]) for seed in range(3)]
    expected = student_interval(np.array(by_seed))
    np.testing.assert_allclose(curve[2][0].get_segments()[0][:, 1], [expected.low, expected.high])
    # Taking all runs for independent ones gives another interval.
    assert student_interval(np.array([row["loss"] for row in mine])).high != pytest.approx(expected.high, rel=0.01)


def test_the_map_of_two_settings_has_the_means_of_their_runs() -> None:
    rows = table()
    rows[0]["loss"] = None
    image = map_of_two(rows, "rate", "topics", measures=["loss"]).axes[0].images[0].get_array()
    assert image is not None
    first = np.mean([row["loss"] for row in rows if row["rate"] == 0.01 and row["topics"] == 10])
    np.testing.assert_allclose(image[1, 0], first)
    np.testing.assert_allclose(image[0, 0], np.mean([row["loss"] for row in rows[1:3]]))


def test_a_setting_with_one_value_has_no_figure_and_a_measure_without_numbers_no_interval() -> None:
    rows = table(topics=(5,))
    assert list(sweep_figures(rows, settings=["rate", "topics"], measures=["loss"])) == ["by-rate"]
    assert list(sweep_figures(table(), settings=["rate", "topics"], measures=["loss"], connected=False)) == [
        "by-rate",
        "by-topics",
        "map-rate-topics",
    ]
    assert over_seeds(rows, "empty") is None
    assert over_seeds(rows[:1], "loss").high == np.inf  # type: ignore[union-attr]
