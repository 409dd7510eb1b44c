"""Claims that need no training: numbers without uncertainty, from the theory."""

from topicscope.paper import exact_attention, exact_uniform
from topicscope.paper.claim import Claim, Drawing, Preset


def claims(preset: Preset) -> tuple[Claim, ...]:
    """All exact claims, in the paper's order."""
    return exact_uniform.CLAIMS + exact_attention.claims(preset)


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Their figures."""
    return exact_attention.drawings(preset)
