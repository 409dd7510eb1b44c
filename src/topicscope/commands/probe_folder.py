"""The folder that ``probe`` writes: settings, probe.json, its tables and what goes with them, and finished work."""

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from topicscope.commands.results_folder import is_begun, locked
from topicscope.errors import InputError
from topicscope.files import write_atomically
from topicscope.settings.toml import flat

Row = dict[str, Any]
CONTRASTS = ("cosine", "dot", "attention")
# Too large for a table, or nested: in probe.json alone.
ONLY_JSON = ("attention_by_layer_head", "sink")


class ProbeFolder:
    """Rows of all models that were probed with one set of settings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"
        self.figures = path / "figures"
        self._settings = path / "probe-settings.json"

    @contextlib.contextmanager
    def opened(self, settings: dict[str, Any]) -> Iterator[None]:
        """Make the folder, or go on in it, with other processes kept out; refuse one that holds something else.

        A study that was refused or stopped before anything was measured leaves the folder to another: passages and
        topics in it are found by their content.
        """
        # Refused before anything is made; asked again with the lock, as another command may have begun here meanwhile.
        self.check()
        self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            if self.check() and self._is_measured():
                self._refuse_other(settings)
            write_atomically(self._settings, json.dumps(settings, indent=2) + "\n")
            yield

    def check(self) -> bool:
        """Whether a study has begun here; refuse a file, and a folder of something else."""
        return is_begun(self.path, self._settings.name, what="study", command="probe")

    def _is_measured(self) -> bool:
        return (self.path / "probe.json").exists() or any((self.work / "measured").glob("*"))

    def rows(self) -> list[Row]:
        """What probe.json holds."""
        return self._list("probe.json")

    def write(self, rows: Sequence[Row]) -> None:
        """Write probe.json and probe.csv with these rows, and those of other models that are there."""
        new = {(row["model"], row["revision"]) for row in rows}
        kept = [row for row in self.rows() if (row["model"], row["revision"]) not in new]
        every = [*kept, *rows]
        text = json.dumps(every, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / "probe.json", text + "\n")
        self._write_table("probe.csv", [_table_row(row) for row in every])

    def write_topics(self, rows: Sequence[Row]) -> None:
        """Write topics.csv with these rows, and those of other tokenizers and passage lengths that are there."""
        new = {(row["tokenizer"], str(row["length"])) for row in rows}
        try:
            with (self.path / "topics.csv").open(encoding="utf-8", newline="") as file:
                found = [((row.get("tokenizer"), row.get("length")), row) for row in csv.DictReader(file)]
            kept = [row for key, row in found if key not in new and None not in key]
        except OSError:
            kept = []
        self._write_table("topics.csv", [*kept, *rows])

    def write_corpora(self, rows: Sequence[Row]) -> None:
        """Write corpus.json with these rows, and those of other tokenizers and passage lengths that are there."""
        new = {(row["tokenizer"], row["length"]) for row in rows}
        kept = [row for row in self._list("corpus.json") if (row.get("tokenizer"), row.get("length")) not in new]
        text = json.dumps([*kept, *rows], indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(self.path / "corpus.json", text + "\n")

    def words(self) -> list[Row]:
        """What words.json holds."""
        return self._list("words.json")

    def write_words(self, maps: Sequence[Row]) -> None:
        """Write words.json: cosines of a few words in each model (Figure 3), and those of other models there."""
        new = {each["model"] for each in maps}
        every = [each for each in self.words() if each["model"] not in new] + [each for each in maps if each["words"]]
        write_atomically(self.path / "words.json", json.dumps(every, ensure_ascii=False, allow_nan=False) + "\n")

    def _list(self, name: str) -> list[Row]:
        """Rows that a file holds; nothing if there is none, or a broken one."""
        try:
            return [row for row in json.loads((self.path / name).read_text(encoding="utf-8")) if isinstance(row, dict)]
        except (OSError, ValueError, TypeError):
            return []

    def _write_table(self, name: str, rows: Sequence[Row]) -> None:
        table = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(table, fieldnames=names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(self.path / name, table.getvalue())

    def _refuse_other(self, settings: dict[str, Any]) -> None:
        stored = flat(json.loads(self._settings.read_text(encoding="utf-8")))
        here = flat(json.loads(json.dumps(settings)))
        found = [
            f"{name} {stored.get(name)} there, {here[name]} here" for name in here if stored.get(name) != here[name]
        ]
        if found:
            raise InputError(
                f"--out {self.path} holds a study of other settings ({'; '.join(found)}): give those, or another --out."
            )


def _table_row(row: Row) -> Row:
    """A row of probe.json as a row of a table: nested numbers under names such as attention.ratio."""
    return flat({name: value for name, value in row.items() if name not in ONLY_JSON})
