"""How long the rest takes: from what the finished work took, what it was thought to cost, and who works on what."""

import heapq
import time
from collections.abc import Callable, Mapping


class Clock:
    """Estimates the time until all work is finished.

    Workers take up work in order, each a new piece when it has finished one. Costs need only be right relative to each
    other: what a unit of cost takes is learnt on the way.
    """

    def __init__(self, costs: Mapping[int, float], workers: int, now: Callable[[], float] = time.perf_counter) -> None:
        self._costs, self._now = dict(costs), now
        self._waiting = list(costs)
        self._began: dict[int, float] = {}
        self._spent = self._done = 0.0
        for _ in range(workers):
            self._take_up()

    def finished(self, place: int) -> None:
        """One piece less; those that were there before do not count."""
        if place in self._costs:
            began = self._began.pop(place, None)
            if began is None:
                self._waiting.remove(place)
                return
            self._spent += self._now() - began
            self._done += self._costs[place]
            self._take_up()

    @property
    def seconds_left(self) -> float | None:
        """None until a first piece is finished, and when nothing is left."""
        if not self._done or not self._began:
            return None
        rate, now = self._spent / self._done, self._now()
        # When each worker is free, as far as one can tell; a piece that takes longer than thought may end any moment.
        free = [max(0.0, rate * self._costs[place] - (now - began)) for place, began in self._began.items()]
        heapq.heapify(free)
        for place in self._waiting:
            heapq.heapreplace(free, free[0] + rate * self._costs[place])
        return max(free)

    def _take_up(self) -> None:
        if self._waiting:
            self._began[self._waiting.pop(0)] = self._now()
