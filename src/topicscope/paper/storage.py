"""Trained experiments as bytes and back (safetensors: open them with any tool), and what their names are made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from topicscope.paper.experiments import Experiment, Trained
from topicscope.settings.toml import to_table
from topicscope.training.runs import made_with

GROUPS = ("weights", "norms", "contrasts", "first_gradients", "film")
ARRAYS = ("steps", "loss", "rotation", "held_out_loss", "attention", "seconds", "seeds", "word_topics")


def dump(trained: Trained) -> bytes:
    """All arrays under flat names such as ``weights/value``."""
    arrays = {name: np.asarray(getattr(trained, name)) for name in ARRAYS}
    for group in GROUPS:
        arrays |= {f"{group}/{name}": np.asarray(array) for name, array in getattr(trained, group).items()}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def restore(content: bytes, experiment: Experiment) -> Trained:
    """What ``dump`` wrote, for the experiment that it belongs to."""
    arrays = load(content)
    groups: dict[str, Any] = {group: {} for group in GROUPS}
    for path, array in arrays.items():
        group, _, name = path.partition("/")
        if name:
            groups[group][name] = array
    plain: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    plain |= {"seconds": float(arrays["seconds"].item()), "seeds": tuple(arrays["seeds"].tolist())}
    return Trained(settings=experiment.settings, **groups, **plain)


def experiment_key(experiment: Experiment, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything that an experiment's result depends on; its name is not part of it."""
    return {
        "settings": to_table(experiment.settings) | {"seed": None},
        "topic_words": experiment.topic_words,
        "seeds": list(seeds),
        **made_with("paper/running.py"),
    }
