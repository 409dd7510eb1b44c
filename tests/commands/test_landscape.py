"""``topicscope landscape``."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.cli import main
from topicscope.commands.landscape import landscape
from topicscope.commands.theory_setting import TheorySetting

OWN_TOPICS = str(Path(__file__).parents[2] / "examples" / "own-topics" / "topics.csv")


def test_landscape_writes_grid_numbers_and_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--out", str(tmp_path / "block"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "block" / "landscape.json").read_text())
    assert printed["optimum"]["loss"] == pytest.approx(0.94610274, abs=5e-9)
    with np.load(tmp_path / "block" / "landscape.npz") as grid:
        assert grid["loss"].shape == (200, 200)
        assert grid["loss"].min() >= printed["optimum"]["loss"]
        # Rows are α: without [MASK] queries the loss is constant along a constant average, and only there.
        np.testing.assert_allclose(
            grid["weighted_average"], (9 * grid["alpha"][:, None] + grid["beta"][None, :]) / 10, rtol=1e-12
        )
    assert (tmp_path / "block" / "landscape.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "block" / "landscape.svg").read_text()
    assert sorted(path.suffix for path in (tmp_path / "block").iterdir()) == [".json", ".npz", ".png", ".svg"]


def test_a_diagonal_value_has_its_optimum_on_the_boundary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--value", "diagonal", "--points", "20", "--out", str(tmp_path)]) == 0
    assert "α = 0, β = 17.79" in capsys.readouterr().out
    assert json.loads((tmp_path / "landscape.json").read_text())["optimum"]["alpha"] == 0


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "landscape.json").write_text("mine")
    assert main(["landscape", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert (tmp_path / "landscape.json").read_text() == "mine"
    assert main(["landscape", "--out", str(tmp_path / "landscape.json")]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--topics", "2"], "only one set of topics"),
        (["--keep", "0.5", "--random", "0.5"], "divide by"),
        (["--keep", "0.7", "--random", "0.3"], "divide by"),
        (["--keep", "0.58", "--random", "0.42"], "divide by"),
        (["--points", "1"], "points = 1 is not allowed"),
        (["--value", "triangular"], "triangular"),
        (["--keep", "2"], "keep = 2.0 is not allowed"),
        (["--topic-words", OWN_TOPICS], "α and β, the weights of words of the same topic, are"),
    ],
)
def test_bad_options_exit_with_2_and_write_nothing(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["landscape", *words, "--out", str(tmp_path / "new")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_errors_name_the_options_and_not_a_runs_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--keep", "0.5", "--random", "0.5", "--out", str(tmp_path / "new")]) == 2
    error = capsys.readouterr().err
    assert "keep + random = 1.0 is not allowed" in error
    assert "masking." not in error


def nulls_without_reason(part: dict[str, Any]) -> list[str]:
    missing = [name for name, value in part.items() if value is None and not part.get(f"{name}_reason")]
    inner = [value for value in part.values() if isinstance(value, dict)]
    return missing + [name for value in inner for name in nulls_without_reason(value)]


@pytest.mark.parametrize("words", [["--keep", "0", "--random", "0"], ["--words", "1"], ["--random", "0"], []])
def test_every_null_has_its_reason_beside_it(words: list[str], tmp_path: Path) -> None:
    assert main(["landscape", *words, "--points", "5", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "landscape.json").read_text())
    assert nulls_without_reason(written) == []
    assert (written["theorem3"]["lambda2"] is None) == ("--random" in words)
    assert nulls_without_reason({"theorem3": {"high": None}}) == ["high"]


def test_an_optimum_that_is_not_attained_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for attained in (True, False):
        found = landscape(points=5)
        shown = replace(found, optimum=replace(found.optimum, attained=attained))
        monkeypatch.setattr("topicscope.commands.landscape.landscape", lambda *_, shown=shown, **__: shown)
        assert main(["landscape", "--out", str(tmp_path / str(attained))]) == 0
        assert ("not attained" in capsys.readouterr().out) is not attained


def test_a_landscape_is_a_table_of_its_grid_and_shows_its_optimum() -> None:
    pytest.importorskip("pandas")
    found = landscape(points=4)
    frame = found.to_frame()
    row = frame.iloc[1 * 4 + 3]
    assert (row["alpha"], row["beta"], row["loss"]) == (found.weights[1], found.weights[3], found.loss[1, 3])
    assert len(frame) == 16
    assert found._repr_html_().startswith("<table><caption>landscape of block W^V, T = 10")
    assert "optimum.alpha" in found._repr_html_()
    assert landscape(replace(found.setting, keep=0.0, random=0.0), points=2)._repr_html_()


def test_out_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape"]) == 2
    assert "--out is missing: give a folder to write the landscape to." in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [["--keep", "0", "--random", "0"], ["--words", "1"], ["--random", "0"], ["--per-document", "1"], ["--keep", "0"]],
)
def test_settings_at_the_edge_are_drawn_too(words: list[str], tmp_path: Path) -> None:
    assert main(["landscape", *words, "--points", "12", "--out", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "landscape.json").read_text())["optimum"]["attained"]


def test_finite_documents_have_a_panel_a_grid_and_optima_with_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topicscope.commands.landscape.FINITE_POINTS", 12)
    monkeypatch.setattr("topicscope.commands.landscape.FINITE_DOCUMENTS", 500)
    words = ["--topics", "5", "--words", "3", "--keep", "0.3", "--length", "20", "30", "--points", "12"]
    assert main(["landscape", *words, "--finite", "--out", str(tmp_path / "finite")]) == 0
    assert "documents of 20 to 30 words, 500 of them drawn" in capsys.readouterr().out
    said = json.loads((tmp_path / "finite" / "landscape.json").read_text())
    part = said["finite"]
    best = part["optimum"]
    assert (best["word_on_mask"], best["mask_on_mask"]) == (1.0, best["beta"])
    assert best["weighted_average"]["low"] < best["weighted_average"]["value"] < best["weighted_average"]["high"]
    assert part["optimum_with_free_mask_weights"]["loss"] < best["loss"] < best["loss_uniform"]
    with np.load(tmp_path / "finite" / "landscape.npz") as grid:
        assert grid["finite_loss"].shape == (12, 12)
        assert best["loss"] <= grid["finite_loss"].min() < best["loss_uniform"]
    # All else is as without it, and the same again to the bit.
    setting = TheorySetting(topics=5, words=3, keep=0.3, length=(20, 30))
    again, without = (landscape(setting, points=12, finite=finite).to_dict() for finite in (True, False))
    assert json.loads(json.dumps(again)) == said
    assert {name: each for name, each in again.items() if name != "finite"} == without


def test_finite_documents_of_many_words_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--topics", "300", "--finite", "--points", "5", "--out", str(tmp_path / "x")]) == 2
    assert "give at most 2,000 words" in capsys.readouterr().err
    assert (
        main(["landscape", "--length", "1", "9999999", "--finite", "--points", "5", "--out", str(tmp_path / "x")]) == 2
    )
    assert "give at most 5,000 words per document" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
