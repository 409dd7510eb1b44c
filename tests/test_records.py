"""Whatever is in a file of ours, its reader gives structs and arrays or one sentence, and never another error."""

import json
import os
import pickle
import random
import shutil
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

from support.helpers import small_settings
from support.page_material import (
    CORPUS_ROW,
    write_claims,
    write_landscapes,
    write_layers,
    write_probe,
    write_sweep,
    write_text_run,
)
from topicscope import records, store
from topicscope.commands.reproduce import reproduce
from topicscope.errors import InputError, UnreadableError
from topicscope.measure.run import read_run
from topicscope.probing.folder import SETTINGS, ProbeFolder
from topicscope.training.loop import train

Spoil = Callable[[str, bytes], None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each format, as it should be."""
    out = tmp_path_factory.mktemp("records")
    write_text_run(out / "run")
    write_claims(out / "claims")
    write_probe(out / "probe")
    write_sweep(out / "sweep")
    write_landscapes(out / "landscapes")
    write_layers(out / "layers")
    contents: dict[str, Any] = {
        "run/versions.json": {
            **{"packages": {"torch": "2"}, "python": "3", "machine": "x", "seeds": [0], "threads": 1, "facts": {}}
        },
        "run/passages.json": {"source": "wiki", "problems": ["wiki: 1 broken line was left out."]},
        "probe/corpus.json": [CORPUS_ROW],
        "probe/probe-settings.json": {"corpus": "wiki", "dtype": "float32", "seed": 0},
    }
    for name, content in contents.items():
        (out / name).write_text(json.dumps(content))
    return out


FILES = {
    "run": (records.VERSIONS, records.PASSAGES),
    "claims": (records.CLAIMS, records.ARTICLES, records.REPRODUCE_SETTINGS),
    "landscapes": (records.LANDSCAPES,),
    "probe": (records.PROBE, SETTINGS, records.CORPORA, records.WORDS, records.TOPICS),
    "sweep": (records.SWEEP,),
}
# What reads a folder, by one of the folder's files.
READERS: dict[str, Callable[[Path], Any]] = {
    "run/run.safetensors": read_run,
    "layers/run.safetensors": read_run,
    **{f"{folder}/{file.name}": file.read for folder, files in FILES.items() for file in files},
}
EVERY_FILE = pytest.mark.parametrize("name", READERS)


def outcome(name: str, path: Path) -> Any:
    """What a reader gives, or the one sentence that it says; any other error fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return READERS[name](path.parent)
        except InputError as error:
            sentence = str(error)
            assert "\n" not in sentence
            assert sentence.endswith(".")
            return error


@pytest.fixture
def spoil(folder: Path) -> Iterator[Spoil]:
    """Have a file hold something else until the test ends."""
    before: dict[Path, bytes] = {}

    def put(name: str, content: bytes) -> None:
        path = folder / name
        before.setdefault(path, path.read_bytes())
        path.write_bytes(content)

    yield put
    for path, content in before.items():
        path.write_bytes(content)


def is_within(part: Any, whole: Any) -> bool:
    """Whether all that a file has is read; a struct may have more fields, with their defaults."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and is_within(value, whole[name]) for name, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(is_within, part, whole))
    return bool(part == whole)


@EVERY_FILE
def test_a_file_as_it_should_be_is_read_whole_and_one_that_is_not_there_is_named(
    folder: Path, tmp_path: Path, name: str
) -> None:
    found = outcome(name, folder / name)
    assert not isinstance(found, InputError)
    if name.endswith(".json"):
        assert is_within(json.loads((folder / name).read_text()), msgspec.to_builtins(found))
    error = outcome(name, tmp_path / "sub" / Path(name).name)
    assert isinstance(error, UnreadableError)
    assert f"{tmp_path / 'sub'}" in str(error)
    assert "cannot be read (No such file or directory): " in str(error)


@EVERY_FILE
def test_what_is_not_a_file_of_a_bearable_size_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    for other in (folder / name).parent.iterdir():
        if other.is_file():
            (tmp_path / other.name).write_bytes(other.read_bytes())
    path = tmp_path / Path(name).name
    path.unlink()
    path.mkdir()
    assert "cannot be read (Is a directory)" in str(outcome(name, path))
    path.rmdir()
    os.mkfifo(path)
    assert " is not a regular file: " in str(outcome(name, path))
    path.unlink()
    path.symlink_to("/dev/zero")
    assert " is not a regular file: " in str(outcome(name, path))
    path.unlink()
    path.touch()
    assert isinstance(outcome(name, path), UnreadableError)
    os.truncate(path, 2**36)
    assert " has 68,719,476,736 bytes, of which at most " in str(outcome(name, path))


STRANGE = {
    "NaN": b"NaN",
    "infinity": b'[{"step": Infinity}]',
    "lone surrogate": b'["\\ud800 and more text after it"]',
    "not UTF-8": b'["\xff\xfe"]',
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "nested a little": b"[" * 200 + b"]" * 200,
    "many digits": b'{"step": ' + b"9" * 6_000 + b"}",
    "a large float": b'{"step": 1e999}',
    "a large int": b'{"step": 1' + b"0" * 300 + b"}",
    "number": b"3",
    "list": b"[1]",
    "object": b"{}",
    "cut": b'[{"id": "a',
    "quotes": b'seed,"fraction,topic\n"',
    "null bytes": b"\x00" * 64,
    "long cell": b"seed,fraction,topic,word\n" + b"a" * 200_000 + b",1,1,1\n",
}
# What these readers take for a file without anything that is asked of it.
TAKEN = {
    *(("claims/settings.json", strange) for strange in ("object", "many digits", "a large float", "a large int")),
    ("run/versions.json", "object"),
    *(("probe/probe-settings.json", strange) for strange in ("object", "a large int")),
}


@EVERY_FILE
def test_strange_content_is_one_sentence(spoil: Spoil, folder: Path, name: str) -> None:
    for strange, content in STRANGE.items():
        spoil(name, content)
        assert isinstance(outcome(name, folder / name), UnreadableError) or (name, strange) in TAKEN, strange


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


FUZZED = settings(max_examples=200, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@FUZZED
@given(data=st.data())
def test_json_with_another_value_at_any_place_is_read_or_one_sentence(folder: Path, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in READERS if name.endswith(".json")]))
    path = folder / name
    before = path.read_text()
    content = json.loads(before)
    place = data.draw(st.sampled_from(places(content)))
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    value = data.draw(plain | st.lists(plain, max_size=2) | st.dictionaries(st.text(), plain, max_size=2))
    if place:
        inside = content
        for key in place[:-1]:
            inside = inside[key]
        if data.draw(st.booleans()):
            inside[place[-1]] = value
        else:
            del inside[place[-1]]
    else:
        content = value
    path.write_text(json.dumps(content), encoding="utf-8", errors="replace")
    try:
        outcome(name, path)
    finally:
        path.write_text(before)


@FUZZED
@given(name=st.sampled_from(list(READERS)), seed=st.integers(0, 10**6), count=st.integers(1, 8), cut=st.booleans())
def test_bytes_changed_or_cut_anywhere_are_read_or_one_sentence(
    folder: Path, name: str, seed: int, count: int, cut: bool
) -> None:
    path, draw = folder / name, random.Random(seed)
    before = path.read_bytes()
    content = bytearray(before)
    for _ in range(count):
        # Most of a file of arrays is numbers: its beginning and end are what can be spoilt.
        place = draw.choice(
            [draw.randrange(len(content)), draw.randrange(min(400, len(content))), -draw.randint(1, 90)]
        )
        content[place % len(content)] = draw.randrange(256)
    path.write_bytes(content[: draw.randrange(len(content))] if cut else content)
    try:
        outcome(name, path)
    finally:
        path.write_bytes(before)


def test_the_arrays_of_a_run_have_names_and_shapes(tmp_path: Path, folder: Path) -> None:
    shutil.copy(folder / "layers" / "settings.toml", tmp_path)
    path, whole = tmp_path / "run.safetensors", load_file(folder / "layers" / "run.safetensors")
    square = np.zeros((1, 3, 3))
    for spoilt in (
        {"metrics/loss": np.zeros((1, 3))},
        {"metrics/loss": np.zeros((2, 7))},
        {"metrics/loss": np.zeros((1, 7), dtype=np.int64)},
        {"frames/attention": square},
        {"steps": np.zeros(7)},
        {"seeds": np.zeros((1, 1), dtype=np.int64)},
        {"others/loss": square},
        {"reference": np.frombuffer(b"{", dtype=np.uint8)},
        {"seconds": square},
    ):
        path.write_bytes(save(whole | spoilt))
        with pytest.raises(UnreadableError, match=r"run\.safetensors"):
            read_run(tmp_path)
    for missing in ("steps", "seeds", "seconds", "frame_steps"):
        path.write_bytes(save({name: array for name, array in whole.items() if name != missing}))
        with pytest.raises(UnreadableError, match=missing):
            read_run(tmp_path)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "C64"])
def test_numbers_that_numpy_does_not_have_are_refused(tmp_path: Path, kind: str) -> None:
    size = {"BF16": 2, "C64": 8}.get(kind, 1) * 4
    header = json.dumps({"0/value": {"dtype": kind, "shape": [2, 2], "data_offsets": [0, size]}}).encode()
    path = tmp_path / "any.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
    with pytest.raises(UnreadableError, match=rf'\("0/value" holds {kind} numbers\)'):
        store.read_tensors(path, "do")
    with pytest.raises(InputError):
        store.load_array(path)


def test_a_figure_is_a_name_inside_the_folder(spoil: Spoil, folder: Path) -> None:
    rows = json.loads((folder / "claims" / "claims.json").read_text())
    rows[0]["figure"] = "../../x"
    spoil("claims/claims.json", json.dumps(rows).encode())
    with pytest.raises(UnreadableError, match=r"figure"):
        records.CLAIMS.read(folder / "claims")


def test_the_error_keeps_its_parts_on_the_way_from_a_worker() -> None:
    again = pickle.loads(pickle.dumps(UnreadableError(Path("a"), "no such file", "do that")))
    assert (again.path, again.exit_code, str(again)) == (Path("a"), 2, "a cannot be read (no such file): do that.")
    assert str(UnreadableError("a", "it is empty", "fill it")) == "a is empty: fill it."
    assert str(UnreadableError("a", "it is wrong: b", "right it")) == "a is wrong: b; right it."


SPOILT = ("list", "nested", "not UTF-8")


def test_a_run_with_a_spoilt_file_goes_on_or_says_why_not(tmp_path: Path) -> None:
    whole = train(small_settings(), tmp_path / "whole").path
    refused: dict[str, set[bool]] = {}
    for name in ("versions.json", "run.safetensors", "settings.toml"):
        for place, strange in enumerate(SPOILT):
            copy = tmp_path / f"{name}-{place}"
            shutil.copytree(whole, copy)
            (copy / name).write_bytes(STRANGE[strange])
            sentence = ""
            try:
                train(small_settings(), copy, resume=True)
            except InputError as error:
                sentence = str(error)
            refused.setdefault(name, set()).add(sentence.startswith(str(copy / name)))
    # Rows and snapshots are made again.
    assert refused == {"versions.json": {True}, "run.safetensors": {False}, "settings.toml": {True}}


@pytest.mark.parametrize("strange", SPOILT)
def test_a_study_and_claims_with_a_spoilt_file_go_on_or_say_why_not(spoil: Spoil, folder: Path, strange: str) -> None:
    study, asked = ProbeFolder(folder / "probe"), SETTINGS.read(folder / "probe")
    assert [len(study.read(records.ProbeRow)), len(study.read(records.WordMap))] == [2, 1]
    study.check(asked)
    spoil("probe/probe-settings.json", STRANGE[strange])
    with pytest.raises(InputError, match=r"probe-settings\.json |holds a study of other settings"):
        study.check(asked)
    for file, kind in (("probe.json", records.ProbeRow), ("words.json", records.WordMap)):
        spoil(f"probe/{file}", STRANGE[strange])
        with pytest.raises(UnreadableError, match=file):
            study.read(kind)
    spoil("claims/settings.json", STRANGE[strange])
    with pytest.raises(InputError, match=r"settings\.json "):
        reproduce(folder / "claims", only=("theorem2",))
