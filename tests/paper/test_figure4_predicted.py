"""Predicted against measured take-off: the comparison, on made-up results, and a small map's predictions."""

import json
from dataclasses import replace

import numpy as np
import pytest

from topicscope.measure.stages import Stages
from topicscope.paper import figure4
from topicscope.paper.claim import PRESETS, verdict
from topicscope.paper.figure4 import Cell, Predictions, cells, predicted_claims, predicted_drawings

QUICK = PRESETS["quick"]


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Every cell takes off, at a step of its own, and the prediction is ten per cent above it."""
    chosen = cells(QUICK)
    steps = {cell.experiment().name: 50 * (number + 1) for number, cell in enumerate(chosen)}
    monkeypatch.setattr(figure4, "stages_of", lambda name: [Stages(steps[name], 0.5)] * 3)
    found: dict[str, object] = {name: name for name in steps}
    found["figure4/predicted"] = [[1.1 * step, 0.6] for step in steps.values()]
    return found


def test_good_predictions_hold_and_shuffled_ones_fail(results: dict[str, object]) -> None:
    both = predicted_claims(QUICK)
    for claim in both:
        assert verdict(claim.rule, claim.measure(results)) == "holds"
        assert claim.measure(results).details["not_near"] == ""
    predicted = np.array(results["figure4/predicted"])
    shuffled = np.random.default_rng(0).permutation(predicted)
    for claim in both:
        worse = claim.measure(results | {"figure4/predicted": shuffled.tolist()})
        assert verdict(claim.rule, worse) == "fails"
        assert worse.details["not_near"]


def test_a_cell_that_is_censored_or_not_predicted_to_take_off_is_not_compared(results: dict[str, object]) -> None:
    predicted = np.array(results["figure4/predicted"], dtype=object)
    predicted[0] = [None, None]
    correlation, near = predicted_claims(QUICK)
    few = correlation.measure(results | {"figure4/predicted": predicted.tolist()})
    assert few.details["cells_that_take_off_in_both"] == len(cells(QUICK)) - 1
    share = near.measure(results | {"figure4/predicted": predicted.tolist()})
    assert share.values[0] == pytest.approx(1 - 1 / len(cells(QUICK)))


def test_the_figure_has_every_cell(results: dict[str, object]) -> None:
    [drawing] = predicted_drawings(QUICK)
    drawn = drawing.draw(results)
    assert len(drawn.table) == 2 * len(cells(QUICK))


def test_predictions_are_kept_as_they_are_computed() -> None:
    cell = replace(Cell("cross_entropy", "sgd", 30.0, 0.02), steps=40)
    work = Predictions((cell,))
    kept = work.compute((0,))
    assert work.restore(kept) == json.loads(kept) == [[None, None]]
