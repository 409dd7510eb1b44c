"""What a training step on text needs of memory, and what to say when there is too little."""

import bisect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from topicscope.errors import InputError
from topicscope.model.encoder import encoder_shapes
from topicscope.settings.text import TextSettings
from topicscope.training.free_memory import available_bytes

BYTES = 4
# Copies of every weight: itself, its gradient, and Adam's two averages.
WEIGHT_COPIES = 4
# What is left to all else.
SHARE = 0.9


def weight_bytes(settings: TextSettings, vocabulary: int) -> int:
    """Bytes of the weights and of what goes along with each; the square of the width, where there are many layers."""
    shapes = encoder_shapes(settings.model, vocabulary, settings.positions).values()
    return BYTES * WEIGHT_COPIES * sum(math.prod(shape) for shape in shapes)


def passage_bytes(settings: TextSettings, vocabulary: int) -> float:
    """About how many bytes a step keeps of a passage at its height: states of every layer, scores where masked."""
    model = settings.model
    # Kept for the backward pass: queries, keys, values, what attention gives, and the ins and outs of the blocks.
    layer = 10 * model.width + 2 * model.feed_forward
    scores = 3 * settings.masking.mask * vocabulary
    return BYTES * settings.positions * (model.layers * layer + scores)


def step_bytes(settings: TextSettings, vocabulary: int) -> float:
    """About how many bytes a step keeps at its height: weights, and the passages that are computed at once."""
    return weight_bytes(settings, vocabulary) + _at_once(settings) * passage_bytes(settings, vocabulary)


def check_memory(settings: TextSettings, vocabulary: int, available: int | None = None) -> None:
    """Refuse, before it starts, a step that cannot fit; the system would end the process without a word."""
    available = available_bytes() if available is None else available
    needed = step_bytes(settings, vocabulary)
    if available is not None and needed > SHARE * available:
        raise InputError(
            f"a step needs about {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB are free: "
            f"{_remedy(settings, vocabulary, SHARE * available)}."
        )


def _remedy(settings: TextSettings, vocabulary: int, limit: float) -> str:
    """Fewer passages at once, if one fits beside the weights; else a narrower model."""
    training = settings.training
    fitting = int((limit - weight_bytes(settings, vocabulary)) // passage_bytes(settings, vocabulary))
    if fitting < 1:
        return _narrower(settings, vocabulary, limit)
    return (
        f"raise training.accumulate from {training.accumulate} to {math.ceil(training.batch / fitting)}, which gives "
        f"the same gradients, or lower training.batch from {training.batch} to {fitting * training.accumulate}"
    )


def _narrower(settings: TextSettings, vocabulary: int, limit: float) -> str:
    """The largest width, a multiple of the heads, with which a step fits."""
    model = settings.model

    def needed(width: int) -> float:
        return step_bytes(replace(settings, model=replace(model, width=width)), vocabulary)

    widths = range(model.heads, model.width, model.heads)
    fitting = bisect.bisect_right(widths, limit, key=needed)
    if fitting:
        return f"lower model.width from {model.width} to {widths[fitting - 1]}"
    return (
        f"no model.width is small enough, so lower the vocabulary ({vocabulary:,} tokens), model.feed_forward = "
        f"{model.feed_forward} or data.length = {settings.data.length}"
    )


def _at_once(settings: TextSettings) -> int:
    return math.ceil(settings.training.batch / settings.training.accumulate)


@contextmanager
def out_of_memory_said(settings: TextSettings, vocabulary: int) -> Iterator[None]:
    """Turn what PyTorch says when memory runs out into one sentence on what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"memory ran out in a step of training.batch = {settings.training.batch} passages of data.length = "
            f"{settings.data.length} tokens: {_less_at_once(settings, vocabulary)}."
        ) from None


def _less_at_once(settings: TextSettings, vocabulary: int) -> str:
    training, model = settings.training, settings.model
    whole = step_bytes(settings, vocabulary)
    if weight_bytes(settings, vocabulary) > whole / 2:
        # Half of what was too much is enough, or the next half will be.
        return f"the weights take most of it; {_narrower(settings, vocabulary, whole / 2)}"
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
