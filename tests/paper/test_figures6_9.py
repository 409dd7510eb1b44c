"""Landscapes: drawn for the claims that name them, and for the page as exact losses on a grid."""

import json
from pathlib import Path

import numpy as np
import pytest

from support.fabricated import quick_claim
from topicscope.paper import figures6_9, theorem3
from topicscope.paper.claim import PRESETS, exact, verdict
from topicscope.paper.figures6_9 import landscape_grid, write_landscapes
from topicscope.paper.theorem3 import TINY, enumerated_loss
from topicscope.theory.theorem2 import theorem2_classes


def test_every_figure_that_a_claim_names_is_drawn_and_shows_its_optimum() -> None:
    for preset in PRESETS.values():
        drawn = {drawing.name for drawing in figures6_9.drawings(preset)}
        assert {
            claim.figure for claim in (*theorem3.claims(preset), *figures6_9.claims(preset)) if claim.figure
        } <= drawn
        assert len(drawn) == (8 if preset.full else 4)
    figure = figures6_9.draw_landscape(theorem3.SMALL, "block", {}).figure
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert any("α = 6.292, β = 1" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        # Above 1, and below λ₂T.
        ("figure6/block-10-2", 1.1, (0.9, 6e4)),
        # By Remark 4 above λ₁(τ − 1) = 5.196, which is more.
        ("figure7/block-100-10", 5.3, (1.1, 5.1, 6e5)),
        # Of which Theorem 3 says nothing.
        ("figure8/diagonal-10-2", 1e6, (0.9,)),
    ],
)
def test_rules_are_theorem_3s_for_the_block_alone(name: str, inside: float, outside: tuple[float, ...]) -> None:
    rule = quick_claim(name).rule
    assert verdict(rule, exact(inside)) == "holds"
    assert {verdict(rule, exact(number)) for number in outside} == {"fails"}


def test_a_grid_is_the_loss_by_brute_force_with_alpha_along_rows() -> None:
    about, weights, loss = landscape_grid(TINY, "block", points=5)
    matrix = theorem2_classes(4, 3, TINY.masking).matrix(4, 3)
    assert loss[1, 3] == pytest.approx(enumerated_loss(TINY, matrix, weights[1], weights[3]), abs=1e-12)
    assert loss[1, 3] != pytest.approx(loss[3, 1], abs=1e-6)
    assert about["loss"] <= loss.min()


def test_all_settings_are_written_with_fewer_topics_a_document_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures6_9, "PAGE_TOPICS", (4, 10))
    monkeypatch.setattr(figures6_9, "PAGE_PER_DOCUMENT", (2, 4))
    write_landscapes(tmp_path)
    about = json.loads((tmp_path / "landscapes.json").read_text())
    assert [(each["value"], each["topics"], each["per_document"]) for each in about] == [
        (value, *sizes) for value in ("block", "diagonal") for sizes in ((4, 2), (10, 2), (10, 4))
    ]
    with np.load(tmp_path / "landscapes.npz") as arrays:
        assert arrays["loss"].shape == (6, 41, 41)
        assert (arrays["loss"].min(axis=(1, 2)) >= [each["loss"] for each in about]).all()
