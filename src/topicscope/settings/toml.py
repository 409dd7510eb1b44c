"""Settings from and to TOML; an unknown key is refused with the nearest known one."""

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomli_w

from topicscope.errors import InputError, nearest, path_of, shown
from topicscope.files import read_toml
from topicscope.settings import PARTS, Settings
from topicscope.settings.text import TextData, TextSettings, found_from
from topicscope.settings.values import section

T = TypeVar("T")

# Settings that name a file; in a TOML file they are relative to its folder.
FILE_SETTINGS = (("data", "topic_words"), *(("model", part, "file") for part in PARTS))


def load_settings(path: Path | str) -> Settings:
    """Read a TOML file; what it leaves out has its default."""
    path = path_of(path, "path")
    return _of_file(path, settings_from_table, with_files_relative_to(path.parent, read_table(path)))


def load_any_settings(path: Path) -> Settings | TextSettings:
    """Read a TOML file of a run on documents of a topic model, or, if it names a corpus, of one on text.

    A corpus or tokenizer is looked for beside the file, then in the current folder.
    """
    table = read_table(path)
    if "vary" in table:
        raise InputError(f"{path} is a sweep, not the settings of one run: use `topicscope sweep {path} --out DIR`.")
    if not names_a_corpus(table):
        return load_settings(path)
    table["data"] |= found_from(path.parent, table["data"])
    return _of_file(path, text_settings_from_table, table)


def _of_file(path: Path, make: Callable[[dict[str, Any]], T], table: dict[str, Any]) -> T:
    """Convert a file's table; errors about it name the file."""
    try:
        return make(table)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def read_table(path: Path) -> dict[str, Any]:
    """A TOML file's content, or one sentence on why it cannot be read."""
    return read_toml(path, "give the path of a TOML file with settings")


def with_files_relative_to(folder: Path, table: dict[str, Any]) -> dict[str, Any]:
    """The same settings, with the files that they name looked up in this folder."""
    table = copy.deepcopy(table)
    for *sections, last in FILE_SETTINGS:
        section: Any = table
        for key in sections:
            section = section.get(key) if isinstance(section, dict) else None
        if isinstance(section, dict) and isinstance(name := section.get(last), str) and name:
            section[last] = str(folder / name)
    return table


def settings_from_table(table: dict[str, Any]) -> Settings:
    """Settings from nested dictionaries, every key and type checked."""
    if names_a_corpus(table):
        raise InputError(
            f"data.corpus = {shown(table['data']['corpus'])} is not allowed here: this is about documents of a topic "
            "model, not about a run on text; give the settings or the folder of a run without a corpus."
        )
    _check_keys(table, to_table(Settings()))
    return section(Settings, table, Settings())


def text_settings_from_table(table: dict[str, Any]) -> TextSettings:
    """Settings of a run on text from nested dictionaries, every key and type checked."""
    _check_keys(table, to_table(TextSettings(data=TextData(corpus="corpus"))))
    return section(TextSettings, table, None)


def names_a_corpus(table: dict[str, Any]) -> bool:
    """Whether these are settings of a run on text."""
    data = table.get("data")
    return isinstance(data, dict) and "corpus" in data


def dump_settings(settings: Settings | TextSettings) -> str:
    """The complete settings as TOML, defaults written out."""
    return tomli_w.dumps(to_table(settings))


def to_table(settings: Any) -> dict[str, Any]:
    """Nested dictionaries of plain values."""
    return dataclasses.asdict(settings)


def differences(ours: Settings | TextSettings, theirs: Settings | TextSettings) -> list[str]:
    """One phrase for each setting that differs: ``data.topics (12 there, 10 here)``."""
    left, right = flat(to_table(ours)), flat(to_table(theirs))
    return [
        f"{name} ({shown(right[name])} there, {shown(left[name])} here)" for name in left if left[name] != right[name]
    ]


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dictionaries as one, by dotted names."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _check_keys(table: dict[str, Any], known: dict[str, Any], prefix: str = "", names: Sequence[str] = ()) -> None:
    """Refuse what is no setting, and a value in the place of a table; ``known`` is a complete table."""
    names = names or [*flat(known), *known]
    for key, value in table.items():
        name = f"{prefix}{key}"
        if key not in known:
            raise InputError(f"{name} is not a setting: did you mean {nearest(name, names, cutoff=0.0)}?")
        if isinstance(known[key], dict):
            if not isinstance(value, dict):
                raise InputError(f"{name} = {shown(value)} is not allowed: it is a table, write [{name}].")
            _check_keys(value, known[key], f"{name}.", names)


def overlay(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second over the first."""
    both = {
        key: overlay(under[key], value)
        for key, value in over.items()
        if isinstance(value, dict) and isinstance(under.get(key), dict)
    }
    return under | over | both
