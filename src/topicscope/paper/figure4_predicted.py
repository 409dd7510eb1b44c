"""Figure 4's map, predicted: when attention takes off, and what W^V has by then, computed before anything is trained.

The reduced model of ``theory/take_off.py`` gets the cell's loss, optimiser, rate, initial scale and ε, and no constant
is fitted. Its predictions stand beside what the runs of the map show.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from topicscope.paper.claim import (
    Claim,
    Diagnosis,
    Drawing,
    Drawn,
    Measurement,
    Need,
    Preset,
    Results,
    Seeds,
    above,
    exact,
)
from topicscope.paper.figure4 import MAP_SEEDS, Cell, cells, stages_of
from topicscope.paper.setups import LDA, LOSS_WORDS, MASKING
from topicscope.theory.take_off import Stepping, predict
from topicscope.training.runs import made_with

# A prediction is near if it is within this share of what is measured: SGD's and momentum's, and Adam's.
NEAR = {"sgd": 0.15, "momentum": 0.15, "adam": 0.3}
# What the predictions depend on beside the documents.
SOURCES = tuple(
    f"theory/{name}.py" for name in ("take_off", "reduced", "classes", "logit_gradient", "finite_documents")
)
# Seconds that one cell's prediction takes, roughly.
CELL_SECONDS = 1.0


@dataclass(frozen=True)
class Predictions:
    """The predicted take-off and g of every cell of a map: one piece of work."""

    cells: tuple[Cell, ...]
    suffix: str = ".json"

    @property
    def name(self) -> str:
        """Its name."""
        return "figure4/predicted"

    @property
    def cost(self) -> float:
        """Seconds, roughly."""
        return CELL_SECONDS * len(self.cells)

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """The cells and the code; no seed is trained."""
        return {"cells": [cell.experiment().name for cell in self.cells], **made_with(*SOURCES)}

    def compute(self, seeds: Seeds) -> bytes:
        """Predict every cell; null where attention does not take off within its run."""
        found = []
        for cell in self.cells:
            stepping = Stepping(
                loss=cell.loss, optimizer=cell.optimizer, rate=cell.rate, scale=cell.scale, epsilon=cell.epsilon
            )
            prediction = predict(LDA, MASKING, stepping, steps=float(cell.steps))
            found.append([prediction.take_off, prediction.gain_at_take_off])
        return json.dumps(found).encode()

    def restore(self, content: bytes) -> list[list[float | None]]:
        """Take-off and g of each cell."""
        found: list[list[float | None]] = json.loads(content)
        return found


@dataclass(frozen=True, eq=False)
class _Compared:
    """Predicted and measured take-off and g by cell; NaN where there is none."""

    take_off: Float[np.ndarray, "cell 2"]
    gain: Float[np.ndarray, "cell 2"]


def claims(preset: Preset) -> tuple[Claim, ...]:
    """The correlation over all cells, and how many are near."""
    chosen = cells(preset)
    work = Predictions(chosen)
    needs = _needs(work)
    diagnosis = Diagnosis(
        "settings",
        "The prediction takes Adam's noise as it is on average over entries. From starts of 0.02 the random W^V that "
        "is left has a pull of its own on attention, which Adam amplifies as much as any other.",
        holds="with SGD and momentum, and with Adam from smaller starts",
        see=("figure4/predicted/correlation",),
    )

    def correlation(results: Results) -> Measurement:
        compared = _compare(results, work, chosen)
        both = np.isfinite(compared.take_off).all(axis=1)
        logs = np.log(compared.take_off[both])
        value = float(np.corrcoef(logs.T)[0, 1]) if both.sum() > 2 else np.nan
        return exact(value, cells_that_take_off_in_both=int(both.sum()), **_far(compared, chosen))

    def near(results: Results) -> Measurement:
        compared = _compare(results, work, chosen)
        measured = np.isfinite(compared.take_off[:, 1])
        return exact(
            float(_near(compared, chosen)[measured].mean()), cells=int(measured.sum()), **_far(compared, chosen)
        )

    return (
        Claim(
            id="figure4/predicted/correlation",
            source="Figure 4",
            statement="When attention takes off is predicted before training, without a fitted constant: over the "
            "settings of the map the logarithms of predicted and measured steps correlate above 0.9.",
            unit="correlation",
            rule=above(0.9, origin=0),
            measure=correlation,
            needs=needs,
            kind="ours",
            figure="figure4-predicted",
            diagnosis=diagnosis,
        ),
        Claim(
            id="figure4/predicted/near",
            source="Figure 4",
            statement="The predicted step is within 15 % of the measured one (30 % for Adam) in more than half of the "
            "settings in which attention takes off.",
            unit="of the settings",
            rule=above(0.5, origin=0),
            measure=near,
            needs=needs,
            kind="ours",
            figure="figure4-predicted",
            diagnosis=diagnosis,
        ),
    )


def drawings(preset: Preset) -> tuple[Drawing, ...]:
    """Predicted against measured."""
    chosen = cells(preset)
    work = Predictions(chosen)

    def draw(results: Results) -> Drawn:
        return _draw(_compare(results, work, chosen), chosen)

    return (Drawing(name="figure4-predicted", needs=_needs(work), draw=draw),)


def _needs(work: Predictions) -> tuple[Need, ...]:
    return (work, *(cell.experiment() for cell in work.cells))


def _compare(results: Results, work: Predictions, chosen: tuple[Cell, ...]) -> _Compared:
    predicted = np.array(results[work.name], dtype=float)
    measured = []
    for cell in chosen:
        runs = stages_of(results[cell.experiment().name])[:MAP_SEEDS]
        told = [run for run in runs if run.take_off is not None]
        # A cell counts as taking off if every run of it does.
        whole = bool(told) and len(told) == len(runs)
        means = (
            (np.mean([run.take_off for run in told]), np.mean([run.gain for run in told])) if whole else (np.nan,) * 2
        )
        measured.append(means)
    both = np.stack([predicted, np.array(measured, dtype=float)], axis=1)
    return _Compared(both[:, :, 0], both[:, :, 1])


def _near(compared: _Compared, chosen: tuple[Cell, ...]) -> np.ndarray:
    allowed = np.array([NEAR[cell.optimizer] for cell in chosen])
    predicted, measured = compared.take_off.T
    with np.errstate(invalid="ignore"):
        return np.abs(predicted / measured - 1) <= allowed


def _far(compared: _Compared, chosen: tuple[Cell, ...]) -> dict[str, Any]:
    """How many settings are near, by loss and optimiser, and which are not."""
    near, measured = _near(compared, chosen), np.isfinite(compared.take_off[:, 1])
    found: dict[str, Any] = {}
    for loss in dict.fromkeys(cell.loss for cell in chosen):
        for optimizer in dict.fromkeys(cell.optimizer for cell in chosen):
            which = measured & np.array([cell.loss == loss and cell.optimizer == optimizer for cell in chosen])
            if which.any():
                found[f"near_{loss}_{optimizer}"] = f"{int(near[which].sum())} of {int(which.sum())}"
    far = [cell.words for cell, close, seen in zip(chosen, near, measured, strict=True) if seen and not close]
    found["not_near"] = "; ".join(far)
    return found


def _draw(compared: _Compared, chosen: tuple[Cell, ...]) -> Drawn:
    from topicscope.reporting.figures.training import predicted_against_measured

    groups = [f"{LOSS_WORDS[cell.loss]}, {cell.optimizer}" for cell in chosen]
    return predicted_against_measured(
        {"step at which attention takes off": compared.take_off, "g there": compared.gain},
        groups,
        [cell.words for cell in chosen],
        title="Figure 4's map, predicted before training: no constant is fitted",
    )
