"""Which files and folders the settings of a run on text name, wherever it is started or resumed from."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from topicscope.settings.text import TextSettings

# Settings that may name a file or a folder, and the name that always means what comes with a package.
PACKAGED = {"corpus": "wiki-sample", "tokenizer": "minilm"}


def found_from(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings in ``data``, those that name what is there, seen from this folder: with absolute paths.

    Others are left out: a name may be one on the Hugging Face Hub.
    """
    found: dict[str, Any] = {}
    for setting, packaged in PACKAGED.items():
        name = data.get(setting)
        if isinstance(name, str) and name not in ("", packaged):
            path = folder / Path(name).expanduser()
            if path.is_dir() or (setting == "corpus" and path.is_file()):
                # Links are not followed: what they are called tells the format.
                found[setting] = os.path.abspath(path)  # noqa: PTH100
    return found


def with_absolute_paths(settings: TextSettings) -> TextSettings:
    """The same settings, good from any folder."""
    return replace(settings, data=replace(settings.data, **found_from(Path(), vars(settings.data))))
