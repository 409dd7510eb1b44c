"""``topicscope check`` on the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from topicscope.cli import main
from topicscope.settings.data import Masking
from topicscope.theory.theorem1 import theorem1_embedding
from topicscope.theory.theorem2 import theorem2


@pytest.fixture
def matrix(tmp_path: Path) -> str:
    np.save(tmp_path / "w.npy", theorem2(10, 10, Masking()))
    return str(tmp_path / "w.npy")


def test_check_prints_a_table_with_the_class_averages(matrix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", matrix]) == 0
    printed = capsys.readouterr().out
    for number in ("0.1080202", "-0.0075867", "0.0541908", "0.94562537", "0.94532184"):
        assert number in printed


def test_check_prints_json_alone(matrix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", matrix, matrix, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["theorem_2"]["distance"] == 0
    assert first["finite"]["optimum_loss"] == pytest.approx(0.94532184, abs=5e-9)
    assert first["classes"]["same_topic"]["mean"] == pytest.approx(0.1080202, abs=5e-8)


def test_check_takes_the_setting_from_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    masking = Masking(mask=0.3, keep=0.2, random=0.05)
    np.save(tmp_path / "w.npy", theorem2(4, 3, masking))
    words = ["check", str(tmp_path / "w.npy"), "--topics", "4", "--words", "3", "--mask", "0.3", "--keep", "0.2"]
    words += ["--random", "0.05", "--per-document", "3", "--dirichlet", "0.2", "--length", "5", "9", "--json"]
    assert main(words) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["theorem_2"]["distance"] == 0
    assert found["setting"]["data"]["length"] == [5, 9]
    assert found["setting"]["data"]["dirichlet"] == [0.2]
    assert main([*words[:-1], "--sampler", "topics", "--json"]) == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert other["finite"]["optimum_loss"] != found["finite"]["optimum_loss"]


def test_check_shows_an_embedding_beside_theorem_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "e.npy", theorem1_embedding(10, 10, Masking(), "block", 12).T)
    assert main(["check", str(tmp_path / "e.npy"), "--kind", "embedding"]) == 0
    assert "Theorem 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--topics", "6"],
            "101 × 101, but topics = 6 and words = 10 need 61 × 61: it fits topics = 10 and words = 10",
        ),
        (["--per-document", "10"], "only one set of topics"),
        (["--keep", "0.9"], "topicscope: keep + random = 1.0 is not allowed"),
        (["--keep", "0.9"], "divide by p_m(1 − p_c − p_r) = 0"),
        (["--mask", "2"], "mask = 2.0 is not allowed"),
        (["--wrods", "3"], "--words"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    matrix: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", matrix, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_no_file_and_options_beside_a_run_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check"]) == 2
    assert "No file is given" in capsys.readouterr().err
    assert main(["check", str(tmp_path), "--topics", "3"]) == 2
    assert "leave --topics out" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["check", "--help"])
    assert "topicscope check runs/figure2" in capsys.readouterr().out
