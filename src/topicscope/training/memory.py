"""What a training step on text needs of memory, and what to say when there is too little."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from topicscope.errors import InputError
from topicscope.settings.text import TextSettings
from topicscope.training.free_memory import available_bytes

BYTES = 4
# Copies of every weight: itself, its gradient, and Adam's two averages.
WEIGHT_COPIES = 4
# What is left to all else.
SHARE = 0.9


def step_bytes(settings: TextSettings, vocabulary: int, parameters: int) -> int:
    """About how many bytes a step keeps at its height: weights, states of every layer, scores at masked positions."""
    model, training = settings.model, settings.training
    positions = math.ceil(training.batch / training.accumulate) * settings.positions
    # Kept for the backward pass: queries, keys, values, what attention gives, and the ins and outs of the blocks.
    layer = 10 * model.width + 2 * model.feed_forward
    scores = 3 * settings.masking.mask * vocabulary
    return int(BYTES * (WEIGHT_COPIES * parameters + positions * (model.layers * layer + scores)))


def check_memory(settings: TextSettings, vocabulary: int, parameters: int, available: int | None = None) -> None:
    """Refuse, before it starts, a step that cannot fit; the system would end the process without a word."""
    available = available_bytes() if available is None else available
    needed = step_bytes(settings, vocabulary, parameters)
    if available is not None and needed > SHARE * available:
        raise InputError(
            f"a step needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free: "
            f"{_remedy(settings, vocabulary, parameters, available)}."
        )


def _remedy(settings: TextSettings, vocabulary: int, parameters: int, available: int) -> str:
    fixed = BYTES * WEIGHT_COPIES * parameters
    step = step_bytes(settings, vocabulary, parameters) - fixed
    left = SHARE * available - fixed
    training = settings.training
    most = training.batch // training.accumulate or 1
    if left <= 0 or step / left > most:
        factor = math.ceil(step_bytes(settings, vocabulary, parameters) / (SHARE * available))
        # Either is enough: all is in proportion to the width, or to one of the other two.
        return (
            f"lower model.width = {settings.model.width}, or both the vocabulary ({vocabulary:,} tokens) and "
            f"model.layers = {settings.model.layers}, {factor}-fold"
        )
    parts = training.accumulate * math.ceil(step / left)
    return (
        f"raise training.accumulate from {training.accumulate} to {parts}, which gives the same gradients, or lower "
        f"training.batch from {training.batch} to {max(training.batch * training.accumulate // parts, 1)}"
    )


@contextmanager
def out_of_memory_said(settings: TextSettings) -> Iterator[None]:
    """Turn what PyTorch says when memory runs out into one sentence on what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"memory ran out in a step of training.batch = {settings.training.batch} passages of data.length = "
            f"{settings.data.length} tokens: {_less_at_once(settings)}."
        ) from None


def _less_at_once(settings: TextSettings) -> str:
    training, model = settings.training, settings.model
    if training.accumulate >= training.batch:
        return f"a part is one passage already, so lower data.length or model.width = {model.width}"
    return (
        f"raise training.accumulate from {training.accumulate} to {min(2 * training.accumulate, training.batch)}, "
        f"which gives the same gradients, or lower training.batch to {max(training.batch // 2, training.accumulate)}"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is about memory; on the CPU PyTorch has no type for it."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(each in str(error).lower() for each in words)
