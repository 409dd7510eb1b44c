import json
import math
import re
from pathlib import Path

import pytest

from support.helpers import ONE_HOT_UNIFORM, small_settings
from topicscope.errors import DivergedError
from topicscope.synthetic.topics import TopicModel
from topicscope.training.checkpoints import newest_checkpoint
from topicscope.training.engines import make_engine
from topicscope.training.loop import Trainer, train


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_divergence_stops_at_the_first_non_finite_loss_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, every: int, optimizer: str
) -> None:
    changes = {"learning_rate": 1e12, "optimizer": optimizer, "loss": "squared", "steps": 60, "checkpoint_every": every}
    settings = small_settings(training=changes)
    with pytest.raises(DivergedError, match=r"lower training\.learning_rate \(now 1e\+12\)") as caught:
        train(settings, tmp_path / "run")
    numbers = re.search(r"at step (\d+) is .* checkpoint is that of step (\d+)", str(caught.value))
    assert numbers is not None
    diverged, kept = int(numbers[1]), int(numbers[2])
    assert kept < diverged
    # The kept checkpoint is good: its loss is a number.
    trainer = Trainer(make_engine([settings], TopicModel.from_settings(settings.data)))
    checkpoint = newest_checkpoint(tmp_path / "run")
    assert checkpoint is not None
    assert checkpoint.step == kept
    trainer.restore([checkpoint])
    batch = trainer.engine.prepare([trainer.engine.streams[0].batch(kept)])[0]
    assert math.isfinite(float(trainer.engine.losses(batch).detach()))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(math.isfinite(row["loss"]) for row in rows)


def test_a_penalty_that_overflows_is_divergence_too(tmp_path: Path) -> None:
    changes = {"learning_rate": 1e22, "optimizer": "sgd", "l2": 1e-30, "log_every": 1, "validate_every": 0}
    with pytest.raises(DivergedError, match="penalty at step 1 is not finite"):
        train(small_settings(model=ONE_HOT_UNIFORM, training=changes), tmp_path / "run")


def test_a_start_that_overflows_names_the_scale_and_keeps_no_checkpoint(tmp_path: Path) -> None:
    settings = small_settings(model={"value": {"scale": 1e38}, "embedding": {"scale": 1e38}})
    with pytest.raises(DivergedError, match=r"model\.\*\.scale.*there is no good checkpoint"):
        train(settings, tmp_path / "run")
