"""The Hugging Face Hub: whether it can be reached, and datasets by name, streamed from it or from the local cache.

It is asked only once whether the Hub can be reached, so that nobody offline waits for a minute of retries.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from topicscope.errors import InputError, import_for_language

# Seconds.
PATIENCE = 3.0


@cache
def reachable() -> bool:
    """Whether a connection to the hub, or to the proxy on the way to it, can be opened."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return False
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    proxy = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY")
    address = urlsplit(proxy or hub)
    port = address.port or (80 if address.scheme == "http" else 443)
    with contextlib.suppress(OSError, ValueError), socket.create_connection((address.hostname, port), timeout=PATIENCE):
        return True
    return False


@dataclass(frozen=True)
class HubDataset:
    """One split of a dataset, as the library ``datasets`` loaded it."""

    rows: Iterable[Mapping[str, Any]]
    columns: Sequence[str] | None
    """None if they are not known before the first row is read."""

    identity: str
    """The name, the split and what the library knows about the version."""


def load_dataset(name: str, split: str) -> HubDataset:
    """The dataset ``NAME`` or ``NAME:CONFIG``; an error of one sentence if there is none or it cannot be reached."""
    path, _, config = name.partition(":")
    datasets = import_for_language("datasets", "Hugging Face datasets need datasets")
    online = reachable()
    try:
        with quiet("datasets", "huggingface_hub", "fsspec"), _without_bars(datasets, offline=not online):
            cached = datasets.DownloadConfig(local_files_only=not online)
            rows = datasets.load_dataset(path, config or None, split=split, streaming=online, download_config=cached)
    except Exception as error:
        # The library raises errors of some twenty classes here; all of them mean that there is no such dataset.
        where = "on the Hugging Face Hub" if online else "in the local cache, and the Hugging Face Hub is out of reach"
        reason = f" ({str(error).splitlines()[0].rstrip('.')})" if online and str(error) else ""
        raise InputError(
            f'corpus = "{name}" is no file or folder, and no dataset {where}{reason}: '
            "give a file, a folder, wiki-sample or a dataset as NAME or NAME:CONFIG."
        ) from None
    info = rows.info
    version = (str(info.version), info.dataset_size, sorted(info.features or ()))
    return HubDataset(rows, rows.column_names, repr((name, split, *version)))


@contextlib.contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Silence the log of these libraries: the error says what they say."""
    with contextlib.ExitStack() as stack:
        for name in names:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield


@contextlib.contextmanager
def _without_bars(datasets: Any, *, offline: bool) -> Iterator[None]:
    """Show no progress bars; ``offline`` makes both libraries look in the cache only.

    They read the environment only when they are imported, so their own settings are changed, and restored afterwards.
    """
    from huggingface_hub import constants

    with contextlib.ExitStack() as stack:
        if datasets.is_progress_bar_enabled():
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        for config in (datasets.config, constants) if offline else ():
            stack.callback(setattr, config, "HF_HUB_OFFLINE", config.HF_HUB_OFFLINE)
            config.HF_HUB_OFFLINE = True
        yield
