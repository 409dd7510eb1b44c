"""Figures hold what they are given, and the table that is saved beside a figure has the numbers that are drawn."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from topicscope.measure.uncertainty import student_interval
from topicscope.reporting.figures import remember_ends, save_figure, table_of
from topicscope.reporting.figures import training as figures
from topicscope.reporting.figures.landscape import LandscapeData, landscape_figure
from topicscope.reporting.figures.sweep import by_setting, map_of_two, over_seeds, same_digits, sweep_figures

STEPS = np.arange(0, 101, 10)
AXIS = np.geomspace(0.01, 100, 30)
AVERAGE = (9 * AXIS[:, None] + AXIS[None, :]) / 10
LANDSCAPE = LandscapeData(
    alpha=AXIS,
    beta=AXIS,
    loss=np.log(AVERAGE / 4) ** 2 + np.log(AXIS)[None, :] ** 2,
    word_loss=np.log(AVERAGE / 4) ** 2,
    average=AVERAGE,
    optimum=(4.0, 1.0),
    attained=True,
    low=0.5,
    high=50.0,
    limit=10.0,
    title="a landscape",
)


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]
    return figure


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


# The table that is read off a figure.


def test_the_table_has_what_is_drawn_with_the_words_of_an_axis_in_place_of_its_numbers() -> None:
    figure = Figure()
    panel, maps = figure.subplots(1, 2)
    panel.set_title("points\nof runs")
    [line] = panel.plot([1.0, 2.0], [0, 1], "o", label="runs")
    remember_ends(line, [0.5, np.nan], [1.5, np.nan])
    panel.axvline(3.0, label="threshold")
    panel.barh([0, 1], [4.0, 5.0], label="means")
    panel.set_yticks([0, 1], ["squared loss", "cross-entropy"])
    maps.imshow(np.array([[1 / 3, np.nan]]))
    maps.text(0, 0, "a cell")
    rows = table_of(figure)
    assert {row["panel"] for row in rows} == {"points of runs", ""}
    first, second, threshold, bar, _, cell, empty = rows
    assert (first["series"], first["x"], first["y"]) == ("runs", "1", "squared loss")
    assert (first["low"], first["high"]) == ("0.5", "1.5")
    assert (second["x"], second["y"], second["low"]) == ("2", "cross-entropy", "")
    assert (threshold["series"], threshold["x"], threshold["y"]) == ("threshold", "3", "")
    assert (bar["series"], bar["x"], bar["y"]) == ("means", "4", "squared loss")
    assert (cell["value"], cell["text"]) == ("0.33333333", "a cell")
    assert (empty["x"], empty["value"]) == ("1", "")


def test_pictures_and_the_table_are_written_side_by_side_and_the_same_each_time(tmp_path: Path) -> None:
    def saved(name: str, height: float) -> list[bytes]:
        figure = Figure()
        figure.subplots().plot([1.0, height], label="W^V")
        paths = save_figure(figure, tmp_path / name)
        assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg", f"{name}.csv"]
        return [path.read_bytes() for path in paths]

    first = saved("first", 2.0)
    assert saved("again", 2.0) == first
    assert all(one != other for one, other in zip(saved("other", 3.0), first, strict=True))
    with (tmp_path / "first.csv").open() as opened:
        assert [row["series"] for row in csv.DictReader(opened)] == ["W^V", "W^V"]


def test_labels_of_ticks_are_typeset_and_keep_their_size_and_the_table_has_plain_text(tmp_path: Path) -> None:
    cells = {("Adam, ε = 1e-06", scale): (1.0, 400.0, 0.97) for scale in ("1e-06", "0.02")}
    figure = figures.stage_map({"squared loss": cells}, title="map")
    panel = figure.axes[0]
    size = panel.get_yticklabels()[0].get_fontsize()
    save_figure(figure, tmp_path / "map")
    assert [label.get_text() for label in panel.get_xticklabels()] == ["10⁻⁶", "0.02"]
    assert "varepsilon" in panel.get_yticklabels()[0].get_text()
    assert panel.get_yticklabels()[0].get_fontsize() == size
    assert "1e-06" in (tmp_path / "map.csv").read_text()


# Training.


def test_panels_named_together_share_a_colour_scale_and_others_have_their_own() -> None:
    panels = {name: np.full((5, 5), height) for name, height in (("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 8.0))}

    def ends(*groups: tuple[str, ...]) -> dict[str, tuple[float, float]]:
        maps = figures.heat_maps(panels, words=2, same_scale=groups).axes
        return {axes.get_title(): axes.images[0].get_clim() for axes in maps if axes.images and axes.get_title()}

    assert ends(("a", "b")) == {"a": (-2, 2), "b": (-2, 2), "c": (-4, 4), "d": (-8, 8)}
    assert (ends(("a", "b"), ("c", "d"))["a"], ends(("a", "b"), ("c", "d"))["c"]) == ((-2, 2), (-8, 8))


def test_a_map_orders_tokens_by_topic_and_its_table_has_every_entry() -> None:
    matrix = np.random.default_rng(0).normal(size=(5, 5))
    figure = figures.heat_maps({"trained": matrix}, word_topics=np.array([0, 2, 1, 2, 1]))
    order = [0, 2, 4, 1, 3]
    assert "by topic" in figure.axes[0].get_xlabel()
    np.testing.assert_array_equal(np.asarray(figure.axes[0].images[0].get_array()), matrix[np.ix_(order, order)])
    values = [float(row["value"]) for row in table_of(figures.heat_maps({"trained": matrix}, words=2))]
    np.testing.assert_allclose(np.reshape(values, (5, 5)), matrix, rtol=1e-7)


def test_norms_are_one_line_per_run_with_their_mean_the_stage_boundary_and_the_prediction() -> None:
    norm = np.linspace(1, 5, 11) * np.ones((3, 1))
    rotation = np.full((3, 11), 1e-3)
    rotation[:, 0] = np.nan
    curves = {"W^K": {"norm": norm, "its topics": norm / 2}, figures.ROTATION_NAME: {figures.ROTATION_NAME: rotation}}
    settings = {"with": (STEPS, curves, [40]), "without": (STEPS, curves, [])}
    predicted = {"with": (37.0, [0.0, 30.0], {"norm": [1.0, 2.0]})}
    with_end, without, _, turning = figures.norm_trajectories(settings, title="t").axes
    # The mean of two curves, their runs behind; one dashed line more where attention takes off.
    assert (len(with_end.lines), len(without.lines)) == (3, 2)
    assert [len(runs.get_paths()) for runs in without.collections] == [3, 3]
    assert (without.get_yscale(), turning.get_yscale()) == ("linear", "log")
    assert "does not take off" in without.get_title()
    foretold, plain, *_ = figures.norm_trajectories(settings, title="t", predicted=predicted).axes
    thin = next(line for line in foretold.lines if line.get_label() == "the reduced model")
    np.testing.assert_array_equal(np.asarray(thin.get_ydata()), [1.0, 2.0])
    assert "predicted at 37" in foretold.get_title()
    assert "predicted" not in plain.get_title()


def test_the_map_of_stages_says_where_the_second_is_missing_and_marks_two() -> None:
    cells = {("SGD 3", "0.001"): (1.0, 500.0, 0.9), ("Adam 0.01", "0.001"): (np.nan, np.nan, np.nan)}
    figure = figures.stage_map({"cross-entropy": cells, "squared loss": cells}, title="t")
    texts = {text.get_text(): text.get_fontweight() for text in figure.axes[0].texts}
    assert texts == {"step 500\n90 % gained": "bold", "does not\ntake off": "normal"}
    first = table_of(figure)[0]
    assert (first["panel"], first["x"], first["y"], first["value"]) == ("cross-entropy", "0.001", "SGD 3", "1")


def test_points_bars_and_levels_are_where_their_numbers_are() -> None:
    def table(figure: Figure) -> list[tuple[Any, ...]]:
        return [(row["series"], row["x"], row["y"]) for row in table_of(figure)]

    values = {"short": np.array([0.5, 0.75]), "long": np.array([2.0])}
    points = table(figures.run_points({"loss": (values, {"floor": 0.25, "constant": 3.0})}, title="t"))
    assert points[:2] == [("floor", "0.25", ""), ("constant", "3", "")]
    assert points[2:] == [("", "0.5", "short"), ("", "0.75", "short"), ("", "2", "long")]
    bars = table(figures.attention_bars({"Adam": np.array([[0.5, 0.25, 0], [1, 0.25, 0]])}, uniform=0.125, title="t"))
    assert ("same word", "75") in [row[:2] for row in bars]
    assert ("uniform attention", "12.5", "") in bars
    scales = np.array([0.25, 0.5])
    measured = {"squared": {0.5: np.array([9.0, 11.0])}, "cross-entropy": {0.25: np.array([8.0])}}
    ratios = table(figures.gradient_ratios(measured, dict.fromkeys(measured, (scales, 2 * scales)), title="t"))
    assert ("squared: measured", "0.5", "11") in ratios
    assert ("squared: formula", "0.25", "0.5") in ratios


def test_curves_by_layer_have_a_panel_per_layer() -> None:
    key = np.arange(6.0).reshape(2, 3)
    layered = {name: key[:, :, None] + [0, 10] for name in ("key", "query", "value", "rotation")}
    axes = figures.layer_trajectories({"only": (np.arange(3), layered)}, title="t").axes
    assert len(axes) == 8
    assert np.asarray(axes[1].lines[0].get_ydata()).tolist() == [10, 11, 12]


def test_predicted_against_measured_leaves_out_what_one_of_the_two_lacks() -> None:
    pairs = {"step": np.array([[100.0, 110.0], [np.nan, 50.0], [200.0, 190.0]])}
    figure = figures.predicted_against_measured(pairs, ["SGD", "SGD", "Adam"], title="t")
    rows = [(row["series"], row["x"], row["y"]) for row in table_of(figure)]
    assert rows[:2] == [("SGD", "110", "100"), ("Adam", "190", "200")]
    assert "50" not in [row[1] for row in rows]


# The landscape.


def marked(panel: Axes) -> set[tuple[float, float]]:
    return {(float(x), float(y)) for line in panel.lines for x, y in np.asarray(line.get_xydata())}


def test_the_optimum_and_uniform_attention_are_marked_where_they_are() -> None:
    assert marked(landscape_figure(LANDSCAPE).axes[0]) == {(4.0, 1.0), (1.0, 1.0)}
    assert marked(landscape_figure(replace(LANDSCAPE, optimum=(0.0, 1.0))).axes[0]) == {(0.01, 1.0), (1.0, 1.0)}


def test_the_legend_is_outside_every_panel_names_theorem_3_and_whether_the_optimum_is_attained() -> None:
    figure = drawn(landscape_figure(LANDSCAPE))
    box = figure.legends[0].get_window_extent()
    assert not any(box.overlaps(panel.get_window_extent()) for panel in figure.axes)
    assert any("Theorem 3" in text and "(0.5, 50)" in text for text in legend_of(figure))
    assert any("limit" in text for text in legend_of(figure))
    other = legend_of(landscape_figure(replace(LANDSCAPE, limit=None, attained=False)))
    assert not any("limit" in text for text in other)
    assert any("no optimum is attained" in text for text in other)
    assert not any("no optimum is attained" in text for text in legend_of(figure))


@pytest.mark.parametrize("change", [{"word_loss": None}, {"high": None}, {"limit": None}, {"low": 0.0}])
def test_parts_that_are_not_defined_are_left_out(change: dict[str, float | None]) -> None:
    figure = drawn(landscape_figure(replace(LANDSCAPE, **change)))  # type: ignore[arg-type]
    assert len([axes for axes in figure.axes if axes.get_xlabel()]) == (1 if "word_loss" in change else 2)


# A sweep.


def sweep(*, rates: tuple[Any, ...] = (0.01, 0.1), topics: tuple[int, ...] = (5, 10), seeds: int = 3) -> list[Any]:
    draw = np.random.default_rng(0)
    return [
        {"rate": rate, "topics": count, "seed": seed, "loss": float(draw.normal(loc=count)), "empty": None}
        for rate in rates
        for count in topics
        for seed in range(seeds)
    ]


def losses_of(rows: list[Any], **where: Any) -> np.ndarray:
    return np.array([row["loss"] for row in rows if all(row[name] == value for name, value in where.items())])


def test_curves_are_means_over_seeds_with_students_intervals() -> None:
    rows = sweep()
    figure = by_setting(rows, "rate", measures=["loss"], others=["topics"])
    assert figure.axes[0].get_xscale() == "log"
    assert figure.get_suptitle() == "mean over 3 seeds and 95 % interval"
    points = {(row["series"], row["x"]): row for row in table_of(figure)}
    for count, rate in ((5, 0.01), (5, 0.1), (10, 0.01), (10, 0.1)):
        expected = student_interval(losses_of(rows, topics=count, rate=rate))
        point = points[f"topics {count}", f"{rate:g}"]
        measured = [float(point[name]) for name in ("y", "low", "high")]
        assert measured == pytest.approx([expected.value, expected.low, expected.high])
    single = by_setting(sweep(seeds=1), "rate", measures=["loss"])
    assert single.get_suptitle() == "one seed: no interval"
    assert {row["low"] for row in table_of(single)} == {""}


def test_many_other_settings_are_averaged_within_each_seed_so_the_interval_is_over_seeds() -> None:
    rows = sweep(topics=tuple(range(5, 15)))
    point = table_of(by_setting(rows, "rate", measures=["loss"], others=["topics"]))[0]
    by_seed = [losses_of(rows, rate=0.01, seed=seed).mean() for seed in range(3)]
    assert float(point["high"]) == pytest.approx(student_interval(np.array(by_seed)).high)
    # Taking all runs for independent ones gives another interval.
    assert student_interval(losses_of(rows, rate=0.01)).high != pytest.approx(float(point["high"]), rel=0.01)


def test_a_map_has_means_over_seeds_with_half_of_their_interval_and_equal_digits() -> None:
    rows = sweep()
    panel = map_of_two(rows, "rate", "topics", measures=["loss"]).axes[0]
    image = np.asarray(panel.images[0].get_array())
    np.testing.assert_allclose(image[1, 0], losses_of(rows, rate=0.01, topics=10).mean())
    expected = student_interval(losses_of(rows, rate=0.1, topics=5))
    form = same_digits(image.ravel())
    texts = [text.get_text() for text in panel.texts]
    assert texts[1] == f"{form.format(expected.value)}\n± {form.format(expected.high - expected.value)}"
    # The control: the standard deviation is not what is written.
    assert form.format(np.std(losses_of(rows, rate=0.1, topics=5), ddof=1)) not in texts[1]
    assert len({len(line.partition(".")[2]) for text in texts for line in text.splitlines()}) == 1


def test_a_cell_says_diverged_only_where_its_runs_did() -> None:
    """A measure may be missing for other reasons: without a Bayes floor there is no loss above it."""
    rows = [row | {"diverged": False} for row in sweep()]

    def words(measure: str) -> set[str]:
        return {text.get_text() for text in map_of_two(rows, "rate", "topics", measures=[measure]).axes[0].texts}

    assert words("empty") == {"not defined"}
    for row in rows[6:9]:
        row |= {"diverged": True, "loss": None}
    assert words("empty") == {"not defined", "diverged"}
    assert "diverged" in words("loss")
    assert "diverged are left out" in by_setting(rows, "rate", measures=["loss"]).get_suptitle()


def test_numbers_that_are_compared_have_three_digits_of_their_differences() -> None:
    for numbers, written in [
        ([2.3021, 2.3055], "2.30210"), ([5.0, 50.0], "5.0"), ([5000.0, 90.0], "5000"), ([3.0], "3.00"),
        ([1e-9, 2e-9], "1.00e-09"), ([1e6, 2e6], "1.00e+06"), ([0.0], "0.00"),
    ]:  # fmt: skip
        assert same_digits(np.array(numbers)).format(numbers[0]) == written
    assert same_digits(np.array([])) == "{:.2f}"


def test_values_close_to_each_other_have_the_ticks_of_the_axis_and_others_their_own() -> None:
    spread, close = (0.001, 0.01, 0.1), (0.001, 0.0011, 0.0012, 0.05, 0.1)
    ticks = [by_setting(sweep(rates=each), "rate", measures=["loss"]).axes[0].get_xticks() for each in (spread, close)]
    np.testing.assert_allclose(ticks[0], spread)
    assert not {0.0011, 0.0012} & set(ticks[1].tolist())


def test_one_wild_run_makes_the_scale_logarithmic_but_not_if_a_number_is_negative() -> None:
    def scales(wild: float, low: float) -> tuple[str, type]:
        rows = sweep(seeds=1)
        for place, loss in enumerate((low, 2.0, 3.0, wild)):
            rows[place]["loss"] = loss
        curves = by_setting(rows, "rate", measures=["loss"], others=["topics"]).axes[0]
        return curves.get_yscale(), type(map_of_two(rows, "rate", "topics", measures=["loss"]).axes[0].images[0].norm)

    assert scales(1.3e5, 2.0) == ("log", LogNorm)
    assert scales(4.0, 2.0) == scales(1.3e5, -2.0) == ("linear", Normalize)


def test_words_are_not_joined_and_their_curves_stand_side_by_side() -> None:
    def lines(names: tuple[Any, ...]) -> tuple[set[str], set[float]]:
        axes = by_setting(sweep(rates=names), "rate", measures=["loss"], others=["topics"]).axes[0]
        return {str(line.get_linestyle()) for line in axes.lines}, {
            np.ravel(line.get_xdata())[0] for line in axes.lines
        }

    styles, places = lines(("adam", "sgd"))
    assert (styles, len(places)) == ({"None"}, 2)
    styles, places = lines((1, 2))
    assert (styles, len(places)) == ({"-"}, 1)


def test_files_are_named_by_as_much_of_their_paths_as_distinguishes_them_and_numbers_have_four_digits() -> None:
    files = [f"/home/someone/topics/{name}/matrix.npy" for name in ("overlap", "disjoint")]
    rows = [row | {"data.topic_words": files[row["topics"] == 5]} for row in sweep(rates=(0.009486832980505141, 0.1))]
    for figure in (
        by_setting(rows, "data.topic_words", measures=["loss"]),
        map_of_two(rows, "data.topic_words", "rate", measures=["loss"]),
    ):
        labels = figure.axes[0].get_xticklabels()
        assert sorted(label.get_text() for label in labels) == ["disjoint/matrix.npy", "overlap/matrix.npy"]
        assert {label.get_rotation() for label in labels} == {25.0}
    legend = legend_of(by_setting(rows, "topics", measures=["loss"], others=["rate"]))
    assert legend == ["rate 0.009487", "rate 0.1"]


def test_a_setting_with_one_value_has_no_figure_and_a_measure_without_numbers_no_interval() -> None:
    rows = sweep(topics=(5,))
    assert list(sweep_figures(rows, settings=["rate", "topics"], measures=["loss"])) == ["by-rate"]
    every = sweep_figures(sweep(), settings=["rate", "topics"], measures=["loss"])
    assert list(every) == ["by-rate", "by-topics", "map-rate-topics"]
    assert over_seeds(rows, "empty") is None
    assert over_seeds(rows[:1], "loss").high == np.inf  # type: ignore[union-attr]
