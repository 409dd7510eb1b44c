"""A paper of four claims, whose needs are done at once, for tests of ``reproduce``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from support.helpers import small_settings
from topicscope.papers.needs import Experiment
from topicscope.papers.paper import ArticleFile, ClaimsFile, Paper
from topicscope.records import ClaimRecord

# Names of the needs that were done.
DONE: list[str] = []
CLAIMS = """
title = "Small"
cite = "Nobody (1999)"
url = "https://example.org"

[[finding]]
title = "Numbers grow."
sentence = "They are {figure2/numbers} and {figure2/rows@short}%, with {figure2/numbers|note}."
claims = { "figure2/numbers" = "holds", "figure2/rows" = "fails" }
figure = "figure2"

[[finding]]
title = "It is there."
sentence = "It is."
claims = { "table1/absent" = "holds" }

[[group]]
title = "Figures"
sources = { "Figure 2" = "6.1" }

[[figure]]
name = "figure2"
needs = ["figure2/*"]
draw = "measures.figure2"
caption = "Figure 2: numbers"

[[claim]]
id = "theorem9/zero"
source = "Theorem 9"
statement = "Nothing is nothing."
quantity = "measures.nothing"
rule = "< 1e-10"

[[claim]]
id = "figure2/numbers"
source = "Figure 2"
statement = "Numbers are above 0.1."
quantity = "measures.numbers"
needs = ["figure2/long"]
rule = "> 0.1"
figure = "figure2"

[[claim]]
id = "figure2/rows"
source = "Figure 2"
kind = "ours"
statement = "Numbers of W^V are above 0.5 in every row."
quantity = "measures.rows"
needs = ["figure2/*"]
rule = "> 0.5"
figure = "figure2"
[claim.diagnosis]
cause = "settings"
explanation = "It is too short."
holds = "when it is long"
see = ["figure2/numbers"]

[[claim]]
id = "figure2/run"
source = "Figure 2"
kind = "ours"
statement = "Training ends at a finite loss."
quantity = "measures.loss"
needs = ["small/run"]
rule = "< 100"

[[claim]]
id = "table1/absent"
source = "Table 1"
statement = "What is absent is there."
quantity = "measures.nothing"
needs = ["absent/*"]
rule = "< 1"
"""
ARTICLE = """
opening = ["Numbers are what W^V is made of."]

[[section]]
anchor = "start"
title = "The start"
[[section.part]]
text = "There are numbers."
[[section.part]]
claims = ["figure2/numbers", "figure2/rows"]
[[section.part]]
figure = "figure2"

[[section]]
anchor = "end"
title = "What is absent"
[[section.part]]
claims = ["table1/no-such-claim"]
"""
TRAINED = Experiment(
    name="small/run",
    settings=small_settings(data={"topics": 3, "words": 3}, training={"steps": 4, "log_every": 2, "snapshots": 2}),
)


@dataclass(frozen=True)
class Numbers:
    """A number per seed."""

    name: str
    number: float
    unavailable: str = ""
    cost: float = 1.0
    suffix: ClassVar[str] = ".json"

    def key(self, seeds: tuple[int, ...]) -> dict[str, Any]:
        return {"number": self.number, "seeds": list(seeds)}

    def compute(self, seeds: tuple[int, ...], scratch: Path) -> bytes:
        DONE.append(self.name)
        return json.dumps([self.number * (1 + 0.01 * seed) for seed in seeds]).encode()

    def restore(self, content: bytes) -> list[float]:
        return list(json.loads(content))


def small_paper(*needs: Any, reason: str = "The model is not on this machine.") -> Paper:
    """The paper; without ``needs`` it has two pieces of work, one of them under two names, and a training."""
    chosen = needs or (
        Numbers("figure2/long", 1.0, cost=3.0),
        Numbers("figure2/same", 1.0),
        Numbers("figure2/short", 0.25),
        TRAINED,
    )
    experiments = {need.name: need for need in (*chosen, Numbers("absent/model", 0.5, unavailable=reason))}
    content, article = (
        msgspec.toml.decode(text, type=kind) for text, kind in ((CLAIMS, ClaimsFile), (ARTICLE, ArticleFile))
    )
    assert isinstance(content, ClaimsFile)
    assert isinstance(article, ArticleFile)
    return Paper("small_paper", content, experiments, article, package="support")


def read(out: Path) -> list[ClaimRecord]:
    return msgspec.json.decode((out / "claims.json").read_bytes(), type=list[ClaimRecord])
