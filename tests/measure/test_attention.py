import numpy as np
import pytest

from topicscope.measure.attention import attention_averages, implied_weights, pair_classes

TOPICS = np.array([0, 1, 1, 2, 2])


def test_attention_averages_equal_a_loop_over_pairs_of_positions() -> None:
    draw = np.random.default_rng(1)
    lengths, longest = [6, 4], 6
    tokens = draw.integers(0, 5, size=(2, longest))
    present = np.arange(longest) < np.array(lengths)[:, None]
    attention = draw.random((2, 2, 3, longest, longest))
    found = attention_averages(attention, pair_classes(tokens, present, TOPICS))
    for layer in range(2):
        for head in range(3):
            classes: dict[str, list[float]] = {"same_word": [], "same_topic": [], "different_topic": []}
            for document, length in enumerate(lengths):
                for key in range(length):
                    for query in range(length):
                        a, b = tokens[document, key], tokens[document, query]
                        if key == query or a == 0 or b == 0:
                            continue
                        same_topic = TOPICS[a] == TOPICS[b]
                        name = "same_word" if a == b else "same_topic" if same_topic else "different_topic"
                        classes[name].append(attention[layer, document, head, key, query])
            for name, entries in classes.items():
                assert getattr(found, name)[layer, head] == pytest.approx(np.mean(entries), rel=1e-12)
    other = attention_averages(attention, pair_classes(tokens, present, np.array([0, 1, 2, 1, 2])))
    assert other.same_topic != pytest.approx(found.same_topic)


def test_a_class_without_pairs_is_nan() -> None:
    one_word = np.ones((1, 3), dtype=np.int64)
    found = attention_averages(np.full((1, 1, 1, 3, 3), 1 / 3), pair_classes(one_word, one_word > 0, TOPICS))
    assert found.same_word == pytest.approx(1 / 3)
    assert np.isnan(found.same_topic).all()


def test_implied_weights_are_those_of_assumption_2s_attention() -> None:
    alpha, beta, other = 6.0, 3.0, 0.004
    found = implied_weights(beta * other, alpha * other, other)
    assert found.alpha == pytest.approx(alpha)
    assert found.beta == pytest.approx(beta)
    assert found.weighted_average(10) == pytest.approx((9 * alpha + beta) / 10)
    assert implied_weights(other, other, other).weighted_average(10) == pytest.approx(1)
    assert implied_weights(alpha * other, beta * other, other).alpha != pytest.approx(alpha)
