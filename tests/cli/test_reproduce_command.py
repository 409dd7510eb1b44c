import json
from pathlib import Path

import pytest

from topicscope.cli.main import main


def test_reproduce_trains_figure_2_and_lays_theory_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    assert main(["reproduce", "--out", str(out), "--steps", "20", "--quiet", "--json"]) == 0
    rows = {row["matrix"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 7
    # Numbers of the closed forms at the paper's setting.
    assert rows["Theorem 2"]["same_topic"] == pytest.approx(0.1080202, abs=5e-8)
    assert rows["Theorem 2"]["population_loss"] == pytest.approx(0.94562537, abs=5e-9)
    assert rows["finite-document optimum, λ = 0"]["same_word"] == pytest.approx(0.2152863, abs=5e-8)
    assert rows["finite-document optimum, λ = 0"]["population_loss"] == pytest.approx(0.94532184, abs=5e-9)
    # Twenty steps of Adam are not the optimum, and must not look like it.
    trained = rows["squared loss, Adam"]["population_loss"]
    assert 0.9454 < trained < 1
    assert (out / "figure2.png").exists()
    assert (out / "figure2.svg").exists()
    # Again: what is finished is kept, and the numbers are the same.
    assert main(["reproduce", "--out", str(out), "--steps", "20", "--quiet", "--json"]) == 0
    assert {row["matrix"]: row for row in json.loads(capsys.readouterr().out)} == rows


def test_reproduce_with_other_settings_in_the_same_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "results")
    assert main(["reproduce", "--out", out, "--steps", "2", "--quiet"]) == 0
    assert main(["reproduce", "--out", out, "--steps", "3", "--quiet"]) == 2
    assert "training.steps (2 there, 3 here)" in capsys.readouterr().err
