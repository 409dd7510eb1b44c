"""Drawings on the page: the points in them, or why they are left out."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from support.page_data import arrays_of, data_of, numbers_of
from support.page_material import write_claims
from topicscope.reporting.page import page_html


def test_the_points_of_a_drawing_are_in_the_page(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    (image,) = data_of(page_html([folder]))["images"].values()
    assert image["numbers"] is not None
    written = (folder / "figures" / "figure2.csv").read_text(encoding="utf-8")
    names, *rows = csv.reader(io.StringIO(written))
    page = page_html([folder])
    assert image["numbers"]["names"] == names
    for place, column in enumerate(image["numbers"]["columns"]):
        found, wanted = numbers_of(page, column["numbers"]), [row[place] for row in rows]
        if "words" in column:
            assert [column["words"][int(word)] for word in found] == wanted
        else:
            np.testing.assert_array_equal(found, np.array([float(cell) for cell in wanted], dtype=np.float32))
    assert sum("words" in column for column in image["numbers"]["columns"]) == 2


def test_many_points_of_a_drawing_have_four_digits_and_the_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_claims(tmp_path / "results")
    assert "CSV to four digits" not in page_html([folder])
    monkeypatch.setattr("topicscope.reporting.page.store.MOST_EXACT", 0)
    page = page_html([folder])
    assert "CSV to four digits; all are in figures/figure2.csv" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"]["digits"] == 4
    shown = numbers_of(page, image["numbers"]["columns"][image["numbers"]["names"].index("value")]["numbers"])
    rows = csv.DictReader(io.StringIO((folder / "figures" / "figure2.csv").read_text(encoding="utf-8")))
    wanted = np.array([float(row["value"]) for row in rows])
    np.testing.assert_allclose(shown, wanted, rtol=2.0**-13)
    assert not np.array_equal(shown, np.float32(wanted), equal_nan=True)


def test_points_that_cannot_be_read_are_left_out_with_a_note(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    (folder / "figures" / "figure2.csv").write_text("panel,value\na,1\nb\n")
    page = page_html([folder])
    assert "its numbers are left out" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"] is None
    (folder / "figures" / "figure2.csv").unlink()
    assert "its numbers are left out" not in page_html([folder])


def test_a_page_that_would_be_too_large_leaves_the_points_of_drawings_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_claims(tmp_path / "results")
    whole = page_html([folder])
    assert "would be too large" not in whole
    monkeypatch.setattr("topicscope.reporting.page.MOST_BYTES", len(whole.encode()) - 1)
    page = page_html([folder])
    assert "would be too large" in page
    (image,) = data_of(page)["images"].values()
    assert image["numbers"] is None
    assert len(arrays_of(page)) < len(arrays_of(whole))
