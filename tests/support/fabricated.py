"""Trained experiments made by hand: what a claim measures, without training."""

from dataclasses import replace
from functools import cache

import numpy as np

from topicscope.model.weights import initial_weights
from topicscope.paper import registry
from topicscope.paper.claim import PRESETS, Claim, Drawing, Verdict, verdict
from topicscope.paper.experiment import ATTENTION_CLASSES, Experiment, Trained
from topicscope.paper.setups import constant_losses
from topicscope.randomness import Purpose, generator
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
    attention_distance: dict[str, np.ndarray] | None = None,
    modes: dict[str, np.ndarray] | None = None,
    uniform_gain: np.ndarray | None = None,
) -> Trained:
    """A result with these matrices (W^V over tokens, W^E⊤), the same for all seeds but for noise."""
    generator = np.random.default_rng(0)
    topics = TopicModel.from_settings(experiment.settings.data).word_topics
    eye = np.eye(len(topics))

    def spread(matrix: np.ndarray | None) -> np.ndarray:
        chosen = eye if matrix is None else matrix
        return chosen + noise * generator.normal(size=(SEEDS, *chosen.shape)) * (matrix is not None)

    def tiled(curves: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        return {name: np.tile(each, (SEEDS, 1)) for name, each in (curves or {}).items()}

    trained = Trained(
        settings=experiment.settings,
        seeds=tuple(range(SEEDS)),
        weights={"embedding": spread(embedding), "value": spread(value)[:, None]},
        steps=STEPS,
        loss=np.ones((SEEDS, len(STEPS))),
        norms=tiled(norms),
        rotation=np.tile(np.full(len(STEPS), 1e-3) if rotation is None else rotation, (SEEDS, 1)),
        contrasts={},
        attention_distance=tiled(attention_distance),
        modes=tiled(modes),
        uniform_gain=np.tile(np.full(len(STEPS), np.nan) if uniform_gain is None else uniform_gain, (SEEDS, 1)),
        held_out_loss=np.zeros(SEEDS) if held_out_loss is None else held_out_loss,
        attention=np.ones((SEEDS, len(ATTENTION_CLASSES))) if attention is None else attention,
        first_gradients=gradients or {},
        seconds=0.0,
        word_topics=topics,
    )
    return _with_contrasts(trained)


def shuffled(trained: Trained) -> Trained:
    """The same result with words dealt out to topics in turn, so that no topic keeps more of its own than chance."""
    topics = trained.word_topics
    names = np.unique(topics[1:])
    mixed = np.concatenate([topics[:1], names[np.arange(len(topics) - 1) % len(names)]])
    return _with_contrasts(replace(trained, word_topics=mixed))


def with_weights(trained: Trained, weights: dict[str, np.ndarray]) -> Trained:
    """The same with other weights, and the contrasts that follow."""
    return _with_contrasts(replace(trained, weights=weights))


def _with_contrasts(trained: Trained) -> Trained:
    contrasts = {
        "value": _contrasts(trained.value_products, trained.word_topics),
        "embedding": _contrasts(trained.embedding_products, trained.word_topics),
    }
    return replace(trained, contrasts=contrasts)


def experiments_of(*asked: Claim | Drawing) -> list[Experiment]:
    """What these need trained."""
    return [need for each in asked for need in each.needs if isinstance(need, Experiment)]


@cache
def _quick_claims() -> dict[str, Claim]:
    return {claim.id: claim for claim in registry(PRESETS["quick"]).claims}


def quick_claim(name: str) -> Claim:
    """The quick preset's claim of this id."""
    return _quick_claims()[name]


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


@cache
def untrained(experiment: Experiment) -> Trained:
    """Initial weights: attention uniform, norms that stay, equal gradients, the loss of a constant prediction."""
    settings = experiment.settings
    model = experiment.topic_model
    starts = [
        initial_weights(settings.model, model, settings.masking, generator=generator(seed, Purpose.WEIGHTS))
        for seed in range(SEEDS)
    ]
    jitter = 1 + 1e-4 * np.arange(SEEDS)
    loss = constant_losses(model)[settings.training.loss] * jitter
    constant = np.ones(len(STEPS))
    trained = fabricate(
        experiment,
        held_out_loss=loss,
        attention=np.ones((SEEDS, len(ATTENTION_CLASSES))) * jitter[:, None],
        norms=dict.fromkeys(("key", "query", "value"), constant),
        rotation=0 * constant,
        gradients=dict.fromkeys(("key", "query", "value"), jitter),
        attention_distance=dict.fromkeys(("words", "mask"), 0 * constant),
        modes={f"{part}-{mode}": 0.1 * constant for part in ("key", "query") for mode in ("mask", "topics")},
        uniform_gain=0 * constant,
    )
    return with_weights(trained, {name: np.stack([start[name] for start in starts]) for name in starts[0]})


def blocks(experiment: Experiment) -> Trained:
    """A result whose W^E⊤W^E and W^V have a block a topic, and little noise."""
    topics = experiment.topic_model.word_topics
    draw = np.random.default_rng(0)
    member = (topics[:, None] == np.unique(topics[1:])).astype(float)
    noise = 0.01 * draw.normal(size=(SEEDS, len(topics), len(topics)))
    embedding = noise.copy()
    embedding[:, :, : member.shape[1]] += member
    value = np.zeros_like(noise)
    if experiment.settings.model.embedding.train:
        value[:] = np.eye(len(topics))
    else:
        embedding[:] = np.eye(len(topics))
        value += 0.1 * member @ member.T + noise
    return with_weights(untrained(experiment), {"embedding": embedding, "value": value[:, None]})
