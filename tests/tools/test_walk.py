from pathlib import Path

import pytest

import walk

ROOT = Path(__file__).parents[2]


def write_package(folder: Path, **modules: str) -> Path:
    package = folder / "house"
    package.mkdir()
    for name, content in modules.items():
        (package / f"{name}.py").write_text(content)
    return package


def test_modules_that_import_each_other_are_one_cycle(tmp_path: Path) -> None:
    package = write_package(
        tmp_path,
        __init__="",
        kitchen="from house.cellar import wine\n",
        cellar="def fetch():\n    from house import stairs\n",
        stairs="import house.kitchen\n",
        roof="from house import kitchen\nimport house.stairs\nimport os\n",
    )
    imports = walk.imports_of(package)
    assert imports["house.roof"] == {"house.kitchen", "house.stairs"}
    assert walk.cycles(imports) == {frozenset({"house.kitchen", "house.cellar", "house.stairs"})}
    # The control: without one of the three imports there is none.
    assert walk.cycles(imports | {"house.stairs": set()}) == set()


def test_the_package_has_no_import_cycle() -> None:
    assert walk.cycles(walk.imports_of(ROOT / "src" / "topicscope")) == set()


@pytest.mark.slow
def test_the_walk_of_train_goes_from_the_command_line_to_the_metrics() -> None:
    found = walk.walk("train", ROOT / "src")
    assert set(found["hops"]) < set(found["entered"])
    assert {"cli.py main", "training/loop.py train"} <= set(found["hops"])
    assert "run.safetensors" in found["written"]
    # What is computed on the way but leads to no row is entered and no hop.
    assert any(function.startswith("theory/bayes.py") for function in found["entered"])
    assert not any(function.startswith("theory/bayes.py") for function in found["hops"])
