"""One thread per library in each test process: two processes with two threads each would fight over two cores."""

import logging
import os
from collections.abc import Iterator

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
