import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.helpers import start_program
from topicscope.cli import main
from topicscope.commands import bench as bench_module

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="the benchmark compares with transformers, which is not installed"
)
FOUR = {"huggingface", "reference", "bag", "ensemble"}


def check_json(printed: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = json.loads(printed)
    assert set(found["steps_per_second"]) == FOUR
    assert set(found["ratio"]) == FOUR - {"huggingface"}
    for name, ratio in found["ratio"].items():
        expected = found["steps_per_second"][name] / found["steps_per_second"]["huggingface"]
        assert math.isclose(ratio, expected, rel_tol=1e-9)
    assert all(0 < share < 1 for share in found["matrix_product_fraction"].values())
    # Not a bar to clear here, but a control: counting must beat attention between all positions by far.
    assert found["ratio"]["bag"] > 5 * found["ratio"]["reference"]
    return found


@needs_transformers
def test_bench_prints_speeds_and_ratios_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "peak_memory", lambda name: None)
    monkeypatch.setattr(bench_module, "FRESH_CHUNKS", 1)
    assert main(["bench", "--rounds", "1", "--json", "--quiet"]) == 0
    check_json(capsys.readouterr().out)


@needs_transformers
@pytest.mark.slow
def test_bench_as_a_process_prints_json_alone_and_the_bag_engine_needs_no_more_memory() -> None:
    """The profiler writes lines of its own, but not to standard output."""
    process = start_program("bench", "--rounds", "3", "--json", "--quiet")
    printed, errors = process.communicate()
    assert process.returncode == 0, errors
    memory = check_json(printed)["peak_memory_megabytes"]
    if Path("/proc/self/clear_refs").exists():
        assert memory["bag"] <= memory["reference"]


def test_bench_without_transformers_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["bench", "--rounds", "1", "--quiet"]) == 2
    assert 'pip install "topicscope[language]"' in capsys.readouterr().err


def test_the_numbers_are_a_table_with_a_row_per_engine() -> None:
    pytest.importorskip("pandas")
    speeds = {name: float(place) for place, name in enumerate(bench_module.TITLES, start=1)}
    found = bench_module.Bench(
        steps_per_second=speeds,
        ratio={"bag": 3.0},
        ratio_quartiles={"bag": [2.0, 4.0]},
        matrix_product_fraction=dict.fromkeys(speeds, 0.5),
        peak_memory_megabytes=dict.fromkeys(speeds),
        rounds=2,
    )
    frame = found.to_frame().set_index("engine")
    assert frame["steps_per_second"].to_dict() == speeds
    assert frame.loc["bag", "ratio"] == 3
    assert '<td style="text-align: left">3.0 (2.0–4.0)</td>' in found._repr_html_()


def test_bench_refuses_no_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "0"]) == 2
    assert "--rounds = 0 is not allowed" in capsys.readouterr().err
