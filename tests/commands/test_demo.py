"""``topicscope demo``: two trainings, what was found in them, and a page."""

import dataclasses
import json
from pathlib import Path

import pytest

import topicscope as ts
from topicscope.cli import main
from topicscope.commands import demo as module
from topicscope.measure.stages import run_stages
from topicscope.settings import Settings
from topicscope.settings.toml import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples"


def shorter(settings: Settings, steps: int) -> Settings:
    return dataclasses.replace(settings, training=dataclasses.replace(settings.training, steps=steps))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few steps, which are not the ones that show anything."""
    runs = {name: shorter(settings, 40) for name, settings in module.RUNS.items()}
    monkeypatch.setattr(module, "RUNS", runs)


def test_the_runs_are_those_of_the_examples() -> None:
    assert load_settings(EXAMPLES / "two-stage.toml") == module.RUNS["two-stage"]
    figure2 = load_settings(EXAMPLES / "figure2.toml")
    assert shorter(figure2, 1_000) == module.RUNS["figure2"] != figure2


@pytest.mark.usefixtures("short")
def test_a_demo_writes_its_page_and_says_how_the_runs_ended_and_resumes_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.endswith("report.html: open it in any browser.")
    assert "figure2: squared loss, Adam at 0.01, W^V trained. After 40 of 40 steps the loss of the batch is" in printed
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "figure2" in page
    assert "two-stage" in page
    (out / "report.html").unlink()
    # Again: nothing is trained, the page is written anew.
    trained = {path: path.read_bytes() for path in out.rglob("checkpoint-*")}
    assert main(["demo", "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["page"] == str(out / "report.html")
    assert all(outcome.startswith("After 40 of 40 steps") for outcome in result["outcomes"].values())
    assert {path: path.read_bytes() for path in out.rglob("checkpoint-*")} == trained


@pytest.mark.slow
def test_the_demo_shows_what_it_says(tmp_path: Path) -> None:
    """Figure 2's blocks near theory's; two stages: attention takes off once W^V has most of its gain."""
    result = ts.demo(str(tmp_path / "demo"))
    figure2, two_stage = (ts.read_run(result.out / name) for name in module.RUNS)
    matrices = figure2.weights["value"][0, 0], figure2.theory["value_products"]
    trained, theory = (ts.measure.class_averages(matrix, figure2.word_topics) for matrix in matrices)
    assert trained.same_topic == pytest.approx(theory.same_topic, abs=0.01)
    assert trained.different_topic == pytest.approx(theory.different_topic, abs=0.01)
    [stages] = run_stages(two_stage)
    assert stages.take_off is not None
    assert 100 < stages.take_off < 1_500
    assert stages.gain > 2 / 3
    assert f"takes off at step {stages.take_off}" in list(result.outcomes.values())[1]
