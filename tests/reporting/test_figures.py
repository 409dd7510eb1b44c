"""A figure is written as pictures and as the table of its numbers."""

import csv
import io
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from topicscope.reporting.figures import Drawn, save_figure, table_csv


def test_a_table_has_a_line_per_row_eight_digits_and_gaps_where_there_is_no_number() -> None:
    rows = [
        {"panel": 'a "b",\nc', "step": 10, "value": np.pi},
        {"panel": "d", "value": float("nan"), "note": None},
        {"panel": "e", "value": float("-inf"), "note": "it is"},
    ]
    written = list(csv.reader(io.StringIO(table_csv(rows))))
    assert written == [
        ["panel", "step", "value", "note"],
        ['a "b", c', "10", "3.1415927", ""],
        ["d", "", "", ""],
        ["e", "", "-inf", "it is"],
    ]


def test_pictures_and_the_table_are_written_side_by_side_and_alike_each_time(tmp_path: Path) -> None:
    def saved(name: str, height: float) -> list[bytes]:
        figure = Figure()
        figure.subplots().plot([1.0, height])
        paths = save_figure(Drawn(figure, [{"value": height}]), tmp_path / name)
        assert [path.name for path in paths] == [f"{name}.png", f"{name}.svg", f"{name}.csv"]
        return [path.read_bytes() for path in paths]

    first = saved("first", 2.0)
    assert saved("again", 2.0) == first
    assert all(one != other for one, other in zip(saved("other", 3.0), first, strict=True))
