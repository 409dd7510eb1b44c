"""What training records, with one seed and with several; that it repeats to the bit; what happens if it diverges."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from support.helpers import ONE_HOT_UNIFORM, batch_of, final_weights, run_files, small_settings
from support.text_corpus import small_text_settings, write_corpus
from topicscope.errors import DivergedError, InputError
from topicscope.measure.run import Run, read_run
from topicscope.settings import Settings
from topicscope.store import checkpoint_path, checkpoint_steps
from topicscope.synthetic.topics import TopicModel
from topicscope.training import loop
from topicscope.training.engines import make_engine
from topicscope.training.loop import Trainer, empty_run, train

EQUATION_7 = {
    "embedding": {"start": "identity", "train": False},
    **{name: {"start": "zero", "train": False} for name in ("key_bias", "query_bias", "value_bias", "prediction_bias")},
}
# b^K shifts all scores of a query alike: its gradient is rounding, which Adam makes as large as any other.
NO_KEY_BIAS = {"key_bias": {"start": "zero", "train": False}}
DEEP = NO_KEY_BIAS | {"layers": 2, "dimension": 4, "heads": 2, "residual": True, "layer_norm": True}
# Sums are taken in another order; Adam's division by small second moments makes more of it over the steps.
TOLERANCE = {"float32": 1e-3, "float64": 1e-10}


def engine_of(settings: Settings) -> Any:
    return make_engine(settings, [settings.seed], TopicModel.from_settings(settings.documents))


def trained(settings: Settings, out: Path, **options: Any) -> Run:
    return read_run(train(settings, out, **options).path)


def test_recorded_norms_and_rotation_are_those_of_the_weights(tmp_path: Path) -> None:
    settings = small_settings(training={"steps": 10, "checkpoint_every": 5})
    run = trained(settings, tmp_path / "run")
    last = torch.from_numpy(run.weights["value"][0])
    assert run.metrics["norm/value"][0, -1, 0] == pytest.approx(float(last.norm()), rel=1e-6)
    # Ten steps before the last one is the start.
    start = engine_of(settings).models[0].parameter("value").detach()
    cosine = float((start * last).sum() / (start.norm() * last.norm()))
    assert run.metrics["rotation"][0, -1, 0] == pytest.approx((1 - cosine) / 2, rel=1e-4)
    assert run.metrics["rotation"][0, -1, 0] > 1e-3
    # From zero it is not defined.
    from_zero = trained(small_settings(model={"value": {"start": "zero"}}), tmp_path / "zero")
    assert np.isnan(from_zero.metrics["rotation"][0, from_zero.steps == 10]).all()


def test_the_same_seed_gives_the_same_files_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        run_files(train(small_settings(seed=seed), tmp_path / name).path)
        for seed, name in ((1, "first"), (1, "again"), (2, "other"))
    )
    assert first == again
    assert first["run.safetensors"] != other["run.safetensors"]


@pytest.mark.parametrize("stage", [{}, {"stage_steps": 6, "steps": 9}])
def test_two_stage_training_leaves_frozen_parts_bit_identical(stage: dict[str, int], tmp_path: Path) -> None:
    changes = {"schedule": "two_stage", "optimizer": "momentum", "checkpoint_every": 6, "l2": 0.1, **stage}
    settings = small_settings(training=changes)
    initial = {name: own.detach().clone()[None] for name, own in engine_of(settings).models[0].named_parameters()}
    folder = train(settings, tmp_path / "run")
    steps = (6, settings.training.steps)
    middle, end = (load_file(checkpoint_path(folder.path, step)) for step in steps)
    for name, start in initial.items():
        attention, path = name in {"key", "query", "key_bias", "query_bias"}, f"weights/{name}"
        assert torch.equal(start, middle[path]) == attention, name
        # b^K shifts all scores of a query alike: its gradient is zero up to rounding, so it may or may not move.
        if name != "key_bias":
            assert torch.equal(middle[path], end[path]) != attention, name


def test_frozen_parts_do_not_move(tmp_path: Path) -> None:
    folder = train(small_settings(model=ONE_HOT_UNIFORM), tmp_path / "run")
    last = final_weights(folder.path)
    assert torch.equal(last["embedding"], torch.eye(7))
    assert not last["key"].any()
    assert last["value"].abs().max() > 0.005


def test_held_out_losses_are_taken_at_their_own_interval(tmp_path: Path) -> None:
    run = trained(small_settings(training={"log_every": 5, "validate_every": 3, "steps": 13}), tmp_path / "run")
    assert run.steps.tolist() == [0, 3, 5, 6, 9, 10, 12, 13]
    assert run.steps[np.isfinite(run.metrics["validation_loss"][0])].tolist() == [0, 3, 6, 9, 12, 13]


# Several seeds in one tensor.


def largest_difference(one: Run, other: Run, seed: int = 0) -> float:
    """Between a seed's final weights and another run's first, relative to the norm."""
    pairs = ((weight[seed], other.weights[name][0]) for name, weight in one.weights.items())
    return max(float(np.linalg.norm(own - theirs)) / max(float(np.linalg.norm(own)), 1e-3) for own, theirs in pairs)


def check_alike(settings: Settings, folder: Path) -> None:
    together = trained(settings, folder / "together", seeds=(3, 5))
    tolerance = TOLERANCE[settings.training.precision]
    for place, seed in enumerate(together.seeds):
        alone = trained(dataclasses.replace(settings, seed=seed), folder / f"alone-{seed}")
        assert largest_difference(together, alone, place) < tolerance
        assert together.steps.tolist() == alone.steps.tolist()
        for name in ("loss", "validation_loss"):
            own, expected = together.metrics[name][place], alone.metrics[name][0]
            np.testing.assert_allclose(own, expected, rtol=tolerance)
        assert {path.name for path in (folder / "together").iterdir()} == {
            path.name for path in (folder / f"alone-{seed}").iterdir()
        }
        # The control: seeds are not each other.
        assert largest_difference(together, alone, 1 - place) > 100 * tolerance


@pytest.mark.parametrize("model", [EQUATION_7, DEEP], ids=["equation 7", "deep"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_seed_gives_what_it_gives_alone(tmp_path: Path, model: dict[str, Any], precision: str) -> None:
    check_alike(small_settings(model=model, training={"precision": precision, "steps": 24}), tmp_path)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_seed_gives_what_it_gives_alone_with_every_optimizer(tmp_path: Path, optimizer: str) -> None:
    changes = {"optimizer": optimizer, "precision": "float64", "schedule": "two_stage", "l2": 0.01}
    check_alike(small_settings(model=NO_KEY_BIAS, training=changes), tmp_path)


def test_the_reference_engine_trains_several_seeds_too(tmp_path: Path) -> None:
    changes = {"engine": "reference", "precision": "float64"}
    check_alike(small_settings(training=changes, model=NO_KEY_BIAS | {"positions": "learned"}), tmp_path)


def test_both_engines_train_the_same_run(tmp_path: Path) -> None:
    fast, slow = (
        small_settings(model=NO_KEY_BIAS, training={"precision": "float64", "engine": engine})
        for engine in ("bag", "reference")
    )
    folder = train(fast, tmp_path / "bag")
    versions = folder.versions()
    assert versions is not None
    assert versions.facts == {"device": "cpu"}
    run = read_run(folder.path)
    assert largest_difference(run, trained(slow, tmp_path / "reference")) < 1e-10
    assert largest_difference(run, trained(dataclasses.replace(fast, seed=1), tmp_path / "other")) > 1e-3


def test_seeds_given_twice_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"seeds = \[1, 1\] is not allowed: give each one once"):
        train(small_settings(), tmp_path / "run", seeds=(1, 1))
    assert not (tmp_path / "run").exists()


# Divergence.

WILD = {"optimizer": "sgd", "loss": "squared", "steps": 60, "precision": "float64", "learning_rate": 1e12}


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_divergence_stops_at_the_first_non_finite_loss_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, every: int, optimizer: str
) -> None:
    settings = small_settings(training=WILD | {"optimizer": optimizer, "checkpoint_every": every})
    with pytest.raises(DivergedError, match=r"lower training\.learning_rate \(now 1e\+12\)") as caught:
        train(settings, tmp_path / "run")
    numbers = re.search(r"at step (\d+) is .* checkpoint is that of step (\d+)", str(caught.value))
    assert numbers is not None
    diverged, kept = int(numbers[1]), int(numbers[2])
    assert kept < diverged
    assert checkpoint_steps(tmp_path / "run")[-1] == kept
    # The kept checkpoint is good: its loss is a number.
    engine = engine_of(settings)
    for name, weight in load_file(checkpoint_path(tmp_path / "run", kept)).items():
        if name.startswith("weights/"):
            with torch.no_grad():
                engine.weights[name.removeprefix("weights/")].copy_(weight)
    assert bool(torch.isfinite(engine.losses(engine.prepare([batch_of(engine.streams[0], kept)])[0])).all())
    # What was recorded before is there, and nothing after.
    run = read_run(tmp_path / "run")
    assert len(run.steps) > 0
    assert run.steps[-1] < diverged
    assert np.isfinite(run.metrics["loss"]).all()
    assert not run.weights


def test_a_start_at_which_the_loss_is_not_a_number_is_said(tmp_path: Path) -> None:
    settings = small_settings(model={"value": {"scale": 1e30}, "embedding": {"scale": 1e30}})
    with pytest.raises(DivergedError, match=r"at step 0 .* start smaller .* there is no good checkpoint"):
        train(settings, tmp_path / "run")


def test_a_seed_that_diverges_is_missing_from_there_on_and_does_not_stop_the_others(tmp_path: Path) -> None:
    """One seed's W^V is made far too large on the way."""
    settings = small_settings(model=EQUATION_7, training=WILD | {"learning_rate": 0.01, "checkpoint_every": 10})
    topic_model = TopicModel.from_settings(settings.documents)

    def run_with(spoilt: bool) -> Trainer:
        trainer = Trainer(make_engine(settings, (0, 1, 2), topic_model))
        trainer.begin(empty_run("run", settings, (0, 1, 2), topic_model))

        def spoil(step: int, steps: int, state: str) -> None:
            if spoilt and step == 30:
                trainer.engine.weights["value"].data[1] *= 1e200

        if not spoilt:
            trainer.run(spoil)
            return trainer
        with pytest.raises(DivergedError, match=r"^training diverged with seed 1: the loss at step 30|31 is"):
            trainer.run(spoil)
        return trainer

    whole, with_loss = run_with(spoilt=False), run_with(spoilt=True)
    losses = with_loss.recorded().metrics["loss"]
    steps = with_loss.recorded().steps
    assert np.array_equal(losses[[0, 2]], whole.recorded().metrics["loss"][[0, 2]])
    assert np.isfinite(losses[1]).tolist() == (steps <= 30).tolist()
    for name, weight in with_loss.final_weights().items():
        assert np.array_equal(weight[[0, 2]], whole.final_weights()[name][[0, 2]])
        assert np.isnan(weight[1]).all()


# Threads and memory.


def test_threads_are_recorded_and_those_of_text_are_all_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "cpu_count", lambda: 2)
    folder = train(small_settings(), tmp_path / "run")
    versions, before = folder.versions(), torch.get_num_threads()
    assert versions is not None
    assert folder.settings().training.threads == versions.threads == 1
    text = train(small_text_settings(write_corpus(tmp_path), training={"threads": 0}), tmp_path / "text")
    assert text.settings().training.threads == 2
    assert torch.get_num_threads() == before


def test_too_little_memory_is_refused_before_training_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = small_settings(training={"batch": 10**6}, data={"length": (100, 1_000), "topics": 10, "words": 10})
    with pytest.raises(InputError, match=r"training needs about \d.* GB and .* GB are free: lower training\.batch"):
        train(wide, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(loop, "SHARE", 1e-9)
    with pytest.raises(InputError, match="GB are free"):
        train(small_settings(), tmp_path / "run")
