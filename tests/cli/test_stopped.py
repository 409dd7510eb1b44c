"""Ctrl-C: each command says what is kept and how to go on with it."""

from pathlib import Path

import pytest

from support.small_sweeps import small_sweep
from topicscope.cli import KEPT, main
from topicscope.errors import StoppedTraining
from topicscope.settings.sweep import dump_sweep

AS_A_RUN = "stopped at step 3, which is saved: topicscope train --out run --resume goes on from there."
AGAIN = "stopped; what was measured is kept, and the same command goes on from there."
RESUMED = "stopped; what was trained is kept, and the same command with --resume goes on from there."
# The function that does the command's work, and what is said when it is stopped.
STOPPED = {
    "probe": ("topicscope.commands.probe.probe", AGAIN),
    "reproduce": ("topicscope.commands.reproduce.reproduce", AGAIN),
    "sweep": ("topicscope.commands.sweep.sweep", RESUMED),
    "train": (
        "topicscope.commands.train.train",
        "stopped; what was finished is kept, and the same command with --resume goes on from its last checkpoint.",
    ),
    "theory": ("topicscope.commands.theory.theory", "stopped."),
}


def said_after(stop: KeyboardInterrupt, name: str, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on standard error, of a command whose work is stopped like this."""
    (out / "sweep.toml").write_text(dump_sweep(small_sweep()))
    words = {
        "probe": ["minilm", "--out", str(out / "probe")],
        "reproduce": ["--out", str(out / "results")],
        "sweep": [str(out / "sweep.toml"), "--out", str(out / "sweep")],
        "train": ["--out", str(out / "run")],
        "theory": [],
    }

    def work(*_: object, **__: object) -> None:
        raise stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(STOPPED[name][0], work)
        assert main([name, *words[name]]) == 130
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_command_says_what_is_kept_and_how_to_go_on(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said_after(KeyboardInterrupt(), name, tmp_path, capsys) == f"topicscope: {STOPPED[name][1]}"
    assert set(STOPPED) == {*KEPT, "theory"}


@pytest.mark.parametrize("name", ["reproduce", "train"])
def test_a_run_says_where_it_was_saved_unless_it_is_part_of_other_work(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = AS_A_RUN if name == "train" else AGAIN
    assert said_after(StoppedTraining(AS_A_RUN), name, tmp_path, capsys) == f"topicscope: {expected}"
