"""The folder of a study: one process at a time, and one set of settings once something is measured."""

import contextlib
import json
from pathlib import Path

import pytest

from topicscope.commands.folders import locked
from topicscope.commands.probe import ProbeFolder, probe
from topicscope.errors import InputError


def measured(folder: ProbeFolder, settings: dict[str, int]) -> None:
    """A study that has measured something."""
    with folder.opened(settings):
        folder.write([])


def test_an_open_folder_is_closed_to_others_until_it_is_left(tmp_path: Path) -> None:
    folder, other = ProbeFolder(tmp_path / "out"), ProbeFolder(tmp_path / "out")
    with folder.opened({"seed": 0}):
        with pytest.raises(InputError, match="is being written by another process: wait for it"), other.opened({}):
            pass
        assert json.loads((folder.path / "probe-settings.json").read_text()) == {"seed": 0}
    with other.opened({"seed": 0}):
        pass


@pytest.mark.parametrize("spoilt", ["{", "1", '"text"', "[1]", '[{"other": 1}]'])
def test_what_is_spoilt_in_corpus_json_stops_no_study(tmp_path: Path, spoilt: str) -> None:
    folder, row = ProbeFolder(tmp_path), {"tokenizer": "a", "length": 8}
    path = tmp_path / "corpus.json"
    path.write_text(spoilt)
    folder.write_corpora([row])
    assert row in json.loads(path.read_text())
    # The control: rows of another tokenizer stay.
    folder.write_corpora([{"tokenizer": "b", "length": 8}])
    assert row in json.loads(path.read_text())


def test_a_study_that_begins_while_another_does_is_refused_if_its_settings_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the lock another process may begin and end: the check is made again under the lock."""
    folder = ProbeFolder(tmp_path / "out")

    def begin_first(path: Path) -> contextlib.AbstractContextManager[None]:
        monkeypatch.setattr("topicscope.commands.probe.locked", locked)
        measured(ProbeFolder(path), {"seed": 9})
        return locked(path)

    monkeypatch.setattr("topicscope.commands.probe.locked", begin_first)
    with pytest.raises(InputError, match="seed 9 there, 1 here"), folder.opened({"seed": 1}):
        pass
    # The control: the same settings go on.
    measured(folder, {"seed": 9})


def test_a_folder_that_fills_with_something_else_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ProbeFolder(tmp_path / "out")

    def fill_first(path: Path) -> contextlib.AbstractContextManager[None]:
        path.mkdir()
        (path / "notes.txt").touch()
        return locked(path)

    monkeypatch.setattr("topicscope.commands.probe.locked", fill_first)
    with pytest.raises(InputError, match="is not empty and holds no study"), folder.opened({"seed": 0}):
        pass
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_without_a_model_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No model is given"):
        probe([], out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
