import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from support.helpers import small_settings
from topicscope.paper import experiment as experiment_module
from topicscope.paper.claim import Measurement, interval_given, need_item, over_seeds
from topicscope.paper.experiment import (
    ATTENTION_CLASSES,
    Experiment,
    Trained,
    dump_arrays,
    held_out_documents,
    load_arrays,
    mean_losses,
    start_weights,
)
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.engines import make_engine
from topicscope.training.loop import train

SETTINGS = small_settings(
    model={
        "dimension": 3,
        "value": {"scale": 0.3},
        "key": {"scale": 0.3},
        "query": {"scale": 0.3},
        "embedding": {"scale": 0.3},
    },
    training={"loss": "squared", "precision": "float64"},
)
# A bias of the keys adds the same to all scores of a query: the softmax gives it no gradient. Of what rounding leaves,
# of the order of float64's ε, Adam makes steps of learning rate × ε / its own epsilon, on each processor other ones.
ADAM_NOISE = (
    SETTINGS.training.steps
    * SETTINGS.training.learning_rate
    * np.finfo(np.float64).eps
    / SETTINGS.training.adam_epsilon
)


@pytest.fixture(autouse=True)
def _few_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_module, "HELD_OUT_DOCUMENTS", 40)
    monkeypatch.setattr(experiment_module, "CHUNK", 20)
    monkeypatch.setattr(experiment_module, "GRADIENT_DOCUMENTS", 40)
    monkeypatch.setattr(experiment_module, "ATTENTION_DOCUMENTS", 10)


def experiment(settings: Settings = SETTINGS, **changes: object) -> Experiment:
    return Experiment(name="test/small", settings=settings, **changes)  # type: ignore[arg-type]


def run_experiment(experiment: Experiment, seeds: tuple[int, ...]) -> Trained:
    return experiment.restore(experiment.compute(seeds))


def arrays(trained: Trained) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(trained):
        value = getattr(trained, field.name)
        if isinstance(value, dict):
            found |= {f"{field.name}/{name}": array for name, array in value.items()}
        elif isinstance(value, np.ndarray):
            found[field.name] = value
    return found


def test_each_seed_is_what_the_run_alone_gives(tmp_path: Path) -> None:
    trained = run_experiment(experiment(), (3, 8))
    for place, seed in enumerate((3, 8)):
        folder = train(dataclasses.replace(SETTINGS, seed=seed), tmp_path / str(seed))
        alone = newest_checkpoint(folder.path)
        assert alone is not None
        for name, weight in alone.part("weights").items():
            noise = ADAM_NOISE if name == "key_bias" else 1e-12
            np.testing.assert_allclose(trained.weights[name][place], weight.numpy(), rtol=1e-9, atol=noise)
        rows = folder.metrics()
        assert trained.steps.tolist() == [row["step"] for row in rows]
        np.testing.assert_allclose(trained.loss[place], [row["loss"] for row in rows], rtol=1e-9)
        np.testing.assert_allclose(trained.norms["value"][place], [row["norm"]["value"][0] for row in rows], rtol=1e-9)
    # The controls: another seed is another run, and a bias that has a gradient moves much further than noise.
    assert abs(trained.loss[0] - trained.loss[1]).min() > 1e-6
    assert abs(trained.weights["query_bias"]).min() > 1000 * ADAM_NOISE


def reference(trained: Trained, place: int) -> tuple[float, np.ndarray]:
    """Held-out loss and attention by class, position by position with loops."""
    topic_model = TopicModel.from_settings(trained.settings.data)
    documents = held_out_documents(trained.settings, topic_model)
    weight = {name: array[place] for name, array in trained.weights.items()}
    losses: list[float] = []
    pairs: dict[str, list[float]] = {name: [] for name in ATTENTION_CLASSES}
    for number in range(len(documents)):
        one = documents.span(number, number + 1)
        tokens, table = one.tokens, weight["embedding"]
        keys = table[tokens] @ weight["key"][0].T + weight["key_bias"][0]
        queries = table[tokens] @ weight["query"][0].T + weight["query_bias"][0]
        hidden = one.masked & (trained.settings.model.masked_keys == "hidden")
        attention = np.where(hidden[:, None], 0.0, np.exp(keys @ queries.T / np.sqrt(keys.shape[1])))
        attention /= attention.sum(axis=0)
        values = table[tokens] @ weight["value"][0].T + weight["value_bias"][0]
        scores = attention.T @ values @ table.T + weight["prediction_bias"]
        wanted = np.eye(len(table))[one.words[one.masked]]
        losses.append(((scores[one.masked] - wanted) ** 2).sum(axis=1).mean())
        if number >= experiment_module.ATTENTION_DOCUMENTS:
            continue
        topics = topic_model.word_topics[tokens]
        for key, query in np.ndindex(attention.shape):
            if tokens[query] == 0 or hidden[key]:
                continue
            if key == query:
                name = "itself"
            elif tokens[key] == 0:
                name = "mask_key"
            elif tokens[key] == tokens[query]:
                name = "same_word"
            else:
                name = "same_topic" if topics[key] == topics[query] else "different_topic"
            pairs[name].append(attention[key, query] * len(tokens) / np.mean(trained.settings.data.length))
    return float(np.mean(losses)), np.array([np.mean(pairs[name] or np.nan) for name in ATTENTION_CLASSES])


def test_held_out_loss_and_attention_are_those_of_the_equations() -> None:
    trained = run_experiment(experiment(), (3, 8))
    for place in range(2):
        loss, attention = reference(trained, place)
        assert trained.held_out_loss[place] == pytest.approx(loss, rel=1e-9)
        np.testing.assert_allclose(trained.attention[place], attention, rtol=1e-5)
    # The control, a hundred times the tolerance: the other member's attention is another.
    other = reference(trained, 0)[1]
    assert (abs(other - trained.attention[1]) / other).max() > 1e-3


def test_hidden_keys_count_in_no_average() -> None:
    visible = run_experiment(experiment(), (3,))
    model = dataclasses.replace(SETTINGS.model, masked_keys="hidden")
    trained = run_experiment(experiment(dataclasses.replace(SETTINGS, model=model)), (3,))
    loss, attention = reference(trained, 0)
    assert trained.held_out_loss[0] == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(trained.attention[0], attention, rtol=1e-5)
    # Every key that holds [MASK] is hidden, and so are kept words at masked positions: averages without them differ.
    assert np.isnan(trained.attention[0, ATTENTION_CLASSES.index("mask_key")])
    assert abs(trained.attention[0, :3] - visible.attention[0, :3]).min() > 1e-3


def test_gradients_at_the_start_are_those_of_finite_differences() -> None:
    trained = run_experiment(experiment(gradients=True), (3,))
    topic_model = TopicModel.from_settings(SETTINGS.data)
    documents = held_out_documents(SETTINGS, topic_model)
    start = start_weights(SETTINGS, 3, topic_model)

    def loss(value: np.ndarray) -> float:
        engine = make_engine([SETTINGS], topic_model, [start | {"value": value}])
        return float(mean_losses(engine, documents, chunk=20)[0])

    gradient = np.zeros_like(start["value"])
    for place in np.ndindex(gradient.shape):
        nudge = np.zeros_like(gradient)
        nudge[place] = 1e-5
        gradient[place] = (loss(start["value"] + nudge) - loss(start["value"] - nudge)) / 2e-5
    assert trained.first_gradients["value"][0] == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    assert trained.first_gradients["key"][0] != pytest.approx(trained.first_gradients["value"][0], rel=0.1)


def test_a_diverged_run_is_nan_and_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    wild = small_settings(training={"loss": "squared", "optimizer": "sgd", "learning_rate": 1e4})
    trained = run_experiment(experiment(wild), (0, 1))
    assert np.isnan(trained.held_out_loss).all()
    assert np.isnan(trained.attention).all()
    assert np.isnan(trained.weights["value"]).all()
    assert np.isfinite(trained.loss[:, 0]).all()
    calm = run_experiment(experiment(), (0, 1))
    assert np.isfinite(calm.held_out_loss).all()


def test_topic_words_of_the_experiment_are_trained_on() -> None:
    overlapping = ((0.5, 0.5, 0.0), (0.0, 0.5, 0.5))
    trained = run_experiment(experiment(topic_words=overlapping), (0,))
    assert trained.weights["embedding"].shape == (1, 4, 3)
    assert trained.settings.data.topic_words == ""
    assert need_item(experiment(), (0,)).digest != need_item(experiment(topic_words=overlapping), (0,)).digest


def test_stored_arrays_are_the_same_again_to_the_bit() -> None:
    loss = np.array([0.1, np.nan])
    norms: dict[str, np.ndarray] = {"value": np.full(1, 1 / 3, dtype=np.float32), "key": np.zeros((2, 0))}
    again = load_arrays(dump_arrays({"loss": loss, "norms": norms, "film": {}, "seconds": 1 / 3}))
    assert again.keys() == {"loss", "norms", "seconds"}
    assert np.array_equal(again["loss"], loss, equal_nan=True)
    assert again["norms"].keys() == norms.keys()
    for name, array in again["norms"].items():
        assert array.dtype == norms[name].dtype
        assert np.array_equal(array, norms[name])
    assert again["seconds"].item() == 1 / 3


def test_the_same_experiment_gives_the_same_arrays_to_the_bit() -> None:
    first, second = (arrays(run_experiment(experiment(), (0, 1))) for _ in range(2))
    assert all(np.array_equal(first[name], second[name], equal_nan=True) for name in first)


def test_a_result_is_named_by_settings_and_seeds_but_not_by_its_name() -> None:
    key = experiment().key((0, 1))
    assert key == dataclasses.replace(experiment(), name="another").key((0, 1))
    assert key != experiment().key((0, 2))
    assert key != experiment(small_settings(training={"steps": 13})).key((0, 1))


def test_a_measurement_keeps_runs_without_a_number() -> None:
    found = over_seeds((1.0, np.nan), other=np.float32(2.0), missing=np.nan)
    again = Measurement.restore(dataclasses.replace(found, seconds=3.0).dump())
    assert again.values[0] == 1.0
    assert np.isnan(again.values[1])
    assert again.details == {"other": 2.0, "missing": pytest.approx(np.nan, nan_ok=True)}
    assert (again.kind, again.seconds) == ("mean", 3.0)


def test_a_measurement_keeps_an_interval_given_from_outside() -> None:
    for measurement in (interval_given(1.4, 1.3, 1.6, p=0.01, null=1.0, words=3.0), interval_given(1.4, 1.3, 1.6)):
        again = Measurement.restore(measurement.dump())
        assert again.interval() == measurement.interval()
        assert again.p_value(1.0) == measurement.p_value(1.0)
        assert again.details == measurement.details


def test_torch_is_left_with_the_threads_it_had() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    run_experiment(experiment(), (0,))
    left = torch.get_num_threads()
    torch.set_num_threads(before)
    assert left == before + 1
