"""The command line: which command, help, errors as one line, and the line after Ctrl-C."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.helpers import start_program
from support.small_sweeps import small_sweep
from topicscope import __version__
from topicscope.cli import COMMANDS, KEPT, main
from topicscope.errors import StoppedTraining
from topicscope.settings.sweep import dump_sweep


def test_help_and_version_import_nothing_heavy() -> None:
    """What keeps --help under a second: neither torch nor Matplotlib nor SciPy is imported for it."""
    code = (
        "import sys; from topicscope.cli import main; main(['--help']); main(['--version']);"
        "sys.exit(bool({'torch', 'transformers', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    control = code.replace("import sys;", "import sys, torch;")
    assert subprocess.run([sys.executable, "-c", control], capture_output=True).returncode == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_every_commands_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert not stop.value.code
    assert f"topicscope {name} " in capsys.readouterr().out.split("examples:")[1]


def test_top_level_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"topicscope {__version__}\n"


def test_memory_that_runs_out_is_one_line_for_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("topicscope.commands.theory.theory", exhausted)
    assert main(["theory"]) == 2
    error = capsys.readouterr().err
    assert error == "topicscope: memory ran out: lower the sizes (topics, words, length, batch).\n"


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err


def test_the_program_ends_with_the_exit_code() -> None:
    process = start_program("trian")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.startswith("topicscope: ")
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", [["--only", "figure1", "--only", "figure2"], ["--only=figure1", "--only", "figure2"]])
def test_an_option_that_is_given_twice_is_refused_since_one_would_be_lost(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "--list", *words]) == 2
    assert "--only is given twice: give it once, with all its values" in capsys.readouterr().err
    # The control: two values of one option.
    assert main(["reproduce", "--list", "--only", "figure1", "figure2"]) == 0


AS_A_RUN = "stopped at step 3, which is saved: topicscope train --out run --resume goes on from there."
AGAIN = "stopped; what was measured is kept, and the same command goes on from there."
RESUMED = "stopped; what was trained is kept, and the same command with --resume goes on from there."
# The function that does the command's work, and the line that is printed when it is stopped.
STOPPED = {
    "demo": ("topicscope.commands.demo.demo", AGAIN.replace("measured", "trained")),
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
        "demo": ["--out", str(out / "demo")],
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
