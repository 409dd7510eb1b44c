"""The Ray engine: tasks on a Ray of our own on this machine, or on a cluster that is there.

Ray only runs them. What is finished is known from the files, so nothing depends on Ray's own state.
"""

import contextlib
import logging
import os
import platform
import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from topicscope.errors import InputError
from topicscope.scale.cores import available_cores
from topicscope.scale.items import Task
from topicscope.scale.local import ATTEMPTS, lost, worker_environment
from topicscope.scale.versions import versions

# Results go to disk, so the object store carries arguments only; this is close to the least that Ray accepts.
OBJECT_STORE_BYTES = 100 * 2**20
# Tasks that wait at Ray for each worker of ours, so that none is idle while the caller is busy.
AHEAD = 4
# How long a cluster may take to answer at all.
KNOCK_SECONDS = 10.0


def run(tasks: Sequence[Task], *, workers: int | None, address: str | None) -> Iterator[Task]:
    """The tasks, each when it is finished; on a cluster at most ``workers`` at once, if that is given."""
    ray = _ray()
    waiting, running = deque(tasks), dict[Any, Task]()
    # A Ray of our own is told of cores enough for all workers, and each task takes its share, whatever there is: so as
    # many run at once as were asked for, and none waits for ever for more cores than there are.
    share = max(task.threads for task in tasks)
    own = address is None and not ray.is_initialized()
    with _connected(ray, address, share * min(len(tasks), workers or available_cores())):
        _check_threads(ray, tasks)
        # Ray's own retries have no end for tasks that run out of memory, so attempts are counted here.
        remote, attempts = ray.remote(max_retries=0)(compute_alike), Counter[Task]()
        most = workers if workers and address else AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    task = waiting.popleft()
                    sent = remote.options(num_cpus=share if own else task.threads, name=task.name)
                    running[sent.remote(task, versions())] = task
                done, _ = ray.wait(list(running), num_returns=1)
                for reference in done:
                    task = running.pop(reference)
                    if _finished(ray, reference):
                        yield task
                        continue
                    attempts[task] += 1
                    if attempts[task] == ATTEMPTS:
                        raise lost(task)
                    waiting.append(task)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def compute_alike(task: Task, asked: dict[str, str]) -> None:
    """A worker's part: a result's name says by which code it was made, so it must be that of who asks."""
    here = versions()
    if different := [f"{name} {here[name]} there, {asked[name]} here" for name in asked if here[name] != asked[name]]:
        raise InputError(
            f"The machine {platform.node()} of the Ray cluster has other versions ({'; '.join(different)}): install "
            "the same on all machines."
        )
    task.compute()


def _check_threads(ray: Any, tasks: Sequence[Task]) -> None:
    """Refuse a task that fits on no machine: Ray would wait for one for ever."""
    most = max((int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]), default=0)
    for task in tasks:
        if task.threads > most:
            raise InputError(
                f'"{task.name}" has threads = {task.threads}, and no machine of the Ray cluster has more than '
                f"{most} cores: lower its threads, or add a machine."
            )


def _finished(ray: Any, reference: Any) -> bool:
    """Whether there is a result, and not a lost worker; raise what the function raised, as it raised it."""
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    except ray.exceptions.RayError:
        return False
    return True


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, workers: int) -> Iterator[None]:
    """A Ray of our own that ends with this block, a connection to a cluster, or the one this process has already."""
    if ray.is_initialized():
        yield
        return
    quietly = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray").setLevel(logging.ERROR)
    if address is None:
        # Ray's own wishes: no report home, and no word about accelerators that nobody asked for.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        with worker_environment():
            ray.init(
                address="local",
                num_cpus=workers,
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quietly,
            )
    else:
        try:
            _knock(address)
            ray.init(address=address, **quietly)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise InputError(
                f'--address = "{address}" cannot be reached ({reason}): on a machine of a running Ray cluster, '
                'give HOST:PORT of its head, or "auto".'
            ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Find out within seconds that nobody is there, or that we are not let in: Ray itself takes minutes."""
    from ray._private.services import get_ray_address_from_environment

    found = get_ray_address_from_environment("auto", None) if address == "auto" else address
    host, _, port = found.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()
    except OSError as error:
        raise ConnectionError(f"nobody answers at {found}: {error.strerror or error}") from None
    _show_token(found)


def _show_token(address: str) -> None:
    """Have Ray use the token that this machine has, and refuse a cluster that does not accept it.

    ``ray start`` asks for a token if it finds one. Ray looks for it by itself when it connects to "auto", but not when
    it connects to HOST:PORT. RAY_AUTH_MODE, if it is set, decides.
    """
    try:
        from ray._private.authentication.authentication_token_setup import maybe_enable_token_auth_if_token_available
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.exceptions import AuthenticationError
    except ImportError:
        return  # A Ray that knows no tokens.
    maybe_enable_token_auth_if_token_available(warn_if_disabled=False)
    try:
        GcsClient(address=address)
    except AuthenticationError:
        raise InputError(
            f'--address = "{address}" asks for a token that this machine does not have: copy ~/.ray/auth_token from '
            "the cluster's head, or set RAY_AUTH_TOKEN."
        ) from None


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise InputError('--engine ray needs Ray: install it with `pip install "topicscope[scale]"`.') from None
    return ray
