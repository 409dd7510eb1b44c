"""Theory's matrices of a run are the optima of its own objective, and what has none says why."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.helpers import small_settings
from topicscope.measure.blocks import averages_by_class
from topicscope.measure.stages import TAKE_OFF
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training import reference
from topicscope.training.engines import make_engine
from topicscope.training.loop import train_seeds
from topicscope.training.record import Measures
from topicscope.training.reference import optimum_measures, reference_stages

FROZEN: dict[str, Any] = {"start": "zero", "train": False}
STILL = dict.fromkeys(("key", "query", "key_bias", "query_bias", "value_bias", "prediction_bias"), FROZEN)
ONE_HOT = {"embedding": {"start": "identity", "train": False}, **STILL}
EMBEDDING_ALONE = {**STILL, "value": {"start": "identity", "train": False}}


def matrices(settings: Settings) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    arrays, expected = reference.reference(settings, TopicModel.from_settings(settings.documents))
    return arrays, expected.matrices


def test_the_value_matrix_minimises_the_runs_own_objective() -> None:
    settings = small_settings(model=ONE_HOT, training={"loss": "squared", "l2": 1e-3})
    arrays, _ = matrices(settings)
    exact = moments(TopicModel.from_settings(settings.documents), settings.masking)

    def objective(matrix: np.ndarray, ridge: float) -> float:
        return population_loss(matrix, exact, ridge=ridge)

    matrix = arrays["value_products"].astype(np.float64)
    draw = np.random.default_rng(0)
    for _ in range(5):
        nudge = 1e-2 * draw.normal(size=matrix.shape)
        assert objective(matrix, 1e-3) < objective(matrix + nudge, 1e-3)
        # A minimum at this λ alone: without L2 going on along the shrinkage lowers the loss.
    assert objective(1.01 * matrix, 0.0) < objective(matrix, 0.0)
    assert objective(1.01 * matrix, 1e-3) > objective(matrix, 1e-3)


def test_the_distance_to_the_optimum_and_the_loss_above_it_are_those_of_the_runs_own_objective() -> None:
    """The objective is quadratic: at W* + D it is ⟨D(S + λI), D⟩ above its least value, whatever D is."""
    settings = small_settings(model=ONE_HOT, training={"loss": "squared", "l2": 1e-3})
    topic_model = TopicModel.from_settings(settings.documents)
    exact = moments(topic_model, settings.masking)
    best = finite_optimum(exact, 1e-3)
    at_best = optimum_measures(settings, best[None])
    assert at_best["distance_to_optimum"] == pytest.approx(0, abs=1e-12)
    assert at_best["excess_over_optimum"] == pytest.approx(0, abs=1e-12)
    nudge = 1e-2 * np.random.default_rng(0).normal(size=best.shape)
    found = optimum_measures(settings, (best + nudge)[None])
    above = np.trace(nudge @ (exact.second + 1e-3 * np.eye(len(best))) @ nudge.T)
    assert found["excess_over_optimum"] == pytest.approx(above, rel=1e-9)
    assert found["distance_to_optimum"] == pytest.approx(np.sqrt((nudge**2).sum() / (best**2).sum()), rel=1e-9)
    nothing, least = (population_loss(matrix, exact, ridge=1e-3) for matrix in (0 * best, best))
    assert found["share_of_optimum"] == pytest.approx(1 - above / (nothing - least), rel=1e-9)
    # λ is the run's own: without it the same matrix is elsewhere.
    without = small_settings(model=ONE_HOT, training={"loss": "squared"})
    assert (optimum_measures(without, best[None])["excess_over_optimum"] or 0) > 1e-6
    # Where other parts matter, no optimum is the run's own.
    joint = small_settings(training={"loss": "squared"})
    assert set(optimum_measures(joint, best[None]).values()) == {None}
    crossed = small_settings(model=ONE_HOT, training={"loss": "cross_entropy", "l2": 1e-3})
    distance = optimum_measures(crossed, best[None])
    assert (distance["distance_to_optimum"] or 0) > 0
    assert distance["excess_over_optimum"] is None


def test_the_embedding_matrix_is_the_best_positive_semi_definite_one() -> None:
    arrays, about = matrices(small_settings(model=EMBEDDING_ALONE, training={"loss": "squared"}))
    assert "positive semi-definite" in about["embedding_products"]
    matrix = arrays["embedding_products"].astype(np.float64)
    assert np.linalg.eigvalsh(matrix).min() > -1e-6
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)


@pytest.mark.parametrize("bias", [{"start": "zero", "train": True}, {"start": "normal", "train": False}])
def test_an_embedding_beside_another_bias_has_no_matrix(bias: dict[str, Any]) -> None:
    model = EMBEDDING_ALONE | {"prediction_bias": bias}
    arrays, about = matrices(small_settings(model=model, training={"loss": "squared"}))
    assert "trained alone" in about["embedding_products"]
    assert "embedding_products" not in arrays


@pytest.mark.parametrize(
    ("model", "training", "reason"),
    [
        ({}, {"loss": "cross_entropy"}, "Under cross-entropy"),
        ({"masked_keys": "hidden"}, {"loss": "squared"}, "visible masked keys"),
    ],
)
def test_what_has_no_matrix_says_why(model: dict[str, Any], training: dict[str, Any], reason: str) -> None:
    arrays, about = matrices(small_settings(model=model, training=training))
    assert reason in about["value_products"]
    assert not arrays
    # A run of other parts has one, and says that patterns alone compare.
    _, about = matrices(small_settings(training={"loss": "squared"}))
    assert "so only the pattern can be compared" in about["value_products"]


def frame_of(**changes: Any) -> tuple[dict[str, np.ndarray], Any]:
    settings = small_settings(**changes)
    engine = make_engine(settings, [0], TopicModel.from_settings(settings.documents))
    return dict(Measures(engine).frame(0)), engine.models[0]


def test_uniform_attention_is_the_same_in_all_classes_of_a_frame() -> None:
    uniform, _ = frame_of(model=ONE_HOT, data={"length": [4, 40]})
    np.testing.assert_allclose(uniform["attention"], uniform["attention"][0, 0, 0, 0], rtol=1e-5)
    large = {name: {"scale": 1.0} for name in ("embedding", "key", "query")}
    other, _ = frame_of(data={"length": [4, 40]}, model=large)
    assert np.ptp(other["attention"]) > 1e-3


def test_frames_keep_what_the_value_matrix_does_between_tokens() -> None:
    frame, model = frame_of(model={"layers": 2})
    table, value = (model.parameter(name).detach().numpy() for name in ("embedding", "value"))
    slow = np.stack([table @ layer @ table.T for layer in value])
    np.testing.assert_allclose(frame["value_products"][0], slow, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(frame["embedding_products"][0, 0], table @ table.T, rtol=1e-4, atol=1e-8)
    topics = np.array([0, 1, 1, 2, 2, 3, 3])
    for layer in range(2):
        expected = averages_by_class(slow[layer], topics)
        np.testing.assert_allclose(frame["averages/value_products"][0, layer], expected, rtol=1e-4, atol=1e-9)
    # With one-hot embeddings the first is W^V itself, and the second says nothing.
    one_hot, model = frame_of(model=ONE_HOT)
    np.testing.assert_allclose(one_hot["value_products"][0], model.parameter("value").detach().numpy(), rtol=1e-6)
    assert "embedding_products" not in one_hot


AT_ZERO = Part(start="zero", train=False)
EQUATION_7 = Model(
    embedding=Part(start="identity", train=False),
    key_bias=AT_ZERO,
    query_bias=AT_ZERO,
    value_bias=AT_ZERO,
    prediction_bias=AT_ZERO,
)
SMALL = Data(topics=3, words=3, length=(10, 14))


def test_a_run_s_predicted_take_off_and_norms_are_near_its_own() -> None:
    training = Training(
        loss="cross_entropy", optimizer="sgd", learning_rate=5.0, batch=100, steps=250, log_every=5, validate_every=0
    )
    start = Part(scale=0.1)
    model = replace(EQUATION_7, value=start, key=start, query=start, attention_dimension=40)
    settings = Settings(data=replace(SMALL, fresh=True), masking=Masking(keep=0.3), model=model, training=training)
    topic_model = TopicModel.from_settings(settings.documents)
    run, stages = train_seeds(settings, (0,), topic_model), reference_stages(settings, topic_model)
    assert set(stages.norms) == {"value", "key", "query"}
    assert "nothing is fitted" in stages.note
    measured = run.steps[np.argmax(run.metrics["attention/words"][0, :, 0] >= TAKE_OFF)]
    assert stages.take_off is not None
    assert 0 < measured == pytest.approx(stages.take_off, rel=0.15)
    before = run.steps < stages.take_off
    for name, values in stages.norms.items():
        own = run.metrics[f"norm/{name}"][0, before, 0]
        assert np.interp(run.steps[before], stages.steps, values) == pytest.approx(own, rel=0.2), name
        assert own[-1] > 1.2 * own[0] or name != "value"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": Model()}, "one-hot embeddings"),
        ({"model": replace(EQUATION_7, value_bias=Part(start="zero"))}, "biases"),
        ({"model": replace(EQUATION_7, key=Part(scale=0.1))}, "one scale"),
        ({"model": replace(EQUATION_7, masked_keys="hidden")}, "visible"),
        ({"training": Training(l2=1e-4)}, "no L2"),
        ({"training": Training(steps=5)}, "10 steps"),
        ({"training": Training(loss="squared", optimizer="sgd", learning_rate=100.0)}, "diverges"),
        ({"data": Data(topics=30, words=20)}, "topics · words = 600"),
    ],
)
def test_without_a_prediction_there_is_a_reason(change: dict[str, Any], why: str) -> None:
    settings = replace(Settings(data=SMALL, model=EQUATION_7), **change)
    stages = reference_stages(settings, TopicModel.from_settings(settings.documents))
    assert stages.take_off is None
    assert stages.steps == []
    assert stages.norms == {"value": [], "key": [], "query": []}
    assert why in stages.note


def test_a_prediction_that_would_take_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data=replace(SMALL, length=(11, 14)), model=EQUATION_7)
    monkeypatch.setattr(reference, "MOST_NUMBERS", 10_000)
    assert "looks at the documents" in reference_stages(settings, TopicModel.from_settings(settings.documents)).note
