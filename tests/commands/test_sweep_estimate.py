from pathlib import Path

import pytest

from support.helpers import SMALL, overlay
from support.small_sweeps import small_sweep
from topicscope.commands import sweep as command
from topicscope.commands.sweep import estimate_sweep, packed, sweep
from topicscope.errors import InputError
from topicscope.scale import Item


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of what is tried from now on; a group takes half a second and a hundredth for each step."""
    names: set[str] = set()

    def seconds(item: Item[object], folder: Path, steps: int) -> float:
        names.add(item.name)
        return 0.5 + 0.01 * steps

    monkeypatch.setattr("topicscope.commands.sweep._seconds", seconds)
    return names


def test_an_estimate_counts_runs_and_trains_nothing_that_stays(tmp_path: Path) -> None:
    found = estimate_sweep(small_sweep(), tmp_path / "out", workers=2)
    assert (found.combinations, found.runs, found.groups, found.finished) == (4, 12, 8, 0)
    assert 0 < found.wall_seconds < found.compute_seconds
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("tried")
def test_an_estimate_is_the_beginning_and_the_steps_of_every_group(tmp_path: Path) -> None:
    steps = SMALL["training"]["steps"]
    beginning = 0.5 + 0.01
    found = estimate_sweep(small_sweep(), tmp_path / "out", workers=1)
    assert found.compute_seconds == pytest.approx(8 * (beginning + 0.01 * steps))
    # The control: more steps take longer, by their own share alone.
    longer = small_sweep(settings=overlay(SMALL, {"training": {"steps": 1_000 * steps}}))
    expected = 8 * (beginning + 0.01 * 1_000 * steps)
    assert estimate_sweep(longer, tmp_path / "out", workers=1).compute_seconds == pytest.approx(expected)


def test_an_estimate_of_a_sweep_that_goes_on_is_of_what_is_not_finished(
    tmp_path: Path, tried: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "_draw", lambda *anything: [])
    three = small_sweep(vary={"training.learning_rate": (0.01, 0.03, 0.1)}, seeds=(0,))
    out = tmp_path / "out"

    def stop(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(three, out, workers=1, report=stop)
    group = 0.5 + 0.01 + 0.01 * SMALL["training"]["steps"]
    found = estimate_sweep(three, out, resume=True, workers=2)
    assert (found.runs, found.groups, found.finished) == (3, 3, 1)
    assert (found.compute_seconds, found.wall_seconds) == pytest.approx((2 * group, group))
    assert tried == {"learning_rate 0.03", "learning_rate 0.1"}
    # A finished group of which a file is damaged is not finished; a dry run leaves it where it is.
    metrics = next(out.glob("runs/*/seed-0/metrics.jsonl"))
    whole = metrics.read_bytes()
    metrics.write_bytes(whole[:-20])
    before = sorted(out.rglob("*"))
    assert estimate_sweep(three, out, resume=True, workers=2).finished == 0
    assert sorted(out.rglob("*")) == before
    metrics.write_bytes(whole)
    sweep(three, out, resume=True, workers=1)
    tried.clear()
    found = estimate_sweep(three, out, resume=True, workers=2)
    assert (found.finished, found.compute_seconds, found.wall_seconds) == (3, 0, 0)
    assert tried == set()


def test_an_estimate_refuses_the_folders_that_the_sweep_would_refuse(tmp_path: Path, tried: set[str]) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match="is not empty"):
        estimate_sweep(small_sweep(), tmp_path, workers=1)
    with pytest.raises(InputError, match="holds no sweep to resume"):
        estimate_sweep(small_sweep(), tmp_path, resume=True, workers=1)
    assert tried == set()


def test_packing_takes_the_longest_first() -> None:
    assert packed([1.0, 1.0, 2.0, 4.0], workers=2) == 4
    assert packed([1.0, 1.0, 2.0, 4.0], workers=1) == 8
    assert packed([3.0, 3.0, 2.0, 2.0, 2.0], workers=2) == 7
