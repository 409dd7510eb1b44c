"""Claims that need no training: exact numbers from the theory."""

from topicscope.paper.claims import Claim, Drawing, Measurement, Preset, Results, below, exact
from topicscope.settings import Masking
from topicscope.theory.lemma import lemma_1
from topicscope.theory.optima import theorem_2


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All exact claims; presets do not differ here."""
    return (
        Claim(
            id="theorem2/member",
            source="Theorem 2",
            statement="Theorem 2's matrix is in Lemma 1's family.",
            expected=0.0,
            rule=below(1e-9),
            measure=_theorem_2_distance,
        ),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Figures of the exact claims."""
    return ()


def _theorem_2_distance(trained: Results) -> Measurement:
    matrix = theorem_2(10, 10, Masking())
    return exact(float(abs(lemma_1(10, 10, Masking()).project(matrix) - matrix).max()))
