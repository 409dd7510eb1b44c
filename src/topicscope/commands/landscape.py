"""``topicscope landscape``: the exact loss over attention's weights, as numbers and as a figure."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from topicscope.commands.folders import check_empty
from topicscope.commands.options import INLINE, keywords, parse
from topicscope.commands.terminal import as_json, console, print_json, print_parts
from topicscope.errors import path_of
from topicscope.records import LANDSCAPES
from topicscope.store import write_atomically
from topicscope.theory.setting import TheorySetting
from topicscope.theory.summary import POINTS, LandscapeGrid, landscape_grid, landscape_record
from topicscope.theory.theorem2 import Pattern

DESCRIPTION = """The exact loss over attention's weights α and β: grid, numbers and figure.

The command writes landscape.npz, landscape.json, landscape.png and landscape.svg, and landscapes.json for pages.

examples:
  topicscope landscape --out landscape
  topicscope landscape --value diagonal --out landscape-diagonal
  topicscope landscape --topics 100000000 --per-document 3000 --out limit
  topicscope landscape --finite --length 100 150 --out finite
"""

PAGE_POINTS = 61
TITLES = {
    "optimum": "Exact optimum, infinite documents",
    "optimum_without_mask_queries": "The same without [MASK] queries",
    "theorem3": "Theorem 3: the average ((v−1)α + β)/v",
    "finite.optima.assumption_2": "Finite documents: best of Assumption 2's weights",
    "finite.optima.free_mask_weights": "Finite documents: weights on [MASK] free",
    "finite.optima.by_topics": "Finite documents: the same with β = α",
    "finite.optima.joint": "Finite documents: W^V free too",
}


def landscape(
    setting: TheorySetting | None = None,
    *,
    value: Pattern = "block",
    points: int = POINTS,
    finite: bool = False,
    out: Path | str | None = None,
) -> LandscapeGrid:
    """The exact loss over α and β for Theorem 2's W^V ("block") or D.4's ("diagonal").

    ``finite`` adds the loss over sampled documents of the setting's length and τ topics, and their best weights.
    With ``out``, a new or empty folder, landscape.npz, .json, .png and .svg are written to it, and landscapes.json for
    pages.
    """
    if out is not None:
        out = path_of(out, "out")
        check_empty(out)
    grid = landscape_grid(setting or TheorySetting(), value, points, finite=finite)
    if out is not None:
        _write(grid, out)
    return grid


def _write(grid: LandscapeGrid, out: Path) -> None:
    from topicscope.reporting.figures import save_figure
    from topicscope.reporting.figures.landscape import Bounds, Surface, landscape_figure

    out.mkdir(parents=True, exist_ok=True)
    arrays = {"alpha": grid.weights, "beta": grid.weights, "loss": grid.loss}
    optimum, finite = (grid.optimum.alpha, grid.optimum.beta), grid.finite
    surfaces = [Surface("all masked positions", grid.weights, grid.loss, optimum)]
    if grid.word_loss is not None:
        arrays["loss_without_mask_queries"] = grid.word_loss
        surfaces.append(Surface("without [MASK] queries", grid.weights, grid.word_loss, None))
    if finite is not None:
        arrays |= {"finite_weights": finite.weights, "finite_loss": finite.loss}
        best = finite.optima["assumption_2"].weights
        title = f"documents of {finite.length[0]} to {finite.length[1]} words"
        surfaces.append(Surface(title, finite.weights, finite.loss, (best.alpha, best.beta)))
    numbers, s, bounds = io.BytesIO(), grid.setting, grid.theorem3
    np.savez_compressed(numbers, allow_pickle=False, **arrays)
    write_atomically(out / "landscape.npz", numbers.getvalue())
    title = f"{grid.value} $W^V$, T = {s.topics}, τ = {s.per_document}, v = {s.words}"
    limits = Bounds(s.words, bounds.low, bounds.high, bounds.limit)
    figure = landscape_figure(title, surfaces, limits, attained=grid.optimum.attained)
    save_figure(figure, out / "landscape")
    write_atomically(out / "landscape.json", as_json(grid))
    # A page has no pixels for more points.
    kept = np.unique(np.linspace(0, len(grid.weights) - 1, PAGE_POINTS).round().astype(int))
    shown = grid.weights[kept], grid.loss[np.ix_(kept, kept)]
    LANDSCAPES.write(out, [landscape_record(s.infinite, grid.value, grid.optimum, *shown)])


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path
    """The folder to write to; new or empty."""

    setting: Annotated[TheorySetting, INLINE] = TheorySetting()

    value: Pattern = "block"
    """W^V: "block" is Theorem 2's, "diagonal" that of appendix D.4."""

    points: int = POINTS
    """Grid points along each axis."""

    finite: bool = False
    """Beside infinite documents, also finite ones of `--length` words and τ topics, drawn at random."""

    json: bool = False
    """Print the numbers of landscape.json."""


def main(words: list[str]) -> None:
    """Parse, compute, write, print where and what."""
    options = parse(Options, words, command="landscape", description=DESCRIPTION)
    grid = landscape(**keywords(options))
    if options.json:
        print_json(grid)
        return
    print_parts(grid, TITLES)
    console().print(f"{options.out}: landscape.npz, landscape.json, landscape.png, landscape.svg, landscapes.json")
