"""One thread per library in each test process: two processes with two threads each would fight over two cores."""

import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

# Read when a library is loaded, and handed on to the programs that tests start.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
# NumPy is there already: a plugin has loaded it.
threadpool_limits(1)


@pytest.fixture(autouse=True)
def own_messages() -> Iterator[None]:
    """A command prints its messages on the standard error of its test, which is closed when the next one logs."""
    yield
    logging.getLogger("topicscope").handlers.clear()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How many cases the fuzzer tried, and how they ended."""
    total: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        for name, value in report.user_properties:
            if name == "fuzzed":
                total.update(json.loads(value))
    if total:
        said = ", ".join(f"{count:,} in {ending}" for ending, count in sorted(total.items()))
        terminalreporter.write_line(f"fuzzer: {sum(total.values()):,} cases, of which {said}; no traceback")
