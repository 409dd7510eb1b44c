"""Claims on the released code turn when they are broken on purpose, and their settings are the released code's."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from support.fabricated import SEEDS, STEPS, blocks, decide, fabricate, quick_claim, untrained
from support.helpers import batch_of, small_settings
from topicscope.model.weights import part_of
from topicscope.paper import as_released
from topicscope.paper.as_released import (
    FIGURE_1_ADAM,
    FIGURE_1_SGD,
    FIGURE_1_SMALL,
    FIGURE_2_ADAM,
    FIGURE_2_NEAR_ZERO,
    FIGURE_2_SGD,
    FIGURE_4_ADAM,
    FIGURE_4_PLAIN,
    FIGURE_4_SGD,
    TABLE_3,
    TABLE_3_NO_TYPE,
)
from topicscope.paper.claim import PRESETS, verdict
from topicscope.paper.experiment import Experiment, Trained, start_weights
from topicscope.paper.setups import LDA
from topicscope.settings import Part, Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import gradient_descent, moments
from topicscope.training.batches import BatchStream
from topicscope.training.loop import train_in_memory

EXPERIMENTS = [value for value in vars(as_released).values() if isinstance(value, Experiment)]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_every_run_has_the_released_codes_documents_masks_mean_and_optimiser(experiment: Experiment) -> None:
    settings = experiment.settings
    training = settings.training
    assert (settings.data.documents, settings.data.fresh, settings.masking.fixed) == (10_000, False, True)
    assert settings.data.ends
    assert (training.batch, training.steps, training.average, training.l2) == (40, 1_000, "batch", 0.0)
    assert training.optimizer in ("sgd", "adamw")
    assert training.weight_decay == 0
    assert training.squared == ("mean" if training.loss == "squared" else "sum")
    assert settings.model.masked_keys == "hidden"


@pytest.mark.parametrize(
    ("changed", "released", "parts"),
    [
        (FIGURE_1_SMALL, FIGURE_1_ADAM, {"embedding"}),
        (FIGURE_2_NEAR_ZERO, FIGURE_2_SGD, {"value", "value_bias"}),
        (FIGURE_4_PLAIN, FIGURE_4_ADAM, {"token_types", "embedding_norm"}),
        (TABLE_3_NO_TYPE, TABLE_3, {"token_types"}),
    ],
)
def test_a_difference_is_taken_back_alone(changed: Experiment, released: Experiment, parts: set[str]) -> None:
    first, second = vars(changed.settings.model), vars(released.settings.model)
    assert {name for name in first if first[name] != second[name]} == parts
    assert replace(changed.settings, model=released.settings.model) == released.settings


def test_starts_are_pytorchs_or_near_zero() -> None:
    everything, near = FIGURE_1_ADAM.settings.model, FIGURE_4_ADAM.settings.model
    assert everything.embedding == Part(start="normal", scale=1.0)
    assert everything.prediction.start == everything.value.start == everything.key_bias.start == "uniform"
    assert not everything.tied
    assert {near.part(name).start for name in ("value", "key", "query")} == {"positive"}
    assert near.embedding.start == "identity"
    assert not near.prediction_bias.train


def small(settings: Settings) -> Settings:
    """The same switches on so few documents that eight steps see some of them twice."""
    data = replace(small_settings().data, length=(30, 40), ends=True)
    training = replace(settings.training, batch=5, steps=8, precision="float64", snapshots=0, validate_every=0)
    return replace(settings, data=data, training=training)


def trained_by_pytorch(settings: Settings) -> dict[str, torch.Tensor]:
    """The released code's model and training step by step, from what PyTorch has for each of its parts."""
    topics, model = TopicModel.from_settings(settings.data), settings.model
    weights = {name: torch.tensor(start).double() for name, start in start_weights(settings, 0, topics).items()}
    learned = [weight for name, weight in weights.items() if part_of(name) in model.trained_parts]
    for weight in learned:
        weight.requires_grad_()
    rate = settings.training.learning_rate
    optimizer: torch.optim.Optimizer = torch.optim.SGD(learned, lr=rate)
    if settings.training.optimizer == "adamw":
        optimizer = torch.optim.AdamW(learned, lr=rate, weight_decay=0)
    stream = BatchStream(settings, topics)
    masked_once: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
    for step in range(settings.training.steps):
        batch, scores, wanted = batch_of(stream, step), [], []
        for place in range(len(batch)):
            document = batch.span(place, place + 1)
            tokens, masked = masked_once.setdefault(tuple(document.words), (document.tokens, document.masked))
            state = functional.embedding(torch.from_numpy(tokens.astype(np.int64)), weights["embedding"])
            if model.token_types:
                state = state + weights["token_types"]
            if model.embedding_norm:
                gain, bias = weights["embedding_norm"], weights["embedding_norm_bias"]
                state = functional.layer_norm(state, gain.shape, gain, bias, eps=1e-12)
            query, key, value = (
                functional.linear(state, weights[name][0], weights[f"{name}_bias"][0])
                for name in ("query", "key", "value")
            )
            visible = torch.from_numpy(~masked).expand(len(tokens), -1)
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)
            decoder = weights["embedding" if model.tied else "prediction"]
            scores.append(functional.linear(mixed, decoder, weights["prediction_bias"])[torch.from_numpy(masked)])
            wanted.append(torch.from_numpy(document.words[masked].astype(np.int64)))
        found, target = torch.cat(scores), torch.cat(wanted)
        if settings.training.loss == "squared":
            loss = functional.mse_loss(found, functional.one_hot(target, found.shape[1]).double())
        else:
            loss = functional.cross_entropy(found, target)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {name: weight.detach() for name, weight in weights.items()}


def apart(settings: Settings, expected: dict[str, torch.Tensor]) -> float:
    """The largest difference of a weight after our own training."""
    [run] = train_in_memory([settings], TopicModel.from_settings(settings.data))
    assert run.weights is not None
    assert run.weights.keys() == expected.keys()
    return max(float(abs(weight - expected[name].numpy()).max()) for name, weight in run.weights.items())


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda each: each.name)
def test_training_is_that_of_pytorchs_own_parts(experiment: Experiment) -> None:
    settings = small(experiment.settings)
    expected = trained_by_pytorch(settings)
    assert apart(settings, expected) < 1e-9
    start = start_weights(settings, 0, TopicModel.from_settings(settings.data))
    for name, weight in expected.items():
        moved = float(abs(weight.numpy() - start[name]).max())
        # b^K shifts all scores of a query alike: its gradient is zero.
        assert name == "key_bias" or (moved > 1e-9) == (part_of(name) in settings.model.trained_parts), name


def test_documents_begin_with_start_and_end_with_end_which_are_never_masked() -> None:
    settings = small(TABLE_3.settings)
    topics = TopicModel.from_settings(settings.data)
    batch = batch_of(BatchStream(settings, topics), 0)
    first, last = batch.offsets[:-1], batch.offsets[1:] - 1
    assert (batch.tokens[first] == topics.vocabulary - 2).all()
    assert (batch.tokens[last] == topics.vocabulary - 1).all()
    assert not batch.masked[np.concatenate([first, last])].any()
    assert batch.masked[first + 1].any()
    assert batch.targets.max() < topics.vocabulary - 2


@pytest.mark.parametrize("switch", ["masked keys", "masks", "mean", "entries", "decay", "biases"])
def test_training_without_one_of_the_switches_is_another(switch: str) -> None:
    settings = small(TABLE_3.settings)
    model, training = settings.model, settings.training
    other = {
        "masked keys": replace(settings, model=replace(model, masked_keys="visible")),
        "masks": replace(settings, masking=replace(settings.masking, fixed=False)),
        "mean": replace(settings, training=replace(training, average="document")),
        "entries": replace(settings, training=replace(training, squared="sum")),
        "decay": replace(settings, training=replace(training, weight_decay=0.01)),
        "biases": replace(settings, model=replace(model, value_bias=replace(model.value_bias, train=False))),
    }
    assert apart(other[switch], trained_by_pytorch(settings)) > 1e-6


def test_the_start_is_kept_unless_training_moves_the_embeddings() -> None:
    claim = quick_claim("as-released/figure1/cross-entropy-sgd/start-kept")
    start = untrained(FIGURE_1_SGD)
    assert decide(claim, start) == "holds"
    for factor, expected in ((1.02, "holds"), (1.2, "fails")):
        moved = {**start.weights, "embedding": factor * start.weights["embedding"]}
        assert decide(claim, replace(start, weights=moved)) == expected


def test_no_blocks_turns_with_blocks() -> None:
    claim = quick_claim("as-released/figure1/cross-entropy-adam/no-blocks")
    assert decide(claim, untrained(FIGURE_1_ADAM)) == "holds"
    assert decide(claim, blocks(FIGURE_1_ADAM)) == "fails"


@pytest.mark.parametrize(
    ("name", "changed", "released"),
    [
        ("as-released/figure1/cross-entropy-adam/start-explains", FIGURE_1_SMALL, FIGURE_1_ADAM),
        ("as-released/figure2/cross-entropy-sgd/start-explains", FIGURE_2_NEAR_ZERO, FIGURE_2_SGD),
    ],
)
def test_a_start_explains_missing_blocks_only_if_they_are_there_without_it(
    name: str, changed: Experiment, released: Experiment
) -> None:
    claim = quick_claim(name)
    assert decide(claim, blocks(changed), untrained(released)) == "holds"
    assert decide(claim, untrained(changed), blocks(released)) == "fails"
    assert decide(claim, blocks(changed), blocks(released)) != "holds"


def test_blocks_as_released_turn_with_an_untrained_value_matrix() -> None:
    claim = quick_claim("as-released/figure2/cross-entropy-adam/blocks")
    assert decide(claim, blocks(FIGURE_2_ADAM)) == "holds"
    assert decide(claim, untrained(FIGURE_2_ADAM)) == "fails"


def curve(start: float, end: float) -> np.ndarray:
    return np.linspace(start, end, len(STEPS))


def test_attention_stays_turns_when_keys_grow_and_says_nothing_if_nothing_does() -> None:
    claim = quick_claim("as-released/figure4/cross-entropy-sgd/attention-stays")

    def grown(key: float, value: float) -> Trained:
        norms = {"key": curve(1, key), "query": curve(1, 1), "value": curve(1, value)}
        return fabricate(FIGURE_4_SGD, norms=norms, attention_distance={"words": curve(0, 0)})

    assert decide(claim, grown(1.001, 3)) == "holds"
    assert decide(claim, grown(1.1, 3)) == "fails"
    assert decide(claim, grown(1, 1)) == "undecided"


def takes_off(experiment: Experiment, step: int, seeds: Sequence[int] = range(SEEDS)) -> Trained:
    """Attention takes off at a step (one row later for each seed, so that there is a spread); W^V grows evenly."""
    norms = dict.fromkeys(("key", "query", "value"), curve(1, 2))
    trained = fabricate(experiment, norms=norms, attention_distance={"words": curve(0, 0)})
    distance = np.array([np.where(step + 10 * seed <= STEPS, 0.5, 0.0) for seed in seeds])
    return replace(trained, attention_distance={"words": distance})


def test_attention_first_turns_with_the_step_of_take_off() -> None:
    claim = quick_claim("as-released/figure4/cross-entropy-adam/attention-first")
    assert decide(claim, takes_off(FIGURE_4_ADAM, 50)) == "holds"
    assert decide(claim, takes_off(FIGURE_4_ADAM, 600)) == "fails"
    assert decide(claim, takes_off(FIGURE_4_ADAM, 5_000)) == "undecided"


def test_the_embedding_layer_explains_only_a_later_take_off() -> None:
    claim = quick_claim("as-released/figure4/cross-entropy-adam/embedding-layer-explains")
    assert decide(claim, takes_off(FIGURE_4_PLAIN, 500), takes_off(FIGURE_4_ADAM, 50)) == "holds"
    assert decide(claim, takes_off(FIGURE_4_PLAIN, 50), takes_off(FIGURE_4_ADAM, 50)) == "fails"
    assert decide(claim, takes_off(FIGURE_4_PLAIN, 5_000), takes_off(FIGURE_4_ADAM, 50)) == "undecided"


def test_the_token_type_explains_only_more_attention_to_topics_without_it() -> None:
    claim = quick_claim("as-released/table3/squared-adam/token-type-explains")
    jitter = 1 + 0.001 * np.arange(SEEDS)[:, None]
    topical = replace(untrained(TABLE_3_NO_TYPE), attention=np.array([5.0, 5.0, 1.0, 1.0, 5.0]) * jitter**0.5)
    assert decide(claim, topical, untrained(TABLE_3)) == "holds"
    assert decide(claim, untrained(TABLE_3_NO_TYPE), untrained(TABLE_3)) == "fails"


def test_logits_common_to_queries_are_all_of_them_or_none() -> None:
    """W^K⊤W^Q = I lets each word ask for itself; with one query for all of them all ask for the same."""
    start = untrained(TABLE_3_NO_TYPE)
    eye, none = np.tile(np.eye(103), (SEEDS, 1, 1, 1)), np.zeros((SEEDS, 1, 103))
    own = {**start.weights, "key": eye, "query": eye, "key_bias": none, "query_bias": none}
    assert as_released.common_to_queries(replace(start, weights=own)) == pytest.approx(0, abs=1e-12)
    alike = own | {"query": 0 * eye, "query_bias": none + np.eye(103)[5]}
    assert as_released.common_to_queries(replace(start, weights=alike)) == pytest.approx(1, rel=1e-6)
    # The token-type vector alone makes queries alike, before any training.
    assert as_released.common_to_queries(start).max() < 0.1
    assert as_released.common_to_queries(untrained(TABLE_3)).min() > 0.9


def test_the_e_folding_is_that_of_the_exact_path() -> None:
    """Gradient descent from zero, whose blocks come nearer to their limit by e in so many steps."""
    found = as_released.topic_e_folding()
    steps = round(float(found.details["with_a_sum_over_entries"]))  # type: ignore[arg-type]
    model = TopicModel.from_settings(LDA)
    exact = moments(model, as_released.MASKED_ONCE)
    topics = model.word_topics
    contrast = (topics == 1).astype(float) - (topics == 2)

    def height(matrix: np.ndarray) -> float:
        return float(contrast @ matrix @ contrast)

    limit = height(np.linalg.solve(exact.second.T, exact.cross.T).T)
    after = height(gradient_descent(np.zeros_like(exact.second), exact, as_released.RATE, steps))
    assert (limit - after) / limit == pytest.approx(np.exp(-1), rel=1e-3)
    # A mean over V entries takes V times as long; that is what the claim counts.
    assert found.value == pytest.approx(101 * float(found.details["with_a_sum_over_entries"]), rel=1e-12)  # type: ignore[arg-type]
    claim = quick_claim("as-released/figure2/squared-sgd/e-folding")
    assert verdict(claim.rule, found) == "holds"
    assert verdict(claim.rule, replace(found, values=(4_000.0,))) == "fails"


def test_attentions_gradient_is_that_of_finite_differences_and_vanishes_for_equal_rows() -> None:
    value = as_released.true_block()

    def loss(logits: np.ndarray, words: np.ndarray) -> float:
        attention = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        scores = attention @ value.T
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(words)), words]).sum())

    draw = np.random.default_rng(0)
    logits, words = np.log(draw.dirichlet(np.ones(101), 5)), draw.integers(1, 101, 5)
    gradient = np.zeros_like(logits)
    for place in np.ndindex(logits.shape):
        nudge = np.zeros_like(logits)
        nudge[place] = 1e-5
        gradient[place] = (loss(logits + nudge, words) - loss(logits - nudge, words)) / 2e-5
    assert as_released.attention_gradient(value, queries=5) == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    claim = quick_claim("as-released/table3/value-frozen/no-gradient")
    assert verdict(claim.rule, claim.measure({})) == "holds"
    # The control: what the released code meant to freeze has a gradient.
    measured = replace(claim.measure({}), values=(as_released.attention_gradient(value),))
    assert verdict(claim.rule, measured) == "fails"


def test_the_aliased_matrix_is_one_list_for_all_rows() -> None:
    """As Python has it: rows that are one list keep what was written for the last word."""
    row = [0.0] * 101
    rows = [row] * 101
    for i in range(1, 101):
        for j in range(1, 101):
            rows[i][j] = 1.0 if (i - 1) // 10 == (j - 1) // 10 else 0.0
    assert (as_released.aliased_block() == np.array(rows)).all()
    assert not (as_released.true_block() == np.array(rows)).all()


def test_the_figure_shows_what_is_written_above_what_is_released() -> None:
    (drawing,) = as_released.drawings(PRESETS["quick"])
    needs = drawing.needs
    drawn = drawing.draw({each.name: untrained(each) for each in needs if isinstance(each, Experiment)})
    panels = list(dict.fromkeys(row["panel"] for row in drawn.table))
    assert len(panels) == 10
    assert [panel.endswith("as written") for panel in panels] == [True] * 5 + [False] * 5
    assert all(each.name.startswith("as-released/") for each in needs[5:])
