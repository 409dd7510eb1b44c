import numpy as np
import pytest

from topicscope.synthetic.topics import Outcomes

ROWS = np.array([[0.2, 0.0, 0.5, 0.3], [1.0, 0.0, 0.0, 0.0], [0.0, 1e-9, 0.0, 1.0 - 1e-9], [0.25, 0.25, 0.25, 0.25]])


@pytest.mark.parametrize("probabilities", [ROWS, np.random.default_rng(3).dirichlet([0.1] * 130, size=3)])
def test_outcomes_have_their_probabilities(probabilities: np.ndarray) -> None:
    """Few outcomes, with cells told by a byte; and many, with a boundary in most cells."""
    count = 200_000
    outcomes = Outcomes(probabilities)
    found = []
    for number, expected in enumerate(probabilities):
        row = np.full(count, number, dtype=np.int32)
        drawn = outcomes.draw(row, generator=np.random.default_rng(number))
        shares = np.bincount(drawn, minlength=len(expected)) / count
        assert (abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / count) + 1e-12).all()
        assert not shares[expected == 0].any()
        found.append(shares)
    # The control: rows are not each other.
    assert abs(found[0] - found[1]).max() > 0.05
