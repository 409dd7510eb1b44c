"""``topicscope landscape``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.cli import main
from topicscope.commands.landscape import landscape
from topicscope.theory import summary
from topicscope.theory.landscape import InfiniteDocuments, Landscape, minimise
from topicscope.theory.setting import TheorySetting
from topicscope.theory.theorem2 import theorem2_classes

OWN_TOPICS = str(Path(__file__).parents[2] / "examples" / "own-topics" / "topics.csv")
# What may be null without a reason.
OPTIONAL = {"flat", "finite"}


def nulls_without_reason(part: Any, reasons: dict[str, str], path: str = "") -> list[str]:
    if not isinstance(part, dict):
        return []
    nulls = [path + name for name, value in part.items() if value is None and path + name not in reasons]
    inner = [name for key, value in part.items() for name in nulls_without_reason(value, reasons, f"{path}{key}.")]
    return [name for name in nulls if name.rpartition(".")[2] not in OPTIONAL] + inner


def test_landscape_writes_grid_numbers_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--out", str(tmp_path / "block"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "block" / "landscape.json").read_text())
    assert printed["optimum"]["loss"] == pytest.approx(0.94610274, abs=5e-9)
    with np.load(tmp_path / "block" / "landscape.npz") as grid:
        assert grid["loss"].shape == (200, 200)
        assert grid["loss"].min() >= printed["optimum"]["loss"]
        # Rows are α.
        surface = Landscape(InfiniteDocuments(topics=10, per_document=2, words=10), theorem2_classes(10, 10))
        assert grid["loss"][3, 40] == surface.loss(grid["alpha"][3], grid["beta"][40])
    assert (tmp_path / "block" / "landscape.png").read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.suffix for path in (tmp_path / "block").iterdir()) == [".json", ".json", ".npz", ".png", ".svg"]


def test_a_diagonal_value_has_its_optimum_on_the_boundary_and_nothing_is_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["landscape", "--value", "diagonal", "--points", "20", "--out", str(tmp_path / "new")]
    assert main(words) == 0
    assert "17.792" in capsys.readouterr().out
    assert json.loads((tmp_path / "new" / "landscape.json").read_text())["optimum"]["alpha"] == 0
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err
    assert main([*words[:-1], str(tmp_path / "new" / "landscape.json")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_bad_options_exit_with_2_and_one_sentence_that_names_options_and_write_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, said in (
        ("--topics 2", "only one set of topics"),
        ("--keep 0.58 --random 0.42", "keep + random = 1.0 is not allowed"),
        ("--points 1", "points = 1 is not allowed"),
        ("--value triangular", "give one of block, diagonal"),
        ("--keep 2", "keep = 2.0 is not allowed"),
        (f"--topic-words {OWN_TOPICS}", "α and β, the weights of words of the same topic, are"),
        ("--topics 300 --finite", "topics · words = 3,000"),
        ("--length 1 9999999 --finite", "5,000 per document"),
    ):
        assert main(["landscape", *line.split(), "--out", str(tmp_path / "new")]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
        assert "masking." not in error
    assert main(["landscape"]) == 2
    assert "--out is missing; see --help" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("line", ["", "--keep 0 --random 0", "--words 1", "--random 0", "--per-document 1", "--keep 0"])
def test_settings_at_the_edge_are_drawn_and_every_null_has_its_reason(line: str, tmp_path: Path) -> None:
    assert main(["landscape", *line.split(), "--points", "5", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "landscape.json").read_text())
    assert written["optimum"]["attained"]
    assert nulls_without_reason(written, written["reasons"]) == []
    assert (written["theorem3"]["lambda2"] is None) == ("--random" in line)
    assert nulls_without_reason({"theorem3": {"high": None}}, {}) == ["theorem3.high"]


def test_an_optimum_that_is_not_attained_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for attained in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(summary, "minimise", lambda *a, at=attained: replace(minimise(*a), attained=at))
            assert main(["landscape", "--points", "5", "--out", str(tmp_path / str(attained))]) == 0
        assert ("not attained" in capsys.readouterr().out) is not attained


def test_a_landscape_shows_its_optimum_in_a_notebook() -> None:
    pytest.importorskip("pandas")
    found = landscape(points=4)
    assert found.to_frame()["optimum.alpha"].tolist() == [found.optimum.alpha]
    assert found._repr_html_().startswith("<table><caption>landscape of block W^V, T = 10")
    assert "optimum.alpha" in found._repr_html_()


def test_finite_documents_have_a_panel_a_grid_and_optima_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "FINITE_POINTS", 12)
    monkeypatch.setattr(summary, "FINITE_DOCUMENTS", 500)
    words = ["--topics", "5", "--words", "3", "--keep", "0.3", "--length", "20", "30", "--points", "12"]
    assert main(["landscape", *words, "--finite", "--out", str(tmp_path / "finite")]) == 0
    assert "Finite documents: W^V free too" in capsys.readouterr().out
    said = json.loads((tmp_path / "finite" / "landscape.json").read_text())
    part = said["finite"]
    optima = part["optima"]
    best, weights = optima["assumption_2"], optima["assumption_2"]["weights"]
    assert (weights["word_on_mask"], weights["mask_on_mask"]) == (1.0, weights["beta"])
    assert best["weighted_average"]["low"] < best["weighted_average"]["value"] < best["weighted_average"]["high"]
    assert optima["free_mask_weights"]["loss"] < best["loss"] < best["loss_uniform"]
    joint = optima["joint"]
    assert joint["loss"] < optima["free_mask_weights"]["loss"]
    assert joint["block_share"]["low"] < joint["block_share"]["value"] < joint["block_share"]["high"] < 1
    with np.load(tmp_path / "finite" / "landscape.npz") as grid:
        assert grid["finite_loss"].shape == (12, 12)
        assert best["loss"] <= grid["finite_loss"].min() < best["loss_uniform"]
    # All else is as without it, and the same again to the bit.
    setting = TheorySetting(topics=5, words=3, keep=0.3, length=(20, 30))
    again, without = (landscape(setting, points=12, finite=finite).to_dict() for finite in (True, False))
    assert again == said
    assert {**again, "finite": None} == without
