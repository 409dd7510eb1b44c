"""Figure 2: W^V trained alone, one-hot embeddings, uniform attention, L2; each combination by its own rule."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from topicscope.measure.blocks import centred_columns, class_averages, stand_out
from topicscope.paper.claim import (
    Before,
    Claim,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    below,
    claim_on,
    near,
    over_seeds,
    share_above,
)
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.figure1 import patterns
from topicscope.paper.setups import (
    BIASED,
    COMBINATIONS,
    FEW_SEEDS,
    FRAMES,
    FROZEN_ZERO,
    LDA,
    MASKING,
    MILD_L2,
    SLIGHTLY,
    UNIFORM,
    Budget,
    combination_id,
    how,
    paper_moments,
    set_up,
    trained_with,
)
from topicscope.randomness import Purpose, generator
from topicscope.settings import Masking
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.cross_entropy import CrossEntropyOptimum, cross_entropy_optimum, uniform_cross_entropy
from topicscope.theory.finite_documents import finite_optimum, gradient_descent, population_loss
from topicscope.theory.theorem2 import theorem2

STEPS = 2_000
# With these budgets W^V's objective is within a per cent of the least. Under the squared loss that is Theorem 2's
# block: the diagonal of the optimum for finite documents comes fifty times later.
SGD: dict[Loss, Budget] = {"squared": Budget(0.5, 1_000), "cross_entropy": Budget(30.0, 2_000)}
# How near class averages must be to theory, as a share of its same- minus different-topic contrast; but always nearer
# than to where an untrained W^V is.
TOLERANCE = 0.1
UNTRAINED = 0.0
CLASSES = {
    "same_word": "same word",
    "same_topic": "same topic",
    "different_topic": "different topic",
    "mask_column": "[MASK] column",
}
# Why W^V has a diagonal beside its blocks.
DIAGONAL = Diagnosis(
    "settings",
    "Theorem 2 is about infinite documents. In documents of 100 to 150 words a word that is masked and kept is itself "
    "one of few, and the optimum gives it a diagonal beside the blocks (R S⁻¹, the optimum for finite documents); with "
    "attention trained too a kept word can be looked up, and the diagonal grows further.",
    holds="on the way there: plain SGD passes Theorem 2's block long before it reaches the diagonal",
    see=("figure2/squared-sgd/theorem2", "theorem2/finite-ratio"),
)
# Documents of the large-sample cross-entropy optimum, which has six entries to determine.
CONVEX_OPTIMUM_DOCUMENTS = 10_000


def experiment(preset: Preset, loss: Loss, optimizer: Optimizer) -> Experiment:
    """W^V under uniform attention with L2."""
    name = f"figure2/{combination_id(loss, optimizer)}"
    how_long = SGD[loss] if optimizer == "sgd" else STEPS
    return set_up(name, preset, UNIFORM, loss, optimizer, how_long, l2=MILD_L2, snapshots=FRAMES)


def with_biases(preset: Preset, loss: Loss) -> Experiment:
    """The same with the biases of §6.1, which leave W^V's columns undetermined, but not their contrast."""
    model = replace(BIASED, key=FROZEN_ZERO, query=FROZEN_ZERO, key_bias=FROZEN_ZERO, query_bias=FROZEN_ZERO)
    name = f"figure2/biases/{combination_id(loss, 'adam')}"
    return set_up(name, preset, model, loss, "adam", STEPS, l2=MILD_L2, most_seeds=FEW_SEEDS)


@cache
def large_sample() -> Bags:
    """Documents that stand for the population where cross-entropy has no closed form."""
    model, draw = TopicModel.from_settings(LDA), generator(0, Purpose.THEORY)
    documents = sample_documents(model, CONVEX_OPTIMUM_DOCUMENTS, generator=draw)
    return Bags.of(mask_documents(documents, Masking(), model.vocabulary, generator=draw), model.vocabulary)


@cache
def convex_optimum(ridge: float) -> CrossEntropyOptimum:
    """Cross-entropy's optimum on that sample."""
    return cross_entropy_optimum(large_sample(), LDA.topics, LDA.words, ridge)


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All four combinations: blocks, uniform ones, the optimum's objective; for the squared loss theory's numbers."""
    chosen = {combination: experiment(preset, *combination) for combination in COMBINATIONS}
    adam, sgd = chosen["squared", "adam"], chosen["squared", "sgd"]
    optimum = finite_optimum(paper_moments(), MILD_L2)
    return (
        *(claim for each in chosen.values() for claim in block_claims(each, "figure2")),
        *(theorem2_claim(each, "figure2") for each in (sgd, adam)),
        *(excess_claim(each) for each in chosen.values()),
        *(block_claims(with_biases(preset, loss), "figure2")[0] for loss in SGD),
        *_class_claims(adam, optimum, "the ridge optimum for finite documents at the run's λ"),
        *_class_claims(sgd, trajectory(sgd), "the exact trajectory of gradient descent at this step"),
    )


def trajectory(experiment: Experiment) -> Float[np.ndarray, "token token"]:
    """Where exact gradient descent from zero is at the experiment's last step, with its own rate and L2."""
    training = experiment.settings.training
    start = np.zeros_like(paper_moments().second)
    return gradient_descent(start, paper_moments(), training.learning_rate, training.steps, training.l2)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """The four heat maps, in the paper's order, and the optima below."""
    experiments = tuple(experiment(preset, *combination) for combination in COMBINATIONS)

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        cross_entropy = centred_columns(convex_optimum(MILD_L2).matrix(LDA.topics, LDA.words))
        panels = {trained_with(each.settings): shown_value(trained[each.name]) for each in experiments} | {
            "optimum, as for SGD": cross_entropy,
            "optimum": cross_entropy,
            "gradient descent at this step": trajectory(experiments[2]),
            "ridge optimum": finite_optimum(paper_moments(), MILD_L2),
        }
        names = list(panels)
        return heat_maps(
            panels,
            words=LDA.words,
            same_scale=[(names[column], names[column + 4]) for column in range(4)],
            title="Figure 2: W^V at convergence (above), and theory (below); cross-entropy with columns centred",
        )

    return (Drawing(name="figure2", needs=experiments, draw=draw),)


def shown_value(trained: Trained) -> Float[np.ndarray, "token token"]:
    """The first seed's W^V as it is drawn: columns centred under cross-entropy, which does not see their means."""
    matrix = trained.value_products[0]
    return centred_columns(matrix) if trained.settings.training.loss == "cross_entropy" else matrix


def block_claims(experiment: Experiment, figure: str) -> tuple[Claim, Claim]:
    """Blocks that the eye sees, and uniform ones, like Theorem 2's."""
    words = f"trained with {how(experiment.settings)}"
    return (
        claim_on(
            experiment,
            lambda trained: block_measures(trained)["blocks"],
            id=f"{experiment.name}/blocks",
            statement=f"W^V {words} shows blocks: same-topic entries, the diagonal left out, stand out of the "
            "background by more than its deviation.",
            unit="standard deviations of the background",
            rule=above(1.0, origin=0),
            figure=figure,
        ),
        claim_on(
            experiment,
            lambda trained: block_measures(trained)["uniform"],
            id=f"{experiment.name}/uniform",
            statement=f"The blocks of W^V {words} are those of Theorem 2, uniform: two words of a topic have more than "
            "half of what a word has with itself, both above words of different topics.",
            unit="same topic over same word",
            rule=share_above(0.5),
            figure=figure,
            diagnosis=DIAGONAL,
        ),
    )


def theorem2_claim(experiment: Experiment, figure: str) -> Claim:
    """§5.3, §8.1: the convergence point matches Theorem 2's numbers."""
    return claim_on(
        experiment,
        lambda trained: class_measures(trained)["theorem2"],
        id=f"{experiment.name}/theorem2",
        statement=f"The convergence point of W^V trained with {how(experiment.settings)} is that of Theorem 2: "
        "same-word, same-topic and different-topic averages are within 10 % of its contrast of its own.",
        unit="of Theorem 2's contrast",
        rule=below(TOLERANCE, origin=0),
        figure=figure,
        diagnosis=DIAGONAL,
    )


def block_measures(trained: Trained) -> dict[str, Measurement]:
    """For W^V with its columns centred (Remark 1): how far its blocks stand out, how uniform they are, their contrast.

    Same-word and same-topic averages are taken over that of words of different topics.
    """
    topics, matrices = trained.word_topics, [centred_columns(matrix) for matrix in trained.value_products]
    averages = _averages(matrices, topics)
    word, topic = (averages[name] - averages["different_topic"] for name in ("same_word", "same_topic"))
    return {
        "blocks": over_seeds(
            [stand_out(matrix, topics).block for matrix in matrices],
            blocks_over_diagonal=float(topic.mean() / word.mean()),
        ),
        "uniform": over_seeds(topic / word, same_topic=float(topic.mean()), same_word=float(word.mean())),
        "contrast": over_seeds(
            topic,
            same_word_minus_same_topic=float((averages["same_word"] - averages["same_topic"]).mean()),
            patterns=patterns(trained.value_products, topics),
        ),
    }


def value_claim(experiment: Experiment, name: str, setting: str, **claim: Any) -> Claim:
    """A claim that W^V distinguishes topics, in a setting that begins the sentence."""
    return claim_on(
        experiment,
        centred_contrast,
        id=f"{name}/value",
        statement=f"{setting} W^V is on average larger within topics than between them.",
        rule=above(0.0),
        **claim,
    )


def centred_contrast(trained: Trained) -> Measurement:
    """Same- minus different-topic average of W^V after centring its columns."""
    return block_measures(trained)["contrast"]


def class_measures(trained: Trained) -> dict[str, Measurement]:
    """For W^V as it is: what its objective lacks, its averages by class, and how far they are from Theorem 2's.

    The objective is above the optimum's by a share of the optimum's gain over W^V = 0. The distance from Theorem 2 is
    the largest of the three averages of words, as a share of its contrast.
    """
    topics, matrices = trained.word_topics, trained.value_products
    optimum = finite_optimum(paper_moments(), trained.settings.training.l2)
    distance = float((np.linalg.norm(matrices - optimum, axis=(1, 2)) / np.linalg.norm(optimum)).mean())
    found, best = _averages(matrices, topics), _averages([optimum], topics)
    theory = _averages([theorem2(LDA.topics, LDA.words, MASKING)], topics)
    off = np.max([abs(found[name] - theory[name]) for name in ("same_word", "same_topic", "different_topic")], axis=0)
    objective, least, zero = _objectives(trained)
    return {
        "excess-loss": over_seeds(
            (objective - least) / (zero - least),
            raw_excess=float(np.mean(objective) - least),
            optimum=least,
            zero=zero,
        ),
        "theorem2": over_seeds(
            off / (theory["same_topic"] - theory["different_topic"]),
            **{name: float(found[name].mean()) for name in CLASSES},
        ),
        **{
            name: over_seeds(found[name], optimum=best[name][0], relative_distance_to_optimum=distance)
            for name in CLASSES
        },
    }


def _averages(
    matrices: Iterable[Float[np.ndarray, "token token"]], topics: Int[np.ndarray, " token"]
) -> dict[str, Float[np.ndarray, " seed"]]:
    """Averages by class, one per matrix."""
    found = [class_averages(matrix, topics) for matrix in matrices]
    return {name: np.array([getattr(each, name) for each in found], dtype=np.float64) for name in CLASSES}


def excess_claim(experiment: Experiment) -> Claim:
    """The objective against its optimum, as a share of the optimum's gain over W^V = 0."""
    training = experiment.settings.training
    kind = "the exact optimum" if training.loss == "squared" else "the convex optimum of a large sample"
    return claim_on(
        experiment,
        lambda trained: class_measures(trained)["excess-loss"],
        id=f"{experiment.name}/excess-loss",
        statement=f"{how(experiment.settings).capitalize()}, takes W^V to its optimum: the objective is above {kind} "
        "by less than 10 % of the gain of that over W^V = 0.",
        unit="of the gain",
        rule=SLIGHTLY,
        figure="figure2",
        before=Before("the same after 2,000 steps at 0.01", verdict="fails") if training.optimizer == "sgd" else None,
    )


def _objectives(trained: Trained) -> tuple[Float[np.ndarray, " seed"], float, float]:
    """The population objective (loss plus λ‖W‖²) of each seed's W^V, of the optimum, and of W^V = 0."""
    matrices, ridge = trained.value_products, trained.settings.training.l2
    if trained.settings.training.loss == "squared":
        exact = paper_moments()
        best = population_loss(finite_optimum(exact, ridge), exact, ridge=ridge)
        return np.array([population_loss(matrix, exact, ridge=ridge) for matrix in matrices]), best, 1.0
    losses = [uniform_cross_entropy(matrix, large_sample()) for matrix in matrices]
    norms = [ridge * float(np.vdot(matrix, matrix)) for matrix in matrices]
    return np.add(losses, norms), convex_optimum(ridge).objective, float(np.log(LDA.topics * LDA.words + 1))


def _class_claims(experiment: Experiment, target: Float[np.ndarray, "token token"], words: str) -> list[Claim]:
    averages = _averages([target], TopicModel.from_settings(LDA).word_topics)
    near_enough = TOLERANCE * (averages["same_topic"][0] - averages["different_topic"][0])
    return [
        claim_on(
            experiment,
            lambda trained, name=name: class_measures(trained)[name],  # type: ignore[misc]
            id=f"{experiment.name}/{name.replace('_', '-')}",
            statement=f"The {label} average of W^V trained with {how(experiment.settings)} is that of {words}.",
            expected=round(float(averages[name][0]), 5),
            rule=near(averages[name][0], min(near_enough, abs(averages[name][0] - UNTRAINED) / 2)),
            figure="figure2",
            kind="ours",
        )
        for name, label in CLASSES.items()
    ]
