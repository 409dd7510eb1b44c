from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.model.weights import start_weights
from topicscope.settings import Settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments
from topicscope.theory.theorem2 import theorem2

TOPIC = np.array([0, 1, 1, 2, 2, 3, 3])


def weights_of(settings: Settings, seed: int = 0) -> dict[str, np.ndarray]:
    return start_weights(settings, seed, TopicModel.from_settings(settings.documents))


def started(part: str, start: str, **more: Any) -> np.ndarray:
    return weights_of(small_settings(model={part: {"start": start, **more}}))[part]


def test_identity_zero_and_theorem_starts_are_those_matrices() -> None:
    assert (started("embedding", "identity") == np.eye(7)).all()
    assert (started("key", "zero") == 0).all()
    masking = small_settings().masking
    assert (started("value", "theorem")[0] == theorem2(3, 2, masking)).all()


WIDE: dict[str, Any] = {"dimension": 400, "token_types": 1.0, "embedding_norm": True, "tied": False}


def wide(part: str, **settings: Any) -> np.ndarray:
    return weights_of(small_settings(model=WIDE | {part: settings}))[part]


def spread_of_the_average(array: np.ndarray, variance: float) -> float:
    return 5 * float(np.sqrt(variance / array.size))


@pytest.mark.parametrize("part", ["embedding", "value", "key", "query_bias", "value_bias", "prediction"])
def test_the_uniform_start_is_what_pytorch_draws_for_linear_maps(part: str) -> None:
    """U(±1/√d): mean 0 and variance 1/(3d), within five standard errors; nothing beyond the bound."""
    drawn, bound = wide(part, start="uniform"), 1 / np.sqrt(400)
    assert np.abs(drawn).max() <= bound
    assert np.abs(drawn).max() > 0.98 * bound
    assert abs(drawn.mean()) < spread_of_the_average(drawn, bound**2 / 3)
    # The fourth moment of U(±b) is b⁴/5, so the square varies by b⁴(1/5 − 1/9).
    assert abs((drawn**2).mean() - bound**2 / 3) < spread_of_the_average(drawn, bound**4 * (1 / 5 - 1 / 9))
    # The control: a normal start of equal variance leaves the bound.
    assert np.abs(wide(part, start="normal", scale=float(bound / np.sqrt(3)))).max() > bound


@pytest.mark.parametrize("part", ["value", "key", "embedding"])
def test_the_positive_start_is_scale_times_a_draw_from_0_to_1(part: str) -> None:
    drawn = wide(part, start="positive", scale=0.001)
    assert drawn.min() >= 0
    assert drawn.max() < 0.001
    assert abs(drawn.mean() - 0.0005) < spread_of_the_average(drawn, 1e-6 / 12)
    assert wide(part, start="normal", scale=0.001).min() < 0


def test_the_token_type_starts_from_n_0_1_and_the_embeddings_norm_at_one() -> None:
    weights = weights_of(small_settings(model=WIDE))
    drawn = weights["token_types"]
    assert drawn.shape == (400,)
    assert abs(drawn.mean()) < spread_of_the_average(drawn, 1)
    assert abs((drawn**2).mean() - 1) < spread_of_the_average(drawn, 2)
    assert (weights["embedding_norm"] == 1).all()
    assert (weights["embedding_norm_bias"] == 0).all()
    assert "token_types" not in weights_of(small_settings())


def test_an_untied_decoder_starts_where_its_settings_say() -> None:
    decoder = weights_of(small_settings(model={"tied": False, "prediction": {"start": "identity", "train": False}}))
    assert (decoder["prediction"] == np.eye(7)).all()
    assert "prediction" not in weights_of(small_settings())


def test_the_embeddings_start_has_theorem_1s_block_sums() -> None:
    table = started("embedding", "theorem")
    products = (table @ table.T)[1:, 1:]
    gain = 1 / (1 - (1 - 0.1) * 0.3)
    for topic in (1, 2, 3):
        sums = products[:, TOPIC[1:] == topic].sum(axis=1)
        assert sums[TOPIC[1:] == topic] == pytest.approx(gain)
        assert sums[TOPIC[1:] != topic] == pytest.approx(0)


def test_the_seed_decides_the_weights() -> None:
    """The released code has a seed that nothing reads."""
    settings = small_settings()
    assert (weights_of(settings, 1)["value"] == weights_of(settings, 1)["value"]).all()
    assert (weights_of(settings, 1)["value"] != weights_of(settings, 2)["value"]).all()


@pytest.mark.parametrize("suffix", [".npy", ".safetensors"])
def test_a_part_can_start_from_a_file(tmp_path: Path, suffix: str) -> None:
    array, path = np.random.default_rng(1).normal(size=(7, 7)), tmp_path / f"array{suffix}"
    if suffix == ".npy":
        np.save(path, array)
    else:
        save_file({"other": np.zeros(1), "value": array}, path)
    assert (started("value", "file", file=str(path))[0] == array).all()


@pytest.mark.parametrize("problem", ["missing", "shape", "nan", "suffix", "pickle"])
def test_files_that_do_not_fit_are_refused_in_a_sentence(tmp_path: Path, problem: str) -> None:
    path = tmp_path / ("array.txt" if problem == "suffix" else "array.npy")
    if problem == "pickle":
        np.save(path, np.array([{"a": 1}], dtype=object))
    elif problem != "missing":
        with path.open("wb") as file:
            np.save(file, np.full((7, 6) if problem == "shape" else (7, 7), np.nan if problem == "nan" else 1.0))
    with pytest.raises(InputError, match="array"):
        started("value", "file", file=str(path))


def test_starts_that_a_part_cannot_have_are_refused() -> None:
    with pytest.raises(InputError, match=r"model\.key\.start"):
        small_settings(model={"key": {"start": "theorem"}})


def test_the_finite_start_is_the_optimum_of_the_runs_own_mean() -> None:
    for average in ("document", "batch"):
        settings = small_settings(model={"value": {"start": "finite"}}, training={"average": average})
        exact = moments(TopicModel.from_settings(settings.documents), settings.masking, settings.training.average)
        assert (weights_of(settings)["value"][0] == finite_optimum(exact)).all()
    other = small_settings(model={"value": {"start": "finite"}})
    assert abs(weights_of(settings)["value"] - weights_of(other)["value"]).max() > 1e-3


def test_theorem_2_as_a_start_needs_more_topics_than_a_document_has() -> None:
    settings = small_settings(
        data={"sampler": "topics", "topics": 2, "per_document": 2}, model={"value": {"start": "theorem"}}
    )
    with pytest.raises(InputError, match="only one set of topics"):
        weights_of(settings)
