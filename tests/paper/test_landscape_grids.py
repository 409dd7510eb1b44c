"""Landscapes for the page: exact losses on their grid, and the optimum below all of them."""

import json
from pathlib import Path

import numpy as np
import pytest

from topicscope.paper import landscape_grids
from topicscope.paper.enumeration import enumerated_loss
from topicscope.paper.landscape_grids import landscape_grid, write_landscapes
from topicscope.theory.landscape import InfiniteDocuments
from topicscope.theory.theorem2 import theorem2_classes

TINY = InfiniteDocuments(topics=4, per_document=2, words=3)


def test_a_grid_is_the_loss_by_brute_force_with_alpha_along_rows() -> None:
    about, weights, loss = landscape_grid(TINY, "block", points=5)
    matrix = theorem2_classes(4, 3, TINY.masking).matrix(4, 3)
    assert loss[1, 3] == pytest.approx(enumerated_loss(TINY, matrix, weights[1], weights[3]), abs=1e-12)
    assert loss[1, 3] != pytest.approx(loss[3, 1], abs=1e-6)
    assert about["loss"] <= loss.min()


def test_all_settings_are_written_with_fewer_topics_a_document_than_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landscape_grids, "TOPICS", (4, 10))
    monkeypatch.setattr(landscape_grids, "PER_DOCUMENT", (2, 4))
    write_landscapes(tmp_path)
    about = json.loads((tmp_path / "landscapes.json").read_text())
    assert [(each["value"], each["topics"], each["per_document"]) for each in about] == [
        (value, *sizes) for value in ("block", "diagonal") for sizes in ((4, 2), (10, 2), (10, 4))
    ]
    with np.load(tmp_path / "landscapes.npz") as arrays:
        assert arrays["loss"].shape == (6, 41, 41)
        assert (arrays["loss"].min(axis=(1, 2)) >= [each["loss"] for each in about]).all()
