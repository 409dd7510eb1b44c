"""Whether the Hugging Face Hub can be reached: asked once, so that nobody offline waits for a minute of retries."""

import contextlib
import os
import socket
from functools import cache
from urllib.parse import urlsplit

PATIENCE = 3.0
"""Seconds."""


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
