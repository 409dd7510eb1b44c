"""What several test files use: small settings, a slow version of the equations, the command line in-process."""

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

import topicscope
from topicscope.measure.run import read_run
from topicscope.model.transformer import Transformer
from topicscope.model.weights import start_weights
from topicscope.settings import Settings
from topicscope.settings.toml import settings_from_table
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel

SMALL: dict[str, Any] = {
    "data": {"topics": 3, "words": 2, "length": [4, 9], "documents": 30, "dirichlet": [0.3]},
    "masking": {"mask": 0.3},
    "training": {
        "batch": 5,
        "steps": 12,
        "log_every": 2,
        "validate_every": 4,
        "validation_documents": 6,
        "checkpoint_every": 3,
        "snapshots": 4,
    },
}

# Only W^V is trained, on one-hot embeddings and uniform attention; no bias moves the target.
ONE_HOT_UNIFORM: dict[str, Any] = {
    "embedding": {"start": "identity", "train": False},
    "value": {"scale": 0.001},
    "key": {"start": "zero", "train": False},
    "query": {"start": "zero", "train": False},
    "key_bias": {"train": False},
    "query_bias": {"train": False},
    "value_bias": {"train": False},
    "prediction_bias": {"train": False},
}


def small_settings(**changes: Any) -> Settings:
    """A run of a second: ``small_settings(training={"loss": "squared"})``."""
    return settings_from_table(overlay(SMALL, changes))


def overlay(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, the second over the first."""
    result = copy.deepcopy(under)
    for key, value in over.items():
        nested = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = overlay(result[key], value) if nested else copy.deepcopy(value)
    return result


def build_model(settings: Settings, *, seed: int = 0, dtype: torch.dtype = torch.float64) -> Transformer:
    """The reference model of the settings, weights drawn."""
    weights = start_weights(settings, seed, TopicModel.from_settings(settings.documents))
    return Transformer(settings.model, weights, dtype=dtype)


def start_program(*words: str) -> subprocess.Popen[str]:
    """The command line as a process of its own, on the code under test."""
    return start_python("-m", "topicscope", *words)


def start_python(
    *words: str, own_group: bool = False, environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """Python as a process of its own, on the code under test; a group of its own can be sent what a terminal sends."""
    # The tests' helpers too: workers import the functions that they are given from there.
    paths = os.pathsep.join(map(str, (Path(topicscope.__file__).parents[1], Path(__file__).parents[1])))
    variables = os.environ | {"PYTHONPATH": paths, **environment}
    command = [sys.executable, *words]
    # Tests may run in a background job of a shell, which ignores Ctrl-C and would have its children do so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=own_group,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def run_files(folder: Path) -> dict[str, bytes]:
    """Every file of a run folder that must repeat to the bit."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def final_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Of a run's first seed."""
    return {name: torch.from_numpy(weight[0]) for name, weight in read_run(folder).weights.items()}


def batch_of(stream: Any, step: int) -> MaskedDocuments:
    """The masked documents of one step, of those that a stream draws at once."""
    chunk, place = divmod(step, stream.steps)
    size = stream.settings.training.batch
    documents: MaskedDocuments = stream.chunk(chunk).span(place * size, (place + 1) * size)
    return documents
