"""All claims and drawings of a preset, in the order in which they are shown."""

from dataclasses import dataclass
from difflib import get_close_matches

from topicscope.errors import InputError
from topicscope.paper.claim import Claim, Drawing, Preset


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
        chosen = [claim for claim in self.claims if any(matches(claim, word) for word in only)]
        for word in only:
            if not any(matches(claim, word) for claim in self.claims):
                raise InputError(f'--only "{word}" is no claim: {self._suggestion(word)}')
        return tuple(chosen)

    def _suggestion(self, word: str) -> str:
        """What the word may have been meant to be."""
        ids = [claim.id for claim in self.claims]
        beginnings = [
            "/".join(parts[:end]) for parts in (id_.split("/") for id_ in ids) for end in range(1, len(parts))
        ]
        near = get_close_matches(word.lower().replace(" ", "").rstrip("/"), dict.fromkeys([*beginnings, *ids]), n=3)
        if not near:
            return "give an id, its beginning or a source; see --list."
        return f"did you mean {' or '.join(near)}? "


def matches(claim: Claim, word: str) -> bool:
    """Whether a word given to ``--only`` means this claim."""
    source = claim.source.lower().replace(" ", "")
    plain = word.lower().replace(" ", "")
    return plain == source or claim.id == word or claim.id.startswith(word.rstrip("/") + "/")


def registry(preset: Preset) -> Registry:
    """Every module's claims; a new module of claims is added here."""
    # Imported here so that naming a claim's type does not need what measures it.
    from topicscope.paper import (
        alternating,
        appearance,
        compensation,
        exact,
        figure1,
        figure2,
        figure3,
        figure4,
        figure5,
        figure10,
        gradients,
        masking,
        robustness,
        table2,
        table3,
        tables1_5,
        theorem1,
    )

    trained = (
        figure1,
        theorem1,
        compensation,
        figure2,
        figure10,
        figure4,
        figure5,
        appearance,
        gradients,
        alternating,
        table3,
        robustness,
        masking,
    )
    modules = (exact, *trained, tables1_5, figure3, table2)
    return Registry(
        claims=tuple(claim for module in modules for claim in module.claims(preset)),
        drawings=tuple(drawing for module in modules for drawing in module.drawings(preset)),
    )
