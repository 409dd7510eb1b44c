"""What Ray is asked for, by a Ray that only takes notes."""

from pathlib import Path
from typing import Any

import pytest

from scale_work import items, square
from topicscope.errors import InputError
from topicscope.scale import map_items, ray_engine


class NotedRay:
    """Computes at once, and refuses what no node of it could ever run, for which Ray would wait for ever."""

    class exceptions:  # noqa: N801
        RayTaskError = RayError = OSError

    def __init__(self, cluster: int = 0) -> None:
        self.cores, self.started, self.asked = cluster, 0, list[int]()

    def is_initialized(self) -> bool:
        return False

    def init(self, num_cpus: int = 0, **_: Any) -> None:
        self.cores, self.started = self.cores or num_cpus, num_cpus

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(self.cores)}}, {"Alive": False, "Resources": {"CPU": 99.0}}]

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores)}

    def remote(self, **_: Any) -> Any:
        return lambda function: self

    def options(self, num_cpus: int, **_: Any) -> "NotedRay.Handle":
        assert num_cpus <= self.cores
        self.asked.append(num_cpus)
        return NotedRay.Handle()

    class Handle:
        def remote(self, task: Any) -> Any:
            task.compute()
            return object()

    def wait(self, running: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return running[:1], running[1:]

    def get(self, reference: Any) -> None:
        pass

    def shutdown(self) -> None:
        pass


@pytest.mark.parametrize("workers", [1, 2])
def test_a_ray_of_our_own_has_cores_for_every_workers_threads(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = NotedRay()
    monkeypatch.setattr(ray_engine, "_ray", lambda: ray)
    work = [*items(tmp_path, 2, threads=3), *items(tmp_path, 4)[2:]]
    found = map_items(square, work, folder=tmp_path / "work", workers=workers, engine="ray")
    assert found == [b"0", b"1", b"4", b"9"]
    assert ray.started == 3 * workers
    # Each takes a worker's share, so that no more run at once than there are workers.
    assert ray.asked == [3, 3, 3, 3]


def test_threads_that_no_machine_of_a_cluster_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = NotedRay(cluster=4)
    monkeypatch.setattr(ray_engine, "_ray", lambda: ray)
    options: dict[str, Any] = {"folder": tmp_path / "work", "engine": "ray", "address": "auto"}
    assert map_items(square, items(tmp_path, 1, threads=4), **options) == [b"0"]
    assert ray.asked == [4]
    with pytest.raises(InputError, match=r"has threads = 5, and no machine .* more than 4 cores"):
        map_items(square, items(tmp_path, 1, threads=5), **options)
