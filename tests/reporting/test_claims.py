"""Claims on the page, without a browser: what came out, findings, the article, the table; all from the folder."""

import html
import re
from pathlib import Path

import msgspec
import pytest

from support.page_material import NASTY, write_article, write_claims
from topicscope.reporting.page import page_of
from topicscope.reporting.page.sections import section_of


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_article(tmp_path_factory.mktemp("article") / "results")


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", page)))


def test_what_came_out_is_said_first_then_the_findings_then_the_argument_then_all_claims(results: Path) -> None:
    page = page_of([results]).html
    first = text_of(page[page.index('id="results"') : page.index("<nav")])
    assert (
        "Of the paper's claims 5 hold, 3 fail, 1 is undecided. Why 3 of the paper's fail: not explained (3)." in first
    )
    places = [page.index(f'id="{anchor}"') for anchor in (
        "results", "findings", "film", "sandbox", "embeddings", "value", "stages", "try", "yours", "training",
        "claims-0",
    )]  # fmt: skip
    assert places == sorted(places)
    # Nothing was run on language models: there is no such section.
    assert 'id="models"' not in page


def test_a_claim_of_the_article_is_its_own_statement_with_its_verdict_and_number(results: Path) -> None:
    line = next(line for line in page_of([results]).html.split("<li>") if "converges to Theorem 2" in line)
    assert "✗ fails" in line
    assert "-0.82" in text_of(line)


def test_a_finding_has_the_numbers_and_the_claims_that_carry_it(results: Path) -> None:
    page = page_of([results]).html
    section = text_of(page[page.index('id="findings"') : page.index('id="film"')])
    assert "SGD lingers" in section
    # A verdict stands behind the claim that it belongs to, not behind our sentence.
    assert "Behind it: figure2/sgd-lingers holds (1.61 inside the rule > 0), figure2/theorem2 fails" in section
    # One of whose claims is undecided says so; those of whose claims one was not run are left out.
    assert "Jointly" not in section
    assert "What takes off" not in section


def test_a_claim_has_its_rows_its_reason_its_place_in_the_paper_and_its_command(tmp_path: Path) -> None:
    page = page_of([write_claims(tmp_path / "results")]).html
    assert NASTY not in page
    assert "topicscope reproduce --only figure2/a --preset quick --seeds 3 --seed 0 --out" in page
    assert "https://ar5iv.labs.arxiv.org/html/2303.04245#S6.SS1" in page
    assert "It was not tried." in page
    rows = page_of([write_article(tmp_path / "article")]).html
    claim = rows[rows.index("<code>figure2/blocks</code>") :].split("</details>")[0]
    assert [sign in claim for sign in ("✓ holds", "✗ fails")] == [True, True]
    assert "SGD" in claim


def test_sources_are_linked_to_sections_of_the_paper() -> None:
    copy = "https://example.org/paper"
    assert section_of(copy, "5.2") == ("§5.2", f"{copy}#S5.SS2")
    assert section_of(copy, "A.1") == ("§A.1", f"{copy}#A1.SS1")
    assert section_of(copy, "4") == ("§4", f"{copy}#S4")
    assert section_of(copy, "../x") == section_of("", "4") == section_of(copy, "") == ("", "")


def test_an_unfinished_or_damaged_folder_is_named_and_the_page_is_there_all_the_same(tmp_path: Path) -> None:
    folder = write_claims(tmp_path / "results")
    (folder / "claims.json").write_text("[]")
    assert "no claim is measured yet" in page_of([folder]).html
    (folder / "claims.json").write_text("[3]")
    assert "claims.json cannot be read" in page_of([folder]).html
    write_claims(tmp_path / "other")
    (tmp_path / "other" / "article.json").write_text("[{}]")
    page = page_of([tmp_path / "other"]).html
    assert "article.json cannot be read" in page
    assert "figure2/a" in page


def test_words_from_a_folder_are_no_markup_and_no_other_address_than_of_the_web(tmp_path: Path) -> None:
    folder = write_article(tmp_path / "results")
    (words,) = msgspec.json.decode((folder / "article.json").read_bytes())
    nasty = words | {"opening": [NASTY, f"${NASTY}$"], "title": NASTY, "cite": NASTY, "captions": {"figure2": NASTY}}
    nasty["sections"][0]["title"] = nasty["findings"][0]["sentence"] = NASTY
    (folder / "article.json").write_bytes(msgspec.json.encode([nasty]))
    page = page_of([folder]).html
    assert NASTY not in page
    assert html.escape(NASTY, quote=False).replace('"', "&#34;") in page
    (folder / "article.json").write_bytes(msgspec.json.encode([nasty | {"url": "javascript:alert(1)"}]))
    page = page_of([folder]).html
    assert "javascript:alert" not in page
    assert "article.json cannot be read" in page


def test_several_folders_of_claims_have_a_table_each_and_one_article(tmp_path: Path) -> None:
    page = page_of([write_article(tmp_path / "one"), write_claims(tmp_path / "two")]).html
    assert page.count('<section class="claims') == 2
    assert page.count('id="sandbox"') == 1
