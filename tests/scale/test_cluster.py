"""A Ray that was started by ``ray start``, as a user's cluster is: found by its address, let in by its token."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import scale_work
from support.helpers import start_program, start_python
from support.ray_cluster import Cluster, cluster_of
from support.scale_work import calls
from support.small_sweeps import small_sweep
from topicscope.settings.sweep import dump_sweep

# Small versions, without a Ray: test_ray_engine.py.
pytestmark = pytest.mark.slow

LONGEST_WAIT = 120.0
TOKEN, OTHER_TOKEN = "1" * 40, "2" * 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """It finds a token when it starts, so it asks for one."""
    with cluster_of(RAY_AUTH_TOKEN=TOKEN) as cluster:
        yield cluster


def run(folder: Path, *where: str, function: str = "products", **environment: str) -> tuple[str, str]:
    """A map of four items as a program: what it prints, and the last line of its errors."""
    folder.mkdir()
    words = (scale_work.__file__, function, where[0], "2", str(folder), "4", *where[1:])
    output, errors = start_python(*words, **environment).communicate(timeout=LONGEST_WAIT)
    return output, (errors.splitlines() or [""])[-1]


def test_a_cluster_by_its_address_and_by_auto_gives_the_bits_of_the_local_engine(
    tmp_path: Path, cluster: Cluster
) -> None:
    local = run(tmp_path / "local", "local")
    for name, address in (("address", cluster.address), ("auto", "auto")):
        assert run(tmp_path / name, "ray", address, **cluster.environment) == local
        assert calls(tmp_path / name) == [0, 1, 2, 3]
    assert run(tmp_path / "other", "local", function="products_in_another_order") != local


def test_a_sweep_on_a_cluster_has_the_table_of_the_local_engine(tmp_path: Path, cluster: Cluster) -> None:
    (tmp_path / "sweep.toml").write_text(dump_sweep(small_sweep(seeds=(0, 3))))
    tables = []
    for name, where in (("local", ()), ("ray", ("--engine", "ray", "--address", cluster.address))):
        words = (str(tmp_path / "sweep.toml"), "--out", str(tmp_path / name), "--measures", "loss", "--quiet", *where)
        program = start_program("sweep", *words, **cluster.environment)
        assert program.communicate(timeout=LONGEST_WAIT) == ("", "")
        with (tmp_path / name / "sweep.csv").open() as file:
            rows = list(csv.DictReader(file))
        tables.append([{**row, "train_seconds": ""} for row in rows])
    assert tables[0] == tables[1]
    assert len({row["loss"] for row in tables[0]}) == 8


@pytest.mark.parametrize("token", ["", OTHER_TOKEN])
def test_without_the_clusters_token_nothing_is_computed_and_it_is_said(
    tmp_path: Path, cluster: Cluster, token: str
) -> None:
    output, error = run(tmp_path / "ray", "ray", cluster.address, **cluster.environment | {"RAY_AUTH_TOKEN": token})
    assert output == ""
    assert f'--address = "{cluster.address}" asks for a token that this machine does not have' in error
    assert calls(tmp_path / "ray") == []


def test_a_cluster_that_asks_for_no_token_lets_us_in_with_and_without_one(tmp_path: Path) -> None:
    local = run(tmp_path / "local", "local")
    with cluster_of(RAY_AUTH_MODE="disabled") as cluster:
        here = {name: value for name, value in cluster.environment.items() if name != "RAY_AUTH_MODE"}
        assert run(tmp_path / "without", "ray", cluster.address, **here) == local
        assert run(tmp_path / "with", "ray", cluster.address, **here, RAY_AUTH_TOKEN=TOKEN) == local
