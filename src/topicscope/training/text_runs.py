"""Run folders of training on text: as those of the sandbox, with the tokenizer and the passages beside them."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topicscope.errors import InputError
from topicscope.files import write_atomically
from topicscope.settings.text import TextSettings
from topicscope.settings.text_files import with_absolute_paths
from topicscope.settings.toml import differences, dump_settings, load_any_settings
from topicscope.training.runs import RECORDED_PACKAGES, Row, RunFolder, recorded_versions, remedy_for

logger = logging.getLogger(__name__)


class TextRun(RunFolder):
    """A folder that holds one training run on text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tokenizer_path = path / "tokenizer"
        self.passages_path = path / "passages"
        self.export_path = path / "huggingface"

    def _repr_html_(self) -> str:
        from topicscope.report.notebook import run_html

        return run_html(str(self.path), self.metrics(), self.text_settings().training.steps)

    def text_settings(self) -> TextSettings:
        """The settings that the run was started with."""
        settings = load_any_settings(self.settings_path)
        if not isinstance(settings, TextSettings):
            raise InputError(f"{self.path} holds a run on documents of a topic model: choose another --out.")
        return settings

    def begin(self, settings: TextSettings) -> None:
        """Write the settings, first of all: a run killed while its corpus is read goes on with them."""
        write_atomically(self.settings_path, dump_settings(settings))

    def record(self, settings: TextSettings, **facts: Any) -> None:
        """Write what the run is made with, unless it is there already."""
        if not self.versions_path.exists():
            made_with = recorded_versions() | {"seed": settings.seed} | facts
            write_atomically(self.versions_path, json.dumps(made_with, indent=2) + "\n")

    def check_same_settings(self, settings: TextSettings, **facts: Any) -> None:
        """Refuse to go on with other settings, another corpus, or on another device, and name what differs."""
        others = []
        found = differences(with_absolute_paths(settings), with_absolute_paths(self.text_settings()))
        if self.versions_path.exists():
            before = json.loads(self.versions_path.read_text(encoding="utf-8"))
            others = [
                f"{name} ({before[name]} there, {value} here)"
                for name, value in facts.items()
                if before.get(name, value) != value
            ]
            for name in RECORDED_PACKAGES:
                if before.get(name) != recorded_versions()[name]:
                    logger.warning("%s was begun with another %s: it may not repeat to the bit.", self.path, name)
        if others and not found:
            # No setting is about these.
            raise InputError(
                f"{self.path} holds a run made with other things: {', '.join(others)}; go on with the same corpus, "
                "tokenizer, device and threads, or choose another --out."
            )
        if found:
            found += others
            raise InputError(f"{self.path} holds a run with other settings: {', '.join(found)}; {remedy_for(found)}.")

    def rows_are_whole(self, expected: Sequence[int]) -> bool:
        """Whether the metrics have a row for each of these steps first."""
        rows: list[Row] = self.metrics()
        return [row["step"] for row in rows][: len(expected)] == list(expected)
