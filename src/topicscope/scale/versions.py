"""What results depend on beside their keys: code, packages, and how many cores there are to use."""

import hashlib
import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Whose versions can change a number.
PACKAGES = ("numpy", "scipy", "torch", "transformers", "tokenizers", "tomotopy", "gensim")
ROOT = Path(__file__).parents[1]


def available_cores() -> int:
    """The cores that this process may use; macOS does not say, and gives all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def code_digest(sources: tuple[str, ...]) -> str:
    """A digest of the package's source under these paths: results of other code are never taken for this one's."""
    digest = hashlib.sha256()
    for source in sources:
        path = ROOT / source
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def package_versions(names: tuple[str, ...] = ()) -> dict[str, str]:
    """Of packages that a result depends on; of all that compute if none are named."""
    return {name: _version(name) for name in names or PACKAGES}


def made_with(sources: tuple[str, ...], packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """The code under these paths, and these packages (all that compute if none are named), as a part of a key."""
    return {"code": code_digest(sources), "libraries": package_versions(packages)}


@cache
def versions() -> dict[str, str]:
    """Of Python, of the packages that compute, and of all our own code by its content."""
    return {"python": platform.python_version(), "topicscope": code_digest((".",)), **package_versions()}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
