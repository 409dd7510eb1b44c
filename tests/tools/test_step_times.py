from importlib.util import find_spec

import pytest

import step_times


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None, reason="the benchmark compares with transformers")
def test_every_way_of_training_is_timed_and_the_bag_engine_is_faster_than_hugging_face(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_times, "peak_memory", lambda name: None)
    monkeypatch.setattr(step_times, "FRESH_CHUNKS", 1)
    found = step_times.bench(rounds=1)
    assert set(found["steps_per_second"]) == set(step_times.TITLES)
    assert min(found["steps_per_second"].values()) > 0
    assert found["ratio"]["bag"] > 1
    assert step_times.comparison(found, "bag")[-1] == "–"
