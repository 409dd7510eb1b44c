"""All claims of all papers: what each must have, and that findings, articles and documents speak of what there is."""

import re
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import pytest

from support.small_paper import small_paper
from topicscope.errors import InputError
from topicscope.papers.claim import Claim
from topicscope.papers.needs import PRESETS, Need
from topicscope.papers.paper import PLACE, FigureEntry, Paper, article, matches, paper, paper_names, selected

PAPERS = {f"{name}, {preset}": paper(name, PRESETS[preset]) for name in paper_names() for preset in PRESETS}
OWN = PAPERS["topic_structure, quick"]
ROOT = Path(__file__).parents[2]
ID = re.compile(r"[a-z0-9.]+(-[a-z0-9.]+)*(/[a-z0-9.]+(-[a-z0-9.]+)*)*")
# Words that make a statement depend on what stands before it.
DEPENDENT = re.compile(r"^(so|it|this|these|they|that|but|and|also|here|there)\b(?! is more)", re.IGNORECASE)


@pytest.fixture(params=list(PAPERS), scope="module")
def whole(request: pytest.FixtureRequest) -> Paper:
    return PAPERS[request.param]


def faults(own: Paper, claim: Claim) -> list[str]:
    """What is wrong with a claim."""
    figures, ids = {figure.name for figure in own.figures}, {known.id for known in own.claims}
    sources = {source for group in own.content.group for source in group.sources}
    wrong = {
        "its id is not in small letters and slashes": not ID.fullmatch(claim.id),
        "its statement does not end with a full stop": not claim.statement.endswith("."),
        "its statement is more than one sentence": ". " in claim.statement.replace("cf. ", ""),
        "its statement cannot be understood alone": bool(DEPENDENT.match(claim.statement)),
        "its statement is another claim's": [known.statement for known in own.claims].count(claim.statement) > 1,
        "its figure is not drawn": claim.figure not in figures | {""},
        "its source is in no group": claim.source not in sources,
        "nothing is called as it needs": bool(claim.needs) and not own.needs_of(claim),
        "its diagnosis refers to no claim": claim.diagnosis is not None and not set(claim.diagnosis.see) <= ids,
    }
    try:
        own.measuring(claim)
    except (AttributeError, ImportError) as error:
        return [str(error)]
    return [fault for fault, there in wrong.items() if there]


def test_every_claim_has_what_it_must_have(whole: Paper) -> None:
    assert {claim.id: wrong for claim in whole.claims if (wrong := faults(whole, claim))} == {}
    assert 80 <= len(whole.claims) <= 120
    for names in ([claim.id for claim in whole.claims], [figure.name for figure in whole.figures]):
        assert len(set(names)) == len(names)


def test_a_claim_that_lacks_something_is_noticed() -> None:
    broken = {
        "statement": "It holds",
        "id": "Figure 2/Blocks",
        "quantity": "trained.no_such_function",
        "figure": "figure99",
        "source": "Figure 99",
        "needs": ("figure99/*",),
    }
    for name, value in broken.items():
        assert faults(OWN, msgspec.structs.replace(OWN.claims[0], **{name: value})), name
    with pytest.raises(ValueError, match="is no rule"):
        msgspec.structs.replace(OWN.claims[0], rule="about 1")


def test_every_figure_is_shown_and_every_need_is_needed(whole: Paper) -> None:
    entries: list[Claim | FigureEntry] = [*whole.claims, *whole.figures]
    shown = {claim.figure for claim in whole.claims} | {finding.figure for finding in whole.content.finding}
    for figure in whole.figures:
        assert figure.name in shown or figure.draw == "landscapes.draw", figure.name
        assert not figure.needs or whole.needs_of(figure), figure.name
        whole.drawing(figure)
    assert whole.experiments.keys() == {name for entry in entries for name in whole.needs_of(entry)}
    assert all(isinstance(need, Need) for need in whole.experiments.values())
    keys = Counter(str(need.key((0, 1))) for need in whole.experiments.values() if not need.unavailable)
    assert max(keys.values()) <= 3


def test_findings_and_the_article_speak_of_claims_figures_and_rows_that_there_are(whole: Paper) -> None:
    ids, figures = {claim.id for claim in whole.claims}, {figure.name for figure in whole.figures}
    for finding in whole.content.finding:
        assert finding.claims.keys() <= ids
        assert finding.figure in figures
        places = {match["id"] for match in PLACE.finditer(finding.sentence)}
        assert places, "a finding has a number"
        assert places <= ids
    for part in (part for section in whole.article.section for part in section.part):
        assert set(part.claims) <= ids
        assert part.figure in figures | {""}
        assert sum(map(bool, (part.text, part.claims, part.figure, part.show))) == 1
    empty = article(whole, [])
    assert empty.findings == []
    assert [section.anchor for section in empty.sections] == [section.anchor for section in whole.article.section]


def test_claims_are_chosen_by_id_by_its_beginning_and_by_source() -> None:
    own = small_paper()

    def chosen(*only: str) -> list[str]:
        return [claim.id for _, claims in selected([own], only) for claim in claims]

    assert chosen("figure2/rows") == ["figure2/rows"]
    assert chosen("figure2") == chosen("Figure 2") == ["figure2/numbers", "figure2/rows", "figure2/run"]
    assert chosen("theorem9/", "figure2/run") == ["theorem9/zero", "figure2/run"]
    assert len(chosen()) == len(own.claims)
    assert not matches(own.claims[0], "theorem")
    with pytest.raises(InputError, match=r'"figure9" is no claim: did you mean figure2'):
        chosen("figure9")
    # A word that means a claim of one of several papers is enough.
    assert [len(claims) for _, claims in selected([own, replace(own, name="other")], ("figure2/run",))] == [1, 1]


def test_what_is_not_run_has_its_reason() -> None:
    reasons = {claim.id: OWN.missing(claim) for claim in OWN.claims if OWN.missing(claim)}
    assert list(reasons) == ["table3/squared-sgd", "table1/paper-models", "table1/paper-untrained"]
    assert "ten million steps" in reasons["table3/squared-sgd"]


def test_documents_name_every_claim_and_quote_the_findings() -> None:
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    patterns = {word for word in re.findall(r"`([a-z0-9./*-]+)`", text) if not word.endswith((".py", ".toml", "/"))}
    ids = {claim.id for claim in OWN.claims}
    named = {pattern: {id_ for id_ in ids if fnmatchcase(id_, pattern)} for pattern in patterns}
    unknown = {pattern for pattern, own_ids in named.items() if "/" in pattern and not own_ids}
    assert {pattern for pattern in unknown if not pattern.startswith(("papers", "tests"))} == set()
    assert ids - set().union(*named.values()) == set()
    titles = [finding.title.rstrip(".") for finding in OWN.content.finding]
    for page, all_of_them in (("docs/findings.md", True), ("README.md", False)):
        flat = (ROOT / page).read_text(encoding="utf-8").replace("\n   ", " ")
        quoted = re.findall(r"(?m)^\d\. \*\*(.+?)\.?\*\*", flat)
        assert quoted, page
        assert set(quoted) <= set(titles), page
        assert quoted == titles or not all_of_them


def test_readme_counts_every_claim_in_the_row_of_its_group() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"(?m)^\|.*\|$", text)]
    counted = {title: [sum(map(int, re.findall(r"\d+", cell))) for cell in cells] for title, *cells in rows[2:]}
    kinds = {
        group.title: Counter(claim.kind == "paper" for claim in OWN.claims if claim.source in group.sources)
        for group in OWN.content.group
    }
    assert counted == {title: [count[True], count[False]] for title, count in kinds.items()}
