"""What Ray is asked for, by a Ray that only takes notes."""

import socket
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import AuthenticationError

from support.helpers import SMALL, overlay
from support.scale_work import calls, items, square
from support.small_sweeps import small_sweep
from topicscope import scale
from topicscope.cli import main
from topicscope.errors import InputError
from topicscope.scale import map_items, versions
from topicscope.settings.sweep import dump_sweep


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

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="127.0.0.1:1")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cores)}

    def remote(self, **_: Any) -> Any:
        return lambda function: SimpleNamespace(options=partial(self.options, function))

    def options(self, function: Any, num_cpus: int, **_: Any) -> Any:
        assert num_cpus <= self.cores
        self.asked.append(num_cpus)

        def remote(*arguments: Any) -> Any:
            function(*arguments)
            return object()

        return SimpleNamespace(remote=remote)

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
    monkeypatch.setattr(scale, "_ray", lambda: ray)
    work = [*items(tmp_path, 2, threads=3), *items(tmp_path, 4)[2:]]
    found = map_items(square, work, folder=tmp_path / "work", workers=workers, engine="ray")
    assert found == [b"0", b"1", b"4", b"9"]
    assert ray.started == 3 * workers
    # Each takes a worker's share, so that no more run at once than there are workers.
    assert ray.asked == [3, 3, 3, 3]


def test_threads_that_no_machine_of_a_cluster_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = NotedRay(cluster=4)
    monkeypatch.setattr(scale, "_ray", lambda: ray)
    monkeypatch.setattr(scale, "_knock", lambda address: None)
    options: dict[str, Any] = {"folder": tmp_path / "work", "engine": "ray", "address": "auto"}
    assert map_items(square, items(tmp_path, 1, threads=4), **options) == [b"0"]
    assert ray.asked == [4]
    with pytest.raises(InputError, match=r"has threads = 5, and no machine .* more than 4 cores"):
        map_items(square, items(tmp_path, 1, threads=5), **options)


def test_a_cluster_that_does_not_take_our_token_is_refused_and_one_that_does_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Door:
        """Of a cluster: it lets in, or not."""

        open = False

        def __init__(self, address: str) -> None:
            if not self.open:
                raise AuthenticationError("no token")

    ray = NotedRay(cluster=1)
    monkeypatch.setattr(scale, "_ray", lambda: ray)
    monkeypatch.setattr("ray._raylet.GcsClient", Door)
    # So that no token of this machine is used, for the rest of the tests neither.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        options: dict[str, Any] = {"engine": "ray", "address": f"127.0.0.1:{somebody.getsockname()[1]}"}
        with pytest.raises(InputError, match=r"asks for a token that this machine does not have: copy .*\.$"):
            map_items(square, items(tmp_path), folder=tmp_path / "work", **options)
        assert calls(tmp_path) == []
        Door.open = True
        assert map_items(square, items(tmp_path), folder=tmp_path / "work", **options) == [b"0", b"1", b"4", b"9"]


def test_an_address_left_by_a_cluster_that_is_gone_is_said_and_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What Ray finds for "auto" when a cluster was killed.
    monkeypatch.setattr("ray._private.services.get_ray_address_from_environment", lambda *words: "127.0.0.1:1")
    monkeypatch.setattr(scale, "_ray", lambda: NotedRay(cluster=1))
    options: dict[str, Any] = {"engine": "ray", "folder": tmp_path / "work"}
    with pytest.raises(InputError, match=r'--address = "auto" cannot be reached \(nobody answers at 127\.0\.0\.1:1'):
        map_items(square, items(tmp_path), address="auto", **options)
    # The control: without an address it is a Ray of our own.
    assert map_items(square, items(tmp_path), **options) == [b"0", b"1", b"4", b"9"]


def test_a_machine_with_other_versions_computes_nothing_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray, asked = NotedRay(), versions()
    monkeypatch.setattr(scale, "_ray", lambda: ray)
    # First who asks, then the machine that computes.
    answers = iter([asked, asked | {"numpy": "1.0"}])
    monkeypatch.setattr(scale, "versions", lambda: next(answers))
    options: dict[str, Any] = {"folder": tmp_path / "work", "engine": "ray"}
    with pytest.raises(InputError, match=rf"other versions \(numpy 1\.0 there, {asked['numpy']} here\): install"):
        map_items(square, items(tmp_path, 1), **options)
    assert calls(tmp_path) == []
    monkeypatch.setattr(scale, "versions", versions)
    assert map_items(square, items(tmp_path, 1), **options) == [b"0"]


class HeadlessRay(NotedRay):
    """Its head is lost as soon as it has work."""

    def wait(self, running: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return [], running


def test_a_sweep_whose_head_is_gone_says_so_in_one_sentence_with_exit_code_4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "_ray", lambda: HeadlessRay(cluster=1))
    monkeypatch.setattr(scale, "_knock", lambda address: None)
    monkeypatch.setattr(scale, "_is_there", lambda address: False)
    settings = overlay(SMALL, {"training": {"steps": 1}})
    sweep = small_sweep(settings=settings, vary={"training.learning_rate": (0.01,)}, seeds=(0,))
    (tmp_path / "sweep.toml").write_text(dump_sweep(sweep))
    words = ["sweep", str(tmp_path / "sweep.toml"), f"--out={tmp_path / 'out'}", "--quiet"]
    assert main([*words, "--engine=ray", "--address=127.0.0.1:1"]) == 4
    sentence = "The head of the Ray cluster at 127.0.0.1:1 is gone; what was finished is kept: start the cluster and"
    assert capsys.readouterr().err == f"topicscope: {sentence} run it again.\n"
