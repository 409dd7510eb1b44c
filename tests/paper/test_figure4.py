"""Figure 4's claims: two stages, their map and stage 2, told both ways."""

from dataclasses import replace

import numpy as np
import pytest

from support.fabricated import SEEDS, STEPS, decide, experiments_of, fabricate, quick_claim
from topicscope.paper import figure4
from topicscope.paper.experiment import Experiment, Trained


def test_figure_4_holds_for_two_stages_and_not_for_one() -> None:
    (cell,) = figure4.EXPECTED
    experiment = cell.experiment()
    late, early = (np.interp(STEPS, [start, 1000], [1.0, 9.0]) for start in (400, 0))
    value = np.interp(STEPS, [0, 500, 1000], [0.1, 10.0, 10.5])
    two = fabricate(experiment, norms={"key": late, "query": late, "value": value})
    one = fabricate(experiment, norms={"key": early, "query": early, "value": value})
    never = fabricate(experiment, norms={"key": 0 * late + 1, "query": 0 * late + 1, "value": value})
    growth = quick_claim(f"{experiment.name}/growth")
    length = quick_claim(f"{experiment.name}/length")
    plateau = quick_claim(f"{experiment.name}/plateau")
    assert (decide(growth, two), decide(length, two), decide(plateau, two)) == ("holds",) * 3
    assert decide(growth, one) == "fails"
    assert decide(growth, never) == "fails"
    assert decide(length, never) == "fails"
    broken = np.where(STEPS < 500, value, np.nan)
    diverged = fabricate(experiment, norms={"key": late, "query": late, "value": broken})
    assert (decide(growth, diverged), decide(length, diverged)) == ("undecided",) * 2
    assert decide(plateau, never) == "undecided"


def _stages(experiment: Experiment, *, begin: int) -> Trained:
    """Keys and queries that move from step ``begin`` on, while W^V grows to its plateau at step 500 and then turns."""
    late = np.interp(STEPS, [begin, 1000], [1.0, 9.0])
    value = np.interp(STEPS, [0, 500, 1000], [0.1, 10.0, 10.1])
    rotation = np.full(len(STEPS), 0.01)
    return fabricate(experiment, norms={"key": late, "query": late, "value": value}, rotation=rotation)


def test_the_map_counts_each_seeds_share_of_two_stage_settings_and_those_that_diverge() -> None:
    claim = quick_claim("figure4/map")
    cells = experiments_of(claim)
    two, one = ([_stages(each, begin=begin) for each in cells] for begin in (400, 0))
    broken = {name: np.where(STEPS < 500, norm, np.nan) for name, norm in two[0].norms.items()}
    diverged = replace(two[0], norms=broken)
    assert decide(claim, *two) == "holds"
    assert decide(claim, *one) == "fails"
    most = 3 * len(cells) // 4
    assert decide(claim, *two[:most], *one[most:]) == "holds"
    measured = claim.measure({each.name: cell for each, cell in zip(cells, [diverged, *one[1:]], strict=True)})
    assert measured.values == (0.0,) * SEEDS
    assert measured.details["settings_in_which_a_run_diverged"] == 1
    assert measured.details["settings_with_a_stage_1_that_never_ends"] == 0
    # One seed of all in one setting: its share alone changes.
    norms = {name: np.concatenate([norm[:1], one[0].norms[name][1:]]) for name, norm in two[0].norms.items()}
    mixed = [replace(one[0], norms=norms), *one[1:]]
    values = claim.measure({each.name: cell for each, cell in zip(cells, mixed, strict=True)}).values
    assert values == (1 / len(cells), *(0.0,) * (SEEDS - 1))


def test_rotation_holds_for_turning_at_constant_norm_and_fails_for_growth_without_turning() -> None:
    (cell,) = figure4.EXPECTED
    claim, plateau = (quick_claim(f"{cell.experiment().name}/{name}") for name in ("rotation", "plateau"))
    turning = _stages(cell.experiment(), begin=400)
    assert decide(claim, turning) == "holds"
    assert decide(plateau, turning) == "holds"
    growing = np.interp(STEPS, [0, 1000], [0.1, 20.0])
    straight = fabricate(
        cell.experiment(),
        norms={name: turning.norms[name][0] for name in ("key", "query")} | {"value": growing},
        rotation=np.full(len(STEPS), 1e-9),
    )
    assert decide(claim, straight) == "fails"
    assert decide(plateau, straight) == "fails"


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_common_defaults_are_found_two_stage_if_they_are(loss: str) -> None:
    claim = quick_claim(f"figure4/{loss}/adam-0.001/scale-0.02/no-two-stages")
    (experiment,) = experiments_of(claim)
    assert decide(claim, _stages(experiment, begin=400)) == "fails"
    assert decide(claim, _stages(experiment, begin=0)) == "holds"
