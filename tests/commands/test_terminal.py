"""One printer: JSON alone, or tables of the numbers that have labels; and progress where there is no terminal."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from topicscope.commands.terminal import print_json, print_parts, progress_bar
from topicscope.records import Result, plain


class Interval(msgspec.Struct):
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Inner:
    a: float | None
    """A number; perhaps."""
    b: Interval
    """An interval."""
    c: str = "no number"
    """Nothing to print."""


@dataclass(frozen=True)
class Numbers(Result):
    part: Inner
    none: Inner | None = None
    array: np.ndarray = field(default_factory=lambda: np.ones(3))
    path: Path = Path("x")
    reasons: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)


TITLES = {"part": "First", "none": "Second"}


def test_numbers_are_json_without_arrays_and_what_is_not_finite_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(Numbers(Inner(float("nan"), Interval(1.0, 0.5, 1.5))))
    printed = json.loads(capsys.readouterr().out)
    assert printed["part"] == {"a": None, "b": {"value": 1.0, "low": 0.5, "high": 1.5}, "c": "no number"}
    assert printed["path"] == "x"
    assert "array" not in printed
    assert plain({"x": np.float64(2.0), "y": (1, 2)}) == {"x": 2.0, "y": [1, 2]}


def test_parts_are_tables_with_reasons_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = {"none": "it is not there", "part.a": "0 divides it"}
    print_parts(Numbers(Inner(None, Interval(1.0, 0.5, 1.5)), reasons=reasons, notes={"part": ["a note"]}), TITLES)
    out = capsys.readouterr().out
    for text in (
        "First",
        "│ A number ",
        "not defined: 0 divides it",
        "1.0 [0.5, 1.5]",
        "  a note",
        "Second\n  not defined: it is",
    ):
        assert text in out
    # The control: what is known has no reason.
    print_parts(Numbers(Inner(1e-12, Interval(1.0, 0.5, 1.5))), TITLES)
    out = capsys.readouterr().out
    assert "10⁻¹²" in out
    assert "not defined" not in out


def test_a_line_is_written_for_each_stage_and_each_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 9.0, 12.0, 13.0, 80.0])
    monkeypatch.setattr("topicscope.commands.terminal.time", SimpleNamespace(monotonic=lambda: next(clock)))
    with progress_bar("probing", lines=True) as report:
        for done, state in enumerate(("loading", "piece 1", "piece 2", "figures", "figures")):
            report(done, 9, state)
    assert capsys.readouterr().err.splitlines() == [
        "topicscope: probing 0 of 9: loading (0 s)",
        "topicscope: probing 1 of 9: piece 1 (9 s)",
        "topicscope: probing 3 of 9: figures (13 s)",
        "topicscope: probing 4 of 9: figures (80 s)",
    ]
    # The control: quiet is quiet, and so are commands that do not ask for lines.
    for asked in ({"quiet": True, "lines": True}, {}):
        with progress_bar("probing", **asked) as report:
            report(0, 9, "piece 1")
    assert capsys.readouterr().err == ""
