"""A Ray cluster as a user has one: begun by ``ray start``, a machine per address of this computer's loopback."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import topicscope
from support import tasks

# Ray would wait half a minute for a machine's work to end.
AT_ONCE = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}


class Cluster:
    """A head, and other machines that join it; each has its own processes, object store and address."""

    def __init__(self, folder: Path, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {"RAY_TMPDIR": str(folder), "HOME": str(folder), **AT_ONCE, **environment}
        self._machines: dict[str, subprocess.Popen[str]] = {}

    def start_head(self, cores: int = 2) -> None:
        """Start the machine that the others join, on the address that this cluster has from the beginning."""
        port, folder = self.address.rpartition(":")[2], self.environment["RAY_TMPDIR"]
        words = ["--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false"]
        self._start("head", [*words, f"--temp-dir={folder}/ray"], cores)

    def join(self, name: str, cores: int = 1) -> None:
        """Start another machine."""
        address = f"127.0.0.{len(self._machines) + 2}"
        self._start(name, [f"--address={self.address}", f"--node-ip-address={address}"], cores)

    def _start(self, name: str, words: list[str], cores: int) -> None:
        source = [str(Path(topicscope.__file__).parents[1]), str(Path(tasks.__file__).parents[1])]
        command = [str(Path(sys.executable).parent / "ray"), "start", "--block", f"--num-cpus={cores}", *words]
        command += ["--object-store-memory=100000000", "--disable-usage-stats"]
        program = subprocess.Popen(
            command,
            env=os.environ | self.environment | {"PYTHONPATH": os.pathsep.join(source)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._machines[name] = program
        assert program.stdout is not None
        assert any("Ray runtime started" in line for line in program.stdout)

    def kill(self, name: str) -> None:
        """End all processes of a machine at once, as if its power went."""
        program = self._machines.pop(name)
        for process in [program.pid, *descendants(program.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        program.communicate()

    def stop(self) -> None:
        """With all that it started: they have its folder in their command lines."""
        for name in list(self._machines):
            self.kill(name)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.environment["RAY_TMPDIR"].encode() in (process / "cmdline").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)


@contextlib.contextmanager
def cluster_of(head: int = 2, **environment: str) -> Iterator[Cluster]:
    """A cluster with a head of so many cores, which ends with the block."""
    # Not below pytest's folder: the system does not take the long paths of sockets there.
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), **environment)
        try:
            cluster.start_head(head)
            yield cluster
        finally:
            cluster.stop()


def descendants(process: int) -> list[int]:
    """Processes that a process started, that these started, and so on."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = path.read_text().partition(" ")
            parents.setdefault(int(rest.rpartition(")")[2].split()[1]), []).append(int(number))
    found, left = [], [process]
    while left:
        inner = parents.get(left.pop(), [])
        found += inner
        left += inner
    return found
