"""The command's function on a small registry: what is asked for, measured, written, kept and done again."""

import csv
import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from support.scale_work import Gated
from support.small_registry import EXACT, SHORT, STEP, TRAINED, contrast_claim, draw, run, verdicts
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import TRUSTED_SECONDS, Clock, Progress, list_claims, reproduce
from topicscope.errors import InputError, LostWorkError
from topicscope.paper import Registry
from topicscope.paper.claim import (
    Claim,
    Drawing,
    Need,
    Preset,
    above,
    below,
    exact,
    interval_given,
    over_seeds,
)
from topicscope.paper.experiment import Experiment

# The registry is the small one.
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
    monkeypatch.setattr(command, "operator", operator)
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


@dataclass(frozen=True)
class Count:
    """Work of another kind than training: it counts letters."""

    name: str
    text: str
    cost: float = 5.0
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
    assert first["diagnosis"]["explanation"] == "The model is not on this machine."
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
    twin = Experiment(name="robustness/twin", settings=SHORT.settings)
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 4}, "--seeds 3 there, 4 here"),
        ({"seed": 1}, "--seed 0 there, 1 here"),
        ({"preset": "paper"}, "--preset quick there, paper here"),
        ({"models": ("minilm",)}, "--models not given there, minilm here"),
    ],
)
def test_a_folder_with_other_settings_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run(tmp_path / "out", only=("theorem9",))
    with pytest.raises(InputError, match=message):
        run(tmp_path / "out", **change)


def make_file(path: Path) -> None:
    path.write_text("something")


def make_folder(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").touch()


@pytest.mark.parametrize(("make", "message"), [(make_file, "is a file"), (make_folder, "holds no claims")])
def test_a_folder_with_something_else_is_refused(tmp_path: Path, make: Callable[[Path], None], message: str) -> None:
    make(tmp_path / "out")
    with pytest.raises(InputError, match=message):
        run(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "--seeds = 0"),
        ({"seed": -1}, "--seed = -1"),
        ({"workers": 0}, "--workers = 0"),
        ({"preset": "all"}, '--preset = "all"'),
        ({"engine": "cloud"}, '--engine = "cloud"'),
        ({"address": "10.0.0.1:6379"}, '--address = "10.0.0.1:6379"'),
        ({"timeout": float("nan")}, "--timeout = nan"),
        ({"only": ("figure99",)}, '"figure99" is no claim'),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_only_without_a_claim_does_not_run_all_of_them(tmp_path: Path, trainings: list[str]) -> None:
    for words in (["--only"], ["--only", "--quiet"], ["--only", ""], ["--only="]):
        with pytest.raises(InputError, match=r"^--only .*no claim"):
            command.main([*words, "--out", str(tmp_path / "out")])
    assert trainings == []
    assert not (tmp_path / "out").exists()


def test_claims_can_be_listed_without_running_them(trainings: list[str]) -> None:
    listed = list_claims(only=("Figure 2",))
    assert [claim["id"] for claim in listed] == ["figure2/squared-adam/contrast", STEP.id]
    assert listed[0]["rule"] == "> 0.1"
    assert trainings == []


def test_presets_have_ten_and_twenty_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    presets: list[Preset] = []

    def asked(preset: Preset) -> Registry:
        presets.append(preset)
        return Registry((EXACT,), ())

    monkeypatch.setattr(command, "registry", asked)
    for name in ("quick", "paper"):
        reproduce(tmp_path / name, preset=name)
    assert presets == [Preset("quick", 10), Preset("paper", 20)]
    assert [preset.full for preset in presets] == [False, True]


def test_models_reach_the_modules_of_claims_and_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presets: list[Preset] = []

    def asked(preset: Preset) -> Registry:
        presets.append(preset)
        return Registry((EXACT,), ())

    monkeypatch.setattr(command, "registry", asked)
    run(tmp_path / "out", models=("minilm", "random:minilm"))
    list_claims(models=("minilm",))
    assert [preset.models for preset in presets] == [("minilm", "random:minilm"), ("minilm",)]
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["models"] == ["minilm", "random:minilm"]


class Time:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_two_workers_take_half_the_time_and_what_is_under_way_counts_as_far_as_it_is() -> None:
    time = Time()
    clock = Clock(dict.fromkeys("abcde", 200.0), workers=2, now=time)
    # Before anything is known, a cost is as many seconds.
    assert clock.seconds_left == pytest.approx(600.0)
    assert clock.running == ("a", "b")
    time.seconds = 400.0
    clock.finished("a")
    assert clock.running == ("b", "c")
    # Nearly two seconds per unit of cost: one piece is at its end, three more are left for two workers.
    rate = (400 + TRUSTED_SECONDS) / (200 + TRUSTED_SECONDS)
    assert clock.seconds_left == pytest.approx(200 * rate + 200 * rate)
    clock.finished("b")
    rate = (800 + TRUSTED_SECONDS) / (400 + TRUSTED_SECONDS)
    assert clock.seconds_left == pytest.approx(2 * 200 * rate)
    time.seconds = 700.0
    assert clock.seconds_left == pytest.approx(2 * 200 * rate - 300)


def test_on_the_last_piece_the_rest_of_it_is_left_and_after_it_nothing() -> None:
    time = Time()
    clock = Clock({"short": 100.0, "long": 300.0}, workers=2, now=time)
    time.seconds = 200.0
    clock.finished("short")
    # Elapsed time times the share that is left would say 600.
    rate = (200 + TRUSTED_SECONDS) / (100 + TRUSTED_SECONDS)
    assert clock.seconds_left == pytest.approx(300 * rate - 200)
    time.seconds = 900.0
    assert clock.seconds_left == 0.0
    clock.finished("long")
    assert clock.seconds_left is None
    assert clock.running == ()


def test_workers_without_work_are_not_counted_one_by_one() -> None:
    assert Clock({"first": 1.0, "second": 1.0}, workers=10**18, now=Time()).running == ("first", "second")


def test_work_that_was_there_before_tells_nothing_of_time() -> None:
    time = Time()
    clock = Clock({"new": 1.0}, workers=1, now=time)
    time.seconds = 5.0
    clock.finished("old")
    time.seconds = 0.0
    assert clock.seconds_left == pytest.approx(1.0)


def test_short_pieces_come_first_and_then_the_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {cost: Costly(f"costly/{cost:g}", cost=cost) for cost in (50.0, 300.0, 5.0, 100.0)}
    claims = tuple(replace(EXACT, id=f"theorem9/{cost:g}", needs=(need,)) for cost, need in needs.items())
    monkeypatch.setattr(command, "registry", lambda preset: Registry(claims, ()))
    seen: list[Progress] = []
    run(tmp_path / "out", report=seen.append)
    # Five and fifty seconds are within the first minute; of the others the longest must not be left to the end.
    assert [each.row["id"] for each in seen] == [f"theorem9/{cost}" for cost in (5, 50, 300, 100)]


@dataclass(frozen=True)
class Costly(Count):
    """Counting that is said to take long."""

    text: str = "frog"
    cost: float = 0.0

    def key(self, seeds: tuple[int, ...]) -> dict[str, Any]:
        return {"name": self.name}


def test_the_page_is_written_while_work_goes_on_and_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FIRST_PAGE_SECONDS", 0.0)
    monkeypatch.setattr(command, "NEXT_PAGE_SECONDS", 0.0)
    pages: list[bool] = []

    def stop(progress: Progress) -> None:
        page = tmp_path / "out" / "report.html"
        pages.append(page.exists() and STEP.statement in page.read_text())

    result = run(tmp_path / "out", report=stop)
    # The last claim comes when the page already has the one before it, and not what is not measured yet.
    assert pages == [False, False, True]
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(row["id"] in page for row in result.rows)


@pytest.mark.parametrize("name", ["nope/nope", "./no-such-folder"])
def test_a_model_that_is_not_there_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=name):
        run(tmp_path / "out", models=(name,))
    assert not (tmp_path / "out").exists()


def test_models_without_a_name_are_refused(tmp_path: Path) -> None:
    for words in (["--models"], ["--models", ""], ["--models="]):
        with pytest.raises(InputError, match=r"^--models"):
            command.main([*words, "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()
