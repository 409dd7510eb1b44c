from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings.sweep import Sweep, dump_sweep, labels, load_sweep, sweep_differences

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


def values(path: Path, name: str) -> list[object]:
    return [point.values[name] for point in load_sweep(path).points()]


def test_a_grid_has_all_combinations_in_a_fixed_order(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GRID))
    points = sweep.points()
    assert [tuple(point.values.values()) for point in points] == [
        (pytest.approx(rate, rel=1e-12), topics) for rate in (0.01, 0.1, 1.0) for topics in (5, 10)
    ]
    assert {point.settings.training.steps for point in points} == {7}
    assert [point.settings.documents.topics for point in points] == [5, 10] * 3
    assert sweep.groups() == [(0, 1), (2,)]


def test_settings_and_axes_can_be_written_in_tables_or_dotted_and_in_python(tmp_path: Path) -> None:
    nested = "[vary.training]\nlearning_rate = [0.1, 1]\n[vary.model.value]\nscale = [0.5]\n"
    dotted = "vary.training.learning_rate = [0.1, 1]\nvary.model.value.scale = [0.5]\n"
    points = [load_sweep(write(tmp_path, text)).points() for text in (nested, dotted)]
    python = Sweep(vary={"training.learning_rate": (0.1, 1), "model.value.scale": [0.5]})
    assert points[0] == points[1] == python.points()
    # A whole number where the setting is not one is that number.
    assert points[0][1].values["training.learning_rate"] == 1.0


def test_whole_ranges_have_whole_values_each_once(tmp_path: Path) -> None:
    text = "[vary]\ndata.topics = {{ low = {}, high = {}, count = {}, spacing = '{}' }}\n"
    assert values(write(tmp_path, text.format(1, 3, 9, "linear")), "data.topics") == [1, 2, 3]
    assert values(write(tmp_path, text.format(1, 100, 3, "log")), "data.topics") == [1, 10, 100]
    text = text.replace("data.topics", "model.value.scale")
    assert values(write(tmp_path, text.format(1.0, 4.0, 3, "linear")), "model.value.scale") == [1.0, 2.5, 4.0]


def test_a_sweep_written_out_is_the_same_sweep_and_the_order_of_what_varies_is_part_of_it(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GRID))
    (tmp_path / "elsewhere").mkdir()
    again = load_sweep(write(tmp_path / "elsewhere", dump_sweep(sweep)))
    assert sweep_differences(again, sweep) == []
    assert again.points() == sweep.points()
    changed = load_sweep(write(tmp_path, GRID.replace("steps = 7", "steps = 8").replace("seeds = 3", "seeds = 2")))
    assert sweep_differences(changed, sweep) == ["settings.training.steps", "seeds"]
    vary = dict(reversed(list(sweep.vary.items())))
    other = Sweep(settings=sweep.settings, vary=vary, seeds=sweep.seeds, together=sweep.together)
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
    assert Path(settings.documents.topic_words) == tmp_path / "base" / "words.npy"
    # A base may set what varies, for a run's complete settings can be one; the rest of its section stays.
    over = load_sweep(write(tmp_path, 'base = "base/b.toml"\n[vary]\ntraining.steps = [6, 7]\n'))
    steps_and_batches = [(point.settings.training.steps, point.settings.training.batch) for point in over.points()]
    assert steps_and_batches == [(6, 4), (7, 4)]


BAD = [
    ("", "vary is missing"),
    ("vary = 3\n", "vary = 3 is not allowed: give a table"),
    ("[vary]\ntraining.steps = 5\n", "give a list of values, or a range"),
    ("[vary]\ntraining.steps = []\n", "give each value once, and at least one"),
    ("[vary]\ntraining.steps = [5, 5]\n", "give each value once"),
    ("[vary]\ntraining.steps = [0]\n", "training.steps = 0 is not allowed"),
    ("[vary]\ntraining.stepz = [5]\n", "did you mean training.steps?"),
    ("[vary]\nseed = [0, 1]\n", "vary.seed is not allowed: a sweep has seeds"),
    ("[vary]\ntraining.steps = [5]\n[settings]\nseed = 1\n", "settings.seed is not allowed: a sweep has seeds"),
    ("[vary]\ntraining.l2 = { low = 0.1, high = 0.2 }\n", "is not a range"),
    ("[vary]\ntraining.l2 = { low = 0.2, high = 0.1, count = 2 }\n", "it must be below"),
    ('[vary]\ntraining.l2 = { low = 0.0, high = 1.0, count = 2, spacing = "log" }\n', "needs numbers above 0"),
    ("[vary]\ntraining.l2 = { low = 0.2, high = 0.3, step = 2 }\n", "is not a range"),
    ('[vary]\ntraining.l2 = { low = 0.1, high = 1.0, count = 2, spacing = "odd" }\n', "give one of linear, log"),
    ("seeds = 'x'\n[vary]\ntraining.steps = [5]\n", "give a whole number or a list of whole numbers"),
    ("seeds = [1, 1]\n[vary]\ntraining.steps = [5]\n", "give each seed once"),
    ("together = 0\n[vary]\ntraining.steps = [5]\n", "together = 0 is not allowed"),
    ("seedz = 1\n[vary]\ntraining.steps = [5]\n", "seedz is not a setting: did you mean seeds?"),
    ('method = "random"\n[vary]\ntraining.steps = [5]\n', "give any of vary, settings, seeds, together, base"),
    ("[vary]\ndata.per_document = [2, 40]\n", "data.per_document = 40 is not allowed"),
    ("[vary]\ndata.topics = [2, 3]\n[settings]\ndata = 3\n", "data = 3 is not allowed"),
    (
        "[vary]\ndata.topics = [2, 3]\n[settings.data]\ntopics = 3\n",
        "settings.data.topics and vary.data.topics are both given: leave one of them out.",
    ),
    ("[vary", "is not valid TOML"),
    ('[vary]\ndata.corpus = ["wiki-sample"]\n', "data.corpus is not allowed in a sweep"),
    ('[vary]\nmodel.layers = [2]\n[settings.data]\ncorpus = "x"\n', "data.corpus is not allowed in a sweep"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_sweep_that_cannot_be_is_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_sweep(write(tmp_path, text)).points()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_are_labelled_by_the_parts_of_their_paths_that_distinguish_them() -> None:
    assert list(labels(["a/x/m.npy", "a/y/m.npy"]).values()) == ["x/m.npy", "y/m.npy"]
    assert list(labels([0.123456, 7]).values()) == ["0.1235", "7"]
