"""The command's function on a small registry of its own: what is measured, written, kept and done again."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from support.scale_work import Gated
from support.small_registry import EXACT, SHORT, STEP, TRAINED, contrast_claim, run, verdicts
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import Progress
from topicscope.errors import LostWorkError
from topicscope.paper.claim import below, compute_need, exact
from topicscope.paper.registry import Registry

# Its registry is the small one.
pytestmark = pytest.mark.usefixtures("trainings")


def test_claims_figures_and_rows_are_written(tmp_path: Path, trainings: list[str]) -> None:
    seen: list[Progress] = []
    result = run(tmp_path / "out", report=seen.append)
    assert verdicts(result) == {
        "figure2/squared-adam/contrast": "holds",
        "figure2/short/loss": "holds",
        EXACT.id: "holds",
    }
    # Cheapest first: theory, then the short training, then the long one.
    assert [each.row["id"] for each in seen] == [EXACT.id, STEP.id, "figure2/squared-adam/contrast"]
    assert trainings == [SHORT.name, TRAINED.name]
    assert seen[1].seconds_left is not None
    assert seen[1].seconds_left > 0
    assert json.loads((tmp_path / "out" / "claims.json").read_text()) == result.rows
    with (tmp_path / "out" / "claims.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [line["id"] for line in table] == [row["id"] for row in result.rows]
    assert float(table[0]["measured"]) == result.rows[0]["measured"]
    assert [path.name for path in result.figures] == ["figure2.png", "figure2.svg", "figure2.csv"]
    assert result.failed == []


@pytest.mark.parametrize("broken", ["shuffled", "untrained"])
def test_a_claim_broken_on_purpose_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    registry = Registry((contrast_claim(), contrast_claim("broken", **{broken: True})), ())
    monkeypatch.setattr(command, "registry", lambda preset: registry)
    found = verdicts(run(tmp_path / "out"))
    assert found["figure2/squared-adam/contrast"] == "holds"
    assert found["figure2/squared-adam/broken"] in ("fails", "undecided")


def test_run_again_it_does_nothing_and_says_the_same(tmp_path: Path, trainings: list[str]) -> None:
    first = run(tmp_path / "out")
    trainings.clear()
    before = (tmp_path / "out" / "claims.json").read_bytes()
    assert run(tmp_path / "out").rows == first.rows
    assert trainings == []
    assert (tmp_path / "out" / "claims.json").read_bytes() == before


def test_the_same_seed_gives_the_same_file_but_for_seconds_and_another_seed_does_not(tmp_path: Path) -> None:
    def rows(name: str, **options: Any) -> list[dict[str, Any]]:
        return [{**row, "seconds": 0} for row in run(tmp_path / name, **options).rows]

    first = rows("first")
    assert rows("second") == first
    other = rows("other", seed=1)
    assert other[0]["measured"] != first[0]["measured"]


def test_interrupted_it_keeps_what_is_finished_and_goes_on(
    tmp_path: Path, trainings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(progress: Progress) -> None:
        if progress.row["id"] == STEP.id:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", report=stop)
    kept = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [row["id"] for row in kept] == [STEP.id, EXACT.id]
    assert trainings == [SHORT.name]
    assert len(run(tmp_path / "out").rows) == 3
    assert trainings == [SHORT.name, TRAINED.name]


def test_a_truncated_result_is_trained_again(tmp_path: Path, trainings: list[str]) -> None:
    first = run(tmp_path / "out")
    (result,) = (tmp_path / "out" / "work" / "needs").glob("figure2-squared-adam*.safetensors")
    result.write_bytes(result.read_bytes()[:-1])
    (measured,) = (tmp_path / "out" / "work" / "claims").glob("figure2-squared-adam*.json")
    measured.unlink()
    trainings.clear()
    again = run(tmp_path / "out")
    assert trainings == [TRAINED.name]
    assert [row["measured"] for row in again.rows] == [row["measured"] for row in first.rows]


def test_work_over_its_time_is_ended_and_named_and_finished_claims_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated = Gated("figure9/gated", tmp_path / "gate")
    late = replace(EXACT, id="figure9/late", needs=(gated,))
    monkeypatch.setattr(command, "registry", lambda preset: Registry((late, EXACT), ()))
    monkeypatch.setattr(command, "compute_need", compute_need)
    with pytest.raises(LostWorkError, match=r'"figure9/gated" was lost .* over the 0\.3 s allowed'):
        run(tmp_path / "out", timeout=0.3)
    assert (tmp_path / "gate.tries").read_text() == "xxx"
    assert [row["id"] for row in json.loads((tmp_path / "out" / "claims.json").read_text())] == [EXACT.id]
    gated.gate.touch()
    assert verdicts(run(tmp_path / "out", timeout=60.0)) == {late.id: "holds", EXACT.id: "holds"}


def test_only_some_claims_then_the_rest(tmp_path: Path, trainings: list[str]) -> None:
    assert list(verdicts(run(tmp_path / "out", only=("theorem9",)))) == [EXACT.id]
    assert trainings == []
    assert list(verdicts(run(tmp_path / "out", only=("figure2/short",)))) == [STEP.id]
    # The file has all that is known.
    rows = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert [row["id"] for row in rows] == [STEP.id, EXACT.id]
    assert not list((tmp_path / "out" / "figures").iterdir())


def test_linear_algebra_runs_on_one_thread_and_then_on_as_many_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    measured = replace(EXACT, measure=lambda results: exact(max(threads())), rule=below(1.5))
    monkeypatch.setattr(command, "registry", lambda preset: Registry((measured,), ()))
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert run(tmp_path / "out").rows[0]["verdict"] == "holds"
        assert threads() == before
