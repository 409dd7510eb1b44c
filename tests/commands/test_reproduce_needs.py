"""What claims need is worked out once, whatever it is, and only where it is needed."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from support.small_registry import EXACT, SHORT, STEP, TRAINED, contrast_claim, draw, run, verdicts
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import Progress
from topicscope.paper.claim import Claim, Drawing, Need, above, below, interval_given, over_seeds
from topicscope.paper.experiment import Experiment
from topicscope.paper.registry import Registry

# Its registry is the small one.
pytestmark = pytest.mark.usefixtures("trainings")


@dataclass(frozen=True)
class Count:
    """Work of another kind than training: it counts letters."""

    name: str
    text: str
    cost = 0.5
    suffix = ".txt"

    def key(self, seeds: tuple[int, ...]) -> dict[str, Any]:
        return {"text": self.text, "seeds": list(seeds)}

    def compute(self, seeds: tuple[int, ...]) -> bytes:
        return str(len(self.text)).encode()

    def restore(self, content: bytes) -> int:
        return int(content)


def test_claims_may_need_other_work_than_training(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    letters = Count("letters/frog", "frog")
    claim = Claim(
        id="table9/letters",
        source="Table 9",
        statement="A frog has more than three letters, and training leaves it at that.",
        expected="> 3",
        rule=above(3),
        needs=(letters, SHORT),
        measure=lambda results: interval_given(
            results[letters.name], 3.5, 4.5, p=1e-3, null=3, loss=float(results[SHORT.name].held_out_loss[0])
        ),
    )
    assert isinstance(letters, Need)
    monkeypatch.setattr(command, "registry", lambda preset: Registry((claim, STEP), ()))
    found = run(tmp_path / "out").rows
    assert trainings == [SHORT.name, letters.name]
    assert (found[0]["verdict"], found[0]["measured"], found[0]["low"]) == ("holds", 4.0, 3.5)
    assert found[0]["details"]["loss"] > 0
    trainings.clear()
    assert run(tmp_path / "out").rows == found
    assert trainings == []


def test_a_claim_that_cannot_be_run_here_is_not_run_with_its_reason_and_is_run_once_it_can(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(STEP, id="table1/absent", unavailable="The model is not on this machine.")
    monkeypatch.setattr(command, "registry", lambda preset: Registry((absent, EXACT), ()))
    seen: list[Progress] = []
    first, second = run(tmp_path / "out", report=seen.append).rows
    assert (first["verdict"], first["verdict_corrected"], first["measured"]) == ("not run", "not run", None)
    assert first["details"] == {"reason": "The model is not on this machine."}
    assert second["verdict"] == "holds"
    assert [(each.done, each.row["id"]) for each in seen] == [(1, absent.id), (2, EXACT.id)]
    assert trainings == []
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == [first, second]
    # Not asked for, it is not in the way.
    assert list(verdicts(run(tmp_path / "other", only=("theorem9",)))) == [EXACT.id]
    assert len(json.loads((tmp_path / "other" / "claims.json").read_text())) == 1
    monkeypatch.setattr(command, "registry", lambda preset: Registry((replace(absent, unavailable=""), EXACT), ()))
    assert verdicts(run(tmp_path / "out"))[absent.id] == "holds"


def test_a_part_of_a_figures_claims_does_not_train_the_rest_of_the_figure(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Drawing(name="figure2", draw=draw, needs=(TRAINED, SHORT))
    step = replace(STEP, figure="figure2")
    monkeypatch.setattr(command, "registry", lambda preset: Registry((contrast_claim(), step), (both,)))
    assert run(tmp_path / "out", only=(step.id,)).figures == []
    assert trainings == [SHORT.name]
    # With what is there from before, nothing more has to be trained for it.
    drawn = run(tmp_path / "out", only=("figure2/squared-adam",)).figures
    assert {path.suffix for path in drawn} == {".png", ".svg", ".csv"}
    assert trainings == [SHORT.name, TRAINED.name]
    # Asked for as a whole it is drawn.
    assert len(run(tmp_path / "other", only=("figure2",)).figures) == len(drawn)


def test_equal_settings_under_two_names_are_trained_once(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = Experiment(name="robustness/twin", reproduces="§2.3", settings=SHORT.settings)
    second = Claim(
        id="robustness/twin",
        source="§2.3",
        statement="The same again.",
        expected="< 10",
        rule=below(10),
        needs=(twin, SHORT),
        measure=lambda results: over_seeds(results[twin.name].held_out_loss - results[SHORT.name].held_out_loss),
    )
    monkeypatch.setattr(command, "registry", lambda preset: Registry((STEP, second), ()))
    rows = run(tmp_path / "out").rows
    assert trainings == [SHORT.name]
    assert rows[1]["measured"] == 0.0
