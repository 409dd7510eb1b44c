import pytest

from topicscope.commands.reproduce import Clock


class Time:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_two_workers_take_half_the_time_and_what_is_under_way_counts_as_far_as_it_is() -> None:
    time = Time()
    clock = Clock(dict.fromkeys(range(5), 2.0), workers=2, now=time)
    assert clock.seconds_left is None
    time.seconds = 4.0
    clock.finished(0)
    # Four seconds a piece: one is at its end, three more are left for two workers.
    assert clock.seconds_left == pytest.approx(8.0)
    clock.finished(1)
    assert clock.seconds_left == pytest.approx(8.0)
    time.seconds = 7.0
    assert clock.seconds_left == pytest.approx(5.0)


def test_on_the_last_piece_the_rest_of_it_is_left_and_after_it_nothing() -> None:
    time = Time()
    clock = Clock({0: 1.0, 1: 3.0}, workers=2, now=time)
    time.seconds = 2.0
    clock.finished(0)
    # A unit takes two seconds; of the other piece's six, two are over. Elapsed time times what is left would say 6.
    assert clock.seconds_left == pytest.approx(4.0)
    time.seconds = 9.0
    assert clock.seconds_left == 0.0
    clock.finished(1)
    assert clock.seconds_left is None


def test_work_that_was_there_before_tells_nothing_of_time() -> None:
    time = Time()
    clock = Clock({1: 1.0}, workers=1, now=time)
    time.seconds = 5.0
    clock.finished(0)
    assert clock.seconds_left is None
