"""Where random numbers come from.

A generator is made from the run's seed, its purpose, and a counter (a chunk of steps, an epoch).
Nothing is carried from one step to the next, so a run that resumes at any step draws exactly what a
run that never stopped would have drawn, and a member of an ensemble draws what it would draw alone.
"""

import math
from enum import IntEnum

import numpy as np
from jaxtyping import Bool, Float, Integer, UInt8


class Purpose(IntEnum):
    """What a stream of random numbers is used for; the numbers are part of the results."""

    WEIGHTS = 0
    DOCUMENTS = 1
    ORDER = 2
    MASKS = 3
    VALIDATION = 4
    MEASURE = 5
    THEORY = 6
    BOOTSTRAP = 7
    PERMUTATION = 8
    SWEEP = 9


def generator(seed: int, purpose: Purpose, *counter: int) -> np.random.Generator:
    """A fresh generator, the same whenever it is made with the same arguments."""
    key = (int(purpose), *counter)
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence(seed, spawn_key=key)))


def random_bytes(count: int, *, generator: np.random.Generator) -> UInt8[np.ndarray, " draw"]:
    """Numbers 0 … 255, equally likely: eight of them for the price of one uniform number."""
    words = generator.integers(2**64 - 1, size=-(-count // 8), dtype=np.uint64, endpoint=True)
    # The same bytes on every machine, whichever end of a number it stores first.
    return words.astype("<u8", copy=False).view(np.uint8)[:count]


def chances(
    probability: float | Float[np.ndarray, " draw"], count: int, *, generator: np.random.Generator
) -> Bool[np.ndarray, "..."]:
    """So many independent events of this probability; or of each of these probabilities, in so many rows.

    A byte decides all but one in 256, which is exact and quick.
    """
    level = np.multiply(probability, 256.0)
    certain = np.minimum(level, 255).astype(np.uint8)
    shape = (count, *level.shape)
    drawn = random_bytes(math.prod(shape), generator=generator).reshape(shape)
    happens = drawn < certain
    unsure = np.flatnonzero(drawn == certain)
    left = np.ravel(level - certain)
    happens.reshape(-1)[unsure] = generator.random(len(unsure)) < left.take(unsure % len(left))
    return happens


def choices(outcomes: int, count: int, *, generator: np.random.Generator) -> Integer[np.ndarray, " draw"]:
    """Numbers 0 … outcomes − 1, equally likely; few outcomes are drawn from bytes, and surplus bytes drawn again."""
    if outcomes == 1:
        return np.zeros(count, dtype=np.uint8)
    if outcomes > 64:
        return generator.integers(outcomes, size=count, dtype=np.int32)
    # Each number has equally many bytes; the surplus ones are beyond the last.
    chosen = random_bytes(count, generator=generator) // np.uint8(256 // outcomes)
    unfair = np.flatnonzero(chosen >= outcomes)
    chosen[unfair] = generator.integers(outcomes, size=len(unfair), dtype=np.uint8)
    return chosen
