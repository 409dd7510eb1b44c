"""What is wrong with an option of ``topicscope probe`` is said under the name that --help has."""

from pathlib import Path

import pytest

from topicscope.cli import main

WRONG = {
    "--length": ["3"],
    "--every": ["0"],
    "--topics": ["1"],
    "--fits": ["0"],
    "--iterations": ["0"],
    "--most-tokens": ["0"],
    "--fractions": ["2"],
    "--assignments": ["one", "one"],
    "--replicates": ["1"],
    "--permutations": ["0"],
    "--head-permutations": ["0"],
    "--seed": ["-1"],
    "--batch": ["0"],
    "--workers": ["0"],
    "--timeout": ["0"],
}


@pytest.fixture(scope="module")
def options_of_help() -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("sys.stdout.write", printed.append)
        with pytest.raises(SystemExit):
            main(["probe", "--help"])
    return {word.strip(",") for word in "".join(printed).split() if word.startswith("--")}


@pytest.mark.parametrize("option", WRONG)
def test_a_wrong_value_is_said_under_the_name_that_help_has(
    option: str, options_of_help: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert option in options_of_help
    assert main(["probe", "minilm", "--out", str(tmp_path / "out"), option, *WRONG[option]]) == 2
    assert capsys.readouterr().err.startswith(f"topicscope: {option} = ")
    # The control: Python's name of an option with several words is none of the command line's.
    assert not options_of_help & {"--most_tokens", "--head_permutations"}
    assert not (tmp_path / "out").exists()


def test_an_option_that_says_nothing_beside_given_topics_has_that_name_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["probe", "minilm", "--out", str(tmp_path / "out"), "--word-topics", str(tmp_path / "own.csv")]
    assert main([*words, "--most-tokens", "5"]) == 2
    assert capsys.readouterr().err.startswith("topicscope: --most-tokens = 5 is not allowed: --word-topics brings ")
    # The control: without it, what is wrong is the file.
    assert main(words) == 2
    assert "own.csv cannot be read" in capsys.readouterr().err
