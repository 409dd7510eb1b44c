from pathlib import Path

import pytest

import walk

ROOT = Path(__file__).parents[2]


def test_the_package_has_no_import_cycle() -> None:
    imports = walk.imports_of(ROOT / "src" / "topicscope")
    assert walk.cycles(imports) == set()
    # The control: it finds one that is made.
    first, second = "topicscope.store", "topicscope.records"
    assert walk.cycles(imports | {first: imports[first] | {second}}) == {frozenset({first, second})}


@pytest.mark.slow
def test_the_walk_of_train_goes_from_the_command_line_to_the_metrics() -> None:
    found = walk.walk("train", ROOT / "src")
    assert set(found["hops"]) < set(found["entered"])
    assert {"cli.py main", "training/loop.py train"} <= set(found["hops"])
    assert "run.safetensors" in found["written"]
    # What is computed on the way but leads to no row is entered and no hop.
    assert any(function.startswith("theory/bayes.py") for function in found["entered"])
    assert not any(function.startswith("theory/bayes.py") for function in found["hops"])
