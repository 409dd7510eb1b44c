from typing import Any

import numpy as np
import pytest
from matplotlib.colors import LogNorm, Normalize
from matplotlib.container import ErrorbarContainer

from topicscope.measure.uncertainty import student_interval
from topicscope.reporting.figures.sweep import by_setting, map_of_two, over_seeds, same_digits, sweep_figures


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
    panel = by_setting(rows, "rate", measures=["loss"], others=["topics"]).figure.axes[0]
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


def test_the_table_of_curves_has_means_and_ends_by_setting() -> None:
    rows = table()
    drawn = by_setting(rows, "rate", measures=["loss"], others=["topics"]).table
    assert [(row["rate"], row["topics"]) for row in drawn] == [(0.01, 5), (0.1, 5), (0.01, 10), (0.1, 10)]
    expected = student_interval(np.array([row["loss"] for row in rows[6:9]]))
    found = next(row for row in drawn if (row["rate"], row["topics"]) == (0.1, 5))
    assert found["measure"] == "loss"
    assert (found["mean"], found["low"], found["high"]) == pytest.approx((expected.value, expected.low, expected.high))
    # One seed has no interval, and curves over all other settings do not name them.
    (first, _) = by_setting(table(seeds=1, topics=(5,)), "rate", measures=["loss"]).table
    assert set(first) == {"measure", "rate", "mean"}


def test_the_table_of_a_map_has_its_cells_or_its_points() -> None:
    rows = table()
    rows[0]["loss"] = rows[1]["loss"] = rows[2]["loss"] = None
    for cells in (True, False):
        drawn = map_of_two(rows, "rate", "topics", measures=["loss"], cells=cells).table
        found = {(row["rate"], row["topics"]): row["mean"] for row in drawn}
        assert found[0.1, 10] == pytest.approx(np.mean([row["loss"] for row in rows[9:]]))
        assert found[0.01, 5] is None or np.isnan(found[0.01, 5])
        assert ("low" in drawn[-1]) is cells


def test_many_other_settings_are_averaged_within_each_seed_so_the_interval_is_over_seeds() -> None:
    rows = table(topics=tuple(range(5, 15)))
    panel = by_setting(rows, "rate", measures=["loss"], others=["topics"]).figure.axes[0]
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
    image = map_of_two(rows, "rate", "topics", measures=["loss"]).figure.axes[0].images[0].get_array()
    assert image is not None
    first = np.mean([row["loss"] for row in rows if row["rate"] == 0.01 and row["topics"] == 10])
    np.testing.assert_allclose(image[1, 0], first)
    np.testing.assert_allclose(image[0, 0], np.mean([row["loss"] for row in rows[1:3]]))


def test_a_map_has_half_of_students_interval_over_seeds_below_each_mean_and_equal_digits() -> None:
    rows = table()
    figure = map_of_two(rows, "rate", "topics", measures=["loss"]).figure
    assert "3 seeds" in figure.get_suptitle()
    written = [text.get_text() for text in figure.axes[0].texts]
    losses = [row["loss"] for row in rows if (row["rate"], row["topics"]) == (0.1, 5)]
    expected = student_interval(np.array(losses))
    form = same_digits(np.array([over_seeds(rows[place : place + 3], "loss").value for place in range(0, 12, 3)]))  # type: ignore[union-attr]
    place = written.index(form.format(expected.value))
    assert written[place + 1] == f"± {form.format(expected.high - expected.value)}"
    # The control: the standard deviation is not what is written.
    assert written[place + 1] != f"± {form.format(np.std(losses, ddof=1))}"
    assert len({len(text.partition(".")[2]) for text in written}) == 1
    single = map_of_two(table(seeds=1), "rate", "topics", measures=["loss"]).figure
    assert single.get_suptitle() == "one seed: no interval"
    assert not [text for text in single.axes[0].texts if "±" in text.get_text()]


def test_numbers_that_are_compared_have_three_digits_of_their_differences() -> None:
    for numbers, written in [
        ([2.3021, 2.3055], "2.30210"), ([5.0, 50.0], "5.0"), ([5000.0, 90.0], "5000"), ([3.0], "3.00"),
        ([1e-9, 2e-9], "1.00e-09"), ([1e6, 2e6], "1.00e+06"), ([0.0], "0.00"),
    ]:  # fmt: skip
        assert same_digits(np.array(numbers)).format(numbers[0]) == written
    assert same_digits(np.array([])) == "{:.2f}"


def test_one_seed_has_no_interval_and_no_cap() -> None:
    def parts(seeds: int) -> tuple[str, int, int]:
        figure = by_setting(table(seeds=seeds), "rate", measures=["loss"], connected=False).figure
        (curve,) = figure.axes[0].containers
        assert isinstance(curve, ErrorbarContainer)
        return figure.get_suptitle(), len(curve[1]), len(curve[2])

    assert parts(1) == ("one seed: no interval", 0, 0)
    assert parts(3) == ("mean over 3 seeds and 95 % interval", 2, 1)


def test_a_figure_says_that_diverged_runs_are_left_out() -> None:
    rows = table()
    rows[0] |= {"diverged": True, "loss": None}
    assert "diverged are left out" in by_setting(rows, "rate", measures=["loss"]).figure.get_suptitle()


def test_values_close_to_each_other_have_the_ticks_of_the_axis_and_others_their_own() -> None:
    spread, close = (0.001, 0.01, 0.1), (0.001, 0.0011, 0.0012, 0.05, 0.1)
    ticks = [
        by_setting(table(rates=rates), "rate", measures=["loss"]).figure.axes[0].get_xticks()
        for rates in (spread, close)
    ]
    np.testing.assert_allclose(ticks[0], spread)
    assert not {0.0011, 0.0012} & set(ticks[1].tolist())


def test_one_wild_run_makes_the_scale_logarithmic_but_not_if_a_number_is_negative() -> None:
    def scales(wild: float, low: float) -> tuple[str, type]:
        rows = table(seeds=1)
        for place, loss in enumerate((low, 2.0, 3.0, wild)):
            rows[place]["loss"] = loss
        curves = by_setting(rows, "rate", measures=["loss"], others=["topics"]).figure.axes[0]
        return curves.get_yscale(), type(
            map_of_two(rows, "rate", "topics", measures=["loss"]).figure.axes[0].images[0].norm
        )

    assert scales(1.3e5, 2.0) == ("log", LogNorm)
    assert scales(4.0, 2.0) == scales(1.3e5, -2.0) == ("linear", Normalize)


def test_words_are_not_joined_and_their_curves_stand_side_by_side() -> None:
    def drawn(names: tuple[Any, ...]) -> tuple[set[str], set[float]]:
        figure = by_setting(table(rates=names), "rate", measures=["loss"], others=["topics"])
        axes = figure.figure.axes[0]
        lines = [curve[0] for curve in axes.containers if isinstance(curve, ErrorbarContainer)]
        # The table has the values as they are; only what is drawn is aside.
        assert [row["rate"] for row in figure.table] == [*names, *names]
        return {line.get_linestyle() for line in lines}, {line.get_xdata()[0] for line in lines}

    styles, places = drawn(("adam", "sgd"))
    assert styles == {"None"}
    assert len(places) == 2
    styles, places = drawn((1, 2))
    assert styles == {"-"}
    assert len(places) == 1


def test_a_legend_has_four_digits() -> None:
    figure = by_setting(table(rates=(0.009486832980505141, 0.1)), "topics", measures=["loss"], others=["rate"]).figure
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rate 0.009487", "rate 0.1"]


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


def words_in(rows: list[Any], measure: str) -> set[str]:
    panel = map_of_two(rows, "rate", "topics", measures=[measure]).figure.axes[0]
    return {text.get_text() for text in panel.texts}


def test_a_cell_says_diverged_only_where_its_runs_did() -> None:
    """A measure may be missing for other reasons: without a Bayes floor there is no loss above it."""
    rows = [row | {"diverged": False} for row in table()]
    assert words_in(rows, "empty") == {"not defined"}
    for row in rows:
        if (row["rate"], row["topics"]) == (0.1, 5):
            row |= {"diverged": True, "loss": None}
    assert words_in(rows, "empty") == {"not defined", "diverged"}
    assert "diverged" in words_in(rows, "loss")
    # One of three seeds is not the cell.
    rows[-1] |= {"diverged": True, "loss": None}
    assert words_in(rows, "empty") == {"not defined", "diverged"}


def test_files_are_named_by_as_much_of_their_paths_as_tells_them_apart() -> None:
    files = [f"/home/someone/topics/{name}/matrix.npy" for name in ("overlap", "disjoint")]
    rows = [row | {"data.topic_words": files[row["topics"] == 5]} for row in table()]
    drawn = [
        by_setting(rows, "data.topic_words", measures=["loss"]),
        map_of_two(rows, "data.topic_words", "rate", measures=["loss"]),
    ]
    for each in drawn:
        labels = [label.get_text() for label in each.figure.axes[0].get_xticklabels()]
        assert sorted(labels) == ["disjoint/matrix.npy", "overlap/matrix.npy"]
        assert {label.get_rotation() for label in each.figure.axes[0].get_xticklabels()} == {25.0}
    legend = by_setting(rows, "rate", measures=["loss"], others=["data.topic_words"]).figure.legends[0]
    assert sorted(text.get_text() for text in legend.get_texts()) == [
        "topic words disjoint/matrix.npy",
        "topic words overlap/matrix.npy",
    ]
