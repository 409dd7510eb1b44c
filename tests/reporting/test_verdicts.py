"""What all claims together say, from rows that are made up."""

import re
from typing import Any

import pytest

from topicscope.paper import registry
from topicscope.paper.claim import PRESETS, exact, row
from topicscope.reporting import verdicts


def made(
    id_: str, verdict: str = "holds", *, source: str = "Figure 2", kind: str = "paper", **more: Any
) -> dict[str, Any]:
    diagnosis = {"cause": "settings", "explanation": "It is too short.", "holds": "later", "see": ["figure2/late"]}
    return {
        "id": id_,
        "source": source,
        "kind": kind,
        "statement": f"Statement of {id_}.",
        "rule": "> 0.5",
        "measured": 0.25,
        "low": 0.2,
        "high": 0.3,
        "verdict": verdict,
        "verdict_corrected": verdict,
        "sensitivity": None,
        "diagnosis": None if verdict == "holds" else diagnosis,
        "details": {},
    } | more  # fmt: skip


def test_counts_agree_in_number_and_checks_are_not_counted() -> None:
    rows = [
        made("figure2/a"),
        made("figure2/b", "fails"),
        made("figure2/c", "undecided", kind="ours"),
        made("figure2/d", "not run", kind="ours"),
        made("figure2/e", "not run", kind="ours"),
        made("figure2/f", kind="check"),
    ]
    assert verdicts.by_kind(rows) == (
        "of the paper's claims 1 holds, 1 fails; of ours 1 is undecided, 2 are not run."
    )  # fmt: skip


def test_every_source_of_a_preset_is_in_one_line_and_each_claim_in_one_only() -> None:
    claims = registry(PRESETS["quick"]).claims
    rows = [made(claim.id, source=claim.source, kind=claim.kind) for claim in claims]
    lines = verdicts.source_lines(rows)
    assert len(lines) <= 12
    numbers = [int(number) for line in lines for number in re.findall(r"(\d+) holds?\b", line)]
    assert sum(numbers) == sum(claim.kind != "check" for claim in claims)
    # A source that nobody grouped has a line of its own.
    assert verdicts.source_lines([*rows, made("figure99/a", source="Figure 99")])[-1].startswith("Figure 99: ")


def test_a_check_that_does_not_hold_is_in_the_headline() -> None:
    rows = [made("figure2/a"), made("figure2/f", "fails", kind="check")]
    assert "Checks that should always hold do not: figure2/f." in verdicts.headline(rows)
    assert len(verdicts.headline(rows[:1])) == 1


def test_a_finding_is_said_with_its_numbers_only_if_its_claims_bear_it_out() -> None:
    finding = verdicts.FINDINGS[2]
    rows = [made(name, verdict) for name, verdict in finding.claims.items()]
    (said,) = verdicts.findings(rows)
    assert said.startswith(finding.title)
    assert "have 25 % of what a word has" in said
    (whole,) = verdicts.findings([each | {"measured": 0.9999} for each in rows])
    assert "have 100 % of what a word has" in whole
    (said,) = verdicts.findings([rows[0] | {"verdict": "holds"}, rows[1]])
    assert said == f"Not confirmed here ({rows[0]['id']}): {finding.title}"
    assert verdicts.findings(rows[:1]) == []


def test_findings_name_claims_and_details_that_there_are() -> None:
    claims = {claim.id for claim in registry(PRESETS["quick"]).claims}
    for finding in verdicts.FINDINGS:
        assert set(finding.claims) <= claims
        named = re.findall(r"\{([^}|]+)", finding.said)
        assert named
        assert set(named) <= set(finding.claims)


def test_what_does_not_hold_comes_with_its_diagnosis_and_fails_of_the_paper_come_first() -> None:
    rows = [
        made("figure2/u", "undecided"),
        made("figure2/o", "fails", kind="ours"),
        made("figure2/p", "fails"),
        made("figure2/h"),
    ]
    found = verdicts.what_does_not_hold(rows)
    assert [each["id"] for each, _ in found] == ["figure2/p", "figure2/o", "figure2/u"]
    assert found[0][1] == "A matter of settings. It is too short. It holds later. See figure2/late."


def test_only_verdicts_that_turn_are_in_the_table_of_sensitivity() -> None:
    turned = {"third": "holds", "triple": "fails"}
    rows = [
        made("figure2/turns", sensitivity=turned),
        made("figure2/stays", sensitivity=dict.fromkeys(turned, "holds")),
        made("figure2/given"),
        made("figure2/check", kind="check", sensitivity=turned),
    ]
    inside = {"take-off at a third": "holds", "take-off at three times": "undecided"}
    rows.append(made("figure4/turns", sensitivity=dict.fromkeys(turned, "holds") | inside))
    rule, take_off = verdicts.sensitivity_table(rows).split("\n\n")
    assert rule.splitlines()[2:] == ["| `figure2/turns` | 0.25 | > 0.5 | holds | holds | fails |"]
    assert take_off.splitlines()[2:] == ["| `figure4/turns` | 0.25 | > 0.5 | holds | holds | undecided |"]


def test_latex_has_every_number_as_a_macro_and_a_table_per_source() -> None:
    rows = [made("figure2/a", measured=1.5e-7), made("section8.1/b", source="§8.1", measured=None, low=None)]
    text = verdicts.latex(rows)
    assert r"\csname claim@figure2/a@measured\endcsname{\ensuremath{1.5\cdot 10^{-7}}}" in text
    assert r"\csname claim@section8.1/b@measured\endcsname{--}" in text
    assert r"\csname claimtable@Section 8.1\endcsname" in text
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_latex_of_all_claims_is_ascii_with_braces_and_dollars_in_pairs(preset: str) -> None:
    rows = [row(claim, exact(0.5), "holds") for claim in registry(PRESETS[preset]).claims]
    text = verdicts.latex(rows)
    assert text.isascii()
    # Without escaped ones.
    plain = re.sub(r"\\[{}$&%#_]", "", re.sub(r"(?m)^%.*$", "", text))
    assert plain.count("{") == plain.count("}")
    assert all(line.count("$") % 2 == 0 for line in plain.splitlines())
    assert "$$" not in plain
    # Two cells' ends per line of a table, and no formula with two powers on one letter.
    body = [line for line in plain.splitlines() if line.endswith(r"\\") and not line.startswith(r"\toprule")]
    assert len(body) == len(rows)
    assert all(line.count("&") == 2 for line in body)
    assert not re.search(r"\^[A-Z]\^", plain)


def test_latex_of_a_statement_with_symbols() -> None:
    text = verdicts.latex([made("figure2/a", statement="‖W^V‖² ≥ 5 % of α̂, W^E⊤W^E & p_c.")])
    assert r"$\|W^V\|{}^{2}$ $\ge{}$ 5 \% of $\hat{\alpha{}}$, $W^E{}^{\top}W^E$ \& p\_c." in text
