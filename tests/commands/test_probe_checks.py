"""Mistakes in what is asked of ``topicscope probe`` are found without loading torch."""

import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
import sys
from topicscope.cli import main
code = main(["probe", *sys.argv[1:]])
print(code, "torch" in sys.modules)
"""


def answered(*words: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", CALL, *words], capture_output=True, text=True, check=True, env=_environment()
    )
    return done.stdout.strip(), done.stderr


def _environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "HF_HUB_OFFLINE": "1"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m", "--out", "FILE"], "is a file: give a folder"),
        (["m", "n", "--revision", "a"], "--revision goes with one model, and 2 are given"),
        (["m", "--corpus", "/no/such.txt"], 'corpus = "/no/such.txt" does not exist'),
        (["m", "--topics-from", "/no/such"], "--topics-from /no/such cannot be read (No such file or directory)"),
        (["m", "--word-topics", "FILE"], "has the columns wort, thema"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_said_before_torch_is_loaded(
    tmp_path: Path, words: list[str], said: str
) -> None:
    (tmp_path / "file.csv").write_text("wort,thema\nfrog,animals\n")
    given = [str(tmp_path / "file.csv") if word == "FILE" else word for word in words]
    out = [] if "--out" in words else ["--out", str(tmp_path / "out")]
    answer, errors = answered(*given, *out)
    assert answer == "2 False"
    assert said in errors
    assert not (tmp_path / "out").exists()


def test_a_model_that_is_not_there_is_found_with_torch(tmp_path: Path) -> None:
    """The control of the tests above."""
    answer, errors = answered(str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert answer == "2 True"
    assert "nothing" in errors
