"""``topicscope train`` with a corpus: parsing, the printed result, resuming, and bad input as one sentence."""

import json
from pathlib import Path

import pytest

from support.text_corpus import small_text_settings, write_corpus
from topicscope.cli import main
from topicscope.settings.toml import dump_settings

pytest.importorskip("tokenizers")


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    settings = small_text_settings(write_corpus(tmp_path), data={"vocabulary": 95})
    path = tmp_path / "text.toml"
    path.write_text(dump_settings(settings))
    return path


def test_train_on_text_prints_its_last_row_and_resumes(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert main(["train", str(settings_file), "--out", str(out), "--device", "cpu", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["step"] == 14
    assert printed["attention/words/2"] > 0
    assert (out / "huggingface" / "model.safetensors").exists()
    assert "Norms of the trained parts" in (out / "report.html").read_text()
    assert main(["train", "--out", str(out), "--resume", "--device", "cpu"]) == 0
    assert "14 steps, loss" in capsys.readouterr().out
    assert main(["train", "--out", str(out), "--resume", "--model.dimension", "16", "--device", "cpu"]) == 2
    assert "model.dimension (8 there, 16 here)" in capsys.readouterr().err


def test_what_could_not_be_read_of_the_corpus_is_said_and_stands_on_the_page(
    settings_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, said = tmp_path / "corpus.txt", "1 documents had bytes that are not UTF-8"
    words = ["train", str(settings_file), "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "clean")]) == 0
    assert "UTF-8" not in capsys.readouterr().out + (tmp_path / "clean" / "report.html").read_text()
    corpus.write_bytes(corpus.read_bytes() + b"the frog \xff and the toad\n")
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    note = f"{corpus}: {said}, shown as U+FFFD."
    assert note in capsys.readouterr().out
    assert note in (tmp_path / "run" / "report.html").read_text()
    # Going on, it is still known; beside JSON it is on standard error.
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--device", "cpu", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["step"] == 14
    assert note in printed.err
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--device", "cpu", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_run_killed_while_its_corpus_is_read_goes_on_without_its_settings_being_given_again(
    settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, resumed = tmp_path / "run", ["--resume", "--device", "cpu"]

    def killed(*_: object, **__: object) -> None:
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr("topicscope.training.text.prepare_text", killed)
        with pytest.raises(KeyError):
            main(["train", str(settings_file), "--out", str(out), "--device", "cpu"])
    assert [path.name for path in out.iterdir()] == ["settings.toml"]
    assert main(["train", "--out", str(out), *resumed, "--model.dimension", "16"]) == 2
    assert "model.dimension (8 there, 16 here)" in capsys.readouterr().err
    assert main(["train", "--out", str(out), *resumed]) == 0
    assert "14 steps" in capsys.readouterr().out
    # The control: without settings there is nothing to go on with.
    (out / "settings.toml").unlink()
    assert main(["train", "--out", str(out), *resumed]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.corpus", "missing.txt"], "does not exist"),
        (["--data.corpus", "wiki-sample", "--model.heads", "3"], "must divide model.dimension"),
        (["--data.corpus", "wiki-sample", "--data.length", "1"], "2 or more"),
        (["--data.corpus", "wiki-sample", "--data.layout", "pages"], "--data.layout"),
        (["--data.corpus", "wiki-sample", "--data.topics", "3"], "--data.topics"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
