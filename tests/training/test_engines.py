"""The objective; and bags of tokens have the losses and gradients of positions, whatever the model and documents."""

import copy
import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some
from torch import Tensor

from support.helpers import build_model, small_settings
from topicscope.errors import InputError
from topicscope.model import bag
from topicscope.model.bag import BagPass, has_tables
from topicscope.model.transformer import target_weights
from topicscope.model.weights import part_of
from topicscope.settings import Settings
from topicscope.settings.model import EXTRAS, PARTS
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.training.engines import Engine, TableEngine, losses, make_engine

VOCABULARY = 7
DOCUMENTS = 4
Outcome = tuple[Tensor, dict[str, Tensor]]
KINDS = ("any", "one word repeated", "all distinct", "length 1", "everything masked", "nothing but [MASK]")


@dataclass(frozen=True)
class Case:
    """What hypothesis draws; our own code is called outside of its strategies."""

    model: dict[str, Any]
    training: dict[str, Any]
    kinds: list[str]
    steps: int
    uniform: bool
    seed: int

    @cached_property
    def settings(self) -> Settings:
        return small_settings(model=self.model, training=self.training)

    @cached_property
    def members(self) -> list[MaskedDocuments]:
        generator = np.random.default_rng(self.seed)
        hidden = self.model["masked_keys"] == "hidden"
        return [documents_of(kind, self.steps * DOCUMENTS, hidden, generator) for kind in self.kinds]


PART, ABSENT = {"start": "normal", "scale": 0.7}, {"start": "zero", "train": False}
IDENTITY = {"start": "identity", "train": False}
BIASES = ("key_bias", "query_bias", "value_bias", "prediction_bias")


@some.composite
def table_cases(draw: Any) -> Case:
    """One layer and head: eq. 6 and 7, whose gradients are written out, and what the embedding layer adds."""
    case, switch = draw(cases()), some.booleans()
    plain: dict[str, Any] = {"layers": 1, "heads": 1} | dict.fromkeys(
        ("residual", "layer_norm", "head_transform"), False
    )
    if draw(switch):
        plain |= {"output_projection": False, "tied": True, "token_types": 0.0, "embedding_norm": False}
    parts = {name: {**case.model[name], "train": draw(switch)} for name in ("key", "query", "value", *BIASES)}
    parts["value_bias"] = parts["value_bias"] | {"train": True}
    return dataclasses.replace(case, model=case.model | parts | plain | {"feed_forward": 0})


@some.composite
def cases(draw: Any) -> Case:
    switch = some.booleans()
    one_hot, hidden = draw(switch), draw(switch)
    dimension = 0 if one_hot else draw(some.sampled_from([0, 4, 9, 6]))
    return Case(
        model={
            "dimension": dimension,
            "attention_dimension": draw(some.sampled_from([0, 3])),
            "heads": draw(some.sampled_from([1, 2])) if dimension in (4, 6) else 1,
            "layers": draw(some.sampled_from([1, 2, 3])),
            "masked_keys": "hidden" if hidden else "visible",
            **{name: draw(switch) for name in ("residual", "layer_norm", "output_projection", "head_transform")},
            "feed_forward": draw(some.sampled_from([0, 5])),
            "tied": draw(switch),
            "token_types": draw(some.sampled_from([0.0, 1.0])),
            "embedding_norm": draw(switch),
            "embedding": IDENTITY if one_hot else PART,
            **{name: PART | {"train": draw(switch)} for name in ("key", "query")},
            "value": PART,
            **{name: draw(some.sampled_from([PART, ABSENT])) for name in BIASES},
        },
        training={
            "loss": draw(some.sampled_from(["cross_entropy", "squared"])),
            "average": draw(some.sampled_from(["document", "batch"])),
        },
        kinds=draw(some.lists(some.sampled_from(KINDS[:3] if hidden else KINDS), min_size=1, max_size=3)),
        steps=draw(some.integers(1, 2)),
        uniform=draw(switch),
        seed=draw(some.integers(0, 1000)),
    )


def documents_of(kind: str, count: int, hidden: bool, generator: np.random.Generator) -> MaskedDocuments:
    """Documents of one kind, with words and masks that no sampler of ours needs to be able to draw."""
    low, high = {"length 1": (1, 1), "all distinct": (2, VOCABULARY - 1)}.get(kind, (2, 12))
    lengths = generator.integers(low, high, size=count, endpoint=True).astype(np.int32)
    words, masks = [], []
    for length in lengths:
        if kind == "all distinct":
            words.append(generator.permutation(np.arange(1, VOCABULARY))[:length])
        elif kind == "one word repeated":
            words.append(np.full(length, generator.integers(1, VOCABULARY)))
        else:
            words.append(generator.integers(1, VOCABULARY, size=length))
        mask = generator.random(length) < 0.4
        if kind in ("length 1", "everything masked", "nothing but [MASK]"):
            mask[:] = True
        mask[0] = True
        mask[-1] &= not hidden
        masks.append(mask)
    word, masked = np.concatenate(words).astype(np.int32), np.concatenate(masks)
    fate = generator.random(len(word)) if kind != "nothing but [MASK]" else np.ones(len(word))
    tokens = np.where(masked & (fate > 0.6), 0, word).astype(np.int32)
    random = masked & (fate < 0.3)
    tokens[random] = generator.integers(1, VOCABULARY, size=np.count_nonzero(random))
    return MaskedDocuments(lengths, tokens, word, masked)


def engines(case: Case, dtype: torch.dtype) -> tuple[Engine, Engine]:
    """On bags of tokens and position by position, with the same weights."""
    models = [build_model(case.settings, seed=case.seed + place, dtype=dtype) for place in range(len(case.members))]
    with torch.no_grad():
        for model in models:
            for name, parameter in model.named_parameters():
                if name == "embedding_norm":
                    parameter.mul_(0.3)  # inputs as large as without it: rounding grows with every layer's scores
                small = part_of(name) in EXTRAS and name != "token_types"
                if small and "norm" not in name and "bias" not in name:
                    parameter.mul_(20)  # what the switches add starts so small that later layers would hardly count
    seeds, topics = range(len(models)), TopicModel.from_settings(case.settings.documents)
    by_position = dataclasses.replace(case.settings.training, engine="reference")
    kind = TableEngine if has_tables(case.settings.model, VOCABULARY) else Engine
    fast = kind(case.settings, seeds, topics, copy.deepcopy(models))
    slow = Engine(dataclasses.replace(case.settings, training=by_position), seeds, topics, models)
    for model in (*fast.models, *slow.models):
        model.uniform_attention = case.uniform or case.settings.model.uniform
    return fast, slow


def outcome(engine: Any, case: Case, step: int) -> Outcome:
    values = engine.losses(engine.prepare(case.members, case.steps)[step])
    return values.detach(), engine.loss_gradients(values, engine.trained)


def difference(found: Outcome, expected: Outcome, *, by_parameter: bool) -> float:
    """The largest relative difference of a loss, and of each parameter's gradient or of all of them, in Frobenius norm.

    A gradient that is nothing but rounding (that of b^K, which shifts all scores of a query, is zero) is measured
    against the rounding of the whole gradient.
    """
    (losses, gradients), (exact_losses, exact) = found, expected
    apart = {name: (gradients.get(name, torch.zeros_like(own)) - own).norm() for name, own in exact.items()}
    sizes = {name: own.norm() for name, own in exact.items()}
    whole = torch.stack([*sizes.values()]).norm()
    by_name = [apart[name] / (sizes[name] + 1e-5 * whole) for name in exact]
    relative = max(by_name) if by_parameter else torch.stack([*apart.values()]).norm() / whole
    return max(float(relative), float(((losses - exact_losses) / exact_losses).abs().max()))


def check_equal(case: Case) -> None:
    step = case.steps - 1
    # In single precision a deep model without norms multiplies rounding, and some gradients are nothing else.
    for dtype, tolerance, by_parameter in ((torch.float64, 1e-9, True), (torch.float32, 3e-3, False)):
        fast, slow = engines(case, dtype)
        expected = outcome(slow, case, step)
        assert difference(outcome(fast, case, step), expected, by_parameter=by_parameter) < tolerance
        # The control: other weights give other losses and gradients.
        with torch.no_grad():
            for weight in fast.weights.values():
                weight += torch.linspace(-0.5, 0.5, weight.numel()).view_as(weight)
        assert difference(outcome(fast, case, step), expected, by_parameter=by_parameter) > 10 * tolerance


def examples(count: int) -> hypothesis_settings:
    return hypothesis_settings(
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        max_examples=count,
    )


@given(cases())
@examples(10)
def test_distinct_tokens_have_the_losses_and_gradients_of_positions(case: Case) -> None:
    check_equal(case)


@given(table_cases())
@examples(15)
def test_tables_have_the_losses_and_gradients_of_positions(case: Case) -> None:
    assert has_tables(case.settings.model, VOCABULARY)
    check_equal(case)


@given(table_cases())
@examples(5)
def test_tables_need_no_private_function_of_torch(case: Case) -> None:
    assert bag.SOFTMAX_BACKWARD is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bag, "SOFTMAX_BACKWARD", None)
        check_equal(case)


def test_tables_that_are_wrong_by_one_per_cent_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"embedding": PART, "value": PART, "key": PART, "query": PART, "masked_keys": "visible"}
    case = Case(model, {"loss": "squared"}, ["any"], steps=1, uniform=False, seed=3)
    check_equal(case)
    right = BagPass.__init__
    monkeypatch.setattr(
        BagPass, "__init__", lambda self, values, scores, *others: right(self, values, 1.01 * scores, *others)
    )
    with pytest.raises(AssertionError):
        check_equal(case)


@pytest.mark.slow
@given(some.one_of(cases(), table_cases()))
@examples(400)
def test_bags_have_the_losses_and_gradients_of_positions_for_many_architectures(case: Case) -> None:
    check_equal(case)


def test_positions_need_the_reference_engine() -> None:
    assert small_settings().engine == "bag"
    assert small_settings(training={"engine": "reference"}).engine == "reference"
    assert small_settings(model={"positions": "learned"}).engine == "reference"
    with pytest.raises(InputError, match=r"training.engine"):
        small_settings(model={"positions": "learned"}, training={"engine": "bag"})


SCORES = torch.tensor([[0.5, -1.0, 2.0], [0.1, 0.2, 0.3]], dtype=torch.float64)
WORDS = torch.tensor([2, 0])


def test_squared_loss_sums_over_the_vocabulary() -> None:
    expected = [0.25 + 1 + 1, 0.81 + 0.04 + 0.09]
    assert losses(SCORES, WORDS, "squared").numpy() == pytest.approx(expected)
    assert losses(SCORES, WORDS, "squared").numpy() != pytest.approx(np.array(expected) / 3)


def test_cross_entropy_is_equation_4() -> None:
    shares = np.exp(SCORES.numpy()) / np.exp(SCORES.numpy()).sum(axis=1, keepdims=True)
    found = losses(SCORES, WORDS, "cross_entropy").numpy()
    assert found == pytest.approx([-np.log(shares[0, 2]), -np.log(shares[1, 0])])
    assert found != pytest.approx([-np.log(shares[0, 1]), -np.log(shares[1, 1])], rel=1e-3)


def test_eq_1_weighs_documents_alike_and_the_pooled_mean_weighs_positions_alike() -> None:
    masked = np.array([True, False, True, True, True, False])
    documents = MaskedDocuments(np.array([2, 4]), np.zeros(6, dtype=int), np.zeros(6, dtype=int), masked)
    assert target_weights(documents, "document").tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 6, 1 / 6])
    assert target_weights(documents, "batch").tolist() == pytest.approx([1 / 4] * 4)


def test_l2_is_squared_reaches_the_weights_and_counts_trained_parts_only() -> None:
    """The released code takes L2 of detached data, and not squared: it never reaches the weights."""
    changes: dict[str, Any] = {"l2": 0.3}
    still = {"embedding": {"start": "identity", "train": False}}
    topics = TopicModel.from_settings(small_settings().documents)
    regularised, plain = (
        make_engine(small_settings(model=still, training=training), (0, 1), topics) for training in (changes, {})
    )
    weights = {name: weight.detach().double() for name, weight in regularised.weights.items()}
    squares = sum(weights[name].flatten(1).square().sum(dim=1) for name in ("value", "key", "query"))
    assert isinstance(squares, Tensor)
    assert regularised.penalties() == pytest.approx(0.3 * squares.numpy(), rel=1e-6)
    # The frozen identity would add ‖I‖² = 7, norms that are not squared something else.
    assert regularised.penalties() != pytest.approx(0.3 * (squares + 7).numpy(), rel=1e-2)
    with_l2, without = (
        engine.gradients(engine.losses(engine.prepare([stream.chunk(0).span(0, 5) for stream in engine.streams])[0]))
        for engine in (regularised, plain)
    )
    for name, gradient in without.items():
        added = 0.6 * weights[name] if name in PARTS else torch.zeros_like(weights[name])
        torch.testing.assert_close(with_l2[name].double() - gradient, added, rtol=1e-4, atol=1e-7)
    assert "embedding" not in with_l2
