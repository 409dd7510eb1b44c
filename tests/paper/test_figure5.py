"""Figure 5's claims: the rule on made-up runs, and a small experiment for real."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_up_text_runs import made_up
from support.text_corpus import small_text_settings, write_corpus
from topicscope.paper.claim import PRESETS, Claim, verdict
from topicscope.paper.experiment import compute_need, need_item
from topicscope.paper.figure5 import CHECKPOINT_EVERY, FULL, QUICK, claims, drawings, layer_stages, turning_ratios
from topicscope.paper.text_experiment import LAYERS, TextExperiment, TextRuns
from topicscope.scale import map_items
from topicscope.training.text import TextTrainer


def named(ending: str) -> Claim:
    [found] = [claim for claim in claims(PRESETS["quick"]) if claim.id.endswith(ending)]
    return found


def decided(ending: str, runs: TextRuns) -> str:
    claim = named(ending)
    return verdict(claim.rule, claim.measure({need.name: runs for need in claim.needs}))


@pytest.mark.parametrize("ending", ["layer-1/growth", "layer-4/growth", "layer-2/length", "/map"])
def test_two_stages_hold_where_keys_take_off_late_and_fail_where_they_take_off_at_once(ending: str) -> None:
    assert decided(ending, made_up(take_off=200)) == "holds"
    # W^V then has made a twentieth of its growth in a twentieth of the steps.
    assert decided(ending, made_up(take_off=-3)) == "fails"


def test_turning_holds_where_w_v_turns_more_in_stage_1_and_fails_where_it_turns_more_in_stage_2() -> None:
    runs = made_up(take_off=200)
    assert decided("/turning", runs) == "holds"
    turned_late = dataclasses.replace(runs, rotation=0.11 - runs.rotation)
    assert decided("/turning", turned_late) == "fails"
    # Some runs so and some otherwise: nothing can be said.
    mixed = runs.rotation.copy()
    mixed[0] = turned_late.rotation[0]
    assert decided("/turning", dataclasses.replace(runs, rotation=mixed)) == "undecided"
    # Runs without a stage 2 have nothing to compare.
    assert decided("/turning", made_up(take_off=10_000)) == "undecided"


def test_a_layer_is_judged_by_its_own_norms() -> None:
    runs = made_up(take_off=200)
    key = runs.norms["key"].copy()
    key[:, 1:, 2] = 50.0
    other = dataclasses.replace(runs, norms={**runs.norms, "key": key})
    assert [each.two for each in layer_stages(other, 2)] == [False] * 3
    assert [each.two for each in layer_stages(other, 1)] == [True] * 3
    assert decided("layer-3/length", other) == "fails"
    assert decided("layer-2/length", other) == "holds"


def test_turning_compares_rotation_before_and_after_stage_1_ends() -> None:
    assert turning_ratios(made_up(take_off=200)) == pytest.approx(10, rel=0.2)
    never = made_up(take_off=10_000)
    assert np.isnan(turning_ratios(never)).all()


def test_results_are_restored_as_they_were() -> None:
    runs = made_up()
    again = TextRuns.restore(runs.dump())
    assert again.norms["value"].tolist() == runs.norms["value"].tolist()
    assert again.seconds == 1.0
    assert again.dump() == runs.dump()
    assert dataclasses.replace(runs, loss=runs.loss + 1).dump() != runs.dump()


def test_the_key_knows_settings_and_the_seeds_that_are_used() -> None:
    experiment = named("layer-1/growth").needs[0]
    assert isinstance(experiment, TextExperiment)
    used = tuple(range(QUICK.seeds))
    assert experiment.key(used) == experiment.key((*used, 99))
    assert experiment.key(used) != experiment.key((1, 2, 3))
    changed: Any = dataclasses.replace(experiment, settings=small_text_settings())
    assert experiment.key(used) != changed.key(used)


def test_figures_are_drawn_in_the_papers_layout() -> None:
    [figure5] = drawings(PRESETS["quick"])
    drawn = figure5.draw({need.name: made_up() for need in figure5.needs}).figure
    assert len(drawn.axes) == 4 * LAYERS
    assert [axes.get_title() for axes in drawn.axes[:LAYERS]] == [f"layer {layer}" for layer in range(1, 5)]
    assert len(drawn.axes[0].lines) == 3 * len(figure5.needs)


def test_the_paper_preset_is_longer_and_larger_and_saves_on_the_way() -> None:
    assert FULL.steps > QUICK.steps
    assert FULL.width > QUICK.width
    assert FULL.seeds > QUICK.seeds
    for need in drawings(PRESETS["paper"])[0].needs:
        assert isinstance(need, TextExperiment)
        assert need.settings.training.checkpoint_every == CHECKPOINT_EVERY < need.settings.training.steps / 2


def test_a_small_experiment_trains_every_seed_and_measures(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    pytest.importorskip("tomotopy")
    corpus = write_corpus(tmp_path, articles=60)
    whole = {"vocabulary": 95}
    topics = {"count": 2, "words": 5, "iterations": 30, "passages": 40, "replicates": 20}
    settings = small_text_settings(corpus, data=whole, topics=topics, training={"log_every": 5})
    experiment = TextExperiment(name="small", settings=settings, seeds=2)
    runs = experiment.restore(experiment.compute((0, 1, 2)))
    assert runs.loss.shape == (2, 7)
    assert runs.steps.tolist() == [0, 1, 4, 5, 7, 10, 14]
    assert np.isfinite(runs.loss).all()
    assert runs.norms["value"].shape == (2, len(runs.steps), 2)
    assert (runs.norms["value"][0] != runs.norms["value"][1]).all()
    assert np.isfinite(runs.log_ratios["attention"]).all()
    assert runs.layer_log_ratios.shape == (2, 4, 2)


def test_a_stopped_experiment_goes_on_with_the_seed_and_the_step_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    settings = small_text_settings(write_corpus(tmp_path), training={"measures": 0})
    experiment = TextExperiment(name="small", settings=settings, seeds=2)
    updates: list[tuple[int, int]] = []
    update = TextTrainer.update

    def noted(trainer: TextTrainer, gradients: Any) -> None:
        updates.append((trainer.settings.seed, trainer.step))
        if len(updates) == 24:
            raise KeyboardInterrupt
        update(trainer, gradients)

    monkeypatch.setattr(TextTrainer, "update", noted)
    item, work = need_item(experiment, (0, 1)), tmp_path / "work"
    with pytest.raises(KeyboardInterrupt):
        map_items(compute_need, [item], folder=work)
    assert updates[-1] == (1, 9)
    (content,) = map_items(compute_need, [item], folder=work)
    # From the checkpoint of step 8 on.
    assert updates[24:] == [(1, step) for step in range(8, 14)]
    np.testing.assert_array_equal(experiment.restore(content).loss, experiment.restore(experiment.compute((0, 1))).loss)
    assert not list(work.glob("*.partial"))
