"""A run on text that was stopped, killed or damaged goes on to the same bits, and to no other run's."""

import shutil
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.helpers import start_program
from support.text_corpus import contents, small_text_settings
from topicscope.errors import InputError
from topicscope.measure.run import read_run
from topicscope.settings import Settings
from topicscope.settings.toml import dump_settings
from topicscope.store import checkpoint_steps
from topicscope.training.folder import RunFolder
from topicscope.training.loop import Watching, train

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Watching:
    def report(done: int, total: int, state: str) -> None:
        if done == step:
            raise StoppedError

    return Watching(report)


@pytest.fixture(scope="module")
def settings(corpus: Path) -> Settings:
    return small_text_settings(corpus, training={"snapshots": 4})


@pytest.fixture(scope="module")
def whole(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that was not stopped."""
    return contents(train(settings, tmp_path_factory.mktemp("whole") / "run").path)


@pytest.mark.parametrize("step", [0, 4, 13])
def test_a_stopped_run_goes_on_to_the_same_bits(
    step: int, settings: Settings, whole: dict[str, bytes], tmp_path: Path
) -> None:
    with pytest.raises(StoppedError):
        train(settings, tmp_path / "stopped", watching=stop_at(step))
    assert contents(tmp_path / "stopped") != whole
    assert contents(train(settings, tmp_path / "stopped", resume=True).path) == whole


def test_a_damaged_row_or_checkpoint_is_made_again(settings: Settings, whole: dict[str, bytes], tmp_path: Path) -> None:
    train(settings, tmp_path / "run")
    (tmp_path / "run" / "run.safetensors").write_bytes(b"{}")
    assert contents(train(settings, tmp_path / "run", resume=True).path) == whole
    path = tmp_path / "run" / "checkpoint-14.safetensors"
    path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    again = contents(train(settings, tmp_path / "run", resume=True).path)
    assert {name: content for name, content in again.items() if "damaged" not in name} == whole


def check_killed_runs_end_alike(corpus: Path, folder: Path, kills: int) -> None:
    settings = small_text_settings(corpus, training={"steps": 300, "checkpoint_every": 3})
    whole = contents(train(settings, folder / "whole").path)
    toml, draw = folder / "settings.toml", np.random.default_rng(0)
    toml.write_text(dump_settings(settings))
    for number in range(kills):
        out = folder / f"killed-{number}"
        process = start_program("train", str(toml), "--out", str(out), "--quiet", "--device", "cpu")
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and checkpoint_steps(out):
                break
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.3))
        assert process.poll() is None, "the run was over before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert max(checkpoint_steps(out)) < 300
        assert contents(train(settings, out, resume=True, device="cpu").path) == whole


def test_a_killed_run_ends_like_one_that_was_not_killed(corpus: Path, tmp_path: Path) -> None:
    check_killed_runs_end_alike(corpus, tmp_path, kills=1)


@pytest.mark.slow
def test_ten_killed_runs_end_like_one_that_was_not_killed(corpus: Path, tmp_path: Path) -> None:
    check_killed_runs_end_alike(corpus, tmp_path, kills=10)


def test_a_tokenizer_of_a_run_without_settings_is_made_again(
    settings: Settings, whole: dict[str, bytes], corpus: Path, tmp_path: Path
) -> None:
    """Killed before its settings were written, a run may go on with others."""
    other = train(small_text_settings(corpus, data={"vocabulary": 70}), tmp_path / "other").path
    begun = tmp_path / "begun"
    for name in ("tokenizer", "passages"):
        shutil.copytree(other / name, begun / name)
    assert (begun / "tokenizer" / "tokenizer.json").read_bytes() != whole["tokenizer/tokenizer.json"]
    # Bad settings do not stay there as those to go on with.
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        train(small_text_settings(corpus, data={"vocabulary": 5_000}), begun, resume=True)
    assert {path.name for path in begun.iterdir()} <= {"tokenizer", "passages"}
    assert contents(train(settings, begun, resume=True).path) == whole


def test_a_run_killed_while_it_wrote_its_first_file_resumes(tmp_path: Path) -> None:
    run, settings = RunFolder(tmp_path / "run"), small_text_settings()
    run.path.mkdir()
    (run.path / ".settings.toml.tmp").touch()
    assert run.settings_to_train(settings, [0], resume=True) == settings
    with pytest.raises(InputError, match="is not empty"):
        run.settings_to_train(settings, [0], resume=False)
    (run.path / "notes.txt").touch()
    with pytest.raises(InputError, match="holds no run to resume"):
        run.settings_to_train(settings, [0], resume=True)


def test_other_settings_and_another_corpus_are_refused_on_resume(
    settings: Settings, corpus: Path, tmp_path: Path
) -> None:
    run = train(settings, tmp_path / "run")
    with pytest.raises(InputError, match=r"model.dimension \(8 there, 16 here\)"):
        train(small_text_settings(corpus, model={"dimension": 16}), run.path, resume=True)
    moved = tmp_path / "moved.txt"
    moved.write_text(corpus.read_text())
    other = train(small_text_settings(moved), tmp_path / "other")
    moved.write_text(corpus.read_text() + "the frog and the toad in the pond\n" * 9)
    with pytest.raises(
        InputError, match=r"passages \(\w+ there, \w+ here\); resume with the same seeds, corpus"
    ) as caught:
        train(small_text_settings(moved), other.path, resume=True)
    assert "leave the settings out" not in str(caught.value)
    asked: dict[str, Any] = {"resume": True, "facts": {"device": "cuda"}}
    with pytest.raises(
        InputError, match=r"device \(cpu there, cuda here\); resume with the same seeds, corpus, tokenizer"
    ):
        run.settings_to_train(settings, [0], **asked)
    run.settings_to_train(settings, [0], resume=True, facts={"device": "cpu"})
    with pytest.raises(InputError, match=r"seed \(0 there, 1 here\), .* device .*; leave the settings out to resume"):
        run.settings_to_train(small_text_settings(corpus, seed=1), [1], **asked)


def test_bad_input_does_not_empty_a_folder_that_another_process_began_to_fill(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at the folder and the lock, another process may train there."""
    moved, out, locked = tmp_path / "moved.txt", tmp_path / "run", RunFolder.locked
    moved.write_text(corpus.read_text())
    settings = small_text_settings(moved)
    before: dict[str, bytes] = {}

    def kept() -> dict[str, bytes]:
        """All but passages, which are cut anew from whatever corpus there is."""
        return {name: content for name, content in contents(out).items() if not name.startswith("passages/")}

    def begin_first(run: RunFolder) -> AbstractContextManager[None]:
        monkeypatch.setattr(RunFolder, "locked", locked)
        train(settings, out)
        before.update(kept())
        moved.write_text(corpus.read_text() + "the frog and the toad in the pond\n" * 9)
        return locked(run)

    monkeypatch.setattr(RunFolder, "locked", begin_first)
    with pytest.raises(InputError, match=r"passages \(\w+ there, \w+ here\)"):
        train(settings, out, resume=True)
    assert "checkpoint-14.safetensors" in before
    assert kept() == before


def test_a_finished_run_made_longer_ends_with_the_weights_of_one_that_was_so_long_from_the_start(
    corpus: Path, tmp_path: Path
) -> None:
    short, long = (small_text_settings(corpus, training={"steps": steps}) for steps in (6, 11))
    train(short, tmp_path / "longer")
    longer, whole = train(long, tmp_path / "longer", resume=True), train(long, tmp_path / "whole")
    name = "checkpoint-11.safetensors"
    assert (longer.path / name).read_bytes() == (whole.path / name).read_bytes()
    losses = [read_run(run.path).metrics["loss"] for run in (longer, whole)]
    assert np.array_equal(losses[0], losses[1])
