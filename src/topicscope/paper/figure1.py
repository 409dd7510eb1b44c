"""Figure 1: all parts trained. Topics in W^E⊤W^E and in W^E⊤W^V W^E, for four combinations of loss and optimiser."""

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.blocks import block_sums, pattern, stand_out
from topicscope.paper.claim import (
    Before,
    Claim,
    Detail,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    claim_on,
    over_seeds,
)
from topicscope.paper.experiment import Experiment, Trained, start_weights
from topicscope.paper.setups import (
    ALL_PARTS,
    COMBINATIONS,
    FEW_SEEDS,
    FRAMES,
    SETTLED,
    Budget,
    combination_id,
    how,
    set_up,
    trained_with,
)
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.topics import TopicModel

# All parts start near zero, a saddle of the loss: plain SGD leaves it only after a flow time of some hundreds.
SGD = Budget(0.5, 1_600)
# Clause 3's contrast must be at least this many times its value before training.
LEAST_CHANGE = 2.0
MATRICES = {"embedding": "W^E⊤W^E", "value": "W^E⊤W^V W^E"}


def experiment(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """All parts trained."""
    name = f"figure1/{combination_id(loss, optimizer)}"
    # Adam's runs are what §2 and §4 compare with, so they last until their losses settle.
    how_long = SGD if optimizer == "sgd" else SETTLED
    # What §4 says about cross-entropy is near its threshold, and needs all seeds.
    few = 0 if (loss, optimizer) == ("cross_entropy", "adam") else FEW_SEEDS
    return set_up(name, preset, ALL_PARTS, loss, optimizer, how_long, snapshots=FRAMES, most_seeds=few)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """For each combination, the contrast of both matrices, and the pattern that W^E⊤W^E shows."""
    return tuple(
        claim for loss, optimizer in COMBINATIONS for claim in _combination(experiment(preset, loss, optimizer))
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The four heat maps, in the paper's order."""
    experiments = tuple(experiment(preset, *combination) for combination in COMBINATIONS)

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        panels = {
            f"{matrix}\n{trained_with(each.settings)}": products(trained[each.name], which)[0]
            for which, matrix in MATRICES.items()
            for each in experiments
        }
        adam = experiments[1].settings.training.steps
        title = f"Figure 1: all parts trained ({SGD.words}; Adam at 0.01, {adam:,} steps)"
        return heat_maps(panels, words=10, title=title)

    return (Drawing(name="figure1", needs=experiments, draw=draw),)


def blocks_seen(
    matrices: Float[np.ndarray, "seed token token"], word_topics: Int[np.ndarray, " token"], **details: Detail
) -> Measurement:
    """How far the blocks of each seed's matrix stand out of its background; beside it how far the diagonal does."""
    seen = [stand_out(matrix, word_topics) for matrix in matrices]
    return over_seeds(
        [each.block for each in seen], diagonal=float(np.mean([each.diagonal for each in seen])), **details
    )


def patterns(matrices: Float[np.ndarray, "seed token token"], word_topics: Int[np.ndarray, " token"]) -> str:
    """How many seeds show which pattern; those that diverged show none."""
    names = [pattern(matrix, word_topics) for matrix in matrices if np.isfinite(matrix).all()]
    return ", ".join(f"{name} {names.count(name)}" for name in dict.fromkeys(names))


def contrast(which: str, trained: Trained) -> Measurement:
    """The final same- minus different-topic average, with its value before training."""
    rows, matrices = trained.contrasts[which], products(trained, which)
    return over_seeds(
        rows[:, -1], at_the_start=float(rows[:, 0].mean()), patterns=patterns(matrices, trained.word_topics)
    )


def visibility(trained: Trained) -> Measurement:
    """How far W^E⊤W^E's blocks stand out; the diagonal, and which pattern is seen, are details."""
    matrices = trained.embedding_products
    return blocks_seen(matrices, trained.word_topics, patterns=patterns(matrices, trained.word_topics))


def products(trained: Trained, which: str) -> Float[np.ndarray, "seed token token"]:
    """W^E⊤W^E or W^E⊤W^V W^E."""
    return trained.embedding_products if which == "embedding" else trained.value_products


def _combination(experiment: Experiment) -> list[Claim]:
    words = f"all parts trained with {how(experiment.settings)}"
    budget = "at 0.01 for 1,000 steps" if experiment.settings.training.optimizer == "sgd" else "after as many steps"
    return [
        claim_on(
            experiment,
            clause_3,
            id=f"{experiment.name}/embedding",
            # The caption takes a diagonal for a special case of the blocks, and it is one: a word's own entry is part
            # of its topic's sum. But any W^E⊤W^E has a diagonal, even untrained: its size is compared with that.
            statement=f"With {words}, W^E⊤W^E has what clause 3 of Theorem 1 asks for: a word's products with its own "
            "topic, itself included, sum to more than with another topic, by at least twice what the untrained "
            "embedding has.",
            unit="times the untrained contrast",
            rule=above(LEAST_CHANGE, origin=1),
            figure="figure1",
            before=Before(
                f"same-topic entries of W^E⊤W^E, the diagonal left out, stand out of the background by more than its "
                f"deviation ({budget})",
                rule=above(1.0),
                measure=lambda trained: visibility(trained[experiment.name]),
            ),
        ),
        claim_on(
            experiment,
            visibility,
            id=f"{experiment.name}/blocks",
            statement=f"With {words}, W^E⊤W^E shows blocks and not a diagonal alone: same-topic entries, the diagonal "
            "left out, stand out of the background by more than its deviation.",
            unit="standard deviations of the background",
            rule=above(1.0, origin=0),
            figure="figure1",
            kind="ours",
            diagnosis=Diagnosis(
                "wording",
                "Theorem 1 allows a diagonal in place of blocks, and W^E⊤W^E is not determined when W^V is trained "
                "too: W^V can carry the blocks, and W^E⊤W^V W^E, which is determined, has them.",
                holds="for W^E⊤W^V W^E of the same runs, and for W^E⊤W^E with cross-entropy",
                see=(f"{experiment.name}/value",),
            ),
        ),
        claim_on(
            experiment,
            lambda trained: blocks_seen(trained.value_products, trained.word_topics),
            id=f"{experiment.name}/value",
            statement=f"With {words}, W^E⊤W^V W^E, which unlike W^E⊤W^E is determined by the loss, shows blocks: "
            "same-topic entries stand out of the background by more than its deviation.",
            unit="standard deviations of the background",
            rule=above(1.0, origin=0),
            figure="figure1",
            kind="ours",
            before=Before(
                f"its same-topic average is above its different-topic one ({budget})",
                rule=above(0.0),
                measure=lambda trained: contrast("value", trained[experiment.name]),
            ),
        ),
    ]


def clause_3(trained: Trained) -> Measurement:
    """Own- minus other-topic sum of E = W^E⊤W^E, diagonal included, over its value before training."""
    model = TopicModel.from_settings(trained.settings.data)
    starts = [start_weights(trained.settings, seed, model)["embedding"].astype(np.float64) for seed in trained.seeds]
    before, after = (
        np.array([np.subtract(*block_sums(matrix, trained.word_topics)) for matrix in matrices])
        for matrices in ([start @ start.T for start in starts], trained.embedding_products)
    )
    return over_seeds(after / before, contrast=float(after.mean()), untrained_contrast=float(before.mean()))
