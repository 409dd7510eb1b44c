import json
import math
from pathlib import Path

import numpy as np
import pytest

from topicscope.cli import main
from topicscope.commands import bench as bench_module
from topicscope.commands.growth import repeated
from topicscope.synthetic.documents import MaskedDocuments

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


def test_bench_prints_speeds_and_ratios_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "peak_memory", lambda name: None)
    monkeypatch.setattr(bench_module, "FRESH_CHUNKS", 1)
    assert main(["bench", "--rounds", "1", "--json", "--quiet"]) == 0
    check_json(capsys.readouterr().out)


@pytest.mark.slow
def test_the_bag_engine_needs_no_more_memory_than_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "3", "--json", "--quiet"]) == 0
    memory = check_json(capsys.readouterr().out)["peak_memory_megabytes"]
    if Path("/proc/self/clear_refs").exists():
        assert memory["bag"] <= memory["reference"]


def test_bench_refuses_no_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--rounds", "0"]) == 2
    assert "--rounds = 0 is not allowed" in capsys.readouterr().err


def test_repeated_documents_have_the_same_tokens_so_many_times() -> None:
    masked = np.array([True, False, True])
    documents = MaskedDocuments(np.array([1, 2]), np.array([0, 4, 5]), np.array([3, 4, 6]), masked)
    twice = repeated(documents, 2)
    assert twice.tokens.tolist() == [0, 0, 4, 5, 4, 5]
    assert twice.words.tolist() == [3, 3, 4, 6, 4, 6]
    assert twice.masked.tolist() == [True, True, False, True, False, True]
    assert twice.lengths.tolist() == [2, 4]
