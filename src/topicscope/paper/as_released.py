"""Figures 1, 2, 4 and Table 3 with what the paper's released code does, beside what the paper writes.

The released code differs from the paper's equations in its embedding layer (a token-type vector and LayerNorm), in its
starts (PyTorch's defaults, or 0.001 × U(0, 1) for "near zero"), in its decoder (a separate matrix where embeddings are
trained), in its loss (one mean over masked positions, and over entries for the squared loss; its L2 has no gradient and
so no effect) and in its data (10,000 fixed documents between START and END, masks drawn once, masked positions hidden
as keys, biases trained). Each of these is a switch. For each figure one or two runs have all of them, and one more run
takes one difference back: the change shows what explains the picture. docs/choices.md lists the differences.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.measure.blocks import centred_columns, class_averages, words_of
from topicscope.measure.stages import LEAST_GROWTH, TAKE_OFF
from topicscope.model.weights import embedded
from topicscope.paper import figure1, figure2, figure10
from topicscope.paper.claim import (
    Claim,
    Drawing,
    Drawn,
    Measurement,
    Preset,
    Results,
    above,
    below,
    exact,
    over_seeds,
    share_below,
    zero,
)
from topicscope.paper.experiment import Experiment, Trained, start_weights
from topicscope.paper.setups import (
    FROZEN_ZERO,
    LDA,
    ONE_HOT_EMBEDDING,
    paper_moments,
    settings,
)
from topicscope.paper.table3 import implied
from topicscope.settings import Data, Masking, Model, Part
from topicscope.settings.training import Loss, Optimizer
from topicscope.synthetic.topics import TopicModel

STEPS = 1_000
# Gradient steps of the released demo: 20 epochs of 10,000 documents in batches of 40.
DEMO_STEPS = 5_000
# Effects are many times their spread, so few seeds decide them. What does not move at all needs even fewer.
SEEDS, STILL_SEEDS = 3, 2
# How far blocks stand out with Adam in Figure 1 differs more between seeds.
MORE_SEEDS = 6
NORMS = ("key", "query", "value")
RATE, SMALL_RATE = 0.01, 0.001
DOCUMENTS = Data(documents=10_000, ends=True)
MASKED_ONCE = Masking(fixed=True)
# What PyTorch draws for a linear map and its bias; "near zero" of the released code.
DEFAULT, NEAR_ZERO, ZERO = Part(start="uniform"), Part(start="positive", scale=0.001), Part(start="zero")

# One-hot embeddings, W^K, W^Q and W^V trained. The decoder is frozen at the identity, as is that tied to one-hot
# embeddings, and its bias at zero.
ONE_HOT = Model(
    masked_keys="hidden",
    token_types=True,
    embedding_norm=True,
    embedding=ONE_HOT_EMBEDDING,
    value=DEFAULT,
    key=DEFAULT,
    query=DEFAULT,
    key_bias=DEFAULT,
    query_bias=DEFAULT,
    value_bias=DEFAULT,
    prediction_bias=FROZEN_ZERO,
)
UNIFORM = replace(ONE_HOT, key=FROZEN_ZERO, query=FROZEN_ZERO, key_bias=FROZEN_ZERO, query_bias=FROZEN_ZERO)
FROM_NEAR_ZERO = replace(
    ONE_HOT, value=NEAR_ZERO, key=NEAR_ZERO, query=NEAR_ZERO, key_bias=ZERO, query_bias=ZERO, value_bias=ZERO
)
# Everything trained; the decoder is a matrix of its own, since nothing ties it to the embedding.
ALL_PARTS = replace(
    ONE_HOT, embedding=Part(scale=1.0), prediction_bias=ZERO, tied=False, prediction=Part(start="uniform")
)


def experiment(
    name: str,
    model: Model,
    loss: Loss,
    optimizer: Optimizer,
    rate: float = RATE,
    *,
    log_every: int = 100,
    seeds: int = SEEDS,
) -> Experiment:
    """A run as released: its documents, masks, mean and optimiser."""
    more: dict[str, Any] = {"squared": "mean"} if loss == "squared" else {}
    chosen = settings(
        model,
        loss,
        optimizer,
        steps=STEPS,
        data=DOCUMENTS,
        masking=MASKED_ONCE,
        average="batch",
        learning_rate=rate,
        weight_decay=0.0,
        log_every=log_every,
        **more,
    )
    return Experiment(name=f"as-released/{name}", settings=chosen, most_seeds=seeds)


FIGURE_1_SGD = experiment("figure1/cross-entropy-sgd", ALL_PARTS, "cross_entropy", "sgd", seeds=STILL_SEEDS)
FIGURE_1_ADAM = experiment("figure1/cross-entropy-adam", ALL_PARTS, "cross_entropy", "adamw", seeds=MORE_SEEDS)
FIGURE_1_SMALL = experiment(
    "figure1/small-embeddings",
    replace(ALL_PARTS, embedding=Part(scale=0.02)),
    "cross_entropy",
    "adamw",
    seeds=MORE_SEEDS,
)
FIGURE_2_SGD = experiment("figure2/cross-entropy-sgd", UNIFORM, "cross_entropy", "sgd")
FIGURE_2_ADAM = experiment("figure2/cross-entropy-adam", UNIFORM, "cross_entropy", "adamw")
FIGURE_2_NEAR_ZERO = experiment(
    "figure2/near-zero", replace(UNIFORM, value=NEAR_ZERO, value_bias=ZERO), "cross_entropy", "sgd"
)
FIGURE_4_SGD = experiment("figure4/cross-entropy-sgd", FROM_NEAR_ZERO, "cross_entropy", "sgd", seeds=STILL_SEEDS)
FIGURE_4_ADAM = experiment(
    "figure4/cross-entropy-adam", FROM_NEAR_ZERO, "cross_entropy", "adamw", SMALL_RATE, log_every=10
)
FIGURE_4_PLAIN = experiment(
    "figure4/plain-embeddings",
    replace(FROM_NEAR_ZERO, token_types=False, embedding_norm=False),
    "cross_entropy",
    "adamw",
    SMALL_RATE,
    log_every=10,
)
TABLE_3 = experiment("table3/squared-adam", ONE_HOT, "squared", "adamw")
TABLE_3_NO_TYPE = experiment("table3/no-token-type", replace(ONE_HOT, token_types=False), "squared", "adamw")


def claims(preset: Preset) -> tuple[Claim, ...]:
    """How each figure looks as released, and which difference explains it."""
    return (*_figure_1(), *_figure_2(), *_figure_4(), *_table_3())


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Heat maps as written, and as released below them."""
    pairs = {
        "Figure 1, cross-entropy, SGD": (figure1.experiment(preset, "cross_entropy", "sgd"), FIGURE_1_SGD),
        "Figure 1, cross-entropy, Adam": (figure1.experiment(preset, "cross_entropy", "adam"), FIGURE_1_ADAM),
        "Figure 2, cross-entropy, SGD": (figure2.experiment(preset, "cross_entropy", "sgd"), FIGURE_2_SGD),
        "Figure 2, cross-entropy, Adam": (figure2.experiment(preset, "cross_entropy", "adam"), FIGURE_2_ADAM),
        "W^K, W^Q too, squared loss, Adam": (figure10.joint(preset, "squared", "adam"), TABLE_3),
    }
    needs = tuple(each for place in (0, 1) for each in (pair[place] for pair in pairs.values()))

    def draw(trained: Results) -> Drawn:
        from topicscope.reporting.figures.training import heat_maps

        panels, tokens = {}, TopicModel.from_settings(LDA).vocabulary
        for place, words in enumerate(("as written", "as released")):
            for title, pair in pairs.items():
                run = trained[pair[place].name]
                embedding = run.settings.model.embedding.train
                matrix = run.embedding_products[0] if embedding else centred_columns(run.value_products[0])
                # START and END, which only the released code has, come last.
                panels[f"{title}\n{'W^E⊤W^E' if embedding else 'W^V'}, {words}"] = matrix[:tokens, :tokens]
        title = "As written (above) and as the paper's code was released (below); columns of W^V centred"
        return heat_maps(panels, words=LDA.words, columns=len(pairs), title=title)

    return (Drawing(name="as-released", needs=needs, draw=draw),)


def _figure_1() -> tuple[Claim, ...]:
    return (
        _claim(
            (FIGURE_1_SGD,),
            "start-kept",
            start_change,
            statement="As released (embeddings from N(0, 1), cross-entropy, SGD at 0.01, 1,000 steps), W^E⊤W^E and its "
            "diagonal are those of the start: it changes by less than a tenth of its norm.",
            unit="of the norm at the start",
            rule=below(0.1, origin=0),
        ),
        _claim(
            (FIGURE_1_ADAM,),
            "no-blocks",
            embedding_blocks,
            statement="As released (cross-entropy, Adam at 0.01, 1,000 steps), W^E⊤W^E shows a diagonal and no blocks: "
            "same-topic entries stand out of the background by less than its deviation.",
            rule=below(1.0, origin=0),
        ),
        _claim(
            (FIGURE_1_SMALL, FIGURE_1_ADAM),
            "start-explains",
            partial(_difference, embedding_blocks),
            statement="The start explains the missing blocks: with embeddings from N(0, 0.02²) instead of PyTorch's "
            "N(0, 1), and all else as released, the blocks of W^E⊤W^E stand out by at least one deviation more.",
            rule=above(1.0, origin=0),
        ),
    )


def _figure_2() -> tuple[Claim, ...]:
    return (
        _claim(
            (FIGURE_2_ADAM,),
            "blocks",
            value_blocks,
            statement="As released (W^V from PyTorch's start, cross-entropy, Adam at 0.01, 1,000 steps), W^V shows "
            "blocks, as it does as written: same-topic entries stand out of the background by more than its deviation.",
            rule=above(1.0, origin=0),
        ),
        _claim(
            (FIGURE_2_NEAR_ZERO, FIGURE_2_SGD),
            "start-explains",
            partial(_difference, value_blocks),
            statement="The start explains why W^V has no blocks as released with SGD (cross-entropy, 0.01, 1,000 "
            "steps): from 0.001 × U(0, 1) instead of PyTorch's U(±1/√d), and all else as released, its blocks stand "
            "out by at least one deviation more.",
            rule=above(1.0, origin=0),
        ),
        Claim(
            id="as-released/figure2/squared-sgd/e-folding",
            source="Figure 2",
            statement="As released, SGD at 0.01 cannot reach the blocks of the squared loss: as a mean over entries, "
            f"one e-folding of what tells topics apart takes more steps than the {DEMO_STEPS:,} of the released demo.",
            unit="steps",
            rule=above(DEMO_STEPS, origin=0),
            measure=lambda _: topic_e_folding(),
            kind="ours",
        ),
    )


def _figure_4() -> tuple[Claim, ...]:
    return (
        _claim(
            (FIGURE_4_SGD,),
            "attention-stays",
            attention_growth,
            statement="As released with SGD (cross-entropy, 0.01, from 0.001 × U(0, 1), 1,000 steps) there is no stage "
            "2: the norms of W^K and W^Q grow by less than a hundredth of what W^V's grows by, each relative to its "
            "start.",
            unit="of W^V's relative growth",
            rule=below(0.01, origin=0),
        ),
        _claim(
            (FIGURE_4_ADAM,),
            "attention-first",
            growth_at_take_off,
            statement="As released with Adam (cross-entropy, 0.001, from 0.001 × U(0, 1)) attention comes first: when "
            "it takes off, ‖W^V‖ has made less than a third of its growth over the run.",
            unit="of the growth of ‖W^V‖",
            rule=share_below(LEAST_GROWTH),
        ),
        _claim(
            (FIGURE_4_PLAIN, FIGURE_4_ADAM),
            "embedding-layer-explains",
            _later,
            statement="The embedding layer explains it: without its token-type vector and LayerNorm, and all else as "
            "released, attention takes off at least twice as late.",
            unit="ratio of steps",
            rule=above(2.0, origin=1),
        ),
    )


def _table_3() -> tuple[Claim, ...]:
    return (
        _claim(
            (TABLE_3_NO_TYPE, TABLE_3),
            "token-type-explains",
            _more_attention,
            statement="The token-type vector takes most of the attention to topics away (squared loss, Adam at 0.01, "
            "1,000 steps): without it, and all else as released, the average ((v − 1)α̂ + β̂)/v of Theorem 3 is at "
            "least twice as large.",
            unit="ratio of averages",
            rule=above(2.0, origin=1),
        ),
        zero(
            id="as-released/table3/value-frozen/no-gradient",
            source="Table 3",
            statement="As released, attention cannot be trained beside the frozen block matrix with cross-entropy: all "
            "rows of that matrix are one list, so every token has the same score and the loss no gradient.",
            measure=lambda _: exact(
                attention_gradient(aliased_block()), with_a_true_block=attention_gradient(true_block())
            ),
            kind="check",
        ),
    )


def _claim(
    of: tuple[Experiment, ...],
    name: str,
    measure: Callable[..., Measurement],
    *,
    unit: str = "standard deviations of the background",
    **claim: Any,
) -> Claim:
    """A claim on the run as released, the last one; with two, on what taking one difference back changes."""
    released = of[-1].name
    figure, number = re.fullmatch(r"as-released/(figure|table)(\d)/.*", released).groups()  # type: ignore[union-attr]
    return Claim(
        id=f"{released}/{name}",
        source=f"{figure.capitalize()} {number}",
        needs=of,
        measure=lambda trained: measure(*(trained[each.name] for each in of)),
        unit=unit,
        figure="as-released",
        kind="ours",
        **claim,
    )


def embedding_blocks(trained: Trained) -> Measurement:
    """How far W^E⊤W^E's blocks stand out; beside it the diagonal, and the diagonal's average before and after."""
    ends, starts = (
        [class_averages(matrix, trained.word_topics).same_word for matrix in matrices]
        for matrices in (trained.embedding_products, embeddings_at_start(trained))
    )
    return figure1.blocks_seen(
        trained.embedding_products,
        trained.word_topics,
        diagonal_average=float(np.mean(ends)),
        diagonal_average_at_the_start=float(np.mean(starts)),
        held_out_loss=float(np.mean(trained.held_out_loss)),
    )


def start_change(trained: Trained) -> Measurement:
    """How much W^E⊤W^E has changed, relative to its start, in Frobenius norm; and its blocks."""
    starts, blocks = embeddings_at_start(trained), embedding_blocks(trained)
    moved = np.linalg.norm(trained.embedding_products - starts, axis=(1, 2)) / np.linalg.norm(starts, axis=(1, 2))
    return over_seeds(moved, blocks=blocks.value, **blocks.details)


def embeddings_at_start(trained: Trained) -> Float[np.ndarray, "seed token token"]:
    """W^E⊤W^E before training."""
    topic_model = TopicModel.from_settings(trained.settings.data)
    tables = np.stack([start_weights(trained.settings, seed, topic_model)["embedding"] for seed in trained.seeds])
    return tables @ tables.transpose(0, 2, 1)


def value_blocks(trained: Trained) -> Measurement:
    """How far W^V's blocks stand out, columns centred as softmax sees them."""
    matrices = np.stack([centred_columns(matrix) for matrix in trained.value_products])
    loss = float(np.mean(trained.held_out_loss))
    return figure1.blocks_seen(matrices, trained.word_topics, held_out_loss=loss)


def topic_e_folding() -> Measurement:
    """How many steps of SGD bring the contrast between topics nearer to its optimum by a factor of e.

    Under uniform attention its rate is 2ηλ, where λ is the eigenvalue of S = E[x̃x̃ᵀ] on topic contrasts; a mean over V
    entries makes that 2ηλ/V.
    """
    topics, second = TopicModel.from_settings(LDA).word_topics, paper_moments().second
    contrast = (topics == 1).astype(float) - (topics == 2)
    contrast[0] = 0.0
    eigenvalue = float(contrast @ second @ contrast / (contrast @ contrast))
    summed = 1 / (2 * RATE * eigenvalue)
    return exact(summed * len(topics), with_a_sum_over_entries=summed, eigenvalue=eigenvalue)


def attention_growth(trained: Trained) -> Measurement:
    """The larger relative change of ‖W^K‖ and ‖W^Q‖ over that of ‖W^V‖; NaN if that does not change."""
    change = {name: np.abs(trained.norms[name][:, -1] / trained.norms[name][:, 0] - 1) for name in NORMS}
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.maximum(change["key"], change["query"]) / change["value"]
    return over_seeds(
        np.where(change["value"] > 0, shares, np.nan),
        **{f"relative_growth_of_{name}": float(each.mean()) for name, each in change.items()},
        attention_distance_in_the_end=float(np.nanmean(trained.attention_distance["words"][:, -1])),
        held_out_loss=float(np.mean(trained.held_out_loss)),
    )


def take_off_rows(trained: Trained) -> list[int | None]:
    """Each seed's first row at which word queries' attention has taken off; None if it never does."""
    reached = trained.attention_distance["words"] >= TAKE_OFF
    return [int(np.argmax(each)) if each.any() else None for each in reached]


def growth_at_take_off(trained: Trained) -> Measurement:
    """The share of ‖W^V‖'s growth over the run that it has made at take-off; NaN without one.

    g(t) is not defined here: with a token-type vector and hidden keys no optimum under uniform attention is known.
    """
    rows, norm = take_off_rows(trained), trained.norms["value"]
    shares = [
        np.nan if row is None else (norm[seed, row] - norm[seed, 0]) / (norm[seed, -1] - norm[seed, 0])
        for seed, row in enumerate(rows)
    ]
    steps = [int(trained.steps[row]) for row in rows if row is not None]
    return over_seeds(
        shares,
        take_off_at_step=float(np.mean(steps)) if steps else None,
        attention_distance_in_the_end=float(np.nanmean(trained.attention_distance["words"][:, -1])),
        topic_average_in_the_end=float(np.mean(_averages(trained))),
    )


def _later(changed: Trained, released: Trained) -> Measurement:
    """How many times as late attention takes off; NaN where it never does in either."""
    first, second = (
        np.array([np.nan if row is None else float(each.steps[row]) for row in take_off_rows(each)])
        for each in (changed, released)
    )
    return over_seeds(
        first / second,
        take_off_at_step=float(first.mean()),
        take_off_as_released=float(second.mean()),
        growth_at_take_off=growth_at_take_off(changed).value,
        growth_at_take_off_as_released=growth_at_take_off(released).value,
    )


def _more_attention(changed: Trained, released: Trained) -> Measurement:
    """How many times as large Theorem 3's average is."""
    first, second = _averages(changed), _averages(released)
    return over_seeds(
        first / second,
        topic_average=float(first.mean()),
        topic_average_as_released=float(second.mean()),
        logits_common_to_all_queries=float(common_to_queries(changed).mean()),
        logits_common_to_all_queries_as_released=float(common_to_queries(released).mean()),
    )


def common_to_queries(trained: Trained) -> Float[np.ndarray, " seed"]:
    """The share of the variance of attention's logits over keys that is the same for all word queries.

    It is 1 if all words ask for the same, and 0 if what they ask for averages out.
    """
    weights = {name: weight.astype(np.float64) for name, weight in trained.weights.items()}
    inputs = embedded(weights)[:, words_of(trained.word_topics)]
    key, query = (
        inputs @ weights[name][:, 0].transpose(0, 2, 1) + weights[f"{name}_bias"] for name in ("key", "query")
    )
    logits = key @ query.transpose(0, 2, 1)
    logits -= logits.mean(axis=1, keepdims=True)
    return (logits.mean(axis=2) ** 2).mean(axis=1) / (logits**2).mean(axis=(1, 2))


def _averages(trained: Trained) -> Float[np.ndarray, " seed"]:
    return np.array([each.weighted_average(trained.settings.data.words) for each in implied(trained)])


def _difference(measure: Any, changed: Trained, released: Trained) -> Measurement:
    """The difference of two measurements, seed by seed."""
    first, second = measure(changed), measure(released)
    return over_seeds(
        np.array(first.values) - np.array(second.values),
        with_it_taken_back=first.value,
        as_released=second.value,
    )


def true_block() -> Float[np.ndarray, "token token"]:
    """One for two words of one topic, else zero: the matrix at which the released code means to freeze W^V."""
    topics = TopicModel.from_settings(LDA).word_topics
    return ((topics[:, None] == topics) & (topics > 0)).astype(float)


def aliased_block() -> Float[np.ndarray, "token token"]:
    """What it does instead: its rows are all one list, which keeps what was written for the last word."""
    return np.tile(true_block()[-1], (len(true_block()), 1))


def attention_gradient(value: Float[np.ndarray, "token token"], queries: int = 50) -> float:
    """The norm of cross-entropy's gradient by attention's logits, W^V given, for attention and words drawn at random.

    With scores x = W^V A, the gradient by A is W^V⊤(σ(x) − y), and softmax's Jacobian takes it to the logits.
    """
    draw, size = np.random.default_rng(0), len(value)
    attention = draw.dirichlet(np.ones(size), queries)
    scores = attention @ value.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    through = (shares - np.eye(size)[draw.integers(1, size, queries)]) @ value
    logits = attention * (through - (through * attention).sum(axis=1, keepdims=True))
    return float(np.linalg.norm(logits))
