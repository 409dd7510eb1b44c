"""Whatever is in the files of a folder, commands that read it end in success or in one sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from support.helpers import SMALL, overlay
from support.page_material import write_claims, write_landscapes, write_probe, write_sweep, write_text_run
from support.spoilt import Spoilt, check_files
from topicscope.settings.toml import dump_settings, settings_from_table
from topicscope.training.loop import train

# Files by their format, with the commands that read them.
REPORT, CHECK = ["report", "FOLDER", "--out=new.html"], ["check", "FOLDER"]
MATRIX = ["check", "FILE", "--topics=3", "--words=2"]
RESUME = ["train", "--out=FOLDER", "--resume", "--quiet"]
FILES = {
    "json": Spoilt(
        "json",
        {
            "run/reference.json": [REPORT],
            "run/versions.json": [REPORT],
            "run/metrics.jsonl": [REPORT],
            "claims/claims.json": [REPORT],
            "claims/settings.json": [REPORT],
            "text/metrics.jsonl": [REPORT],
            "probe/probe.json": [REPORT],
            "probe/words.json": [REPORT],
            "landscapes/landscapes.json": [REPORT],
        },
        cases=2800,
    ),
    "toml": Spoilt(
        "toml",
        {
            "run/settings.toml": [REPORT, CHECK, RESUME],
            "text/settings.toml": [REPORT],
            "alone/settings.toml": [
                ["train", "FILE", "--out=new", "--quiet"],
                ["playground", "FILE", "--out=new.html"],
            ],
            "alone/sweep.toml": [["sweep", "FILE", "--out=new", "--dry-run", "--workers=1"]],
        },
        cases=700,
    ),
    "safetensors": Spoilt(
        "safetensors",
        {
            "run/snapshots.safetensors": [REPORT],
            "run/checkpoint-12.safetensors": [CHECK],
            "alone/matrix.safetensors": [MATRIX],
        },
        cases=1500,
    ),
    "npz": Spoilt("npz", {"landscapes/landscapes.npz": [REPORT], "alone/matrix.npy": [MATRIX]}, cases=1200),
    "csv": Spoilt("csv", {"sweep/sweep.csv": [REPORT], "probe/topics.csv": [REPORT]}, cases=1200),
    "json of a run to go on with": Spoilt(
        "json", {"run/reference.json": [RESUME], "run/versions.json": [RESUME], "run/metrics.jsonl": [RESUME]}, cases=60
    ),
    "safetensors of a run to go on with": Spoilt(
        "safetensors", {"run/snapshots.safetensors": [RESUME], "run/checkpoint-12.safetensors": [RESUME]}, cases=60
    ),
}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, as it should be."""
    folder = tmp_path_factory.mktemp("material")
    small = overlay(SMALL, {"training": {"validation_documents": 4, "snapshots": 2}})
    train(settings_from_table(small), folder / "run")
    write_claims(folder / "claims")
    write_text_run(folder / "text")
    write_probe(folder / "probe")
    write_sweep(folder / "sweep")
    write_landscapes(folder / "landscapes")
    (folder / "alone").mkdir()
    short = settings_from_table(overlay(small, {"training": {"steps": 1}}))
    (folder / "alone" / "settings.toml").write_text(dump_settings(short))
    (folder / "alone" / "sweep.toml").write_text(
        'seeds = 2\nbase = "settings.toml"\n[vary]\ntraining.learning_rate = [0.1, 1.0]\n'
    )
    (folder / "alone" / "matrix.safetensors").write_bytes(save({"w": np.eye(7)}))
    np.save(folder / "alone" / "matrix.npy", np.eye(7))
    return folder


@pytest.mark.parametrize("what", FILES)
@pytest.mark.usefixtures("quick")
def test_a_few_spoilt_files_of_each_format(what: str, material: Path, tmp_path: Path) -> None:
    check_files(FILES[what], 6, material, tmp_path / "here")


@pytest.mark.slow
@pytest.mark.parametrize("what", FILES)
@pytest.mark.usefixtures("quick", "as_users_run_it")
def test_many_spoilt_files_of_each_format(what: str, material: Path, tmp_path: Path, record_property: Any) -> None:
    counts = check_files(FILES[what], FILES[what].cases, material, tmp_path / "here")
    record_property("fuzzed", json.dumps(counts.endings))
