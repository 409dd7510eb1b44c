"""Settings from and to TOML."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from topicscope.errors import InputError, path_of, shown
from topicscope.settings import PARTS, Settings
from topicscope.settings.text import TextSettings, found_from
from topicscope.settings.values import check_keys, made
from topicscope.store import read_toml

AnySettings = Settings | TextSettings
Table = dict[str, Any]

# Settings that name a file; in a TOML file they are relative to its folder.
FILE_SETTINGS = ("data.topic_words", *(f"model.{part}.file" for part in PARTS))


def load_settings(path: Path | str) -> Settings:
    """Read a TOML file; what it leaves out has its default."""
    path = path_of(path, "path")
    with _naming(path):
        return settings_from_table(with_files_relative_to(path.parent, read_table(path)))


def load_any_settings(path: Path) -> AnySettings:
    """Read a TOML file of a run on documents of a topic model, or, if it names a corpus, of one on text.

    A corpus or tokenizer is looked for beside the file, then in the current folder.
    """
    table = read_table(path)
    if "vary" in table:
        raise InputError(f"{path} is a sweep, not the settings of one run: use `topicscope sweep {path} --out DIR`.")
    with _naming(path):
        if not names_a_corpus(table):
            return settings_from_table(with_files_relative_to(path.parent, table))
        return text_settings_from_table(table | {"data": table["data"] | found_from(path.parent, table["data"])})


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Errors about a file's settings name the file."""
    try:
        yield
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None


def read_table(path: Path) -> Table:
    """A TOML file's content, or one sentence on why it cannot be read."""
    return read_toml(path, "give the path of a TOML file with settings")


def with_files_relative_to(folder: Path, table: Table) -> Table:
    """The same settings, with the files that they name looked up in this folder."""
    named = {name: value for name, value in flat(table).items() if name in FILE_SETTINGS and isinstance(value, str)}
    return overlay(table, nested({name: str(folder / value) for name, value in named.items() if value}))


def settings_from_table(table: Table) -> Settings:
    """Settings from nested dictionaries, every key and type checked."""
    if names_a_corpus(table):
        raise InputError(
            f"data.corpus = {shown(table['data']['corpus'])} is not allowed here: this is about documents of a topic "
            "model, not about a run on text; give the settings or the folder of a run without a corpus."
        )
    return _from_table(Settings, table)


def text_settings_from_table(table: Table) -> TextSettings:
    """Settings of a run on text from nested dictionaries, every key and type checked."""
    return _from_table(TextSettings, table)


def _from_table(kind: Any, table: Table) -> Any:
    check_keys(kind, table)
    return made(kind, table)


def names_a_corpus(table: Table) -> bool:
    """Whether these are settings of a run on text."""
    data = table.get("data")
    return isinstance(data, dict) and "corpus" in data


def dump_settings(settings: AnySettings) -> str:
    """The complete settings as TOML, defaults written out."""
    return tomli_w.dumps(to_table(settings))


def to_table(settings: Any) -> Table:
    """Nested dictionaries of plain values."""
    return dataclasses.asdict(settings)


def differences(ours: AnySettings, theirs: AnySettings) -> list[str]:
    """One phrase for each setting that differs: ``data.topics (12 there, 10 here)``."""
    left, right = flat(to_table(ours)), flat(to_table(theirs))
    return [
        f"{name} ({shown(right[name])} there, {shown(left[name])} here)" for name in left if left[name] != right[name]
    ]


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Nested dictionaries as one, by dotted names."""
    values: Table = {}
    for key, value in table.items():
        values |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return values


def nested(values: Mapping[str, Any]) -> Table:
    """The opposite of ``flat``."""
    table: Table = {}
    for name, value in values.items():
        for key in reversed(name.split(".")):
            value = {key: value}
        table = overlay(table, value)
    return table


def overlay(under: Table, over: Table) -> Table:
    """Nested dictionaries, the second over the first."""
    both = {
        key: overlay(under[key], value)
        for key, value in over.items()
        if isinstance(value, dict) and isinstance(under.get(key), dict)
    }
    return under | over | both
