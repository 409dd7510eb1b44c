import numpy as np
import pytest
import torch

from support.helpers import build_model, small_settings
from topicscope.model.transformer import target_weights
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.training.engines import l2_penalty, losses

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


def test_l2_is_squared_and_has_the_gradient_of_finite_differences() -> None:
    """The released code takes L2 of detached data, and not squared: it never reaches the weights."""
    settings = small_settings(training={"l2": 0.3, "l2_parts": ["value", "key"]})
    model = build_model(settings)
    penalty = l2_penalty(model, settings.training)
    size = float(penalty.detach())
    norms = [float(model.parameter(name).detach().norm()) for name in ("value", "key")]
    assert size == pytest.approx(0.3 * (norms[0] ** 2 + norms[1] ** 2))
    assert size != pytest.approx(0.3 * (norms[0] + norms[1]))
    penalty.backward()  # type: ignore[no-untyped-call]
    direction = torch.randn(
        model.parameter("value").shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    gradient = model.parameter("value").grad
    assert gradient is not None
    with torch.no_grad():
        model.parameter("value").add_(direction, alpha=1e-4)
        up = float(l2_penalty(model, settings.training))
        model.parameter("value").sub_(direction, alpha=2e-4)
        down = float(l2_penalty(model, settings.training))
    assert float((gradient * direction).sum()) == pytest.approx((up - down) / 2e-4, rel=1e-6)
    assert model.parameter("query").grad is None


def test_l2_counts_trained_parts_only() -> None:
    settings = small_settings(training={"l2": 1.0}, model={"embedding": {"start": "identity", "train": False}})
    model = build_model(settings)
    trained = ("value", "key", "query")
    expected = sum(float(model.parameter(name).detach().square().sum()) for name in trained)
    found = float(l2_penalty(model, settings.training).detach())
    assert found == pytest.approx(expected)
    assert found != pytest.approx(expected + 7)  # the frozen identity would add ‖I‖² = 7
