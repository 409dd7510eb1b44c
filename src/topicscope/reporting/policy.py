"""The content-security policy of pages: no network at all."""

import base64
import hashlib


def content_policy(*scripts: str, workers: bool = False) -> str:
    """Only these scripts; styles of the page; pictures made in it; ``workers``: WebAssembly in workers made in it."""
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts]
    compiled, worker = (" 'wasm-unsafe-eval'", "worker-src blob:; ") if workers else ("", "")
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}{compiled}; {worker}style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
