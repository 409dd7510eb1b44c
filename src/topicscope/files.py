"""Files that are either there whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name beside the file, bring it to disk, then rename it over the file."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        # On a full disk the part that was written would take the last space.
        temporary.unlink(missing_ok=True)
        raise
