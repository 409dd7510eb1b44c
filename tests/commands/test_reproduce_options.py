"""What ``reproduce`` may be asked for, and what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.small_registry import EXACT, STEP, run
from topicscope.commands import reproduce as command
from topicscope.commands.reproduce import list_claims, reproduce
from topicscope.errors import InputError
from topicscope.paper.claim import Preset
from topicscope.paper.registry import Registry

# Its registry is the small one.
pytestmark = pytest.mark.usefixtures("trainings")


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


def test_claims_can_be_listed_without_running_them(trainings: list[str]) -> None:
    listed = list_claims(only=("Figure 2",))
    assert [claim["id"] for claim in listed] == ["figure2/squared-adam/contrast", STEP.id]
    assert listed[0]["rule"] == "> 0.1"
    assert trainings == []


def test_presets_have_five_and_twenty_seeds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    presets: list[Preset] = []

    def asked(preset: Preset) -> Registry:
        presets.append(preset)
        return Registry((EXACT,), ())

    monkeypatch.setattr(command, "registry", asked)
    for name in ("quick", "paper"):
        reproduce(tmp_path / name, preset=name)
    assert presets == [Preset("quick", 5), Preset("paper", 20)]
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
