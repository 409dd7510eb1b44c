"""How much of the machine there is for us."""

import os


def available_cores() -> int:
    """The cores that this process may use; macOS does not say, and gives all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
