"""Trained experiments made by hand: what a claim measures, without training."""

from dataclasses import replace

import numpy as np

from topicscope.paper.claims import Claim, Drawing, Verdict, verdict
from topicscope.paper.experiments import ATTENTION_CLASSES, Experiment, Trained
from topicscope.synthetic.topics import TopicModel

SEEDS = 5
STEPS = np.arange(0, 1001, 10)


def fabricate(
    experiment: Experiment,
    *,
    value: np.ndarray | None = None,
    embedding: np.ndarray | None = None,
    noise: float = 0.0,
    held_out_loss: np.ndarray | None = None,
    attention: np.ndarray | None = None,
    norms: dict[str, np.ndarray] | None = None,
    rotation: np.ndarray | None = None,
    gradients: dict[str, np.ndarray] | None = None,
) -> Trained:
    """A result with these matrices (W^V over tokens, W^E⊤), the same for all seeds but for noise."""
    generator = np.random.default_rng(0)
    topics = TopicModel.from_settings(experiment.settings.data).word_topics
    eye = np.eye(len(topics))

    def spread(matrix: np.ndarray | None) -> np.ndarray:
        chosen = eye if matrix is None else matrix
        return chosen + noise * generator.normal(size=(SEEDS, *chosen.shape)) * (matrix is not None)

    trained = Trained(
        settings=experiment.settings,
        seeds=tuple(range(SEEDS)),
        weights={"embedding": spread(embedding), "value": spread(value)[:, None]},
        steps=STEPS,
        loss=np.ones((SEEDS, len(STEPS))),
        norms={name: np.tile(each, (SEEDS, 1)) for name, each in (norms or {}).items()},
        rotation=np.tile(np.full(len(STEPS), 1e-3) if rotation is None else rotation, (SEEDS, 1)),
        contrasts={},
        held_out_loss=np.zeros(SEEDS) if held_out_loss is None else held_out_loss,
        attention=np.ones((SEEDS, len(ATTENTION_CLASSES))) if attention is None else attention,
        first_gradients=gradients or {},
        seconds=0.0,
        word_topics=topics,
    )
    contrasts = {
        "value": _contrasts(trained.value_products, topics),
        "embedding": _contrasts(trained.embedding_products, topics),
    }
    return replace(trained, contrasts=contrasts)


def shuffled(trained: Trained) -> Trained:
    """The same result with words given to topics at random."""
    topics = trained.word_topics
    mixed = np.concatenate([topics[:1], np.random.default_rng(1).permutation(topics[1:])])
    contrasts = {
        "value": _contrasts(trained.value_products, mixed),
        "embedding": _contrasts(trained.embedding_products, mixed),
    }
    return replace(trained, word_topics=mixed, contrasts=contrasts)


def experiments_of(*asked: Claim | Drawing) -> list[Experiment]:
    """What these need trained."""
    return [need for each in asked for need in each.needs if isinstance(need, Experiment)]


def decide(claim: Claim, *results: Trained) -> Verdict:
    """The claim's verdict on these results, in the order of what it needs."""
    by_name = {experiment.name: trained for experiment, trained in zip(claim.needs, results, strict=True)}
    return verdict(claim.rule, claim.measure(by_name))


def _contrasts(matrices: np.ndarray, topics: np.ndarray) -> np.ndarray:
    """None up to the last row, then the matrices' own."""
    same = topics[1:, None] == topics[None, 1:]
    off = same & ~np.eye(len(same), dtype=bool)
    after = [matrix[1:, 1:][off].mean() - matrix[1:, 1:][~same].mean() for matrix in matrices]
    rows = np.zeros((SEEDS, len(STEPS)))
    rows[:, -1] = after
    return rows
