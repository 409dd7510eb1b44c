"""Figure 4's claims: what takes off and when, the map and stage 2, told both ways; and the rule on short runs."""

from dataclasses import replace

import numpy as np
import pytest

from support.fabricated import STEPS, decide, experiments_of, fabricate, quick_claim
from topicscope.measure.stages import norm_stages, stages
from topicscope.paper import figure4
from topicscope.paper.experiment import Experiment, Trained
from topicscope.paper.setups import LDA, ONE_HOT, settings
from topicscope.settings import Part
from topicscope.synthetic.topics import TopicModel
from topicscope.training.loop import train_in_memory


def _run(experiment: Experiment, *, value_first: bool, takes_off: bool = True, topics: float = 0.9) -> Trained:
    """Attention that takes off at step 450, with W^V there before or coming with it."""
    late, early = (np.interp(STEPS, span, [0.0, 1.0]) for span in ([400, 1000], [0, 200]))
    gain = 0.95 * (early if value_first else late)
    norm = 1 + 8 * late
    value = np.interp(STEPS, [0, 200, 1000], [0.1, 10.0, 10.1]) if value_first else 0.1 + STEPS / 100
    return fabricate(
        experiment,
        norms={"key": norm, "query": norm, "value": value},
        rotation=np.full(len(STEPS), 0.01 if value_first else 1e-9),
        attention_distance={"words": 0.6 * late * takes_off, "mask": 0.6 * early},
        modes={"key-topics": np.sqrt(topics) * norm, "key-mask": np.sqrt(1 - topics) * norm},
        uniform_gain=gain,
    )


def test_two_stages_hold_if_the_value_matrix_is_first_and_are_undecided_without_a_take_off() -> None:
    claim = quick_claim("figure4/two-stages")
    (experiment,) = experiments_of(claim)
    assert decide(claim, _run(experiment, value_first=True)) == "holds"
    assert decide(claim, _run(experiment, value_first=False)) == "fails"
    assert decide(claim, _run(experiment, value_first=True, takes_off=False)) == "undecided"


def test_stage_2_has_a_plateau_and_rotation_or_not() -> None:
    for name in ("plateau", "rotation"):
        claim = quick_claim(f"figure4/{name}")
        (experiment,) = experiments_of(claim)
        assert decide(claim, _run(experiment, value_first=True)) == "holds"
        assert decide(claim, _run(experiment, value_first=False)) == "fails"


def test_what_takes_off_is_topics_or_mask() -> None:
    topics, mask = quick_claim("figure4/topics-take-off"), quick_claim("figure4/mask-takes-off")
    assert decide(topics, _run(experiments_of(topics)[0], value_first=True, topics=0.9)) == "holds"
    assert decide(topics, _run(experiments_of(topics)[0], value_first=True, topics=0.1)) == "fails"
    assert decide(mask, _run(experiments_of(mask)[0], value_first=True, topics=0.1)) == "holds"
    assert decide(mask, _run(experiments_of(mask)[0], value_first=True, topics=0.9)) == "fails"


@pytest.mark.parametrize("loss", ["cross-entropy", "squared"])
def test_common_defaults_are_found_two_stage_if_they_are(loss: str) -> None:
    claim = quick_claim(f"figure4/default/{loss}")
    (experiment,) = experiments_of(claim)
    assert decide(claim, _run(experiment, value_first=True)) == "fails"
    assert decide(claim, _run(experiment, value_first=False)) == "holds"


def test_the_map_counts_settings_in_which_attention_takes_off() -> None:
    share, both, by_loss = (quick_claim(f"figure4/{name}") for name in ("map", "sensitive", "loss-decides"))
    cells = experiments_of(share)
    two, one = ([_run(each, value_first=first) for each in cells] for first in (True, False))
    assert decide(share, *two) == "holds"
    assert decide(share, *one) == "fails"
    # Settings in which attention does not take off count for neither side.
    still = [_run(each, value_first=True, takes_off=False) for each in cells]
    assert decide(share, two[0], *still[1:]) == "holds"
    assert decide(share, one[0], *still[1:]) == "fails"
    assert decide(share, *still) == "undecided"
    assert decide(both, *two) == decide(both, *one) == "fails"
    assert decide(both, two[0], *one[1:]) == "holds"
    squared = [each.settings.training.loss == "squared" for each in cells]
    mixed = [first if is_squared else second for first, second, is_squared in zip(two, one, squared, strict=True)]
    assert decide(by_loss, *mixed) == "holds"
    assert decide(by_loss, *two) == "fails"


def test_no_two_needs_of_one_name_differ() -> None:
    from topicscope.paper import registry
    from topicscope.paper.claim import PRESETS

    everything = registry(PRESETS["quick"])
    needs = [need for claim in everything.claims for need in claim.needs]
    needs += [need for drawing in everything.drawings for need in drawing.needs]
    assert all(need == {each.name: each for each in needs}[need.name] for need in needs)


def _trained(steps: int, scale: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Squared loss and Adam at 0.01: attention takes off after some 60 steps."""
    start = Part(scale=scale)
    model = replace(ONE_HOT, value=start, key=start, query=start)
    chosen = settings(model, "squared", "adam", steps=steps, learning_rate=0.01, threads=1)
    (run,) = train_in_memory([replace(chosen, seed=100)], TopicModel.from_settings(LDA))
    rows = run.rows
    curves = {name: np.array([row["attention"][name] for row in rows]) for name in ("words", "mask")}
    curves |= {"gain": np.array([row["uniform_gain"] for row in rows])}
    curves |= {
        name: np.array([np.linalg.norm(row["norm"][name]) for row in rows]) for name in ("key", "query", "value")
    }
    return np.array([row["step"] for row in rows]), curves


def test_neither_a_run_twice_as_long_nor_a_start_ten_times_smaller_or_larger_changes_the_verdict() -> None:
    verdicts, by_norm = [], []
    for steps, scale in ((150, 1e-4), (300, 1e-4), (150, 1e-5), (150, 1e-3)):
        when, curves = _trained(steps, scale)
        verdicts.append(stages(when, curves["words"], curves["mask"], curves["gain"]))
        by_norm.append(norm_stages(when, curves["key"], curves["query"], curves["value"]))
    assert all(found.two for found in verdicts)
    # Of the longer run the beginning is the same.
    assert (verdicts[0].take_off, verdicts[0].gain) == (verdicts[1].take_off, verdicts[1].gain)
    assert max(found.take_off for found in verdicts if found.take_off) <= 90
    # Control: the share of a norm's growth depends on the run's length.
    assert by_norm[0].growth != pytest.approx(by_norm[1].growth, rel=0.05)


def test_scaling_the_start_of_gradient_descent_scales_keys_and_leaves_stage_1_alone() -> None:
    curves = [_gradient_descent(scale)[1] for scale in (1e-4, 1e-3)]
    assert curves[0]["gain"][-1] == pytest.approx(curves[1]["gain"][-1], rel=1e-3)
    assert curves[1]["key"] / curves[0]["key"] == pytest.approx(np.full(len(curves[0]["key"]), 10.0), rel=1e-3)


def _gradient_descent(scale: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    start = Part(scale=scale)
    model = replace(ONE_HOT, value=start, key=start, query=start)
    chosen = settings(model, "squared", "sgd", steps=100, learning_rate=3.0, threads=1)
    (run,) = train_in_memory([replace(chosen, seed=100)], TopicModel.from_settings(LDA))
    rows = run.rows
    return np.array([row["step"] for row in rows]), {
        "gain": np.array([row["uniform_gain"] for row in rows]),
        "key": np.array([np.linalg.norm(row["norm"]["key"]) for row in rows]),
    }


def test_every_setting_that_is_looked_at_is_in_the_map() -> None:
    names = {experiment.name for experiment in experiments_of(quick_claim("figure4/map"))}
    assert {cell.experiment().name for cell in figure4.LOOKED_AT} <= names
