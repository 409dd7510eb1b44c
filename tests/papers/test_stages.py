"""Claims on when things happen: the rules on made-up runs whose events are at known steps, decided both ways."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.runs import PAPER, SEEDS, STEPS, decide, made_up, only, settings_of
from support.text_runs import CELLS as TEXT_CELLS
from support.text_runs import SEEDS as TEXT_SEEDS
from support.text_runs import STEPS as TEXT_STEPS
from support.text_runs import made_up as made_up_on_text
from topicscope.measure.run import Run
from topicscope.papers.topic_structure import stages
from topicscope.papers.topic_structure.experiments import DEFAULTS, LDA, LOOKALIKE, MASKING, WITNESS
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents


def staged(settings: Settings, take_off: int | None, gain: float, **metrics: np.ndarray) -> Run:
    """Attention leaves uniformity at this step, when W^V has this gain."""
    words = np.where((take_off or 10_000) <= STEPS, 0.2, 0.0)
    gains = np.where(STEPS < 500, gain, 1.0) if take_off and take_off < 500 else np.full(len(STEPS), gain)
    curves = {"attention/words": words, "attention/mask": 0 * words, "uniform_gain": gains}
    return made_up(settings, metrics={name: np.tile(values, (SEEDS, 1)) for name, values in (curves | metrics).items()})


# Figure 4.


def test_the_gain_is_taken_when_attention_takes_off() -> None:
    witness = settings_of(WITNESS)
    early, late, never = (staged(witness, *when) for when in ((300, 0.2), (600, 0.9), (None, 0.9)))
    assert only(stages.gain_at_take_off({"a": early})).values == pytest.approx([0.2] * SEEDS)
    for run, expected in ((late, "holds"), (early, "fails"), (never, "undecided")):
        assert decide("figure4/two-stages", {"a": run}) == expected


CELLS = [name for name in PAPER.experiments if name.startswith(("figure4/squared/", "figure4/cross-entropy/"))]


def map_of(two: dict[str, bool | None]) -> dict[str, Any]:
    return {
        name: staged(settings_of(name), None if is_two is None else 200, 0.9 if is_two else 0.1)
        for name, is_two in two.items()
    }


def test_only_settings_in_which_attention_takes_off_are_counted_and_some_must_be_of_either_kind() -> None:
    mixed = map_of({name: place < 12 if place < 23 else None for place, name in enumerate(CELLS)})
    assert stages.rarer_kind(mixed).details == {"two_stage": 12, "not_two_stage": 11}
    assert decide("figure4/sensitive", mixed) == "holds"
    assert decide("figure4/sensitive", map_of(dict.fromkeys(CELLS, True))) == "fails"


def test_the_loss_decides_if_it_does_for_one_optimiser() -> None:
    by_loss = map_of({name: "squared" in name or "/sgd-" in name for name in CELLS})
    measured = stages.loss_decides(by_loss, optimizer="adam")
    assert measured.value == 1
    assert measured.details == {"squared": "12 of 12", "cross_entropy": "0 of 12"}
    assert stages.loss_decides(by_loss, optimizer="sgd").value == 0
    assert decide("figure4/loss-decides", map_of(dict.fromkeys(CELLS, True))) == "fails"


def test_predictions_are_near_within_fifteen_per_cent_and_one_setting_more_or_less_is_no_verdict() -> None:
    sgd = [name for name in CELLS if "adam" not in name]
    runs = map_of(dict.fromkeys(sgd, True))
    for near, expected in ((len(sgd), "holds"), (len(sgd) // 2 + 1, "undecided"), (0, "fails")):
        steps = {name: [200.0 if place < near else 300.0, 0.9] for place, name in enumerate(sgd)}
        results: dict[str, Any] = {"figure4/predicted": steps} | runs
        assert stages.predicted_near(results).value == pytest.approx(near / len(sgd))
        assert decide("figure4/predicted/near", results) == expected


def test_predicted_and_measured_steps_correlate_in_logarithms() -> None:
    names = [name for name in CELLS if "squared" in name][:8]
    steps = [100, 110, 150, 200, 300, 400, 600, 900]
    runs = {name: staged(settings_of(name), step, 0.9) for name, step in zip(names, steps, strict=True)}
    twice = {name: [2.0 * step, 0.9] for name, step in zip(names, steps, strict=True)}
    assert stages.predicted_correlation({"figure4/predicted": twice} | runs).value == pytest.approx(1)
    backwards = dict(zip(names, reversed(list(twice.values())), strict=True))
    assert stages.predicted_correlation({"figure4/predicted": backwards} | runs).value < 0


def test_norms_alone_tell_whether_stages_are_visible_and_end_on_a_plateau() -> None:
    default, early, late = settings_of(DEFAULTS[0]), np.where(STEPS >= 100, 3.0, 1.0), np.where(STEPS >= 900, 3.0, 1.0)
    for key, growth, expected in ((early, 0.1, "holds"), (late, 0.9, "fails")):
        norms = {"norm/key": key, "norm/query": np.ones_like(key), "norm/value": 1 + STEPS / 100}
        run = staged(default, 300, 0.9, **norms)
        assert only(stages.norm_growth({"a": run})).value == pytest.approx(growth)
        assert decide("figure4/default", {"a": run}) == expected
    for norm, expected in ((np.minimum(STEPS, 250), "holds"), (STEPS, "fails")):
        run = staged(settings_of(WITNESS), 500, 0.9, **{"norm/value": norm + 1.0})
        assert decide("figure4/plateau", {"a": run}) == expected


def test_what_grows_is_told_by_its_share_of_the_norm() -> None:
    curves = {"norm/key": np.full(len(STEPS), 2.0), "modes/key-topics": np.full(len(STEPS), 1.9)}
    curves |= {"modes/key-mask": np.full(len(STEPS), 0.5)}
    runs = {name: staged(settings_of(name), 500, 0.9, **curves) for name in (WITNESS, LOOKALIKE)}
    topics, mask = stages.growing_part(runs, topics=WITNESS, mask=LOOKALIKE).values()
    assert [topics.value, mask.value] == pytest.approx([1.9**2 / 4, 0.25 / 4])


@pytest.mark.parametrize("loss", ["squared", "cross-entropy"])
def test_the_next_order_explains_gradients_that_the_formula_does_not(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    model, draw = TopicModel.from_settings(LDA), generator(0, Purpose.THEORY)
    documents = mask_documents(sample_documents(model, 20, generator=draw), MASKING, model.vocabulary, generator=draw)
    bags = Bags.of(documents, model.vocabulary)
    monkeypatch.setattr(stages, "gradient_bags", lambda settings: bags)
    run = made_up(settings_of(f"first-gradients/{loss}/scale-0.02"), seeds=2)
    start = stages.starts_of(run)[0]
    value, query = (torch.tensor(start[name][0], dtype=torch.float64) for name in ("value", "query"))
    logits = torch.zeros(101, 101, dtype=torch.float64, requires_grad=True)
    # The loss of attention that is uniform up to the logits, by automatic differentiation.
    total = torch.zeros((), dtype=torch.float64)
    for number, frequencies in enumerate(bags.frequencies):
        pairs = torch.tensor(bags.pairs[[number]].toarray().reshape(101, 101))
        weights = torch.tensor(frequencies)[:, None] * logits.exp()
        scores = value @ (weights / weights.sum(dim=0))
        own = (scores**2).sum(dim=0) * pairs.sum(dim=0) - 2 * (pairs * scores).sum(dim=0)
        if loss == "cross-entropy":
            own = -(pairs * torch.log_softmax(scores, dim=0)).sum(dim=0)
        total = total + own.sum() / len(bags.frequencies)
    (gradient,) = torch.autograd.grad(total, logits)
    norm = float((query @ gradient.T).norm()) / np.sqrt(len(query))
    assert stages.formula_norms(run, next_order=True)[0] == pytest.approx(norm, rel=1e-9)
    leading = stages.formula_norms(run)[0]
    assert (abs(leading / norm - 1) > 0.01) == (loss == "squared")


# Figure 5.


def with_metric(run: Run, name: str, values: np.ndarray) -> Run:
    return replace(run, metrics={**run.metrics, name: values})


def test_two_stages_hold_where_attention_takes_off_late_and_fail_where_it_does_at_once() -> None:
    for claim, results in (("figure5/layers", TEXT_CELLS[:1]), ("figure5/map", TEXT_CELLS)):
        # W^V grows as fast after a take-off at once as before it: half of its growth is not enough. Attention that
        # never takes off, or so late that the run ends before as long again has passed, decides nothing.
        for take_off, expected in ((100, "holds"), (-3, "fails"), (10_000, "undecided"), (300, "undecided")):
            assert decide(claim, dict.fromkeys(results, made_up_on_text(take_off))) == expected, (claim, take_off)
    # Nothing holds for untrained runs.
    run = made_up_on_text(10_000)
    still = {name: 0 * values + name.startswith("norm/") for name, values in run.metrics.items()}
    for claim in ("figure5/layers", "figure5/map", "figure5/turning"):
        assert decide(claim, dict.fromkeys(TEXT_CELLS[:1], replace(run, metrics=still))) != "holds", claim


def test_a_layer_is_judged_by_its_own_attention() -> None:
    run = made_up_on_text()
    words = run.metrics["attention/words"].copy()
    words[:, 2:, 2] = 0.5
    rows = stages.growth_at_take_off({"a": with_metric(run, "attention/words", words)})
    assert [row.value > 2 / 3 for row in rows.values()] == [True, True, False, True]
    assert decide("figure5/layers", {"a": with_metric(run, "attention/words", words)}) == "fails"


def test_the_map_counts_layers_and_one_layer_more_or_less_is_no_verdict() -> None:
    two, one, never = (made_up_on_text(step) for step in (100, -3, 10_000))
    count = stages.two_stage_layers({"figure5/a": two, "figure5/b": one, "figure5/c": never})
    assert (count.value, count.resolution) == (0.5, 1 / 8)
    assert count.details == {"a": "4 of 4", "b": "0 of 4", "c": "0 of 0"}
    assert decide("figure5/map", {"figure5/a": two, "figure5/b": one}) == "undecided"


def test_the_map_counts_equally_many_runs_of_every_setting() -> None:
    two, one = made_up_on_text(100), made_up_on_text(-3)
    metrics = {name: np.concatenate([values, one.metrics[name]]) for name, values in two.metrics.items()}
    more = replace(two, seeds=tuple(range(2 * TEXT_SEEDS)), metrics=metrics)
    assert stages.two_stage_layers({"figure5/a": more}) == stages.two_stage_layers({"figure5/a": two})
    # The control: runs that are counted and are not two-stage.
    assert stages.two_stage_layers({"figure5/a": replace(more, metrics=one.metrics)}).value == 0


def longer(run: Run) -> Run:
    """The same with as many rows again, in which W^V goes on growing at its first pace."""
    metrics = {
        name: np.concatenate([values, *[values[:, -1:]] * (len(TEXT_STEPS) - 1)], axis=1)
        for name, values in run.metrics.items()
    }
    steps = np.arange(0, 801, 5)
    metrics["norm/value"] = metrics["norm/value"] + np.maximum(steps - 400, 0)[:, None] / 50
    return replace(run, steps=steps, metrics=metrics)


def test_neither_the_runs_length_nor_the_initial_scale_changes_the_share() -> None:
    for take_off in (100, -3):
        run = made_up_on_text(take_off)
        plain = [one.gain for one in stages.layer_stages(run, 0)]
        assert [one.gain for one in stages.layer_stages(longer(run), 0)] == plain
        # Ten times smaller at the start, and the same growth.
        smaller = with_metric(run, "norm/value", run.metrics["norm/value"] - 0.9)
        assert [one.gain for one in stages.layer_stages(smaller, 0)] == pytest.approx(plain)


def test_a_share_of_growth_is_of_the_largest_until_as_long_again_has_passed() -> None:
    steps = np.arange(0, 60, 10)
    value = np.array([1.0, 2.0, 4.0, 3.0, 5.0, 99.0])
    assert stages.growth_share(steps, value, 20) == pytest.approx((4 - 1) / (5 - 1))
    # A norm that falls again has made all of its growth by its peak, and what it kept of it later.
    assert stages.growth_share(steps[:4], value[:4], 20) == 1
    assert stages.growth_share(steps[:4], value[:4], 30) == pytest.approx(2 / 3)
    # One that does not grow has made none.
    assert stages.growth_share(steps, 10 - value, 20) == 0


def test_turning_compares_rotation_before_and_after_the_take_off_up_to_the_papers_last_step() -> None:
    run = made_up_on_text()
    rotation = run.metrics["rotation"]
    plain = only(stages.turning_ratio({"a": run})).values
    assert plain == pytest.approx([10] * TEXT_SEEDS, rel=0.2)
    assert decide("figure5/turning", {"a": run}) == "holds"
    assert decide("figure5/turning", {"a": with_metric(run, "rotation", 0.11 - rotation)}) == "fails"
    # Runs without a stage 2 have nothing to compare.
    assert decide("figure5/turning", {"a": made_up_on_text(10_000)}) == "undecided"
    # What comes later does not count, but what comes before does.
    twice = longer(run)
    for after, expected in ((400, True), (390, False)):
        late = np.where(twice.steps[:, None] > after, 5.0, twice.metrics["rotation"])
        same = only(stages.turning_ratio({"a": with_metric(twice, "rotation", late)})).values
        assert (same == pytest.approx(plain)) == expected
