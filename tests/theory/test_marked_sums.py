"""The forward and backward passes against sums written out over all degrees."""

from itertools import product

import numpy as np

from topicscope.theory.posterior import Factors, marked_sums


def written_out(parts: list[np.ndarray], end: np.ndarray) -> float:
    """Σ over all degrees of the product of one coefficient a rank, times end of the total degree."""
    total = 0.0
    for degrees in product(*(range(len(part)) for part in parts)):
        if sum(degrees) < len(end):
            total += float(np.prod([part[k] for part, k in zip(parts, degrees, strict=True)]) * end[sum(degrees)])
    return total


def test_every_marked_sum_equals_the_sum_written_out() -> None:
    generator = np.random.default_rng(0)
    rows, ranks, width, totals = 2, 3, 4, 6
    factors = Factors(*(generator.random((rows, ranks, width)) for _ in range(4)))
    ends = [generator.random((rows, totals)) for _ in range(4)]
    first, plain, pair, removed = marked_sums(factors, *ends)
    for row in range(rows):
        base = list(factors.base[row])

        def marked(changes: dict[int, np.ndarray], base: list[np.ndarray] = base) -> list[np.ndarray]:
            return [changes.get(rank, part) for rank, part in enumerate(base)]

        assert np.isclose(plain[row], written_out(base, ends[2][row]))
        for s in range(ranks):
            assert np.isclose(first[row, s], written_out(marked({s: factors.moment[row, s]}), ends[0][row]))
            assert np.isclose(removed[row, s], written_out(marked({s: factors.removed[row, s]}), ends[3][row]))
            for t in range(ranks):
                changes = {t: factors.removed[row, t], s: factors.moment[row, s]}
                if s == t:
                    changes = {t: factors.both[row, t]}
                assert np.isclose(pair[row, t, s], written_out(marked(changes), ends[1][row]))
    # Control: which rank is removed and which is marked matters.
    assert not np.allclose(pair, pair.transpose(0, 2, 1))
