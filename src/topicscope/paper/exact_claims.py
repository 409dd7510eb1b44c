"""Kinds of claims on exact numbers: what is expected and the rule are one statement, said once."""

from typing import Any

from topicscope.paper.claims import Claim, Number, above, below, near

# A number that should be zero, up to rounding; excess losses are below 10⁻¹⁵ then.
ROUNDING = 1e-10


def zero(**claim: Any) -> Claim:
    """The number, least at zero, is there up to rounding."""
    return Claim(expected=0.0, rule=below(ROUNDING), **claim)


def equal(value: Number, tolerance: float = ROUNDING, **claim: Any) -> Claim:
    """The number is this one."""
    return Claim(expected=float(value), rule=near(value, tolerance), **claim)


def larger(than: Number, **claim: Any) -> Claim:
    """The number is above this one."""
    return Claim(expected=f"> {than:g}", rule=above(than), **claim)
