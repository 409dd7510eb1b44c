"""The command line: which command, help, errors as one line, and the line after Ctrl-C."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import topicscope
from support.fuzzing import OPTION, options_of_all
from support.helpers import start_program
from support.small_sweeps import small_sweep
from topicscope.cli import COMMANDS, RESUMED, main
from topicscope.errors import StoppedTraining
from topicscope.settings.sweep import dump_sweep


def test_help_and_version_import_nothing_heavy() -> None:
    """What keeps --help under a second: neither torch nor Matplotlib nor SciPy is imported for it."""
    code = (
        "import sys; from topicscope.cli import main; main(['--help']); main(['--version']);"
        "sys.exit(bool({'torch', 'transformers', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    control = code.replace("import sys;", "import sys, scipy;")
    assert subprocess.run([sys.executable, "-c", control], capture_output=True).returncode == 1


def test_help_lists_every_command_and_each_commands_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"topicscope {topicscope.__version__}\n"
    for name in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            main([name, "--help"])
        assert not stop.value.code
        assert f"topicscope {name}" in capsys.readouterr().out.split("examples:")[1]


def test_memory_that_runs_out_is_one_line_for_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("topicscope.commands.theory.theory", exhausted)
    assert main(["theory"]) == 2
    error = capsys.readouterr().err
    assert error == "topicscope: memory ran out: lower the sizes (topics, words, length, batch).\n"


def test_the_program_ends_with_the_exit_code_and_an_unknown_command_names_the_nearest() -> None:
    process = start_program("trian")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert errors.startswith("topicscope: ")
    assert "did you mean train?" in errors
    assert "Traceback" not in errors


def test_an_option_that_is_given_twice_is_refused_since_one_would_be_lost(capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("--only figure1 --only figure2", "--only=figure1 --only figure2"):
        assert main(["reproduce", "--list", *line.split()]) == 2
        assert "--only is given twice: give it once, with all its values" in capsys.readouterr().err
    # The control: two values of one option.
    assert main(["reproduce", "--list", "--only", "figure1", "figure2"]) == 0


SAVED = "stopped at step 3, which is saved: topicscope train --out run --resume resumes there."
# For each command the words of a line; what does its work is stopped.
STOPPED = {
    "demo": ["--out", "DIR/demo"],
    "reproduce": ["--out", "DIR/results"],
    "sweep": ["DIR/sweep.toml", "--out", "DIR/sweep"],
    "train": ["--out", "DIR/run"],
    "theory": [],
}


def said_after(stop: KeyboardInterrupt, name: str, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The last line on standard error, of a command whose work is stopped like this."""
    (out / "sweep.toml").write_text(dump_sweep(small_sweep()))

    def work(*_: object, **__: object) -> None:
        raise stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"topicscope.commands.{name}.{name}", work)
        assert main([name, *(word.replace("DIR", str(out)) for word in STOPPED[name])]) == 130
    return capsys.readouterr().err.splitlines()[-1]


def test_a_stopped_command_says_what_is_kept_and_how_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in STOPPED:
        kept = f"stopped; what was finished is kept, and {RESUMED[name]}." if name in RESUMED else "stopped."
        assert said_after(KeyboardInterrupt(), name, tmp_path, capsys) == f"topicscope: {kept}"
    # A run says itself where it was saved, unless it is part of other work.
    assert said_after(StoppedTraining(SAVED), "train", tmp_path, capsys) == f"topicscope: {SAVED}"
    assert said_after(StoppedTraining(SAVED), "sweep", tmp_path, capsys) == (
        "topicscope: stopped; what was finished is kept, and the same command with --resume resumes."
    )


def sentences(path: Path) -> set[str]:
    """Texts of a module, but for its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, described) and node.body and isinstance(node.body[0], ast.Expr)
    }
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings}
    return {text for text in texts if isinstance(text, str)}


def test_all_sentences_name_options_that_some_command_has() -> None:
    source = Path(topicscope.__file__).parent
    named = {option for path in source.rglob("*.py") for text in sentences(path) for option in OPTION.findall(text)}
    # Beginnings of options are no sentences.
    named -= {"--help", "--help-all", "--version", "--data", "--model", "--training", "--masking"}
    assert len(named) > 40
    assert not named - options_of_all()
