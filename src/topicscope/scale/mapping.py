"""The map: what is there is taken, what is missing goes to an engine, results come in the items' order."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from topicscope.errors import InputError, LostWorkError
from topicscope.files import remove_leftovers
from topicscope.scale import local, ray_engine
from topicscope.scale.cores import available_cores
from topicscope.scale.items import Item, Task, read_result, remove_stale, result_paths

T = TypeVar("T")
ENGINES = ("local", "ray")
# Seconds that writing a result surely takes less than; workers of another process may be at it.
LONGEST_WRITE = 3600.0
# Called with how many items are done, how many there are, and the name of the last.
Report = Callable[[int, int, str], None]


def map_items(
    function: Callable[[T], bytes],
    items: Sequence[Item[T]],
    *,
    folder: Path,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
    report: Report | None = None,
) -> list[bytes]:
    """The results of all items, in their order; options as of ``completed``."""
    found: dict[int, bytes] = {}
    options = {"workers": workers, "engine": engine, "address": address, "timeout": timeout}
    for place, content in completed(function, items, folder=folder, **options):  # type: ignore[arg-type]
        found[place] = content
        if report:
            report(len(found), len(items), items[place].name)
    return [found[place] for place in range(len(items))]


def completed(
    function: Callable[[T], bytes],
    items: Sequence[Item[T]],
    *,
    folder: Path,
    workers: int | None = 1,
    engine: str = "local",
    address: str | None = None,
    timeout: float | None = None,
) -> Iterator[tuple[int, bytes]]:
    """(Place, result) pairs: first of the items already there, then of each as it is finished.

    Engine ``local`` computes in processes of this machine, or in this one if there is one worker and no timeout;
    ``ray`` on a Ray of its own on this machine, or on the cluster at ``address``, where the folder must be on a disk
    that all its machines share. ``workers``: how many items at once, None for as many as there are cores. ``timeout``:
    seconds that an item may take. An item whose worker is lost (killed, out of memory, out of time) is tried again,
    three times in all.

    Work is taken up in the items' order. Other workers go on while the caller is busy with a result. Closing the
    iterator stops what is under way and keeps what is finished.
    """
    check_engine(engine, address=address, workers=workers, timeout=timeout)
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder, older_than=LONGEST_WRITE)
    paths = result_paths(items, folder)
    places: dict[Path, list[int]] = {}
    for place, path in enumerate(paths):
        places.setdefault(path, []).append(place)
    tasks = []
    for path, (first, *_) in places.items():
        content = read_result(path)
        if content is None:
            item = items[first]
            tasks.append(Task(item.name, function, item.argument, path, item.threads, timeout))
        else:
            yield from ((place, content) for place in places[path])
    remove_stale(folder, paths, [task.path for task in tasks])
    for task in _computed(tasks, engine, workers, address):
        content = read_result(task.path)
        if content is None:
            raise LostWorkError(
                f'The result of "{task.name}" was written by its worker but is not at {task.path}: '
                "use a folder on a disk that all workers share."
            )
        yield from ((place, content) for place in places[task.path])


def check_engine(
    engine: str, *, address: str | None = None, workers: int | None = None, timeout: float | None = None
) -> None:
    """Refuse options that do not go together."""
    if engine not in ENGINES:
        raise InputError(f'--engine = "{engine}" is not allowed: give one of {", ".join(ENGINES)}.')
    if address is not None and engine != "ray":
        raise InputError(f'--address = "{address}" is not allowed with --engine {engine}: add --engine ray.')
    if address is not None and address != "auto" and not re.fullmatch(r"[^/]+:\d+", address):
        raise InputError(
            f'--address = "{address}" is not allowed: on a machine of a running Ray cluster, give HOST:PORT of its '
            'head, or "auto" (addresses of Ray\'s client, ray://, are not supported).'
        )
    if workers is not None and workers < 1:
        raise InputError(f"--workers = {workers} is not allowed: give a whole number, 1 or more.")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InputError(f"--timeout = {timeout} is not allowed: give seconds, above 0.")


def _computed(tasks: Sequence[Task], engine: str, workers: int | None, address: str | None) -> Iterator[Task]:
    """The tasks, each when it is finished."""
    if not tasks:
        return
    if engine == "ray":
        yield from ray_engine.run(tasks, workers=workers, address=address)
        return
    count = min(len(tasks), workers or available_cores())
    if count > 1 or tasks[0].timeout is not None:
        yield from local.run(tasks, workers=count)
        return
    for task in tasks:
        task.compute()
        yield task
