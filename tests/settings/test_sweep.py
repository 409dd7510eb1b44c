from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings.sweep import Sweep, dump_sweep, load_sweep

GRID = """
seeds = 3
together = 2

[vary]
training.learning_rate = [0.01, 0.1, 1.0]
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
        (rate, topics) for rate in (0.01, 0.1, 1.0) for topics in (5, 10)
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


def test_a_sweep_written_out_is_the_same_sweep_from_any_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "words.npy", np.eye(3))
    vary = '[vary]\ndata.topic_words = ["words.npy"]\ntraining.steps = [3, 4]\n[settings.model.value]\n'
    (tmp_path / "elsewhere").mkdir()
    for text in (GRID, f'{vary}start = "file"\nfile = "words.npy"\n'):
        sweep = load_sweep(write(tmp_path, text))
        again = load_sweep(write(tmp_path / "elsewhere", dump_sweep(sweep)))
        assert (again.points(), again.groups()) == (sweep.points(), sweep.groups())
    settings = again.points()[0].settings
    assert settings.documents.topic_words == settings.model.value.file == str(tmp_path / "words.npy")


BAD = [
    ("", "vary is missing"),
    ("vary = 3\n", "vary = 3 is not allowed: give a table"),
    ("[vary]\ntraining.steps = 5\n", "give a list of values"),
    ("[vary]\ntraining.steps = []\n", "give each value once, and at least one"),
    ("[vary]\ntraining.steps = [5, 5]\n", "give each value once"),
    ("[vary]\ntraining.steps = [0]\n", "training.steps = 0 is not allowed"),
    ("[vary]\ntraining.stepz = [5]\n", "did you mean training.steps?"),
    ("[vary]\nseed = [0, 1]\n", "vary.seed is not allowed: a sweep has seeds"),
    ("[vary]\ntraining.steps = [5]\n[settings]\nseed = 1\n", "settings.seed is not allowed: a sweep has seeds"),
    ("seeds = 'x'\n[vary]\ntraining.steps = [5]\n", "give a whole number or a list of whole numbers"),
    ("seeds = [1, 1]\n[vary]\ntraining.steps = [5]\n", "give each seed once"),
    ("together = 0\n[vary]\ntraining.steps = [5]\n", "together = 0 is not allowed"),
    ("seedz = 1\n[vary]\ntraining.steps = [5]\n", "seedz is not a setting: did you mean seeds?"),
    ('method = "random"\n[vary]\ntraining.steps = [5]\n', "give any of vary, settings, seeds, together"),
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
