from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings.sweep import Axis, Range, Sweep, dump_sweep, load_sweep, sweep_differences

GRID = """
seeds = 3
together = 2

[vary]
training.learning_rate = { low = 0.01, high = 1.0, count = 3, spacing = "log" }
data.topics = [5, 10]

[settings.training]
steps = 7
"""


def write(folder: Path, text: str, name: str = "sweep.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_grid_has_all_combinations_in_a_fixed_order(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GRID))
    points = sweep.points()
    assert [tuple(point.values.values()) for point in points] == [
        (pytest.approx(rate, rel=1e-12), topics) for rate in (0.01, 0.1, 1.0) for topics in (5, 10)
    ]
    assert {point.settings.training.steps for point in points} == {7}
    assert [point.settings.data.topics for point in points] == [5, 10] * 3
    assert sweep.groups() == [(0, 1), (2,)]


def test_settings_and_axes_can_be_written_in_tables_or_dotted(tmp_path: Path) -> None:
    nested = "[vary.training]\nlearning_rate = [0.1, 1]\n[vary.model.value]\nscale = [0.5]\n"
    dotted = "vary.training.learning_rate = [0.1, 1]\nvary.model.value.scale = [0.5]\n"
    quoted = '[vary]\n"training.learning_rate" = [0.1, 1]\n"model.value.scale" = [0.5]\n'
    points = [load_sweep(write(tmp_path, text)).points() for text in (nested, dotted, quoted)]
    assert points[0] == points[1] == points[2]
    # A whole number where the setting is not one is that number.
    assert points[0][1].values["training.learning_rate"] == 1.0


def test_whole_ranges_have_whole_values_each_once() -> None:
    assert Range(low=1, high=3, count=9).values() == [1, 2, 3]
    assert Range(low=1.0, high=3.0, count=3).values() == [1.0, 2.0, 3.0]
    assert Range(low=1, high=100, count=3, spacing="log").values() == [1, 10, 100]


@pytest.mark.parametrize("spacing", ["linear", "log"])
def test_random_values_are_uniform_or_uniform_in_their_logarithm(spacing: str) -> None:
    draw = np.random.default_rng(0)
    axis = Range(low=0.01, high=1.0, spacing=spacing)  # type: ignore[arg-type]
    drawn = np.array([axis.draw(generator=draw) for _ in range(2_000)])
    assert (drawn >= 0.01).all()
    assert (drawn <= 1).all()
    uniform = (np.log(drawn / 0.01) / np.log(100), (drawn - 0.01) / 0.99)
    right, wrong = uniform if spacing == "log" else reversed(uniform)
    error = 5 * np.sqrt(1 / 12 / len(drawn))
    assert abs(right.mean() - 0.5) < error
    assert abs(wrong.mean() - 0.5) > error


def test_random_whole_numbers_reach_both_ends() -> None:
    draw = np.random.default_rng(1)
    for axis in (Range(low=2, high=5), Range(low=2, high=5, spacing="log")):
        assert {axis.draw(generator=draw) for _ in range(200)} == {2, 3, 4, 5}


def test_random_combinations_follow_the_seed_and_come_once() -> None:
    vary: dict[str, Axis] = {
        "training.learning_rate": Range(low=0.001, high=0.1, spacing="log"),
        "data.topics": (5, 10),
    }
    first, again, other = (Sweep(vary=vary, method="random", samples=6, seed=seed).points() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    few = Sweep(vary={"data.topics": (5, 10)}, method="random", samples=50)
    assert sorted(point.values["data.topics"] for point in few.points()) == [5, 10]


def test_a_sweep_written_out_is_the_same_sweep(tmp_path: Path) -> None:
    text = 'method = "random"\nsamples = 4\nseed = 3\n' + GRID.replace(
        "[settings", "[settings.data]\nwords = 9\n[settings"
    )
    sweep = load_sweep(write(tmp_path, text))
    (tmp_path / "elsewhere").mkdir()
    again = load_sweep(write(tmp_path / "elsewhere", dump_sweep(sweep)))
    assert again == sweep
    assert sweep_differences(again, sweep) == []
    changed = load_sweep(write(tmp_path, text.replace("words = 9", "words = 8").replace("seeds = 3", "seeds = 2")))
    assert sweep_differences(changed, sweep) == ["settings.data.words", "seeds"]


def test_the_order_of_what_varies_is_kept_when_written_and_is_part_of_a_sweep(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GRID))
    again = load_sweep(write(tmp_path, dump_sweep(sweep)))
    assert list(again.vary) == list(sweep.vary) == ["training.learning_rate", "data.topics"]
    assert again.points() == sweep.points()
    # The control: the other order is another sweep, with the same combinations in other places.
    other = Sweep(
        settings=sweep.settings,
        vary=dict(reversed(list(sweep.vary.items()))),
        seeds=sweep.seeds,
        together=sweep.together,
    )
    assert sweep_differences(other, sweep) == ["the order of vary"]
    assert other.points() != sweep.points()


def test_a_base_lies_below_the_sweeps_own_settings_and_files_are_found_from_where_they_are_named(
    tmp_path: Path,
) -> None:
    (tmp_path / "base").mkdir()
    np.save(tmp_path / "base" / "words.npy", np.eye(3))
    write(
        tmp_path / "base", 'seed = 5\n[data]\ntopic_words = "words.npy"\n[training]\nsteps = 3\nbatch = 4\n', "b.toml"
    )
    sweep = load_sweep(
        write(tmp_path, 'base = "base/b.toml"\n[vary]\ntraining.loss = ["squared"]\n[settings.training]\nsteps = 9\n')
    )
    settings = sweep.points()[0].settings
    assert (settings.training.steps, settings.training.batch) == (9, 4)
    assert Path(settings.data.topic_words) == tmp_path / "base" / "words.npy"
    # A base may set what varies, for a run's complete settings can be one; the rest of its section stays.
    over = load_sweep(write(tmp_path, 'base = "base/b.toml"\n[vary]\ntraining.steps = [6, 7]\n'))
    assert [(point.settings.training.steps, point.settings.training.batch) for point in over.points()] == [
        (6, 4),
        (7, 4),
    ]
    assert load_sweep(write(tmp_path, dump_sweep(over))) == over


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "vary is missing"),
        ("[vary]\n", "vary is missing"),
        ("vary = 3\n", "vary = 3 is not allowed: it is a table"),
        ("[vary]\ntraining.steps = 5\n", "give a list of values, or a range"),
        ("[vary]\ntraining.stepz = [5]\n", "did you mean training.steps?"),
        ("[vary]\ntraining.steps = []\n", "give each value once"),
        ("[vary]\ntraining.steps = [5, 5]\n", "give each value once"),
        ("[vary]\ntraining.steps = [0]\n", "training.steps = 0 is not allowed"),
        ("[vary]\nseed = [0, 1]\n", "a sweep has seeds"),
        ("[vary]\ntraining.steps = [5]\n[settings]\nseed = 1\n", "a sweep has seeds"),
        ("[vary]\ntraining.l2 = { low = 0.1, high = 0.2 }\n", "a grid needs to know how many values"),
        ("[vary]\ntraining.l2 = { low = 0.2, high = 0.1, count = 2 }\n", "it must be below"),
        ('[vary]\ntraining.l2 = { low = 0.0, high = 1.0, count = 2, spacing = "log" }\n', "needs numbers above 0"),
        ("[vary]\ntraining.l2 = { low = 0.2, high = 0.3, step = 2 }\n", "is not a range"),
        ('[vary]\ntraining.l2 = { low = "a", high = 0.3, count = 2 }\n', "is not a range"),
        ('[vary]\ntraining.l2 = { low = 0.1, high = 1.0, count = 2, spacing = "odd" }\n', 'spacing = "odd" is not'),
        ("method = 'all'\n[vary]\ntraining.steps = [5]\n", 'method = "all" is not allowed'),
        ("samples = 3\n[vary]\ntraining.steps = [5]\n", "it is for method"),
        ("method = 'random'\n[vary]\ntraining.steps = [5]\n", "samples = 0 is not allowed"),
        ("seeds = 'x'\n[vary]\ntraining.steps = [5]\n", "seeds = "),
        ("seeds = [1, 1]\n[vary]\ntraining.steps = [5]\n", "give each seed once"),
        ("together = 0\n[vary]\ntraining.steps = [5]\n", "together = 0 is not allowed"),
        ("seedz = 1\n[vary]\ntraining.steps = [5]\n", "seedz is not a key of a sweep"),
        ("[vary]\ndata.per_document = [2, 40]\n", "data.per_document = 40 is not allowed"),
        ("[vary]\ndata.topics = [2, 3]\n[settings]\ndata = 3\n", "settings.data = 3 is not allowed: it is a table"),
        (
            "[vary]\ndata.topics = [2, 3]\n[settings.data]\ntopics = 3\n",
            "settings.data.topics and vary.data.topics are both given: leave one of them out.",
        ),
        ("[vary", "is not valid TOML"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_sweep(write(tmp_path, text)).points()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        '[vary]\ndata.corpus = ["wiki-sample"]\n',
        '[vary]\nmodel.layers = [2, 4]\n[settings.data]\ncorpus = "wiki-sample"\n',
        'base = "text.toml"\n[vary]\nmodel.layers = [2, 4]\n',
    ],
)
def test_a_sweep_over_runs_on_text_is_refused_and_says_what_a_sweep_is_of(tmp_path: Path, text: str) -> None:
    (tmp_path / "text.toml").write_text('[data]\ncorpus = "wiki-sample"\n')
    with pytest.raises(InputError, match=r"data\.corpus is not allowed in a sweep, which is of runs on documents of a"):
        load_sweep(write(tmp_path, text))
    # The control: without the corpus it is a sweep.
    (tmp_path / "text.toml").write_text("[data]\ntopics = 3\n")
    without = text.replace('data.corpus = ["wiki-sample"]', "data.topics = [3]").replace('corpus = "wiki-sample"', "")
    assert load_sweep(write(tmp_path, without)).points()
