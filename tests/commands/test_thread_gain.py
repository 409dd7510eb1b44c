import pytest

from topicscope.commands.thread_gain import thread_gains
from topicscope.settings.training import Engine


def test_thread_gains_are_ordered_by_the_size_of_a_step_and_compare_its_two_times() -> None:
    larger_first: list[tuple[Engine, int, int, int]] = [("bag", 2, 8, 2), ("bag", 2, 8, 1)]
    found = thread_gains(larger_first, turns=1)
    assert [gain.name for gain in found] == ["bag, V = 21, d = 8, 1 layer", "bag, V = 21, d = 8, 2 layers"]
    assert found[0].multiply_adds < found[1].multiply_adds
    for gain in found:
        assert gain.gain == pytest.approx(gain.one / gain.several, rel=1e-12)
