"""Numbers, words and drawings packed into the page: as exact as promised, and never markup."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from support.page_data import arrays_of, data_of, numbers_of
from support.page_material import write_claims
from topicscope.reporting.page import page_html
from topicscope.reporting.page.store import Store, script_json


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"word": "</script><!--\u2028"})
    assert "<" not in text
    assert "\u2028" not in text
    assert json.loads(text) == {"word": "</script><!--\u2028"}


def test_frames_are_exact_to_half_a_step_of_their_own_range() -> None:
    frames = np.random.default_rng(0).normal(size=(3, 5, 5)) * np.array([1e-3, 1.0, 50.0])[:, None, None]
    store = Store()
    entry = store.index[store.frames(frames)["$"]]
    packed = np.frombuffer(store.chunks[0][: entry["bytes"]], dtype=np.uint8).reshape(3, 5, 5)
    low, scale = (np.array(entry[name])[:, None, None] for name in ("low", "scale"))
    error = abs(low + scale * packed - frames).max(axis=(1, 2))
    np.testing.assert_array_less(error, 0.5001 * scale.ravel())
    # One range for all would lose the first frame.
    assert error[0] < 1e-5 < 50 / 255 / 2


def test_halves_are_exact_to_a_two_thousandth_above_the_least() -> None:
    values = np.random.default_rng(0).uniform(1e6, 2e6, size=100)
    store = Store()
    entry = store.index[store.halves(values)["$"]]
    packed = np.frombuffer(store.chunks[0][: entry["bytes"]], dtype="<f2").astype(np.float64)
    back = entry["low"] + entry["scale"] * packed
    assert (abs(back - values) <= (values - values.min()) / 2000 + 1e-6 * entry["scale"]).all()
    # As they are, float16 could not hold them.
    assert values.min() > np.finfo(np.float16).max


def test_numbers_of_tables_are_exact_to_four_digits_and_whole_ones_wholly() -> None:
    values = np.concatenate([np.random.default_rng(0).normal(size=200) * np.geomspace(1e-9, 1e9, 200), [np.nan, 0.0]])
    store = Store()
    entry = store.index[store.rounded(values)["$"]]
    back = np.ascontiguousarray(np.frombuffer(store.chunks[0][: entry["bytes"]], np.uint8).reshape(4, -1).T)
    np.testing.assert_allclose(back.view("<f4").ravel(), values, rtol=2.0**-13)
    # Not more exactly than it says: that is what makes it small.
    assert (back[:-2, 0] == 0).all()
    steps = np.array([123_457.0, 3.0, np.nan])
    store.rounded(steps)
    again = np.ascontiguousarray(np.frombuffer(store.chunks[1], np.uint8).reshape(4, -1).T)
    np.testing.assert_array_equal(again.view("<f4").ravel(), steps)


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
    assert "The CSV has four digits" not in page_html([folder])
    monkeypatch.setattr("topicscope.reporting.page.store.MOST_EXACT", 0)
    page = page_html([folder])
    assert "The CSV has four digits; all are in figures/figure2.csv" in page
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
