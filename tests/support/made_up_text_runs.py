"""Made-up results of training on text, whose events are at known steps."""

import numpy as np

from topicscope.paper.experiment import LAYERS, TextRuns

STEPS = np.arange(0, 401, 5)
MEASURED = np.array([0, 50, 100, 200, 400])


def made_up(
    take_off: float = 100.0, embedding: float = 60.0, attention: float = 200.0, structure: float = 0.5, seeds: int = 3
) -> TextRuns:
    """Runs in which keys, queries and with them attention take off at a step, and structure appears.

    W^V grows from the start and, unless attention takes off at once, is done when it does.
    """
    shift = np.arange(seeds)[:, None] * 2.0
    late = 1 + np.maximum(STEPS - take_off - shift, 0) / 10
    norms = {name: np.repeat(late[:, :, None], LAYERS, axis=2) for name in ("key", "query")}
    grown = np.minimum(STEPS, take_off) if take_off > 0 else STEPS
    value = np.repeat((1 + grown[None, :] / 50 + 0 * shift)[:, :, None], LAYERS, axis=2)
    distance = np.minimum((late[:, :, None] - 1) / 20, 0.9) * np.ones(LAYERS)
    turn = np.where(STEPS < 10, np.nan, np.where(take_off >= STEPS, 0.1, 0.01)) + 0 * shift
    rises = {
        name: structure / (1 + np.exp(-(MEASURED - at - shift) / 10))
        for name, at in (("embedding", embedding), ("attention", attention))
    }
    by_layer = np.stack(
        [structure / (1 + np.exp(-(MEASURED - attention - 20 * layer - shift) / 10)) for layer in range(LAYERS)], axis=2
    )
    return TextRuns(
        steps=STEPS,
        loss=np.full((seeds, len(STEPS)), 6.0),
        norms=norms | {"value": value},
        rotation=np.repeat(turn[:, :, None], LAYERS, axis=2),
        attention_distance={"words": distance, "mask": distance / 2},
        measured=MEASURED,
        log_ratios=rises,
        final_low={name: rise[:, -1] - 0.1 for name, rise in rises.items()},
        layer_log_ratios=by_layer,
        layer_final_low=by_layer[:, -1] - 0.1,
        seconds=1.0,
    )
