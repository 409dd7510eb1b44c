"""What people pass to the verbs from Python: paths as text, one item for a list, dictionaries, and wrong types."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import topicscope as ts
from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.settings.toml import dump_settings


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> ts.Run:
    folder = tmp_path_factory.mktemp("python")
    (folder / "small.toml").write_text(dump_settings(small_settings()))
    return ts.train(str(folder / "small.toml"), str(folder / "run"))


def test_paths_may_be_text_everywhere(run: ts.Run, tmp_path: Path) -> None:
    # A run is named by its folder.
    folder = Path(run.name)
    assert str(ts.read_run(run.name).rows()) == str(ts.read_run(folder).rows()) == str(run.rows())
    assert ts.check(run.name).to_dict() == ts.check(folder).to_dict()
    assert ts.load_settings(str(folder / "settings.toml")) == run.settings
    # One folder is a list of one.
    page = ts.report(run.name, str(tmp_path / "page.html"))
    assert page.read_text(encoding="utf-8") == ts.report([folder], tmp_path / "same.html").read_text(encoding="utf-8")
    several = ts.train(small_settings(), str(tmp_path / "several"), seeds=(3, 5))
    assert several.seeds == (3, 5)
    assert several.weights["value"].shape == (2, 1, 7, 7)
    assert ts.landscape(points=3, out=str(tmp_path / "landscape")).loss.shape == (3, 3)


# What holds in a program of its own: here types of arguments are checked before the functions see them.
PROGRAM = """
import json, sys
from pathlib import Path
import numpy as np
import topicscope as ts
from topicscope.errors import InputError
from topicscope.settings import Data, Model, Part, Training
from topicscope.settings.toml import settings_from_table

SMALL = ts.Settings(data={"topics": 3, "words": 2, "length": [4, 9], "documents": 30})
found = []
for expression in json.load(sys.stdin):
    try:
        found.append(repr(eval(expression)))
    except InputError as error:
        found.append(str(error))
print(json.dumps(found))
"""

SAME = [
    'SMALL == settings_from_table({"data": {"topics": 3, "words": 2, "length": [4, 9], "documents": 30}})',
    # What a dictionary leaves out keeps the default of its place: biases start at zero.
    'ts.Settings(model={"key_bias": {"train": False}}).model.key_bias == Part(start="zero", train=False)',
    'ts.Settings(data={"corpus": "x"}, model={"layers": 2}).model.layers == 2',
    'ts.Settings(data={"corpus": "x"}, model={"layers": 2}).model.heads == ts.settings.TEXT_MODEL.heads == 4',
    "Data(dirichlet=0.3) == Data(dirichlet=[0.3]) == Data(dirichlet=(0.3,))",
    'Data(topic_words=Path("matrix.npy")) == Data(topic_words="matrix.npy")',
    'Training(schedule="two-stage").schedule == "two_stage"',
    "Data(topics=np.int64(4), dirichlet=np.float64(0.2)) == Data(topics=4, dirichlet=(0.2,))",
    "type(Data(topics=np.int64(4)).topics) is int",
    'ts.Sweep(vary={"training.steps": [3, 4]}, seeds=2).seeds == (0, 1)',
]

WRONG = {
    'ts.check("x")': "x does not exist: give a run folder, a .npy or a .safetensors file.",
    "ts.check(3)": "path = 3 is not allowed: give a path.",
    "ts.check(np.eye(7).tolist())": "path = (list) is not allowed: give a path.",
    'ts.Sweep(settings=SMALL, vary={"training.steps": [3]})': "settings = (Settings) is not allowed: give a table.",
    'ts.report("x", "page.html")': "x does not exist",
    'ts.report(["x"], 3)': "out = 3 is not allowed: give a path.",
    'ts.read_run("x")': "x/settings.toml cannot be read (No such file or directory)",
    'ts.train(3, "x")': "settings = 3 is not allowed: give a path.",
    'ts.sweep(3, "x")': "sweep = 3 is not allowed: give a path.",
    "ts.Settings(data=3)": "data = 3 is not allowed: give a table, [data] in TOML or a dictionary in Python.",
    'ts.Settings(data={"topcs": 3})': "data.topcs is not a setting: did you mean data.topics?",
    "Data(topics=True)": "data.topics = True is not allowed: give a whole number.",
    "Data(length=100)": "data.length = 100 is not allowed: give a list of 2 whole numbers.",
    'Training(loss="hinge")': 'training.loss = "hinge" is not allowed: give one of cross_entropy, squared.',
    'Model(value="zero")': 'model.value = "zero" is not allowed: give a table, [model.value] in TOML or a dictionary',
    'ts.train(SMALL, "x", seeds=(1, 1))': "seeds = [1, 1] is not allowed: give each one once.",
    'ts.Sweep(vary={"training.steps": 3})': "vary.training.steps = 3 is not allowed: give a list of values",
    'ts.Sweep(vary="training.steps")': 'vary = "training.steps" is not allowed: give a table.',
    'ts.probe("./no-such-model", out="probe")': "model ./no-such-model is neither a folder nor a possible name",
    'ts.reproduce("x", only="nothing-like-it")': "nothing-like-it",
}


def results_of(expressions: list[str], folder: Path) -> list[str]:
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(expressions), capture_output=True, text=True, cwd=folder
    )
    assert process.returncode == 0, process.stderr
    found: list[str] = json.loads(process.stdout)
    return found


def test_python_takes_what_people_give_it_and_what_is_wrong_is_one_sentence(tmp_path: Path) -> None:
    """Sections may be dictionaries, lists one item, paths text; what cannot be is no traceback, and writes nothing."""
    found = results_of([*SAME, *WRONG], tmp_path)
    assert dict(zip(SAME, found, strict=False)) == dict.fromkeys(SAME, "True")
    for (expression, said), sentence in zip(WRONG.items(), found[len(SAME) :], strict=True):
        assert said in sentence, expression
        assert "\n" not in sentence
        assert sentence.endswith((".", "?")), sentence
    assert not (tmp_path / "x").exists()


def test_results_become_frames_and_tables(run: ts.Run) -> None:
    pandas = pytest.importorskip("pandas")
    frame = run.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["step"].tolist() == run.steps.tolist()
    assert frame["norm/value"].tolist() == run.metrics["norm/value"][0, :, 0].tolist()
    checked = ts.check(run.name)
    assert checked.to_frame()["source"].tolist() == [checked.source]
    assert checked._repr_html_().startswith("<table>")


def test_frames_need_pandas_and_say_so(run: ts.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"^to_frame needs pandas: pip install pandas\.$"):
        run.to_frame()


def test_progress_in_a_program_is_a_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command that ran in this process before has its messages printed; here nobody asked for them.
    monkeypatch.setattr(logging.getLogger("topicscope"), "handlers", [])
    ts.train(small_settings(), tmp_path / "run", progress=True)
    assert capsys.readouterr() == ("", "")
