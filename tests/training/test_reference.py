"""Theory's matrices of a run are the optima of its own objective, and what has none says why."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from support.helpers import build_model, small_settings
from topicscope.measure.stages import TAKE_OFF
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments, population_loss
from topicscope.training import reference
from topicscope.training.batches import BatchStream
from topicscope.training.loop import train
from topicscope.training.record import SnapshotTaker, value_products
from topicscope.training.reference import optimum_measures, reference_losses, reference_stages, write_reference_matrices

FROZEN: dict[str, Any] = {"start": "zero", "train": False}
STILL = dict.fromkeys(("key", "query", "key_bias", "query_bias", "value_bias", "prediction_bias"), FROZEN)
ONE_HOT = {"embedding": {"start": "identity", "train": False}, **STILL}
EMBEDDING_ALONE = {**STILL, "value": {"start": "identity", "train": False}}


def matrices(settings: Settings, folder: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    said = write_reference_matrices(folder, settings, TopicModel.from_settings(settings.data))
    return load_file(folder / "reference.safetensors"), said


def test_the_value_matrix_minimises_the_runs_own_objective(tmp_path: Path) -> None:
    settings = small_settings(model=ONE_HOT, training={"loss": "squared", "l2": 1e-3})
    arrays, _ = matrices(settings, tmp_path)
    exact = moments(TopicModel.from_settings(settings.data), settings.masking)

    def objective(matrix: np.ndarray, ridge: float) -> float:
        return population_loss(matrix, exact, ridge=ridge)

    matrix = arrays["value"].astype(np.float64)
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
    topic_model = TopicModel.from_settings(settings.data)
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


def test_a_mean_over_entries_divides_the_losses_and_weighs_l2_v_times_as_much(tmp_path: Path) -> None:
    whole, mean = (
        small_settings(model=ONE_HOT, training={"loss": "squared", "l2": l2} | more)
        for l2, more in ((7e-3, {}), (1e-3, {"squared": "mean"}))
    )
    topics = TopicModel.from_settings(whole.data)
    for name, level in reference_losses(whole, topics).items():
        small = reference_losses(mean, topics)[name]
        assert small["loss"] == pytest.approx(level["loss"] / 7, rel=1e-12)
        assert small.get("documents") == level.get("documents")
    # (1/V)(loss + λV‖W‖²): the same optimum.
    (tmp_path / "mean").mkdir()
    first, second = matrices(whole, tmp_path)[0]["value"], matrices(mean, tmp_path / "mean")[0]["value"]
    np.testing.assert_allclose(first, second, atol=1e-6)
    (tmp_path / "other").mkdir()
    same_l2 = small_settings(model=ONE_HOT, training={"loss": "squared", "l2": 1e-3})
    assert np.abs(matrices(same_l2, tmp_path / "other")[0]["value"] - first).max() > 1e-3


def test_the_embedding_matrix_is_the_best_positive_semi_definite_one(tmp_path: Path) -> None:
    arrays, said = matrices(small_settings(model=EMBEDDING_ALONE, training={"loss": "squared"}), tmp_path)
    assert "positive semi-definite" in said["embedding_products"]["what"]
    matrix = arrays["embedding_products"].astype(np.float64)
    assert np.linalg.eigvalsh(matrix).min() > -1e-6
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-6)


@pytest.mark.parametrize("bias", [{"start": "zero", "train": True}, {"start": "normal", "train": False}])
def test_an_embedding_beside_another_bias_has_no_matrix(tmp_path: Path, bias: dict[str, Any]) -> None:
    model = EMBEDDING_ALONE | {"prediction_bias": bias}
    arrays, said = matrices(small_settings(model=model, training={"loss": "squared"}), tmp_path)
    assert "trained alone" in said["embedding_products"]["reason"]
    assert "embedding_products" not in arrays


@pytest.mark.parametrize(
    ("model", "training", "said"),
    [
        ({}, {"loss": "cross_entropy"}, "Under cross-entropy"),
        ({"masked_keys": "hidden"}, {"loss": "squared"}, "visible masked keys"),
    ],
)
def test_what_has_no_matrix_says_why(
    tmp_path: Path, model: dict[str, Any], training: dict[str, Any], said: str
) -> None:
    arrays, words = matrices(small_settings(model=model, training=training), tmp_path)
    assert said in words["value"]["reason"]
    assert "value" not in arrays
    assert "embedding_products" not in arrays
    np.testing.assert_array_equal(arrays["word_topics"], [0, 1, 1, 2, 2, 3, 3])


def test_a_run_of_other_parts_says_that_patterns_alone_compare(tmp_path: Path) -> None:
    run = train(small_settings(training={"loss": "squared"}), tmp_path / "run")
    said = json.loads(run.reference_path.read_text())["matrices"]
    assert "so only the pattern can be compared" in said["value"]["what"]


def test_uniform_attention_is_the_same_in_all_classes_of_a_snapshot() -> None:
    settings = small_settings(model=ONE_HOT, data={"length": [4, 40]})
    stream = BatchStream(settings, TopicModel.from_settings(settings.data))
    snapshot = SnapshotTaker(stream).take(build_model(settings))
    np.testing.assert_allclose(snapshot["attention"], snapshot["attention"][0, 0, 0], rtol=1e-5)
    large = {name: {"scale": 1.0} for name in ("embedding", "key", "query")}
    free = small_settings(data={"length": [4, 40]}, model=large)
    other = SnapshotTaker(BatchStream(free, TopicModel.from_settings(free.data))).take(build_model(free))
    assert np.ptp(other["attention"]) > 1e-3


def test_snapshots_keep_what_the_value_matrix_does_between_tokens() -> None:
    settings = small_settings(model={"layers": 2})
    model = build_model(settings)
    table = model.parameter("embedding").detach().numpy()
    value = model.parameter("value").detach().numpy()
    slow = np.stack([table @ layer @ table.T for layer in value])
    np.testing.assert_allclose(value_products(model), slow, rtol=1e-5)
    stream = BatchStream(settings, TopicModel.from_settings(settings.data))
    assert "value_products" in SnapshotTaker(stream).take(model)
    one_hot = small_settings(model=ONE_HOT)
    taken = SnapshotTaker(BatchStream(one_hot, TopicModel.from_settings(one_hot.data))).take(build_model(one_hot))
    assert "value_products" not in taken


AT_ZERO = Part(start="zero", train=False)
EQUATION_7 = Model(
    embedding=Part(start="identity", train=False),
    key_bias=AT_ZERO,
    query_bias=AT_ZERO,
    value_bias=AT_ZERO,
    prediction_bias=AT_ZERO,
)
SMALL = Data(topics=3, words=3, length=(10, 14))


def test_a_run_s_predicted_take_off_and_norms_are_near_its_own(tmp_path: Path) -> None:
    training = Training(
        loss="cross_entropy", optimizer="sgd", learning_rate=5.0, batch=100, steps=250, log_every=5, validate_every=0
    )
    start = Part(scale=0.1)
    model = replace(EQUATION_7, value=start, key=start, query=start, attention_dimension=40)
    settings = Settings(data=replace(SMALL, fresh=True), masking=Masking(keep=0.3), model=model, training=training)
    run = train(settings, tmp_path / "run")
    said = json.loads(run.reference_path.read_text())["stages"]
    assert set(said) == {"take_off", "steps", "norms", "note"}
    assert set(said["norms"]) == {"value", "key", "query"}
    assert "nothing is fitted" in said["note"]
    rows = [json.loads(line) for line in run.metrics_path.read_text().splitlines()]
    steps = np.array([row["step"] for row in rows])
    seen = [row["attention"]["words"] for row in rows]
    measured = steps[np.argmax(np.array(seen) >= TAKE_OFF)]
    assert 0 < measured == pytest.approx(said["take_off"], rel=0.15)
    for name, values in said["norms"].items():
        before = steps < said["take_off"]
        own = np.array([row["norm"][name][0] for row in rows])[before]
        assert np.interp(steps[before], said["steps"], values) == pytest.approx(own, rel=0.2), name
        assert own[-1] > 1.2 * own[0] or name != "value"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": Model()}, "one-hot embeddings"),
        ({"model": replace(EQUATION_7, value_bias=Part(start="zero"))}, "biases"),
        ({"model": replace(EQUATION_7, key=Part(scale=0.1))}, "one scale"),
        ({"model": replace(EQUATION_7, masked_keys="hidden")}, "visible"),
        ({"training": Training(l2=1e-4)}, "no L2"),
        ({"training": Training(optimizer="adamw")}, "AdamW"),
        ({"training": Training(steps=5)}, "10 steps"),
        ({"training": Training(loss="squared", optimizer="sgd", learning_rate=100.0)}, "diverges"),
        ({"data": Data(topics=30, words=20)}, "topics · words = 600"),
    ],
)
def test_without_a_prediction_there_is_a_reason(change: dict[str, Any], why: str) -> None:
    settings = replace(Settings(data=SMALL, model=EQUATION_7), **change)
    found = reference_stages(settings, TopicModel.from_settings(settings.data))
    assert found["take_off"] is None
    assert found["steps"] == []
    assert found["norms"] == {"value": [], "key": [], "query": []}
    assert why in found["note"]


def test_a_prediction_that_would_take_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data=replace(SMALL, length=(11, 14)), model=EQUATION_7)
    monkeypatch.setattr(reference, "MOST_NUMBERS", 10_000)
    assert "looks at the documents" in reference_stages(settings, TopicModel.from_settings(settings.data))["note"]
