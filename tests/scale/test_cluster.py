"""A Ray that was started by ``ray start``, as a user's cluster is: found by its address, let in by its token."""

import contextlib
import csv
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import topicscope
from support import scale_work
from support.helpers import start_program, start_python
from support.scale_work import calls
from support.small_sweeps import small_sweep
from topicscope.settings.sweep import dump_sweep

# Small versions, without a Ray: test_ray_engine.py.
pytestmark = pytest.mark.slow

LONGEST_WAIT = 120.0
# Ray would wait half a minute for a machine's work to end.
AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
TOKEN, OTHER_TOKEN = "1" * 40, "2" * 40


class Cluster:
    """One machine with two cores, in a folder and on a port of its own."""

    def __init__(self, folder: Path, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {"RAY_TMPDIR": str(folder), "HOME": str(folder), **environment}
        source = [str(Path(topicscope.__file__).parents[1]), str(Path(scale_work.__file__).parents[1])]
        words = [
            "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={self.address.rpartition(':')[2]}",
            "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=100000000", "--disable-usage-stats",
            f"--temp-dir={folder / 'ray'}",
        ]  # fmt: skip
        self._program = subprocess.Popen(
            [str(Path(sys.executable).parent / "ray"), "start", *words],
            env=os.environ | self.environment | {"PYTHONPATH": os.pathsep.join(source), **AT_ONCE},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._program.stdout is not None
        assert any("Ray runtime started" in line for line in self._program.stdout)

    def stop(self) -> None:
        """With all that it started: they have its folder in their command lines."""
        self._program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(timeout=20)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.environment["RAY_TMPDIR"].encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
        self._program.communicate()


@contextlib.contextmanager
def started(**environment: str) -> Iterator[Cluster]:
    # Not below pytest's folder: the system does not take the long paths of sockets there.
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), **environment)
        try:
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """It finds a token when it starts, so it asks for one."""
    with started(RAY_AUTH_TOKEN=TOKEN) as cluster:
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
    with started(RAY_AUTH_MODE="disabled") as cluster:
        here = {name: value for name, value in cluster.environment.items() if name != "RAY_AUTH_MODE"}
        assert run(tmp_path / "without", "ray", cluster.address, **here) == local
        assert run(tmp_path / "with", "ray", cluster.address, **here, RAY_AUTH_TOKEN=TOKEN) == local
