"""Seeds trained in memory: each is what the run alone would be, and the measures are those of the equations."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.helpers import small_settings
from topicscope.measure.attention import ATTENTION_CLASSES
from topicscope.measure.run import Run, read_run, run_bytes, run_of, together, write_run
from topicscope.model.weights import start_weights
from topicscope.synthetic.topics import TopicModel
from topicscope.training import batches, record
from topicscope.training.batches import held_out_documents
from topicscope.training.engines import make_engine
from topicscope.training.loop import train, train_seeds
from topicscope.training.record import mean_losses

START = {"scale": 0.3}
SETTINGS = small_settings(
    model={"dimension": 3, "value": START, "key": START, "query": START, "embedding": START},
    training={"loss": "squared", "precision": "float64"},
)
MODEL = TopicModel.from_settings(SETTINGS.documents)
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
    monkeypatch.setattr(batches, "HELD_OUT_DOCUMENTS", 40)
    for name, value in (("CHUNK", 20), ("GRADIENT_DOCUMENTS", 40), ("ATTENTION_DOCUMENTS", 10)):
        monkeypatch.setattr(record, name, value)


def arrays(run: Run) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {"steps": run.steps, "frame_steps": run.frame_steps}
    for kind in ("metrics", "frames", "weights", "theory", "final"):
        found |= {f"{kind}/{name}": array for name, array in getattr(run, kind).items()}
    return found


def same(first: Run, second: Run) -> bool:
    own, other = arrays(first), arrays(second)
    return own.keys() == other.keys() and all(np.array_equal(own[name], other[name], equal_nan=True) for name in own)


def test_each_seed_is_what_the_run_alone_gives(tmp_path: Path) -> None:
    run = train_seeds(SETTINGS, (3, 8), MODEL)
    for place, seed in enumerate((3, 8)):
        alone = read_run(train(dataclasses.replace(SETTINGS, seed=seed), tmp_path / str(seed)).path)
        for name, weight in alone.weights.items():
            noise = ADAM_NOISE if name == "key_bias" else 1e-12
            np.testing.assert_allclose(run.weights[name][place], weight[0], rtol=1e-9, atol=noise)
        assert run.steps.tolist() == alone.steps.tolist()
        for name in ("loss", "norm/value", "uniform_gain"):
            np.testing.assert_allclose(run.metrics[name][place], alone.metrics[name][0], rtol=1e-9)
    # The controls: another seed is another run, and a bias that has a gradient moves much further than noise.
    assert abs(run.metrics["loss"][0] - run.metrics["loss"][1]).min() > 1e-6
    assert abs(run.weights["query_bias"]).min() > 1000 * ADAM_NOISE


def by_loops(run: Run, place: int, *, hide: bool = False) -> tuple[float, np.ndarray]:
    """Held-out loss and attention by class, position by position."""
    documents = held_out_documents(SETTINGS, MODEL)
    weight = {name: array[place] for name, array in run.weights.items()}
    losses: list[float] = []
    pairs: dict[str, list[float]] = {name: [] for name in ATTENTION_CLASSES}
    for number in range(len(documents)):
        one = documents.span(number, number + 1)
        tokens, table = one.tokens, weight["embedding"]
        keys = table[tokens] @ weight["key"][0].T + weight["key_bias"][0]
        queries = table[tokens] @ weight["query"][0].T + weight["query_bias"][0]
        hidden = one.masked & hide
        attention = np.where(hidden[:, None], 0.0, np.exp(keys @ queries.T / np.sqrt(keys.shape[1])))
        attention /= attention.sum(axis=0)
        values = table[tokens] @ weight["value"][0].T + weight["value_bias"][0]
        scores = attention.T @ values @ table.T + weight["prediction_bias"]
        wanted = np.eye(len(table))[one.words[one.masked]]
        losses.append(((scores[one.masked] - wanted) ** 2).sum(axis=1).mean())
        if number >= record.ATTENTION_DOCUMENTS:
            continue
        topics = MODEL.word_topics[tokens]
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
            pairs[name].append(attention[key, query] * len(tokens) / np.mean(SETTINGS.documents.length))
    return float(np.mean(losses)), np.array([np.mean(pairs[name] or np.nan) for name in ATTENTION_CLASSES])


def test_held_out_loss_and_attention_are_those_of_the_equations() -> None:
    run = train_seeds(SETTINGS, (3, 8), MODEL)
    for place in range(2):
        loss, attention = by_loops(run, place)
        assert run.final["held_out_loss"][place] == pytest.approx(loss, rel=1e-9)
        np.testing.assert_allclose(run.final["attention"][place], attention, rtol=1e-5)
    # The control, a hundred times the tolerance: the other member's attention is another.
    other = by_loops(run, 0)[1]
    assert (abs(other - run.final["attention"][1]) / other).max() > 1e-3


def test_hidden_keys_count_in_no_average() -> None:
    visible = train_seeds(SETTINGS, (3,), MODEL)
    model = dataclasses.replace(SETTINGS.model, masked_keys="hidden")
    run = train_seeds(dataclasses.replace(SETTINGS, model=model), (3,), MODEL)
    loss, attention = by_loops(run, 0, hide=True)
    assert run.final["held_out_loss"][0] == pytest.approx(loss, rel=1e-9)
    np.testing.assert_allclose(run.final["attention"][0], attention, rtol=1e-5)
    # Every key that holds [MASK] is hidden, and so are kept words at masked positions: averages without them differ.
    assert np.isnan(run.final["attention"][0, ATTENTION_CLASSES.index("mask_key")])
    assert abs(run.final["attention"][0, :3] - visible.final["attention"][0, :3]).min() > 1e-3


def test_gradients_at_the_start_are_those_of_finite_differences() -> None:
    norms = train_seeds(SETTINGS, (3,), MODEL, gradients=True).final
    documents, start = held_out_documents(SETTINGS, MODEL), start_weights(SETTINGS, 3, MODEL)

    def loss(value: np.ndarray) -> float:
        engine = make_engine(SETTINGS, [3], MODEL)
        engine.weights["value"].copy_(torch.from_numpy(value)[None])
        return float(mean_losses(engine, documents, chunk=20)[0])

    gradient = np.zeros_like(start["value"])
    for place in np.ndindex(gradient.shape):
        nudge = np.zeros_like(gradient)
        nudge[place] = 1e-5
        gradient[place] = (loss(start["value"] + nudge) - loss(start["value"] - nudge)) / 2e-5
    assert norms["first_gradients/value"][0] == pytest.approx(np.linalg.norm(gradient), rel=1e-6)
    assert norms["first_gradients/key"][0] != pytest.approx(norms["first_gradients/value"][0], rel=0.1)


def test_a_diverged_run_is_nan_and_leaves_the_others_alone() -> None:
    wild = small_settings(training={"loss": "squared", "optimizer": "sgd", "learning_rate": 1e4})
    run = train_seeds(wild, (0, 1), MODEL)
    for lost in (run.final["held_out_loss"], run.final["attention"], run.weights["value"]):
        assert np.isnan(lost).all()
    assert np.isfinite(run.metrics["loss"][:, 0]).all()
    assert np.isfinite(train_seeds(SETTINGS, (0, 1), MODEL).final["held_out_loss"]).all()


def test_other_topics_than_the_settings_describe_can_be_given() -> None:
    model = TopicModel.from_settings(SETTINGS.documents, np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]))
    run = train_seeds(SETTINGS, (0,), model)
    assert run.weights["embedding"].shape == (1, 4, 3)
    # Theory's matrices are for what the settings describe.
    assert list(run.theory) == ["word_topics"]
    assert "value_products" in train_seeds(SETTINGS, (0,), MODEL).theory


def test_a_run_is_stored_and_read_again_to_the_bit_and_so_is_the_same_run_trained_again(tmp_path: Path) -> None:
    run, repeated = (train_seeds(SETTINGS, (0, 1), MODEL, name="small") for _ in range(2))
    assert same(run, repeated)
    again = run_of(run_bytes(run), "small", run.settings)
    assert same(run, again)
    assert (again.seeds, again.seconds) == ((0, 1), run.seconds)
    assert not same(run, train_seeds(SETTINGS, (0, 2), MODEL))
    assert again.reference == run.reference is not None
    # In a folder for a page it keeps its name, and has no weights.
    write_run(run, tmp_path / "kept")
    kept = read_run(tmp_path / "kept")
    assert same(kept, dataclasses.replace(run, weights={}))
    assert (kept.name, kept.settings, kept.reference) == ("small", run.settings, run.reference)


def test_runs_of_single_seeds_together_have_what_all_of_them_have() -> None:
    first, second = (train_seeds(SETTINGS, (seed,), MODEL, name=f"runs/{seed}") for seed in (5, 2))
    cut: dict[str, Any] = {"steps": second.steps[:-1]}
    cut["metrics"] = {name: array[:, :-1] for name, array in second.metrics.items() if name != "penalty"}
    both = together([first, dataclasses.replace(second, **cut)])
    assert (both.name, both.seeds) == ("runs", (2, 5))
    assert both.steps.tolist() == first.steps[:-1].tolist()
    assert both.metrics.keys() == first.metrics.keys() - {"penalty"}
    assert np.array_equal(both.metrics["loss"][1], first.metrics["loss"][0, :-1])
    assert np.array_equal(both.frames["averages/value_products"][0], second.frames["averages/value_products"][0])
    assert both.frames["averages/value_products"].shape == (2, len(first.frame_steps), 1, 5)
