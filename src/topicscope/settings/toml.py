"""Settings from and to TOML."""

import dataclasses
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from topicscope.errors import InputError, path_of
from topicscope.settings import PARTS, Settings, TextData
from topicscope.settings.values import check_keys, hints, made, section_of
from topicscope.store import expanded, read_toml

Table = dict[str, Any]

# Settings that name a file; in a TOML file they are relative to its folder.
FILE_SETTINGS = ("data.topic_words", *(f"model.{part}.file" for part in PARTS))
# Settings that may name a file or a folder, and the name that always means what comes with a package.
PACKAGED = {"data.corpus": "wiki-sample", "data.tokenizer": "minilm"}


def load_settings(path: Path | str) -> Settings:
    """Read a TOML file; what it leaves out has its default.

    Files that it names are beside it. A corpus or tokenizer is looked for there, then in the current folder.
    """
    path = path_of(path, "path")
    table = read_table(path)
    if "vary" in table:
        raise InputError(f"{path} is a sweep, not the settings of one run: use `topicscope sweep {path} --out DIR`.")
    try:
        return settings_from_table(with_files_relative_to(path.parent, table))
    except InputError as error:
        raise error if str(path) in str(error) else InputError(f"{path}: {error}") from None


def read_table(path: Path) -> Table:
    """A TOML file's content, or one sentence on why it cannot be read."""
    return read_toml(path, "give the path of a TOML file with settings")


def with_files_relative_to(folder: Path, table: Mapping[str, Any]) -> Table:
    """The same settings, with the files that they name, or lists of files, looked up in this folder."""

    def resolved(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [resolved(name, item) for item in value]
        if isinstance(value, str) and value and name in FILE_SETTINGS:
            return str(folder / value)
        if isinstance(value, str) and value not in ("", PACKAGED.get(name, value)):
            # Others are left as they are: a name may belong to the Hugging Face Hub.
            path = folder / expanded(value)
            if path.is_dir() or (name == "data.corpus" and path.is_file()):
                # Links are not followed: what they are called tells the format.
                return os.path.abspath(path)  # noqa: PTH100
        return value

    return nested({name: resolved(name, value) for name, value in flat(table).items()})


def with_absolute_paths(settings: Settings) -> Settings:
    """The same settings, valid from any folder, if they name a corpus."""
    if not isinstance(settings.data, TextData):
        return settings
    return settings_from_table(with_files_relative_to(Path(), to_table(settings)))


def settings_from_table(table: Table) -> Settings:
    """Settings from nested dictionaries, every key and type checked."""
    check_keys(Settings, table)
    on_text = section_of(hints(Settings)["data"], table.get("data", {})) is TextData
    settings: Settings = made(
        Settings, table, Settings(data=made(TextData, table["data"], prefix="data.")) if on_text else None
    )
    return settings


def dump_settings(settings: Settings) -> str:
    """The complete settings as TOML, defaults written out."""
    return tomli_w.dumps(to_table(settings))


def to_table(settings: Any) -> Table:
    """Nested dictionaries of plain values."""
    return dataclasses.asdict(settings)


def comparable(settings: Settings) -> Table:
    """All settings by dotted name; files are named by their content, since a run keeps copies of them.

    A corpus and a tokenizer have absolute paths instead, since they stay where they are.
    """
    values = flat(to_table(with_absolute_paths(settings)))
    for name in FILE_SETTINGS:
        if file := values.get(name):
            values[name] = "content " + hashlib.sha256(file_content(name, file)).hexdigest()[:12]
    return values


def file_content(name: str, file: str) -> bytes:
    """The bytes of the file that a setting names."""
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{name} = {file} cannot be read ({error.strerror}): give an existing file.") from None


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """Nested dictionaries as one, by dotted names."""
    values: Table = {}
    for key, value in table.items():
        values |= flat(value, f"{prefix}{key}.") if value and isinstance(value, dict) else {prefix + key: value}
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
