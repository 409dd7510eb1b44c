"""The page of ``reproduce``: what it shows beside claims and figures, and the page itself."""

import json
from collections.abc import Sequence
from typing import Any

from safetensors.numpy import save

from topicscope.commands.results_folder import ResultsFolder, Row
from topicscope.files import write_atomically
from topicscope.paper.landscape_grids import write_landscapes

# Claims about the loss over attention's weights have figures of these names.
LANDSCAPES = ("figure6", "figure7", "figure8", "figure9")


def keep_film(folder: ResultsFolder, result: Any) -> None:
    """Keep an experiment's matrices over training where the page finds them, if there are any."""
    arrays = getattr(result, "film", None)
    if not arrays:
        return
    name = json.loads(arrays["about"].tobytes())["name"]
    path = folder.path / "runs" / name / "trained.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, save(dict(arrays)))


def write_page(folder: ResultsFolder, rows: Sequence[Row]) -> None:
    """Write report.html, and the landscapes that it has sliders for where the claims are about them."""
    from topicscope.report.page import write_report

    about_landscapes = any(row["figure"].startswith(LANDSCAPES) for row in rows)
    if about_landscapes and not (folder.path / "landscapes.json").exists():
        write_landscapes(folder.path)
    write_report([folder.path], folder.path / "report.html")
