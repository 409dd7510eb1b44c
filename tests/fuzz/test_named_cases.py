"""Command lines that once ended badly, each as it was found."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.fuzzing import run

SETTING = ["--topics=3", "--words=2", "--per-document=2"]
TRAINING = [
    "--data.topics=3", "--data.words=2", "--data.length", "4", "9", "--data.documents=20", "--training.steps=2",
    "--training.validation-documents=6", "--training.snapshots=2",
]  # fmt: skip

# What is wrong, and a part of the sentence that says so.
REFUSED = {
    "a name that is not UTF-8": (["train", f"--out=n{os.fsdecode(bytes([255]))}", *TRAINING], "is not UTF-8"),
    "a home folder of nobody": (["train", "--out=~nouser/x", *TRAINING], "~nouser/x is in the home folder of a user"),
    "a tiny Dirichlet": (["train", "--out=new", "--data.dirichlet=1e-320", *TRAINING], "at least 1e-100"),
    "a tiny Dirichlet in theory": (["theory", *SETTING, "--dirichlet=1e-320"], "at least 1e-100"),
    "a tiny mask": (["theory", *SETTING, "--mask=1e-300"], "at least 1e-12"),
    "a learning rate of 400 digits": (
        ["train", "--out=new", f"--training.learning-rate={'9' * 400}", *TRAINING],
        "give a finite number above 0",
    ),
    "a seed of 5,000 digits": (["train", "--out=new", f"--seed={'9' * 5000}", *TRAINING], "give a whole number"),
    "TOML nested 5,000 deep": (["train", "deep.toml", "--out=new"], "nested too deeply"),
    "a seed beyond LDA's": (
        ["probe", "minilm", "--corpus=corpus.txt", "--out=new", f"--seed={2**60}"],
        "give a whole number of at most",
    ),
    "a matrix of 1e300": (["check", "huge.npy", *SETTING], "whose products may overflow"),
    "10^18 steps": (
        ["train", "--out=new", *TRAINING[:-3], f"--training.steps={10**18}"],
        "at most 1,000,000,000,000",
    ),
    "a grid of 10^9 points": (["sweep", "grid.toml", "--out=new", "--dry-run"], "at most 100,000 are possible"),
    "10^9 seeds": (["sweep", "seeds.toml", "--out=new", "--dry-run"], "at most 100,000"),
    "a corpus that has no end": (["train", "--data.corpus=/proc/kmsg", "--out=new"], "/proc/kmsg"),
    "an empty corpus to probe": (["probe", "minilm", "--corpus=", "--out=new"], "corpus"),
    "an empty corpus": (["train", "--data.corpus=", "--out=new"], 'data.corpus = ""'),
    "a batch beyond memory": (
        ["train", "--out=new", "--training.batch=1000000000", *TRAINING],
        "memory",
    ),
    "a layer of what has none": (["check", "matrix.npy", "--layer=5", *SETTING], "has no layers"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "matrix.npy", np.eye(7))
    np.save(tmp_path / "huge.npy", np.full((7, 7), 1e300))
    (tmp_path / "corpus.txt").write_text("one two three four\n" * 40)
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5_000 + "]" * 5_000)
    thousand = "{ low = 0.1, high = 0.9, count = 1000 }"
    names = ("training.learning_rate", "training.l2", "training.momentum")
    (tmp_path / "grid.toml").write_text("[vary]\n" + "".join(f"{name} = {thousand}\n" for name in names))
    (tmp_path / "seeds.toml").write_text("seeds = 1000000000\n[vary]\ntraining.learning_rate = [0.1]\n")
    return tmp_path


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_one_sentence_and_nothing_is_left(what: str, folder: Path) -> None:
    words, sentence = REFUSED[what]
    ended = run(words, folder)
    ended.check()
    assert ended.code == 2
    assert sentence in ended.errors
    assert len(ended.errors) < 3_000


@pytest.mark.parametrize("name", ["x[/foo]", "y[red]z", ":smile:"])
def test_folders_are_printed_as_they_are_called(name: str, folder: Path) -> None:
    ended = run(["train", f"--out={name}", *TRAINING, "--training.batch=5"], folder)
    ended.check()
    assert ended.code == 0
    assert name in ended.output
    assert (folder / name).is_dir()


def no_run(path: Path) -> None:
    path.write_text("steps = 2\n")


def without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("settings", [no_run, without_end, pipe])
def test_settings_beside_a_run_cost_the_page_nothing_but_a_note(settings: Callable[[Path], None], folder: Path) -> None:
    assert run(["train", "--out=exp/run", *TRAINING, "--training.batch=5"], folder).code == 0
    settings(folder / "exp" / "settings.toml")
    ended = run(["report", "exp", "--out=new.html"], folder)
    ended.check()
    assert ended.code == 0
    assert ended.changed == ("new.html",)
    page = (folder / "new.html").read_text()
    assert "exp/settings.toml" in page
    assert re.search(r'"name": ?"exp/run"', page)
