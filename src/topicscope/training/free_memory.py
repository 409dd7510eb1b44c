"""How much memory a process may still take: what the machine has free, and what its control groups leave it."""

import os
from collections.abc import Iterator
from pathlib import Path

# A group's files with its limit and its use, and the line of memory.stat with cached files, which the system lets go of
# before a process goes short; of control groups of version 2, and of version 1.
VERSION_2 = ("memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Memory that can be had without swapping; None where the system does not say.

    The least of what the machine has and what containers and batch systems allow. ``root``: of the file system.
    """
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
            return
    try:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return


def _of_groups(root: Path) -> Iterator[int]:
    """Of the process's own group and of all above it, whose limits hold for it too."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, name = line.split(":", 2)
        if number == "0":
            base, files = mounted, VERSION_2
        elif "memory" in controllers.split(","):
            base, files = mounted / "memory", VERSION_1
        else:
            continue
        # In a container the name may be the machine's, of a group that is not seen here; but the topmost one always is.
        group = base / name.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(base):
                yield from _left(folder, *files)


def _left(group: Path, limit: str, used: str, cached: str) -> Iterator[int]:
    """What a group may still take; nothing if it has no limit."""
    try:
        most, now = ((group / name).read_text(encoding="ascii").strip() for name in (limit, used))
    except OSError:
        return
    if most != "max":
        given_back = dict(line.split(maxsplit=1) for line in _lines(group / "memory.stat")).get(cached, 0)
        yield max(int(most) - int(now) + int(given_back), 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
