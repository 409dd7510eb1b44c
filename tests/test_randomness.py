import numpy as np
import pytest

from topicscope.randomness import Purpose, chances, choices, generator

COUNT = 400_000


@pytest.mark.parametrize("probability", [0.0, 0.15, 0.5, 0.9999, 1.0])
def test_chances_have_their_probability(probability: float) -> None:
    happened = chances(probability, COUNT, generator=np.random.default_rng(1))
    error = np.sqrt(probability * (1 - probability) / COUNT)
    assert abs(happened.mean() - probability) <= 5 * error
    # The control: what the byte alone would give, where it does not give the probability exactly.
    if probability == 0.15:
        assert abs(happened.mean() - 38 / 256) > 2 * error


def test_chances_in_rows_have_each_its_own_probability() -> None:
    probabilities = np.array([1.0, 0.6, 0.15, 1e-3, 0.0])
    happened = chances(probabilities, COUNT // 2, generator=np.random.default_rng(3))
    error = np.sqrt(probabilities * (1 - probabilities) / len(happened))
    assert happened.shape == (COUNT // 2, 5)
    assert (abs(happened.mean(axis=0) - probabilities) <= 5 * error).all()
    assert (abs(happened.mean(axis=0) - probabilities[[1, 0, 3, 2, 4]]) > 5 * error)[:4].all()
    # Columns are independent: together as often as the product says.
    both = (happened[:, 1] & happened[:, 2]).mean()
    assert abs(both - 0.09) <= 5 * np.sqrt(0.09 * 0.91 / len(happened))


@pytest.mark.parametrize("outcomes", [1, 3, 10, 64, 200])
def test_choices_are_equally_likely(outcomes: int) -> None:
    chosen = choices(outcomes, COUNT, generator=np.random.default_rng(2))
    shares = np.bincount(chosen, minlength=outcomes) / COUNT
    error = np.sqrt((1 - 1 / outcomes) / outcomes / COUNT)
    assert len(shares) == outcomes
    assert (abs(shares - 1 / outcomes) <= 5 * error).all()
    # The control: bytes modulo 200 would favour the first 56.
    unfair = np.bincount(np.arange(256) % outcomes, minlength=outcomes) / 256
    if outcomes == 200:
        assert (abs(shares - unfair) > 5 * error).any()


def test_a_generator_is_the_same_for_the_same_arguments_and_another_for_others() -> None:
    first, again, other = (generator(1, Purpose.MASKS, chunk).random(4).tolist() for chunk in (3, 3, 4))
    assert first == again
    assert first != other
