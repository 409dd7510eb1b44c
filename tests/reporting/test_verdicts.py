"""What all claims together say, from records that are made up."""

import re
from typing import Any

import msgspec
import pytest

from topicscope.papers.claim import exact, record
from topicscope.papers.paper import paper
from topicscope.records import ClaimRecord, ClaimRowRecord, DiagnosisRecord, SourceGroup
from topicscope.reporting import verdicts
from topicscope.reporting.rounding import number_text

DIAGNOSIS = DiagnosisRecord(cause="settings", explanation="It is too short.", holds="later", see=["figure2/late"])


def made(
    name: str, verdict: Any = "holds", *, source: str = "Figure 2", kind: Any = "paper", **more: Any
) -> ClaimRecord:
    known: dict[str, Any] = {
        "id": name, "source": source, "kind": kind, "statement": f"Statement of {name}.", "rule": "> 0.5",
        "expected": "> 0.5", "measured": 0.25, "low": 0.2, "high": 0.3, "verdict": verdict, "margin": -0.25,
        "diagnosis": None if verdict == "holds" else DIAGNOSIS,
    }  # fmt: skip
    return ClaimRecord(**known | more)


def row(name: str, **more: Any) -> ClaimRowRecord:
    plain = ClaimRowRecord(name=name, measured=0.5, low=None, high=None, verdict="holds", margin=0.0)
    return msgspec.structs.replace(plain, **more)


def test_counts_agree_in_number() -> None:
    records = [
        made("figure2/a"),
        made("figure2/b", "fails"),
        made("figure2/c", "undecided", kind="ours"),
        made("figure2/d", "not run", kind="ours"),
        made("figure2/e", "not run", kind="ours"),
    ]
    assert verdicts.headline(records) == [
        "Of the paper's claims: 1 holds, 1 fails; of ours, beside them: 1 is undecided, 2 were not run.",
        "Why 1 of the paper's fails: a matter of settings (1).",
    ]
    assert verdicts.headline([made("table1/bert", "not run")])[1:] == ["Not run: table1/bert."]
    assert verdicts.headline([]) == ["No claim is counted."]


def test_every_claim_is_in_one_line_of_the_table() -> None:
    own = paper()
    records = [record(claim, own.name, exact(0.5)) for claim in own.claims]
    table = verdicts.source_table(records, own.content.group)
    assert len(table) <= 12
    assert [line["sources"] for line in table] == [group.title for group in own.content.group]
    numbers = [int(number) for line in table for cell in [*line.values()][1:] for number in re.findall(r"\d+", cell)]
    assert sum(numbers) == len(own.claims)
    # A source that nobody grouped has a line of its own.
    other = verdicts.source_table([made("figure99/a", source="Figure 99")], [SourceGroup(title="x", sources={"y": ""})])
    assert other == [{"sources": "Figure 99", "the paper's": "1 holds", "elsewhere and ours": ""}]


def test_what_does_not_hold_comes_with_its_diagnosis_and_fails_of_the_paper_come_first() -> None:
    records = [
        made("figure2/u", "undecided"),
        made("figure2/o", "fails", kind="ours"),
        made("figure2/p", "fails"),
        made("figure2/h"),
    ]
    broken = verdicts.what_does_not_hold(records)
    assert [claim.id for claim in broken] == ["figure2/p", "figure2/o", "figure2/u"]
    assert verdicts.why(broken[0]) == "A matter of settings. It is too short. It holds later. See figure2/late."
    assert verdicts.why(made("figure2/h")) == ""
    assert verdicts.why(made("figure2/n", "not run")) == "It is too short."


def test_the_distance_from_the_rule_says_on_which_side() -> None:
    assert verdicts.margin_text(made("a")) == "0.25 outside the rule > 0.5"
    assert verdicts.margin_text(made("a", margin=1e-5, rule="< 1e-10")) == "10⁻⁵ inside the rule < 10⁻¹⁰"
    assert verdicts.margin_text(made("a", margin=None)) == ""


def test_the_table_has_a_line_for_each_claim_and_each_row() -> None:
    lines = verdicts.table([made("figure2/a", rows=[row("one"), row("two", details={"n": 1.0})]), made("figure2/b")])
    assert [(line["id"], line["row"]) for line in lines] == [
        ("figure2/a", ""), ("figure2/a", "one"), ("figure2/a", "two"), ("figure2/b", "")
    ]  # fmt: skip
    assert lines[2]["details"] == '{"n":1.0}'
    assert lines[1]["measured"] == 0.5


def test_latex_has_every_number_as_a_macro_and_a_table_per_source() -> None:
    records = [
        made("figure2/a", measured=1.5e-7, rows=[row("T = 10, τ = 2")]),
        made("section8.1/b", source="§8.1", measured=None, low=None),
    ]
    text = verdicts.latex(records)
    assert r"\csname claim@figure2/a@measured\endcsname{\ensuremath{1.5\cdot 10^{-7}}}" in text
    assert r"\csname claim@figure2/a/T = 10, tau = 2@measured\endcsname{\ensuremath{0.5}}" in text
    assert r"\csname claim@section8.1/b@measured\endcsname{--}" in text
    assert r"\csname claimtable@Section 8.1\endcsname" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    text = verdicts.latex([made("figure2/a", statement="‖W^V‖² ≥ 5 % of α̂, W^E⊤W^E & p_c.")])
    assert r"$\|W^V\|{}^{2}$ $\ge{}$ 5 \% of $\hat{\alpha{}}$, $W^E{}^{\top}W^E$ \& p\_c." in text


def test_latex_of_all_claims_is_ascii_with_braces_and_dollars_in_pairs() -> None:
    own = paper()
    names = [
        "Figure 1, SGD: W^E⊤W^E changes by less than a tenth of its norm",
        "random:minilm, cosine, 0.0005",
        "τ = 2",
    ]
    records = [
        msgspec.structs.replace(record(claim, own.name, exact(0.5)), rows=[row(name) for name in names])
        for claim in own.claims
    ]
    text = verdicts.latex(records)
    assert text.isascii()
    # Without escaped ones.
    plain = re.sub(r"\\[{}$&%#_]", "", re.sub(r"(?m)^%.*$", "", text))
    assert plain.count("{") == plain.count("}")
    assert all(line.count("$") % 2 == 0 for line in plain.splitlines())
    assert "$$" not in plain
    # Two cells' ends per line of a table, and no formula with two powers on one letter.
    body = [line for line in plain.splitlines() if line.endswith(r"\\") and not line.startswith(r"\toprule")]
    assert len(body) == len(records) * (1 + len(names))
    assert all(line.count("&") == 2 for line in body)
    assert not re.search(r"\^[A-Z]\^", "\n".join(line for line in body if "csname" not in line))


@pytest.mark.parametrize(
    ("value", "low", "high", "percent", "text"),
    [
        (0.8, 0.8 - 1e-15, 0.8 + 1e-15, False, "0.8"),
        (98.822, 98.809, 98.836, False, "98.82 [98.81, 98.84]"),
        (0.512, 0.5, 0.53, True, "51.2 % [50.0, 53.0 %]"),
        (1385054.0, 1196322.0, 1573787.0, False, "1.39 [1.20, 1.57] million"),
        (-0.5, -0.75, 0.25, False, "−0.5 [−0.8, 0.2]"),
        (7.0, None, None, False, "7"),
        (None, None, None, False, "–"),
    ],
)
def test_numbers_in_sentences_have_no_more_digits_than_are_read(
    value: float | None, low: float | None, high: float | None, percent: bool, text: str
) -> None:
    assert number_text(value, low, high, percent=percent) == text
