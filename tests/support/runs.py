"""Runs made by hand: what a claim measures, without training."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from topicscope.measure.run import Run
from topicscope.model.weights import start_weights
from topicscope.papers.claim import Measurement, record
from topicscope.papers.needs import Experiment
from topicscope.papers.paper import paper
from topicscope.papers.topic_structure.exact import constant_losses
from topicscope.papers.topic_structure.experiments import LDA
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel

PAPER = paper()
TOPICS = TopicModel.from_settings(LDA).word_topics
SEEDS = 4
STEPS = np.arange(0, 1001, 10)
# Metrics that have an axis of layers.
BY_LAYER = ("norm/", "attention/", "rotation")


def made_up(settings: Any, *, word_topics: np.ndarray = TOPICS, seeds: int = SEEDS, **fields: Any) -> Run:
    """A run with these arrays; metrics by seed and row get their axis of layers."""
    metrics: Mapping[str, np.ndarray] = fields.pop("metrics", {})
    fields["metrics"] = {
        name: values[..., None] if name.startswith(BY_LAYER) and values.ndim == 2 else values
        for name, values in metrics.items()
    }
    return Run("made up", settings, tuple(range(seeds)), STEPS, **fields, theory={"word_topics": word_topics})


def settings_of(name: str) -> Settings:
    need = PAPER.experiments[name]
    assert isinstance(need, Experiment)
    return need.settings


def with_value(value: np.ndarray, settings: Settings, *, noise: float = 0.0) -> Run:
    """One-hot embeddings and this W^V, the same for all seeds but for noise."""
    draw = np.random.default_rng(0)
    spread = value + noise * draw.normal(size=(SEEDS, *value.shape))
    return made_up(settings, weights={"embedding": np.stack([np.eye(len(value))] * SEEDS), "value": spread[:, None]})


def with_embedding(table: np.ndarray, settings: Settings) -> Run:
    """This W^E⊤, the same for all seeds, and W^V = I."""
    identity = np.ones((SEEDS, 1, 1, 1)) * np.eye(table.shape[1])
    return made_up(settings, weights={"embedding": np.stack([table] * SEEDS), "value": identity})


def untrained(settings: Settings) -> Run:
    """Initial weights, uniform attention, norms that stay, the loss of a constant prediction."""
    model = TopicModel.from_settings(settings.documents)
    starts = [start_weights(settings, seed, model) for seed in range(SEEDS)]
    jitter = 1 + 1e-4 * np.arange(SEEDS)
    flat = np.ones((SEEDS, len(STEPS)))
    metrics = {f"norm/{part}": flat for part in ("key", "query", "value")}
    metrics |= {f"modes/{part}-{mode}": 0.1 * flat for part in ("key", "query") for mode in ("mask", "topics")}
    metrics |= dict.fromkeys(("attention/words", "attention/mask", "uniform_gain", "rotation"), 0 * flat)
    loss = constant_losses(model)[settings.training.loss] * jitter
    final = {"held_out_loss": loss, "attention": np.ones((SEEDS, 5)) * jitter[:, None]}
    final |= {f"first_gradients/{part}": jitter for part in ("key", "query", "value")}
    return made_up(
        settings,
        weights={name: np.stack([start[name] for start in starts]).astype(float) for name in starts[0]},
        metrics=metrics,
        final=final,
        word_topics=model.word_topics,
    )


def decide(claim_id: str, results: dict[str, Any]) -> str:
    """The claim's verdict on these results."""
    (claim,) = (claim for claim in PAPER.claims if claim.id == claim_id)
    return record(claim, PAPER.name, PAPER.measuring(claim)(results)).verdict


def only(measured: dict[str, Measurement]) -> Measurement:
    (measurement,) = measured.values()
    return measurement
