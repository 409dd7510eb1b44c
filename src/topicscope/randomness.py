"""Where random numbers come from.

A generator is made from the run's seed, what it is for, and a counter (a chunk of steps, an epoch).
Nothing is carried from one step to the next, so a run that resumes at any step draws exactly what a
run that never stopped would have drawn, and an ensemble's member what it would draw alone.
"""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What a stream of random numbers is used for; the numbers are part of the results."""

    WEIGHTS = 0
    DOCUMENTS = 1
    ORDER = 2
    MASKS = 3
    VALIDATION = 4
    MEASURE = 5
    THEORY = 6


def generator(seed: int, purpose: Purpose, *counter: int) -> np.random.Generator:
    """A fresh generator, the same whenever it is made with the same arguments."""
    key = (int(purpose), *counter)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))
