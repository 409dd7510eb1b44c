"""The reference model against the equations written out as loops."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from support.helpers import build_model, small_settings
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.settings import Masking, Model
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.training.engines import losses

FULL: dict[str, Any] = {
    "dimension": 6,
    "heads": 2,
    "layers": 2,
    "residual": True,
    "layer_norm": True,
    "output_projection": True,
    "feed_forward": 5,
    "head_transform": True,
    "tied": False,
    "positions": "learned",
    "token_types": 1.0,
    "embedding_norm": True,
}
RANDOM_PARTS = {
    name: {"start": "normal", "scale": 0.7}
    for name in ("embedding", "value", "key", "query", "key_bias", "query_bias", "value_bias", "prediction_bias")
}


def equation_6(weights: dict[str, np.ndarray], tokens: list[int], attention_dimension: int) -> np.ndarray:
    """f(X̃) = W^E⊤ (W^V Z + b^V) A + b^pred with A of eq. 5, entry by entry in the paper's orientation."""
    embedding = weights["embedding"].T
    one_hot = np.zeros((embedding.shape[1], len(tokens)))
    for place, token in enumerate(tokens):
        one_hot[token, place] = 1
    state = embedding @ one_hot
    keys = weights["key"][0] @ state + weights["key_bias"][0][:, None]
    queries = weights["query"][0] @ state + weights["query_bias"][0][:, None]
    values = weights["value"][0] @ state + weights["value_bias"][0][:, None]
    attention = np.zeros((len(tokens), len(tokens)))
    for j in range(len(tokens)):
        scores = [math.exp(keys[:, i] @ queries[:, j] / math.sqrt(attention_dimension)) for i in range(len(tokens))]
        for i in range(len(tokens)):
            attention[i, j] = scores[i] / sum(scores)
    return embedding.T @ values @ attention + weights["prediction_bias"][:, None]


def as_arrays(model: Transformer) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("dimension", [0, 4])
def test_forward_is_equation_6(dimension: int) -> None:
    model = build_model(small_settings(model={"dimension": dimension, "attention_dimension": 3, **RANDOM_PARTS}))
    tokens = [1, 0, 4, 4, 6]
    expected = equation_6(as_arrays(model), tokens, 3)
    found = model(torch.tensor([tokens]))[0].T.detach().numpy()
    assert found == pytest.approx(expected, rel=1e-10)
    # The control: with another d_a in the square root the numbers differ.
    assert found != pytest.approx(equation_6(as_arrays(model), tokens, 4), rel=1e-6)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared"])
def test_gradients_are_those_of_equation_6_by_finite_differences(loss: Any) -> None:
    model = build_model(small_settings(model={"dimension": 4, **RANDOM_PARTS}))
    tokens, words, where = [1, 0, 4, 0], [3, 5], [1, 3]

    def slow(weights: dict[str, np.ndarray]) -> float:
        scores = equation_6(weights, tokens, 4)[:, where]
        if loss == "squared":
            return float(np.mean([((scores[:, k] - np.eye(7)[word]) ** 2).sum() for k, word in enumerate(words)]))
        each = [-math.log(math.exp(scores[word, k]) / np.exp(scores[:, k]).sum()) for k, word in enumerate(words)]
        return float(np.mean(each))

    losses(model(torch.tensor([tokens]))[0, where], torch.tensor(words), loss).mean().backward()  # type: ignore[no-untyped-call]
    draw = np.random.default_rng(3)
    for name, parameter in model.named_parameters():
        weights = {key: value.copy() for key, value in as_arrays(model).items()}
        direction = draw.normal(size=weights[name].shape)
        step = 1e-6
        up = slow(weights | {name: weights[name] + step * direction})
        down = slow(weights | {name: weights[name] - step * direction})
        assert parameter.grad is not None
        exact = float((parameter.grad.numpy() * direction).sum())
        assert exact == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8), name
        if name != "key_bias":  # b^K shifts all scores of a query alike: its gradient is zero
            assert abs(exact) > 1e-4, name


def test_attention_is_key_by_query_and_its_columns_sum_to_one() -> None:
    model = build_model(small_settings(model=RANDOM_PARTS | {"dimension": 6, "heads": 2, "layers": 3}))
    attention = model.attention(torch.tensor([[1, 2, 3, 0]]))
    assert attention.shape == (3, 1, 2, 4, 4)
    assert attention.sum(dim=3).detach().numpy() == pytest.approx(1)
    assert attention.sum(dim=4).detach().numpy() != pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("hidden", [False, True])
def test_uniform_attention_taken_directly_equals_the_full_path(hidden: bool) -> None:
    frozen = {"start": "zero", "train": False}
    changes = RANDOM_PARTS | {"key": frozen, "query": frozen, "layers": 2, "dimension": 6, "heads": 2}
    model = build_model(small_settings(model=changes))
    assert model.uniform_attention
    tokens = torch.tensor([[1, 2, 2, 0, 0], [3, 4, 5, 6, 1]])
    visible = torch.tensor([[1, 1, not hidden, 0, 0], [1] * 5])
    direct, attention = model(tokens, visible), model.attention(tokens, visible)
    model.uniform_attention = False
    assert direct.detach().numpy() == pytest.approx(model(tokens, visible).detach().numpy(), rel=1e-12)
    assert attention.detach().numpy() == pytest.approx(model.attention(tokens, visible).detach().numpy(), rel=1e-12)
    model.parameter("key").data.normal_(generator=torch.Generator().manual_seed(0))
    model.parameter("query").data.normal_(generator=torch.Generator().manual_seed(1))
    assert direct.detach().numpy() != pytest.approx(model(tokens, visible).detach().numpy(), rel=1e-3)


ARCHITECTURES = [
    RANDOM_PARTS,
    RANDOM_PARTS | FULL,
    RANDOM_PARTS | {"masked_keys": "hidden"},
    RANDOM_PARTS | {"positions": "learned"},
]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_a_document_gives_the_same_alone_and_in_any_batch(
    architecture: dict[str, Any], dtype: torch.dtype, tolerance: float
) -> None:
    settings = small_settings(model=architecture | {"embedding": {"start": "normal", "scale": 0.3}})
    model = build_model(settings, dtype=dtype)
    topic_model = TopicModel.from_settings(settings.documents)
    draw = np.random.default_rng(5)
    sampled = sample_documents(topic_model, 6, generator=draw)
    hidden = settings.model.masked_keys == "hidden"
    masked = mask_documents(sampled, Masking(mask=0.4), 7, needs_visible_key=hidden, generator=draw)
    order = np.array([3, 0, 5, 1, 4, 2])

    def scores(documents: np.ndarray) -> np.ndarray:
        chosen = masked.select(documents)
        batch = padded_batch(chosen, masked_keys=settings.model.masked_keys, average="document")
        return model.predict_masked(batch).detach().numpy()

    alone = np.concatenate([scores(np.array([document])) for document in order])
    together = scores(order)
    assert abs(together - alone).max() <= tolerance * max(1.0, abs(alone).max())
    assert abs(together - scores(np.arange(6))).max() > 1e-3  # the control: another order is another array


def test_hidden_masked_keys_get_no_attention_and_visible_ones_do() -> None:
    """The released code hides masked positions; by default we do not."""
    documents = mask_documents(
        sample_documents(TopicModel.from_settings(small_settings().documents), 5, generator=np.random.default_rng(0)),
        Masking(mask=0.4),
        7,
        needs_visible_key=True,
        generator=np.random.default_rng(1),
    )
    model = build_model(small_settings(model=RANDOM_PARTS))
    attention = {}
    for keys in ("visible", "hidden"):
        batch = padded_batch(documents, masked_keys=keys, average="document")
        attention[keys] = model.attention(batch.tokens, batch.keys)[0, :, 0][batch.masked].detach().numpy()
    assert (attention["hidden"] == 0).all()
    assert (attention["visible"] > 0).all()
    assert small_settings().model.masked_keys == "visible"


def test_by_default_there_is_no_normalisation_position_or_token_type() -> None:
    """The released code keeps LayerNorm and token types in its embedding layer although its setting says no."""
    model = build_model(small_settings(model=RANDOM_PARTS))
    assert set(dict(model.named_parameters())) == {
        *("embedding", "value", "key", "query"),
        *("key_bias", "query_bias", "value_bias", "prediction_bias"),
    }
    tokens = torch.tensor([[1, 5, 0]])
    assert torch.equal(model.states(tokens)[0][0], model.parameter("embedding")[tokens[0]])
    with_positions = build_model(small_settings(model=RANDOM_PARTS | {"positions": "learned"}))
    assert not torch.equal(with_positions.states(tokens)[0][0], with_positions.parameter("embedding")[tokens[0]])


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def normalised(column: np.ndarray, gain: np.ndarray, bias: np.ndarray, epsilon: float = 1e-12) -> np.ndarray:
    return (column - column.mean()) / math.sqrt(column.var() + epsilon) * gain + bias


def written_out(weights: dict[str, np.ndarray], settings: Model, tokens: list[int]) -> np.ndarray:
    """The transformer with its switches, column by column, head by head, in the paper's orientation."""
    width = weights["embedding"].shape[1]
    head_width = width // settings.heads
    state = weights["embedding"].T[:, tokens].copy()
    if settings.positions == "learned":
        state += weights["positions"][: len(tokens)].T
    if settings.token_types:
        for place in range(len(tokens)):
            state[:, place] += weights["token_types"]
    if settings.embedding_norm:
        gain, bias = weights["embedding_norm"], weights["embedding_norm_bias"]
        state = np.stack([normalised(state[:, j], gain, bias) for j in range(len(tokens))], axis=1)
    for layer in range(settings.layers):
        keys = weights["key"][layer] @ state + weights["key_bias"][layer][:, None]
        queries = weights["query"][layer] @ state + weights["query_bias"][layer][:, None]
        values = weights["value"][layer] @ state + weights["value_bias"][layer][:, None]
        score_width = len(keys) // settings.heads
        mixed = np.zeros_like(state)
        for head in range(settings.heads):
            here = slice(head * score_width, (head + 1) * score_width)
            mine = slice(head * head_width, (head + 1) * head_width)
            for j in range(len(tokens)):
                scores = np.exp([keys[here, i] @ queries[here, j] / math.sqrt(score_width) for i in range(len(tokens))])
                for i in range(len(tokens)):
                    mixed[mine, j] += values[mine, i] * scores[i] / scores.sum()
        if settings.output_projection:
            mixed = weights["output"][layer] @ mixed + weights["output_bias"][layer][:, None]
        state = joined(state, mixed, weights, settings, "attention_norm", layer)
        if settings.feed_forward:
            inner = weights["feed_forward_in"][layer] @ state + weights["feed_forward_in_bias"][layer][:, None]
            outer = weights["feed_forward_out"][layer] @ np.vectorize(gelu)(inner)
            outer += weights["feed_forward_out_bias"][layer][:, None]
            state = joined(state, outer, weights, settings, "feed_forward_norm", layer)
    if settings.head_transform:
        state = np.vectorize(gelu)(weights["head"] @ state + weights["head_bias"][:, None])
        columns = [normalised(state[:, j], weights["head_norm"], weights["head_norm_bias"]) for j in range(len(tokens))]
        state = np.stack(columns, axis=1)
    table = weights["embedding" if settings.tied else "prediction"]
    return table @ state + weights["prediction_bias"][:, None]


def joined(
    before: np.ndarray, after: np.ndarray, weights: dict[str, np.ndarray], settings: Model, norm: str, layer: int
) -> np.ndarray:
    state = before + after if settings.residual else after
    if not settings.layer_norm:
        return state
    gain, bias = weights[norm][layer], weights[f"{norm}_bias"][layer]
    return np.stack([normalised(state[:, j], gain, bias) for j in range(state.shape[1])], axis=1)


SWITCHES: list[dict[str, Any]] = [
    {"heads": 2},
    {"layers": 3},
    {"attention_dimension": 5, "heads": 3},
    {"residual": True},
    {"layer_norm": True},
    {"output_projection": True},
    {"feed_forward": 5},
    {"feed_forward": 5, "layer_norm": True, "residual": True},
    {"head_transform": True},
    {"tied": False},
    {"positions": "learned"},
    {"token_types": 1.0},
    {"embedding_norm": True},
    {"token_types": 1.0, "embedding_norm": True},
    {"tied": False, "prediction": {"start": "uniform"}},
    FULL,
]


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda switches: "-".join(switches))
def test_every_switch_is_what_it_says_written_out(switches: dict[str, Any]) -> None:
    tokens = [1, 5, 0, 2, 5]
    plain = build_model(small_settings(model=RANDOM_PARTS | {"dimension": 6}))
    model = build_model(small_settings(model=RANDOM_PARTS | {"dimension": 6} | switches))
    draw = torch.Generator().manual_seed(3)
    for name, parameter in model.named_parameters():  # gains, biases and small tables away from where they start
        if name not in RANDOM_PARTS:
            parameter.data += 0.5 * torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
    found = model(torch.tensor([tokens]))[0].T.detach().numpy()
    assert found == pytest.approx(written_out(as_arrays(model), model.settings, tokens), rel=1e-9, abs=1e-12)
    assert found != pytest.approx(plain(torch.tensor([tokens]))[0].T.detach().numpy(), rel=1e-3)


def test_without_positions_order_does_not_matter_and_with_them_it_does() -> None:
    tokens, order = torch.tensor([[1, 5, 0, 2]]), [2, 0, 3, 1]
    for positions, alike in (("none", True), ("learned", False)):
        changes = RANDOM_PARTS | {"positions": positions}
        model = build_model(small_settings(model=changes))
        if positions == "learned":
            model.parameter("positions").data.mul_(50)
        difference = abs(model(tokens)[0, order] - model(tokens[:, order])[0]).max()
        assert (difference < 1e-12) == alike


def test_embeddings_are_normalised_with_berts_epsilon() -> None:
    """Of embeddings of size 10⁻³ PyTorch's 1e-5 would leave a tenth; the control is that number."""
    model = build_model(small_settings(model={"dimension": 6, "embedding": {"scale": 1e-3}, "embedding_norm": True}))
    rows = model.parameter("embedding").detach().numpy()
    found = model.states(torch.tensor([list(range(7))]))[0][0].detach().numpy()
    one, zero = np.ones(6), np.zeros(6)
    assert found == pytest.approx(np.stack([normalised(row, one, zero, 1e-12) for row in rows]), rel=1e-9)
    assert found != pytest.approx(np.stack([normalised(row, one, zero, 1e-5) for row in rows]), rel=0.1)


def test_a_decoder_of_its_own_frozen_at_the_identity_is_the_tied_one_of_one_hot_embeddings() -> None:
    """The released code has such a decoder beside one-hot embeddings; W^E⊤ = I predicts the same."""
    one_hot = RANDOM_PARTS | {"embedding": {"start": "identity", "train": False}, "token_types": 1.0}
    own = {"tied": False, "prediction": {"start": "identity", "train": False}}
    tied, untied = build_model(small_settings(model=one_hot)), build_model(small_settings(model=one_hot | own))
    tokens = torch.tensor([[1, 5, 0, 2]])
    for name, parameter in tied.named_parameters():
        untied.parameter(name).data.copy_(parameter.data)
    assert not untied.parameter("prediction").requires_grad
    assert untied(tokens).detach().numpy() == pytest.approx(tied(tokens).detach().numpy(), rel=1e-12)
    untied.parameter("prediction").data[1, 2] = 0.5
    assert untied(tokens).detach().numpy() != pytest.approx(tied(tokens).detach().numpy(), rel=1e-3)
