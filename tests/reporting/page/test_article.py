"""The page as an article, without a browser: which sentences it has, and that verdicts decide them."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from support.page_data import data_of
from support.page_material import save_view, two_stages, with_theory, write_article, write_runs
from topicscope.paper import registry
from topicscope.paper.claim import PRESETS
from topicscope.reporting.page import page_html
from topicscope.reporting.page.article import _interval, words
from topicscope.reporting.page.runs import take_offs, theory_run, two_stage_run, where_things_happen


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_article(tmp_path_factory.mktemp("article") / "results")


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))


def test_every_claim_that_the_article_speaks_of_is_one_of_ours() -> None:
    known = {claim.id for claim in registry(PRESETS["quick"]).claims}
    paragraphs = [part.get("sentence", []) for section in words()["section"] for part in section["part"]]
    paragraphs += [finding["sentence"] for finding in words()["finding"]]
    spoken = {sentence["claim"] for each in paragraphs for sentence in each if "claim" in sentence}
    spoken |= {name for finding in words()["finding"] for name in finding["more"]}
    assert len(spoken) > 25
    assert spoken - known == set()
    assert {"no/such-claim"} - known


def test_every_sentence_says_what_is_undecided_with_its_number_and_every_drawing_has_a_title() -> None:
    paragraphs = [part.get("sentence", []) for section in words()["section"] for part in section["part"]]
    paragraphs += [finding["sentence"] for finding in words()["finding"]]
    spoken = [sentence for each in paragraphs for sentence in each if "claim" in sentence]
    assert len(spoken) > 25
    for sentence in spoken:
        assert "undecided" in sentence["undecided"].lower()
        assert re.search(r"\{(value|percent|alpha)\}", sentence["undecided"])
    assert {each.name for each in registry(PRESETS["quick"]).drawings} - words()["titles"].keys() == set()


def test_the_article_has_the_papers_order_and_ends_with_the_claims(results: Path) -> None:
    page = page_html([results])
    places = [page.index(f'id="{anchor}"') for anchor in (
        "film", "sandbox", "embeddings", "value", "stages", "findings", "yours", "training", "claims-0"
    )]  # fmt: skip
    assert places == sorted(places)
    # Nothing was run on real models: there is no such section.
    assert 'id="models"' not in page


def test_a_verdict_decides_the_sentence_and_its_numbers_are_those_of_the_claim(results: Path, tmp_path: Path) -> None:
    said = text_of(page_html([results]))
    assert "Adam goes past it" in said
    assert "So does Adam" not in said
    rows = json.loads((results / "claims.json").read_text())
    (row,) = (row for row in rows if row["id"] == "figure2/squared-adam/theorem2")
    assert row["measured"] == pytest.approx(0.82, rel=0.02)
    row |= {"verdict": "holds", "measured": 0.0512, "low": 0.05, "high": 0.053}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "claims.json").write_text(json.dumps(rows))
    said = text_of(page_html([tmp_path / "results"]))
    assert "Adam goes past it" not in said
    assert "So does Adam (5.12 % [5.00, 5.30 %])" in said
    # What is undecided is not told as what fails.
    row |= {"verdict": "undecided", "measured": 0.1, "low": 0.05, "high": 0.15}
    (tmp_path / "results" / "claims.json").write_text(json.dumps(rows))
    said = text_of(page_html([tmp_path / "results"]))
    assert "Whether Adam does is undecided: 10 % [5, 15 %] of the contrast away." in said
    assert "Adam goes past it" not in said


@pytest.mark.parametrize(
    ("measured", "low", "high", "said"),
    [
        (0.8, 0.8 - 1e-15, 0.8 + 1e-15, "0.8"),
        (98.822, 98.809, 98.836, "98.82 [98.81, 98.84]"),
        (1.000001, 0.999997, 1.000006, "1.000"),
        (1385054.0, 1196322.0, 1573787.0, "1.39 [1.20, 1.57] million"),
        (-0.5, -0.75, 0.25, "−0.5 [−0.8, 0.2]"),
        (-0.0146, -0.0366, 0.0074, "−0.015 [−0.037, 0.007]"),
        (7.0, None, None, "7"),
    ],
)
def test_numbers_in_sentences_have_no_more_digits_than_are_read(
    measured: float, low: float | None, high: float | None, said: str
) -> None:
    assert _interval(measured, low, high) == said


def test_the_page_opens_on_a_run_with_theory_and_plays_two_stages(results: Path) -> None:
    views = [two_stages(), with_theory()]
    assert theory_run(views) is views[1]
    assert two_stage_run(views) is views[0]
    assert two_stage_run(views[1:]) is None
    assert take_offs(views[0]) == [{"step": 1200, "gain": pytest.approx(0.98), "mask": None}]
    data = data_of(page_html([results]))
    names = {player["id"]: data["runs"][player["run"]]["name"] for player in data["players"]}
    assert names["film-player"] == "figure2/squared-adam"
    assert names["stages-player"] == "figure4/squared/adam/scale-0.001"
    # A frozen part has no curve.
    assert "key" not in data["runs"][data["players"][0]["run"]]["norms"]


def test_a_run_alone_opens_on_what_it_is_for(tmp_path: Path) -> None:
    page = page_html([write_runs(tmp_path / "runs", seeds=1)])
    head = text_of(page.split("<main")[0])
    assert "After 12 of 12 steps the loss of the batch is" in head
    assert "optimum, uniform attention" in head
    assert "The loss of one batch scatters around its expectation." in head
    assert [player["id"] for player in data_of(page)["players"]] == ["film-player"]


def test_frames_are_close_together_where_much_changes() -> None:
    view = two_stages()
    kept = view.frame_steps[where_things_happen(view, 8)]
    assert len(kept) <= 8
    assert (kept[0], kept[-1]) == (0, 2000)
    # Attention moves after step 1,100 and W^V all the time: more frames are there than before.
    assert (kept > 1000).sum() > (kept <= 1000).sum()
    assert where_things_happen(view, 100).tolist() == list(range(21))
    assert np.diff(kept).min() > 0


def test_present_mode_is_a_class_of_the_page(results: Path) -> None:
    assert '<html lang="en" class="present">' in page_html([results], present=True)
    assert '<html lang="en">' in page_html([results])


def test_runs_without_claims_are_explained_where_one_has_two_stages(tmp_path: Path) -> None:
    save_view(tmp_path / "both" / "one", with_theory())
    save_view(tmp_path / "both" / "two", two_stages())
    page = page_html([tmp_path / "both"])
    assert [player["id"] for player in data_of(page)["players"]] == ["film-player", "stages-player", "runs"]
    assert page.index('id="sandbox"') < page.index('id="stages"') < page.index('id="yours"')
    # The paper is named, and no sentence is there that needs a claim.
    assert "arxiv.org" in page
    assert 'class="to-claim' not in page
