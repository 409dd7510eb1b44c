"""Threads are chosen from the settings and recorded; free memory is the least of what machine and groups leave."""

from pathlib import Path

import pytest

from support.helpers import small_settings
from topicscope.errors import InputError
from topicscope.settings import Data, Model, Part, Settings, Training
from topicscope.training import machine
from topicscope.training.loop import train
from topicscope.training.machine import available_bytes, step_size, with_threads

LARGE = Settings(data=Data(topics=200, words=100), model=Model(dimension=128, embedding=Part(start="normal")))


def test_threads_are_one_unless_a_step_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_cores", lambda: 6)
    assert with_threads(Settings(), 101).training.threads == 1
    assert with_threads(LARGE, 20_001).training.threads == 6
    asked = Settings(training=Training(threads=3))
    assert with_threads(asked, 101) == asked


def test_a_step_is_larger_with_more_layers_documents_and_words() -> None:
    plain = step_size(Settings(), 101)
    assert step_size(Settings(model=Model(layers=4)), 101) > 2 * plain
    assert step_size(Settings(training=Training(batch=80)), 101) == 2 * plain
    assert step_size(Settings(data=Data(length=(100, 1_000)), training=Training(engine="reference")), 101) > 2 * plain
    # On bags of tokens a document is no larger than the vocabulary.
    assert step_size(Settings(data=Data(length=(100, 1_000))), 101) == plain


def test_a_run_records_the_threads_chosen_and_goes_on_with_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert small_settings().training.threads == 0
    folder = train(small_settings(), tmp_path / "run")
    assert folder.settings().training.threads == 1
    versions = folder.versions()
    assert versions is not None
    assert versions.threads == 1
    train(small_settings(), folder.path, resume=True)
    # The same settings where every step counts as large and there are two cores.
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(machine, "LARGE_STEP", 0)
    with pytest.raises(InputError, match=r"--training\.threads 1"):
        train(small_settings(), folder.path, resume=True)


MACHINE = 8_000_000 * 1024


def system(root: Path, groups: str, files: dict[str, str]) -> Path:
    """The files that are read, below a folder of their own."""
    contents = {
        "proc/meminfo": "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": content for name, content in files.items()},
    }
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def version_2(limit: object, used: int, cached: int, folder: str = "") -> dict[str, str]:
    stat = f"anon 7\ninactive_file {cached}\nactive_file 9\n"
    names = {"memory.max": f"{limit}\n", "memory.current": f"{used}\n", "memory.stat": stat}
    return {folder + name: content for name, content in names.items()}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        # No groups, none with a limit, and a limit above what the machine has.
        ("", {}, MACHINE),
        ("0::/\n", {}, MACHINE),
        ("0::/\n", version_2("max", 10**9, 0), MACHINE),
        ("0::/\n", version_2(10**12, 10**9, 0), MACHINE),
        # A container's limit; cached files do not count as used.
        ("0::/\n", version_2(10**9, 4 * 10**8, 0), 6 * 10**8),
        ("0::/\n", version_2(10**9, 4 * 10**8, 10**8), 7 * 10**8),
        ("0::/\n", version_2(10**9, 2 * 10**9, 0), 0),
        # A batch system's: the tightest of the groups above the process.
        ("0::/jobs/7\n", version_2(10**9, 0, 0, "jobs/") | version_2("max", 0, 0, "jobs/7/"), 10**9),
        ("0::/jobs/7\n", version_2(10**9, 0, 0, "jobs/") | version_2(10**8, 0, 0, "jobs/7/"), 10**8),
        ("0::/jobs/7\n", version_2(10**8, 0, 0, "jobs/8/"), MACHINE),
    ],
)
def test_the_least_of_machine_and_groups_is_free(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int
) -> None:
    assert available_bytes(system(tmp_path, groups, files)) == expected


def test_this_machine_says_how_much_is_free() -> None:
    found = available_bytes()
    assert found is not None
    assert found > 1_000_000


def test_without_such_files_the_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"SC_AVPHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", asked.__getitem__)
    assert available_bytes(tmp_path) == 40_960

    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    assert available_bytes(tmp_path) is None
