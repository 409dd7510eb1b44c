"""Numbers and words packed into the page: exact to what is said of them, and never markup."""

import json

import numpy as np

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
