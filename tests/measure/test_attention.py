import numpy as np
import pytest

from topicscope.measure.attention import ATTENTION_CLASSES, attention_by_class, implied_weights

TOPICS = np.array([0, 1, 1, 2, 2])


def loop(
    attention: np.ndarray, tokens: np.ndarray, visible: np.ndarray, lengths: list[int], topics: np.ndarray
) -> dict[str, float]:
    """One layer and head: all pairs of positions, one by one."""
    classes: dict[str, list[float]] = {name: [] for name in ATTENTION_CLASSES}
    for document, length in enumerate(lengths):
        for key in range(length):
            for query in range(length):
                a, b = tokens[document, key], tokens[document, query]
                if b == 0 or not visible[document, key]:
                    continue
                if key == query:
                    name = "itself"
                elif a == 0:
                    name = "mask_key"
                elif a == b:
                    name = "same_word"
                else:
                    name = "same_topic" if topics[a] == topics[b] else "different_topic"
                classes[name].append(attention[document, key, query])
    return {name: float(np.mean(entries)) for name, entries in classes.items()}


def test_averages_by_class_equal_a_loop_over_pairs_of_positions() -> None:
    draw = np.random.default_rng(1)
    lengths, longest = [6, 4], 6
    tokens = draw.integers(0, 5, size=(2, longest))
    present = np.arange(longest) < np.array(lengths)[:, None]
    visible = present & (draw.random((2, longest)) < 0.8)
    attention = draw.random((2, 2, 3, longest, longest)) * visible[None, :, None, :, None]
    found = attention_by_class(attention, tokens, visible.astype(int), present.astype(int), TOPICS)
    for layer in range(2):
        for head in range(3):
            expected = loop(attention[layer, :, head], tokens, visible, lengths, TOPICS)
            assert found[:, layer, head] == pytest.approx(list(expected.values()), rel=1e-12)
    other = attention_by_class(attention, tokens, visible.astype(int), present.astype(int), np.array([0, 1, 2, 1, 2]))
    assert other[1] != pytest.approx(found[1])


def test_a_class_without_pairs_is_nan() -> None:
    once = np.ones((1, 3), dtype=np.int64)
    found = dict(
        zip(
            ATTENTION_CLASSES,
            attention_by_class(np.full((1, 1, 1, 3, 3), 1 / 3), once, once, once, TOPICS)[:, 0, 0],
            strict=True,
        )
    )
    assert found["same_word"] == found["itself"] == pytest.approx(1 / 3)
    assert np.isnan([found["same_topic"], found["different_topic"], found["mask_key"]]).all()


def test_implied_weights_are_those_of_assumption_2s_attention() -> None:
    alpha, beta, other = 6.0, 3.0, 0.004
    found = implied_weights(beta * other, alpha * other, other)
    assert found.alpha == pytest.approx(alpha)
    assert found.beta == pytest.approx(beta)
    assert found.weighted_average(10) == pytest.approx((9 * alpha + beta) / 10)
    assert implied_weights(other, other, other).weighted_average(10) == pytest.approx(1)
    assert implied_weights(alpha * other, beta * other, other).alpha != pytest.approx(alpha)
