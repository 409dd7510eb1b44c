"""The numbers that a drawn figure shows, read back from it: points by panel and series, whatever drew them."""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

from topicscope.reporting.figures.names import (
    Points,
    colour_names,
    colour_of,
    container_names,
    label_of,
    names_of_points,
    panel_name,
    panels_of,
)

COLUMNS = ("panel", "series", "x", "y", "value", "text")


@dataclass(frozen=True, eq=False)
class Series:
    """Points of one line, map, set of bars … of a panel."""

    panel: str
    name: str
    x: Points
    y: Points
    """Where a point is; NaN in a line that runs across the panel."""
    value: Points
    """What its colour stands for; NaN where colour stands for nothing."""
    text: tuple[str, ...] = ()
    """Names that the axes give to a point, or what is written there; empty if there are none."""


def figure_numbers(figure: Figure) -> list[Series]:
    """All that a figure shows, in the order of its panels; colour bars are left out."""
    names = colour_names(figure)
    return [series for axes in panels_of(figure) for series in _numbered(_of_panel(axes, figure, names))]


def numbers_csv(series: list[Series]) -> str:
    """A line a point, eight digits each; empty where a point has no such number."""
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in series:
        columns = (list(map(_digits, array.tolist())) for array in (each.x, each.y, each.value))
        texts = each.text or ("",) * len(each.x)
        writer.writerows((each.panel, each.name, *row) for row in zip(*columns, texts, strict=True))
    return content.getvalue()


def _digits(value: float) -> str:
    return "" if value != value else f"{value:.8g}"


def _of_panel(axes: Axes, figure: Figure, names: Mapping[str, str]) -> Iterator[Series]:
    panel = panel_name(axes, figure)
    given, hidden = container_names(axes)
    for artist, kind, x, y, value in _points(axes):
        if artist in hidden or not len(x):
            continue
        own = kind if isinstance(artist, ContourSet) else label_of(artist) or given.get(artist, "")
        name = own or names.get(colour_of(artist), kind)
        yield Series(panel, name, x, y, value, names_of_points(axes, figure, x, y))
    written = [text for text in axes.texts if all(_in_data(text, axes)) and text.get_text().strip()]
    if written:
        x, y = (np.array([text.get_position()[axis] for text in written], dtype=np.float64) for axis in (0, 1))
        content = tuple(" ".join(text.get_text().split()) for text in written)
        yield Series(panel, "written", x, y, np.full(len(x), np.nan), content)


def _numbered(found: Iterator[Series]) -> Iterator[Series]:
    """Series of one name told apart by a number; lines across the panel, such as topic boundaries, are one series."""
    count: dict[str, int] = {}
    across: dict[str, list[Series]] = {}
    for series in found:
        if len(series.x) == 1 and np.isnan(series.x + series.y).all():
            across.setdefault(series.name, []).append(series)
            continue
        count[series.name] = number = count.get(series.name, 0) + 1
        yield series if number == 1 else replace(series, name=f"{series.name} ({number})")
    for lines in across.values():
        x, y, value = (np.concatenate([getattr(line, axis) for line in lines]) for axis in ("x", "y", "value"))
        yield replace(lines[0], x=x, y=y, value=value, text=())


def _points(axes: Axes) -> Iterator[tuple[Artist, str, Points, Points, Points]]:
    """Every artist that has points: itself, what it is, x, y and what colour stands for."""
    for image in axes.images:
        # A photograph has no numbers.
        if image.get_array() is not None and np.ndim(np.asarray(image.get_array())) == 2:
            yield image, "map", *_image_points(image)
    for line in axes.lines:
        yield line, "line", *_line_points(line, axes)
    for collection in axes.collections:
        yield from _collection_points(collection)
    for bars in (each for each in axes.containers if isinstance(each, BarContainer)):
        boxes = [bar.get_bbox() for bar in bars]
        # A bar is where its end is; across it, in the middle.
        lying = bars.orientation == "horizontal"
        x = np.array([box.x1 if lying else (box.x0 + box.x1) / 2 for box in boxes])
        y = np.array([(box.y0 + box.y1) / 2 if lying else box.y1 for box in boxes])
        yield bars.patches[0], "bar", x, y, np.full(len(x), np.nan)


def _image_points(image: AxesImage) -> tuple[Points, Points, Points]:
    values = np.ma.filled(np.ma.asarray(image.get_array(), dtype=np.float64), np.nan)
    rows, columns = values.shape
    left, right, bottom, top = image.get_extent()
    first, last = (top, bottom) if image.origin == "upper" else (bottom, top)
    x = left + (np.arange(columns) + 0.5) * (right - left) / columns
    y = first + (np.arange(rows) + 0.5) * (last - first) / rows
    return np.tile(x, rows), np.repeat(y, columns), values.ravel()


def _line_points(line: Line2D, axes: Axes) -> tuple[Points, Points, Points]:
    x, y = (np.ma.filled(np.ma.asarray(data, dtype=np.float64), np.nan) for data in line.get_data(orig=False))
    across, up = _in_data(line, axes)
    # A line through the whole panel is one number.
    if not across:
        x, y = np.array([np.nan]), y[:1]
    if not up:
        x, y = x[:1], np.array([np.nan])
    return x, y, np.full(len(x), np.nan)


def _collection_points(collection: Collection) -> Iterator[tuple[Artist, str, Points, Points, Points]]:
    if isinstance(collection, ContourSet):
        if not collection.filled:
            for level, path in zip(collection.levels, collection.get_paths(), strict=True):
                yield collection, f"level {level:.6g}", *_plain(np.asarray(path.vertices, dtype=np.float64))
    elif isinstance(collection, QuadMesh):
        yield collection, "map", *_mesh_points(collection)
    elif isinstance(collection, PathCollection):
        places = np.ma.filled(np.ma.asarray(collection.get_offsets(), dtype=np.float64), np.nan)
        x, y, none = _plain(places)
        colours = collection.get_array()
        yield collection, "points", x, y, none if colours is None else np.ma.filled(colours.astype(float), np.nan)
    elif isinstance(collection, LineCollection):
        yield collection, "interval", *_plain(np.concatenate([*map(np.asarray, collection.get_segments()), _NO_POINTS]))
    elif isinstance(collection, PolyCollection):
        outlines = [np.asarray(path.vertices, dtype=np.float64) for path in collection.get_paths()]
        yield collection, "area", *_plain(np.concatenate([*outlines, _NO_POINTS]))


_NO_POINTS = np.zeros((0, 2))


def _plain(places: Float[np.ndarray, "point 2"]) -> tuple[Points, Points, Points]:
    return places[:, 0].astype(np.float64), places[:, 1].astype(np.float64), np.full(len(places), np.nan)


def _mesh_points(mesh: QuadMesh) -> tuple[Points, Points, Points]:
    corners = np.asarray(mesh.get_coordinates(), dtype=np.float64)
    values = np.ma.filled(np.ma.asarray(mesh.get_array(), dtype=np.float64), np.nan)
    if values.size != corners[..., 0].size:
        # Cells of one colour: a value belongs to the middle of its cell.
        corners = (corners[:-1, :-1] + corners[1:, :-1] + corners[:-1, 1:] + corners[1:, 1:]) / 4
    return corners[..., 0].ravel(), corners[..., 1].ravel(), values.ravel()


def _in_data(artist: Artist, axes: Axes) -> tuple[bool, bool]:
    """Whether x and y are places on the axes, not shares of the panel."""
    x, y = artist.get_transform().contains_branch_seperately(axes.transData)
    return bool(x), bool(y)
