"""The paper as claims: what each says, how it is measured, and the experiments that it needs.

A file per group of theorems, per figure and per table; ``registry`` has all claims and drawings of a preset, in the
order in which they are shown.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from topicscope.errors import InputError
from topicscope.paper.claim import (
    PRESETS,
    Claim,
    Drawing,
    Measurement,
    Need,
    Preset,
    Rule,
    above,
    below,
    corrected_verdicts,
    exact,
    interval_given,
    near,
    over_seeds,
    verdict,
    within,
)
from topicscope.paper.experiment import Experiment, Trained

__all__ = [
    "PRESETS",
    "Claim",
    "Drawing",
    "Experiment",
    "Measurement",
    "Need",
    "Preset",
    "Registry",
    "Rule",
    "Trained",
    "above",
    "below",
    "corrected_verdicts",
    "exact",
    "interval_given",
    "near",
    "over_seeds",
    "registry",
    "verdict",
    "within",
]


@dataclass(frozen=True)
class Registry:
    """Claims and drawings, their names unique."""

    claims: tuple[Claim, ...]
    drawings: tuple[Drawing, ...]

    def __post_init__(self) -> None:
        for names in ([claim.id for claim in self.claims], [drawing.name for drawing in self.drawings]):
            assert len(set(names)) == len(names), "names must be unique"

    def select(self, only: tuple[str, ...]) -> tuple[Claim, ...]:
        """Claims whose id is one of ``only`` or begins with it, or whose source it is ("figure2", "Figure 2")."""
        if not only:
            return self.claims
        for word in only:
            if not any(matches(claim, word) for claim in self.claims):
                ids = [claim.id for claim in self.claims]
                beginnings = [id_[:end] for id_ in ids for end, letter in enumerate(id_) if letter == "/"]
                meant = word.lower().replace(" ", "").rstrip("/")
                near = " or ".join(get_close_matches(meant, dict.fromkeys([*beginnings, *ids]), n=3))
                remedy = f"did you mean {near}? " if near else "give an id, its beginning or a source; see --list."
                raise InputError(f'--only "{word}" is no claim: {remedy}')
        return tuple(claim for claim in self.claims if any(matches(claim, word) for word in only))


def matches(claim: Claim, word: str) -> bool:
    """Whether a word given to ``--only`` means this claim."""
    source = claim.source.lower().replace(" ", "")
    plain = word.lower().replace(" ", "")
    return plain == source or claim.id == word or claim.id.startswith(word.rstrip("/") + "/")


def registry(preset: Preset) -> Registry:
    """Every module's claims and drawings; those of a new module are added here."""
    # These are imported here, so that a claim's type can be named without the code that measures it.
    from topicscope.paper import (
        as_released,
        figure1,
        figure2,
        figure3,
        figure4,
        figure5,
        figure10,
        figures6_9,
        robustness,
        section3,
        table2,
        table3,
        tables1_5,
        theorem1,
        theorem2,
        theorem3,
        training,
    )

    claims = (
        section3.claims,
        theorem2.lemma1_claims,
        theorem1.exact_claims,
        theorem2.claims,
        theorem3.claims,
        figures6_9.claims,
        figure1.claims,
        theorem1.training_claims,
        training.part_claims,
        figure2.claims,
        figure10.claims,
        figure4.claims,
        figure4.predicted_claims,
        figure5.claims,
        training.gradient_claims,
        training.schedule_claims,
        table3.claims,
        robustness.claims,
        robustness.mask_claims,
        as_released.claims,
        tables1_5.claims,
        figure3.claims,
        table2.claims,
    )
    drawings = (
        figures6_9.drawings,
        figure1.drawings,
        theorem1.drawings,
        training.part_drawings,
        figure2.drawings,
        figure10.drawings,
        figure4.drawings,
        figure4.predicted_drawings,
        figure5.drawings,
        training.gradient_drawings,
        training.schedule_drawings,
        table3.drawings,
        robustness.drawings,
        robustness.mask_drawings,
        as_released.drawings,
        tables1_5.drawings,
        figure3.drawings,
    )
    return Registry(
        claims=tuple(claim for make in claims for claim in make(preset)),
        drawings=tuple(drawing for make in drawings for drawing in make(preset)),
    )
