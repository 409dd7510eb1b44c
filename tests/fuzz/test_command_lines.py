"""Any command line ends in success or in one sentence, whatever its options are given."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzzing import Counts, fuzzed, in_a_copy, options_of, run
from support.small_probe import write_tiny
from topicscope.cli import COMMANDS

SETTING = ["--topics=3", "--words=2", "--per-document=2"]
TRAINING = [
    "--data.topics=3", "--data.words=2", "--data.length", "4", "9", "--data.documents=20", "--training.batch=5",
    "--training.steps=2", "--training.validation-documents=6", "--training.snapshots=2",
]  # fmt: skip
PROBING = [
    *("--topics=3", "--fractions=0.2", "--fits=1", "--iterations=5", "--length=20", "--replicates=10"),
    *("--permutations=9", "--head-permutations=9", "--workers=1", "--device=cpu"),
]

# Of each command a line that is fast, which is spoilt.
LINES: dict[str, list[list[str]]] = {
    "bench": [["--rounds=0"]],
    "check": [["run"], ["matrix.npy", *SETTING], ["matrix.safetensors", *SETTING, "--tensor=w"]],
    "demo": [["--out=run"]],
    "landscape": [["--out=new", *SETTING]],
    "playground": [["--out=new.html"], ["settings.toml", "--out=new.html"]],
    "probe": [
        ["no-such-folder", "--corpus=corpus.txt", "--out=new"],
        ["bert", "--corpus=words.txt", "--out=new", *PROBING],
        ["bert", "--corpus=words.txt", "--out=probed", *PROBING],
    ],
    "report": [["run", "--out=new.html"]],
    "reproduce": [
        ["--list"],
        *(["--only", each, "--out=new", "--workers=1"] for each in ("theorem9", "figure2/short")),
    ],
    "sweep": [
        ["sweep.toml", "--out=new", "--workers=1", "--dry-run"],
        ["sweep.toml", "--out=new", "--workers=1", "--measures=loss"],
    ],
    "theory": [[*SETTING, "--samples=200"]],
    "train": [["--out=new", *TRAINING], ["settings.toml", "--out=new"], ["--out=run", "--resume"]],
}

# How many lines of each are tried at length.
CASES = {
    "bench": 120, "check": 400, "demo": 120, "landscape": 200, "playground": 150, "probe": 120, "report": 500,
    "reproduce": 250, "sweep": 80, "theory": 120, "train": 250,
}  # fmt: skip
assert CASES.keys() == COMMANDS.keys()

TEXTS = [
    "", " ", "x", "None", "nan", "inf", "-inf", "-", "--", "---", "=", "1e400", "1e-320", "-0.0", "0x10", "1_0", "٣",
    "1.5", "9" * 400, "9" * 5000, "1e18", "new[/foo]", "y[red]z", "~nouser/x", "~", "/dev/null", "/dev/zero",
    "/proc/self/mem", "no/such/folder", "run", "matrix.npy", "settings.toml", "corpus.txt", ".", "..", "a\0b", "\n",
    "line\nbreak", "\ud800", os.fsdecode(b"\xff\xfe"), "x" * 300, "../" * 40, "topics", "dirichlet", "sgd", "squared",
    "random", "auto", "ray", "local", "127.0.0.1:1", "cpu", "cuda", "all", "theorem9", "figure2", "[1, 2]", "{}",
    "true", "<script>", "𝔘𝔫", ":smile:",
]  # fmt: skip

# Between what is small and what no machine has, a number may well ask for hours of work that is meant.
NUMBERS = (
    st.integers(-3, 12).map(str) | st.integers(min_value=10**15).map(str) | st.integers(max_value=-(10**9)).map(str)
)
FRACTIONS = st.floats(-0.5, 1.5).map(str) | st.floats().map(str)
VALUES = st.sampled_from(TEXTS) | NUMBERS | FRACTIONS | st.text(max_size=8)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory, quick: None) -> Path:
    """What the lines name."""
    folder = tmp_path_factory.mktemp("material")
    np.save(folder / "matrix.npy", np.eye(7))
    from safetensors.numpy import save_file

    save_file({"w": np.eye(7)}, folder / "matrix.safetensors")
    (folder / "corpus.txt").write_text("one two three four\n" * 40)
    (folder / "settings.toml").write_text(
        "[data]\ntopics = 3\nwords = 2\nlength = [4, 9]\ndocuments = 20\n"
        "[training]\nbatch = 5\nsteps = 2\nvalidation_documents = 6\n"
    )
    (folder / "sweep.toml").write_text(
        'seeds = 2\nbase = "settings.toml"\n[vary]\ntraining.learning_rate = [0.1, 1.0]\n'
    )
    assert run(["train", f"--out={folder / 'run'}", *TRAINING], folder).code == 0
    write_tiny(folder / "tiny")
    shutil.move(folder / "tiny" / "bert", folder / "bert")
    shutil.move(folder / "tiny" / "corpus.txt", folder / "words.txt")
    shutil.rmtree(folder / "tiny")
    assert run(["probe", "bert", "--corpus=words.txt", "--out=probed", *PROBING], folder).code == 0
    return folder


def spoilt(line: list[str], options: list[str]) -> st.SearchStrategy[list[str]]:
    """A line with some options given otherwise, or left out, or with words that have no business there."""
    named = [word.partition("=")[0] for word in line]
    option = st.sampled_from(options + [name for name in named if name.startswith("--")] * 3)
    given_one = st.tuples(option, st.lists(VALUES, min_size=0, max_size=3))

    @st.composite
    def lines(draw: st.DrawFn) -> list[str]:
        words = list(line)
        for name, values in draw(st.lists(given_one, min_size=1, max_size=2)):
            # Of what the line gives, and the values behind it, this takes the place.
            words = without(words, name) + ([f"{name}={values[0]}"] if len(values) == 1 else [name, *values])
        if draw(st.integers(0, 7)) == 0 and words:
            del words[draw(st.integers(0, len(words) - 1))]
        if draw(st.integers(0, 7)) == 0:
            words.insert(draw(st.integers(0, len(words))), draw(VALUES))
        return words

    return lines()


def without(words: list[str], name: str) -> list[str]:
    """The words but for an option and its values."""
    kept, dropping = [], False
    for word in words:
        dropping = word.partition("=")[0] == name or (dropping and not word.startswith("--"))
        if not dropping:
            kept.append(word)
        dropping = dropping and "=" not in word
    return kept


def check_lines(command: str, cases: int, material: Path, folder: Path) -> Counts:
    counts = Counts()
    options = sorted(options_of(command) - {"--help"})
    lines = st.one_of([spoilt(line, options) for line in LINES[command]])

    @fuzzed(cases)
    @given(line=lines)
    def each(line: list[str]) -> None:
        counts.add(in_a_copy([command, *line], material, folder))

    each()
    return counts


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("quick")
def test_a_few_spoilt_lines_of_each_command(command: str, material: Path, tmp_path: Path) -> None:
    check_lines(command, 8, material, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.usefixtures("quick", "as_users_run_it")
def test_many_spoilt_lines_of_each_command(
    command: str,
    material: Path,
    tmp_path: Path,
    record_property: Any,
) -> None:
    counts = check_lines(command, CASES[command], material, tmp_path / "here")
    record_property("fuzzed", json.dumps(counts.endings))
