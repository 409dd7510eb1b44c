"""Drawings of a folder that the page shows as they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from topicscope.report.page.folders import Found
from topicscope.report.page.store import Reference, Store

# Larger ones, drawn with thousands of marks, would fill the page; they stay in the folder.
LARGEST = 1_500_000


@dataclass(frozen=True)
class Image:
    """An SVG file, under the name that links lead to."""

    anchor: str
    name: str
    reference: Reference


def image_of(path: Path, anchor: str, store: Store, found: Found) -> Image | None:
    """The drawing; None, with a note, if it is not there or too large."""
    if not path.exists():
        found.notes.append(f"{path} is not drawn yet.")
        return None
    if path.stat().st_size > LARGEST:
        found.notes.append(f"{path} is too large for the page.")
        return None
    return Image(anchor, path.stem, store.text(path.read_bytes()))


def images_of(paths: Sequence[Path], anchor: str, store: Store, found: Found) -> tuple[Image, ...]:
    """Those of several drawings that can be shown."""
    images = [image_of(path, f"{anchor}-image-{place}", store, found) for place, path in enumerate(paths)]
    return tuple(image for image in images if image)
