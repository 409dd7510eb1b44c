"""Any command line ends in success or in one sentence, whatever its options are given."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from support.fuzzing import Ended, in_a_copy, options_of, options_of_all, run
from topicscope.cli import COMMANDS
from topicscope.errors import InputError

SETTING = ["--topics=3", "--words=2", "--per-document=2"]
TRAINING = [
    "--data.topics=3", "--data.words=2", "--data.length", "4", "9", "--data.documents=20", "--training.batch=5",
    "--training.steps=2", "--training.validation-documents=6", "--training.snapshots=2",
]  # fmt: skip

# Of each command a line that is fast, which is spoilt.
LINES: dict[str, list[list[str]]] = {
    "check": [["run"], ["matrix.npy", *SETTING], ["matrix.safetensors", *SETTING, "--tensor=w"]],
    "demo": [["--out=run"]],
    "landscape": [["--out=new", *SETTING]],
    "playground": [["--out=new.html"], ["settings.toml", "--out=new.html"]],
    "probe": [["no-such-folder", "--corpus=corpus.txt", "--out=new"]],
    "report": [["run", "--out=new.html"]],
    "reproduce": [["--list"]],
    "sweep": [["sweep.toml", "--out=new", "--dry-run"]],
    "theory": [[*SETTING, "--samples=0", "--no-take-off"]],
    "train": [["--out=new", *TRAINING], ["settings.toml", "--out=new"], ["--out=run", "--resume"]],
}
assert LINES.keys() == COMMANDS.keys()

TEXTS = [
    "", " ", "x", "None", "nan", "inf", "-inf", "-", "--", "---", "=", "1e400", "1e-320", "-0.0", "0x10", "1_0", "٣",
    "1.5", "9" * 400, "9" * 5000, "1e18", "new[/foo]", "~nouser/x", "~", "/dev/null", "/dev/zero", "no/such/folder",
    "run", "matrix.npy", "settings.toml", "corpus.txt", ".", "..", "a\0b", "\n", "line\nbreak", "\ud800",
    os.fsdecode(b"\xff\xfe"), "x" * 300, "topics", "dirichlet", "sgd", "squared", "random", "auto", "cpu", "all",
    "[1, 2]", "{}", "true", "<script>", "𝔘𝔫",
]  # fmt: skip
# Between what is small and what no machine has, a number may well ask for hours of work that is meant.
NUMBERS = (
    st.integers(-3, 12).map(str) | st.integers(min_value=10**15).map(str) | st.integers(max_value=-(10**9)).map(str)
)
VALUES = st.sampled_from(TEXTS) | NUMBERS | st.floats(-0.5, 1.5).map(str) | st.floats().map(str) | st.text(max_size=8)
# Work of minutes, or on another machine.
LEFT_OUT = {"--help", "--help-all", "--engine", "--address", "--resume", "--samples", "--finite", "--take-off"}

REFUSED = {
    "a name that is not UTF-8": (["train", f"--out=n{os.fsdecode(bytes([255]))}", *TRAINING], "is not UTF-8"),
    "a home folder of nobody": (["train", "--out=~nouser/x", *TRAINING], "~nouser/x is in the home folder of a user"),
    "a tiny Dirichlet": (["train", "--out=new", "--data.dirichlet=1e-320", *TRAINING], "from 1e-100 up"),
    "a tiny mask": (["theory", *SETTING, "--mask=1e-300"], "from 1e-12 to 1"),
    "a learning rate of 400 digits": (
        ["train", "--out=new", f"--training.learning-rate={'9' * 400}", *TRAINING],
        "training.learning-rate",
    ),
    "a seed of 5,000 digits": (["train", "--out=new", f"--seed={'9' * 5000}", *TRAINING], "give a whole number"),
    "TOML nested 5,000 deep": (["train", "deep.toml", "--out=new"], "nested too deeply"),
    "a matrix of 1e300": (["check", "huge.npy", *SETTING], "whose products may overflow"),
    "10^18 steps": (["train", "--out=new", *TRAINING[:-3], f"--training.steps={10**18}"], "at most 1,000,000,000,000"),
    "a grid of 10^9 points": (["sweep", "grid.toml", "--out=new", "--dry-run"], "at most 100,000 are possible"),
    "10^9 seeds": (["sweep", "seeds.toml", "--out=new", "--dry-run"], "at most 100,000"),
    "an empty corpus": (["train", "--data.corpus=", "--out=new"], 'data.corpus = ""'),
    "a batch beyond memory": (
        ["train", "--out=new", *(word for word in TRAINING if "batch" not in word), "--training.batch=1000000000"],
        "GB are free",
    ),
    "a layer of what has none": (["check", "matrix.npy", "--layer=5", *SETTING], "has no layers"),
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the lines name."""
    folder = tmp_path_factory.mktemp("material")
    np.save(folder / "matrix.npy", np.eye(7))
    np.save(folder / "huge.npy", np.full((7, 7), 1e300))
    save_file({"w": np.eye(7)}, folder / "matrix.safetensors")
    (folder / "corpus.txt").write_text("one two three four\n" * 40)
    (folder / "settings.toml").write_text(
        "[data]\ntopics = 3\nwords = 2\nlength = [4, 9]\ndocuments = 20\n"
        "[training]\nbatch = 5\nsteps = 2\nvalidation_documents = 6\n"
    )
    (folder / "sweep.toml").write_text("[vary]\ntraining.learning_rate = [0.1, 1.0]\n[settings.data]\ntopics = 3\n")
    (folder / "deep.toml").write_text("a = " + "[" * 5_000 + "]" * 5_000)
    names = ("training.learning_rate", "training.l2", "training.momentum")
    thousand = [0.1 + number / 2_000 for number in range(1_000)]
    (folder / "grid.toml").write_text("[vary]\n" + "".join(f"{name} = {thousand}\n" for name in names))
    (folder / "seeds.toml").write_text("seeds = 1000000000\n[vary]\ntraining.learning_rate = [0.1]\n")
    assert run(["train", f"--out={folder / 'run'}", *TRAINING], folder).code == 0
    return folder


@st.composite
def spoilt_lines(draw: st.DrawFn, options: dict[str, list[str]]) -> list[str]:
    """A line with some options given otherwise, or left out, or with words that have no business there."""
    command = draw(st.sampled_from(sorted(LINES)))
    words = list(draw(st.sampled_from(LINES[command])))
    named = [word.partition("=")[0] for word in words if word.startswith("--")]
    for name in draw(st.lists(st.sampled_from(options[command] + 3 * named), min_size=1, max_size=2)):
        values = draw(st.lists(VALUES, max_size=2))
        words = without(words, name) + ([f"{name}={values[0]}"] if len(values) == 1 else [name, *values])
    if draw(st.integers(0, 7)) == 0 and words:
        del words[draw(st.integers(0, len(words) - 1))]
    if draw(st.integers(0, 7)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(VALUES))
    return [command, *words]


def without(words: list[str], name: str) -> list[str]:
    """The words but for an option and its values."""
    kept, dropping = [], False
    for word in words:
        dropping = word.partition("=")[0] == name or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
        dropping = dropping and "=" not in word
    return kept


@pytest.mark.parametrize("cases", [40, pytest.param(800, marks=pytest.mark.slow)])
def test_spoilt_lines_end_well(cases: int, material: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        raise InputError("it takes too long here.")

    # What trains or probes takes minutes: its options are read, and no more.
    for name in ("demo.demo", "probe._probe", "reproduce.reproduce", "sweep.sweep", "train.train"):
        monkeypatch.setattr(f"topicscope.commands.{name}", refused)
    options = {command: sorted(options_of(command) - LEFT_OUT) for command in COMMANDS}

    @settings(
        max_examples=cases, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(line=spoilt_lines(options))
    def ends_well(line: list[str]) -> None:
        in_a_copy(line, material, tmp_path / "here").check()

    ends_well()


def test_what_once_ended_badly_is_refused_in_one_sentence(material: Path, tmp_path: Path) -> None:
    for what, (words, sentence) in REFUSED.items():
        ended = in_a_copy(words, material, tmp_path / "here")
        ended.check()
        assert ended.code == 2, what
        assert sentence in ended.errors


def test_folders_are_printed_as_they_are_called(tmp_path: Path) -> None:
    ended = run(["train", "--out=[x]:smile:", *TRAINING], tmp_path)
    ended.check()
    assert "[x]:smile:" in ended.output
    assert (tmp_path / "[x]:smile:").is_dir()


def test_a_traceback_a_leftover_and_a_sentence_without_an_end_are_found() -> None:
    """The control of what is asked of every ending."""
    good = Ended(("check",), 2, "", "topicscope: no.\n", ())
    good.check()
    for bad in (
        Ended(("check",), 1, "", "topicscope: no.\n", ()),
        Ended(("check",), 2, "", "Traceback\ntopicscope: no.\n", ()),
        Ended(("check",), 2, "", "topicscope: no\n", ()),
        Ended(("check",), 2, "", "topicscope: no.\n", ("new",)),
    ):
        with pytest.raises(AssertionError):
            bad.check()
    assert {"--out", "--topics", "--data.corpus", "--training.steps"} < options_of_all()
