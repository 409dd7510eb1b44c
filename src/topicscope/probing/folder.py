"""The folder of a probe: rows of all models that were probed with one set of settings, merged when some are added."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from topicscope.errors import InputError
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.settings import Record
from topicscope.probing.statistics.resampling import Comparable, compared
from topicscope.records import (
    COMPARISONS,
    CORPORA,
    PROBE,
    TOPICS,
    WORDS,
    CorpusRow,
    File,
    PairedRow,
    ProbeRow,
    TopicWord,
    WordMap,
    flat_row,
)
from topicscope.store import as_before_if_refused, table_text, write_atomically

T = TypeVar("T", bound=msgspec.Struct)

SETTINGS = File[Record]("probe-settings.json", Record, "give another --out, or remove the folder if it may be lost")
# The file of each kind of row, and what rows that replace each other have in common.
FILES: dict[type, tuple[File[Any], tuple[str, ...]]] = {
    ProbeRow: (PROBE, ("model", "revision")),
    CorpusRow: (CORPORA, ("tokenizer", "length")),
    WordMap: (WORDS, ("model",)),
    PairedRow: (COMPARISONS, ("model", "against")),
    TopicWord: (TOPICS, ("tokenizer", "length")),
}
# Too large for a table, or nested; these are in probe.json alone.
ONLY_JSON = ("attention_by_layer", "attention_by_layer_head", "hidden_by_layer", "by_topic", "sink")


class MeasuredGroup(msgspec.Struct, frozen=True):
    """The numbers of a model by which it is compared with others, at one threshold and assignment."""

    fraction: float | None
    assignment: str
    measures: dict[str, Comparable]
    """Hidden states have their layer after the measure's name."""


class Measured(msgspec.Struct, frozen=True):
    """The numbers of a model by which it is compared with others."""

    model: str
    plan: str
    """Names the passages and topics that it was measured on."""

    groups: list[MeasuredGroup]


def compared_models(one: Measured, other: Measured) -> list[PairedRow]:
    """A row per threshold, assignment and measure that both models have; refused if passages or topics differ."""
    if one.plan != other.plan:
        raise InputError(
            f"{one.model} and {other.model} were not measured on the same passages and topics, so they cannot be "
            "compared: probe them with one tokenizer, corpus and set of options."
        )
    rows = []
    for first, second in zip(one.groups, other.groups, strict=True):
        for name in (name for name in first.measures if name in second.measures):
            measure, _, layer = name.rpartition(" ") if name.startswith("hidden") else (name, "", None)
            about = PairedRow(
                model=one.model,
                against=other.model,
                fraction=first.fraction,
                assignment=first.assignment,
                measure=measure,
                layer=None if layer is None else int(layer),
            )
            rows.append(compared(first.measures[name], second.measures[name], about))
    return sorted(rows, key=lambda row: (row.measure != "attention", row.layer is not None))


class ProbeFolder:
    """Rows of all models that were probed with one set of settings."""

    def __init__(self, path: Path) -> None:
        self.path, self.work = path, path / "work"

    @contextlib.contextmanager
    def opened(self, settings: Record, locked: contextlib.AbstractContextManager[None]) -> Iterator[None]:
        """Make the folder, or resume in it, with other processes kept out (``locked``); refuse one of other settings.

        What is refused before anything was measured leaves the folder as it was.
        """
        self.check(settings)
        with as_before_if_refused(self.path, locked, self._measured):
            # Another command may have begun meanwhile.
            self.check(settings)
            # The settings come first: they identify a folder that was begun.
            SETTINGS.write(self.path, settings)
            (self.path / "compared").mkdir(exist_ok=True)
            yield

    def _measured(self) -> bool:
        return (self.path / "probe.json").exists() or any((self.work / "measured").glob("*"))

    def check(self, settings: Record) -> None:
        """Refuse a folder in which other settings than these were measured.

        A study that was stopped before anything was measured leaves the folder to another: passages and topics in it
        are found by their content.
        """
        if not (self.path / SETTINGS.name).exists() or not self._measured():
            return
        there = SETTINGS.read(self.path)
        changed = [
            f"--{name.replace('_', '-')} {_given(there.get(name))} there, {_given(value)} here"
            for name, value in settings.items()
            if there.get(name) != value
        ]
        if changed:
            raise InputError(
                f"--out {self.path} holds a study of other settings ({'; '.join(changed)}): give those, or another "
                "--out."
            )

    def read(self, kind: type[T]) -> list[T]:
        """The rows that the file of a kind has."""
        file = FILES[kind][0]
        rows: list[T] = file.read(self.path) if (self.path / file.name).exists() else []
        return rows

    def add(self, kind: type[T], rows: Sequence[T]) -> list[T]:
        """Write rows in place of those of the same models (or tokenizers), or after all others.

        Rows of probe.json come with probe.csv and heads.csv.
        """
        file, keys = FILES[kind]

        def of(row: Any) -> tuple[Any, ...]:
            return tuple(getattr(row, key) for key in keys)

        new, before = {of(row) for row in rows}, self.read(kind)
        place = next((at for at, row in enumerate(before) if of(row) in new), len(before))
        kept = [row for row in before if of(row) not in new]
        every = [*kept[:place], *rows, *kept[place:]]
        file.write(self.path, every)
        if probed := [row for row in every if isinstance(row, ProbeRow)]:
            write_atomically(self.path / "probe.csv", table_text([_columns(row) for row in probed]))
            write_atomically(self.path / "heads.csv", table_text([head for row in probed for head in head_rows(row)]))
        return every

    def keep(self, measured: Measured) -> None:
        """Keep the numbers by which a model is compared with others."""
        write_atomically(self._file(measured.model), packed(measured))

    def _file(self, title: str) -> Path:
        return self.path / "compared" / f"{hashlib.sha256(title.encode()).hexdigest()[:16]}.safetensors"

    def compare(self, title: str, other: str, there: "ProbeFolder | None" = None) -> list[PairedRow]:
        """Paired differences between a model and another, of this folder or of another."""
        both = []
        for name, folder in ((title, self), (other, there or self)):
            if name not in (known := folder.titles):
                raise InputError(
                    f"{name} was not probed into {folder.path}: name one of {', '.join(known)}, or probe it there."
                )
            both.append(unpacked(folder._file(name), Measured))
        return compared_models(*both)

    @property
    def titles(self) -> list[str]:
        """Names and revisions of the models in it that can be compared."""
        known = dict.fromkeys(row.title for row in self.read(ProbeRow))
        return [title for title in known if self._file(title).is_file()]

    def comparisons(self, titles: Sequence[str], against: str | None) -> list[PairedRow]:
        """Compare these models with the first of the folder, or with that of ``against``.

        Only models that were measured on the same passages and topics are compared.
        """
        plans = {title: unpacked(self._file(title), Measured).plan for title in self.titles}
        named = [title for title in titles if against and f"{title} ".startswith(f"{against} ")]
        rows = []
        for title in titles:
            base = next(other for other in (*named[:1], *plans) if plans[other] == plans[title])
            rows += self.compare(title, base) if base != title else []
        return rows


def _given(value: Any) -> str:
    return "not given" if value in (None, []) else str(value)


def _columns(row: ProbeRow) -> dict[str, Any]:
    """A row of probe.csv: nested numbers under names such as attention.ratio; the largest threshold has no larger."""
    values = {name: value for name, value in msgspec.to_builtins(row).items() if name not in ONLY_JSON}
    if values["over_largest_threshold"] is None:
        del values["over_largest_threshold"]
    return flat_row(values)


def head_rows(row: ProbeRow) -> list[dict[str, Any]]:
    """Rows of heads.csv from a row of probe.json; heads do not depend on the embedding."""
    if row.embedding != "matrix" or row.centred:
        return []
    about = {name: getattr(row, name) for name in ("model", "revision", "fraction", "assignment")}
    return [
        about
        | {name: getattr(head, name) for name in ("layer", "head", "ratio", "low", "high", "p", "p_single", "q")}
        | {f"distance_matched_{name}": value for name, value in msgspec.structs.asdict(head.matched).items()}
        | {"sink": row.sink[head.layer - 1][head.head - 1] if row.sink else None, "examples": "; ".join(head.examples)}
        for heads in row.attention_by_layer_head
        for head in heads
    ]
