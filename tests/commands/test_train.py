"""``topicscope train`` on documents of a topic model."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from support.helpers import ONE_HOT_UNIFORM, SMALL, overlay, small_settings
from topicscope.cli import main
from topicscope.measure.run import read_run
from topicscope.settings.toml import dump_settings


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(dump_settings(small_settings()))
    return path


def test_train_writes_a_run_and_prints_its_last_row_as_json(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", str(settings_file), "--out", str(out), "--seed", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["step"] == 12
    last = {name: None if value != value else value for name, value in read_run(out).rows()[-1].items()}
    assert printed == {"out": str(out)} | last
    assert "seed = 3" in (out / "settings.toml").read_text()


def test_resume_needs_no_settings_and_refuses_others(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert main(["train", str(settings_file), "--out", out, "--quiet"]) == 0
    assert main(["train", "--out", out, "--resume", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["train", "--out", out, "--resume", "--training.learning-rate", "0.5"]) == 2
    assert "training.learning_rate (0.01 there, 0.5 here)" in capsys.readouterr().err


BAD = [
    (["--masking.keep", "0.6", "--masking.random", "0.5"], "masking.keep + masking.random = 1.1"),
    (["--model.embedding.start", "identity", "--model.dimension", "50"], "model.dimension = 50"),
    (["--data.topics", "many"], '--data.topics = "many" is not allowed: give a whole number'),
    (["--masking.mask", "half"], '--masking.mask = "half" is not allowed: give a number'),
    (["--data.length", "9"], "--data.length"),
    (["--data.topcs", "3"], "--data.topics"),
    (["--training.step", "3"], "Unrecognized options: --training.step; did you mean --training.steps?"),
    (["--training.batch_size", "1"], "Unrecognized options: --training.batch_size; did you mean --training.batch?"),
    (["--value.strat", "zero"], "Unrecognized options: --value.strat; did you mean --model.value.start?"),
    (["--training.loss", "hinge"], '--training.loss = "hinge" is not allowed: give one of cross_entropy, squared'),
    (["--data.topic-words", "{tmp}/empty.csv"], "empty.csv"),
    (["--data.topic-words", "{tmp}/zip.npy"], "zip.npy"),
    (["--data.topic-words", "{tmp}/complex.npy"], "complex.npy"),
    (["--data.topic-words", "nowhere.npy"], "nowhere.npy"),
    (["--data.topic-words", "{tmp}/negative.csv"], "-0.5 in row 1, column 2"),
    (["--data.topic-words", "{tmp}/sums.csv"], "row 2 that sums to 0.5"),
    (["--data.topic-words", "{tmp}/nan.csv"], "nan in row 1, column 1"),
    (["--data.topic-words", "{tmp}/transposed.csv"], "columns that sum to one, not rows: transpose it?"),
    (["--data.topic-words", "{tmp}/text.csv"], "give numbers alone"),
    (["--data.topic-words", "{tmp}/fine.csv", "--model.heads", "2"], "model.heads = 2"),
    (["--model.value.start", "theorem", "--model.dimension", "7"], "model.value.start"),
    ([f"--model.{part}.no-train" for part in ("embedding", "value", "key", "query")], ""),
]
BIASES_FROZEN = [f"--model.{part}-bias.no-train" for part in ("key", "query", "value", "prediction")]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_input_is_one_sentence_exit_code_2_and_nothing_written(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrices = {
        "negative": [[1.5, -0.5], [1, 0]],
        "sums": [[1, 0], [0.5, 0]],
        "nan": [[np.nan, 1]],
        "transposed": [[0.5, 0], [0.5, 0.25], [0, 0.75]],
        "fine": [[0.5, 0.5], [1, 0]],
    }
    for name, matrix in matrices.items():
        np.savetxt(tmp_path / f"{name}.csv", np.array(matrix), delimiter=",")
    (tmp_path / "text.csv").write_text("a,b\nc,d\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "zip.npy").write_bytes(b"PK\x03\x04 and more")
    np.save(tmp_path / "complex.npy", np.array([[1j, 1]]))
    out = tmp_path / "run"
    more = BIASES_FROZEN if not message else []
    assert main(["train", "--out", str(out), *(word.format(tmp=tmp_path) for word in words), *more]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("topicscope: ")
    assert printed.err.count("\n") == 1, printed.err
    assert message in printed.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\ntopcs = 3\n", "did you mean data.topics?"),
        ("[data]\ntopics = \n", "line 2"),
        ("[training]\nstep = 3\n", "training.step is not a setting: did you mean training.steps?"),
        ("[training]\nlr = 0.1\n", "training.lr is not a setting: give any of loss, average, l2, optimizer"),
        ('[training]\nschedule = "three-stage"\n', "give one of joint, two_stage, alternating"),
    ],
)
def test_bad_settings_files_are_one_sentence(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    assert main(["train", str(tmp_path / "bad.toml"), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_out_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    assert "--out is missing" in capsys.readouterr().err


def test_diverging_training_ends_with_exit_code_3(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rate = ["--training.learning-rate", "1e12", "--training.optimizer", "sgd", "--training.loss", "squared"]
    out = tmp_path / "run"
    assert main(["train", str(settings_file), "--out", str(out), "--quiet", *rate]) == 3
    printed = capsys.readouterr().err
    assert "lower training.learning_rate" in printed
    assert printed.count("\n") == 1
    assert list(out.glob("checkpoint-*.safetensors"))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["train", "--out", str(tmp_path / "file" / "run")]) == 2
    printed = capsys.readouterr().err
    assert "file" in printed
    assert printed.count("\n") == 1


def test_the_settings_file_may_stand_anywhere_but_only_once(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    assert main(["train", "--out", out, str(settings_file), "--quiet"]) == 0
    assert main(["train", "--out", out, str(settings_file), "other.toml"]) == 2
    assert "give one TOML file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[""], ["--out", "run.toml", "--data.topics", "0"]])
def test_odd_words_are_no_tracebacks(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert ("data.topics = 0" in printed) == (len(words) > 1)


def test_a_run_ends_with_what_its_loss_is_held_against_and_what_to_do_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = overlay(SMALL, {"model": ONE_HOT_UNIFORM, "training": {"loss": "squared"}})
    (tmp_path / "run.toml").write_text(tomli_w.dumps(settings))
    out = tmp_path / "run"
    assert main(["train", str(tmp_path / "run.toml"), "--out", str(out)]) == 0
    first, optimum, floor, scatter, share, entries, page, *following = capsys.readouterr().out.splitlines()
    run = read_run(out)
    reference, last = run.reference, run.rows()[-1]
    assert reference is not None
    held_out = f"{SMALL['training']['validation_documents']:,} held-out documents"
    assert first == f"{out}: 12 steps, loss {last['loss']:.6f}, on {held_out} {last['validation_loss']:.6f}"
    assert optimum.split()[-1] == f"{reference.uniform_attention_optimum.loss:.6f}"
    assert f"{reference.bayes_floor.loss:.6f}, 95 % interval" in floor
    assert scatter == "  a loss on so many documents scatters around its expectation, and may be below these"
    assert re.fullmatch(r"  W\^V has -?[\d.]+% of what its exact optimum gains over predicting nothing", share)
    assert "‖W − W*‖ / ‖W*‖" in entries
    assert page == f"page: {out}/report.html"
    assert following == [
        f"next: topicscope check {out}",
        f"next: topicscope train --out {out} --resume --training.steps 24",
    ]
    # What it says to do next works, and ends twice as long.
    assert main([*following[1].split()[2:], "--quiet"]) == 0
    assert read_run(out).steps[-1] == 24


def test_where_there_is_no_optimum_the_answer_says_why_and_a_cosine_is_not_made_longer(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", str(settings_file), "--out", str(out), "--training.decay", "cosine"]) == 0
    printed = capsys.readouterr().out
    assert "has a closed form for the squared loss only" in printed
    assert "W^V has" not in printed
    assert "--training.steps" not in printed
    assert main(["train", "--out", str(out), "--resume", "--training.steps", "24"]) == 2
    sentence = "training.steps (12 there, 24 here); its beginning depends on the number of steps"
    assert sentence in capsys.readouterr().err


def test_the_example_of_own_topics_has_an_optimum_and_a_floor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "own-topics" / "settings.toml"
    assert main(["train", str(example), "--out", str(tmp_path / "run"), "--training.steps", "30"]) == 0
    printed = capsys.readouterr().out
    assert "exact optimum under uniform attention" in printed
    assert "Bayes floor, the least of any model" in printed
    assert "W^V has " in printed
