"""What a drawn figure calls things: its panels, what is drawn in them, and places on their axes."""

import re
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import Collection, LineCollection
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

# Labels that Matplotlib gives.
MATPLOTLIBS_OWN = re.compile(r"_(child|container|line|image|patch|collection)\d+|_nolegend_|None")


Points = Float[np.ndarray, " point"]


def panels_of(figure: Figure) -> list[Axes]:
    """All panels; colour bars are none."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def label_of(artist: object) -> str:
    """What the drawing calls it. An underscore before it keeps a label out of legends; Matplotlib's own say nothing."""
    label = str(getattr(artist, "get_label", lambda: "")() or "")
    return "" if MATPLOTLIBS_OWN.fullmatch(label) else label.removeprefix("_")


def container_names(axes: Axes) -> tuple[dict[Artist, str], set[Artist]]:
    """Names of what bars and error bars are made of; and the caps of error bars, which repeat their ends."""
    names: dict[Artist, str] = {}
    caps: set[Artist] = set()
    for container in axes.containers:
        label = label_of(container)
        if isinstance(container, BarContainer) and len(container.patches):
            names[container.patches[0]] = label
        elif isinstance(container, ErrorbarContainer):
            data, ends, bars = container.lines
            caps |= set(ends)
            names |= {data: label or "mean"} if data is not None else {}
            names |= dict.fromkeys(bars, f"{label or 'mean'}, interval")
    return names, caps


def colour_names(figure: Figure) -> dict[str, str]:
    """What a colour stands for in artists without a label: as legends say, or as labelled lines do."""
    legends = [*figure.legends, *(legend for axes in panels_of(figure) if (legend := axes.get_legend()))]
    said = [
        (handle, text.get_text())
        for legend in legends
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False)
        if handle is not None
    ]
    labelled = [(line, label_of(line)) for axes in panels_of(figure) for line in axes.lines if label_of(line)]
    # Beside a line of its own label, such as a mean, an unlabelled one of its colour is another.
    taken = {label for _, label in labelled}
    names: dict[str, str] = {}
    for artist, label in [*said, *labelled]:
        names.setdefault(colour_of(artist), f"{label}, another" if label in taken else label)
    names.pop("", None)
    return names


def colour_of(artist: object) -> str:
    """The colour of a line or patch; nothing for what has many."""
    get = getattr(artist, "get_color", None) or getattr(artist, "get_facecolor", None)
    if get is None or (isinstance(artist, Collection) and not isinstance(artist, LineCollection)):
        return ""
    colours = np.atleast_2d(np.asarray(get())) if isinstance(artist, LineCollection) else None
    colour = get() if colours is None else colours[0] if len(colours) else "none"
    try:
        return to_hex(colour)
    except ValueError:
        return ""


def panel_name(axes: Axes, figure: Figure) -> str:
    """Title and labels; panels that share them with the first of their row or column are named by those."""
    parts = [_in_column(axes, figure, Axes.get_title, last=False), y_label(axes, figure)]
    named = "; ".join(" ".join(part.split()) for part in parts if part.strip())
    across = " ".join(x_label(axes, figure).split())
    place = panels_of(figure).index(axes) + 1
    return f"{named} over {across}" if named and across else named or across or f"panel {place}"


def x_label(axes: Axes, figure: Figure) -> str:
    """The label of the x axis, or that of the last panel below that shares it."""
    return _in_column(axes, figure, Axes.get_xlabel, last=True)


def y_label(axes: Axes, figure: Figure) -> str:
    """The label of the y axis, or that of the first panel of its row if they share it."""
    first = next(other for other in panels_of(figure) if other is axes or _beside(axes, other, along=0))
    shared = axes.get_shared_y_axes().joined(axes, first)
    return axes.get_ylabel() or (first.get_ylabel() if shared else "")


def names_of_points(axes: Axes, figure: Figure, x: Points, y: Points) -> tuple[str, ...]:
    """What the ticks call each point, where they have names: "head 3, layer 1"; empty if no point has one."""
    across, up = _tick_names(axes.xaxis), _tick_names(axes.yaxis)
    if not across and not up:
        return ()
    labels = (x_label(axes, figure), y_label(axes, figure))
    parts = [
        [f"{label} {name}".strip() if (name := names.get(round(place, 9), "")) else "" for place in places.tolist()]
        for label, names, places in zip(labels, (across, up), (x, y), strict=True)
    ]
    return tuple(", ".join(part for part in pair if part) for pair in zip(*parts, strict=True))


def _in_column(axes: Axes, figure: Figure, get: Callable[[Axes], str], *, last: bool) -> str:
    """The panel's own text, or that of the column's first or last panel where they share their x axis."""
    column = [other for other in panels_of(figure) if other is axes or _beside(axes, other, along=1)]
    end = column[-1 if last else 0]
    return get(axes) or (get(end) if axes.get_shared_x_axes().joined(axes, end) else "")


def _beside(axes: Axes, other: Axes, *, along: int) -> bool:
    """Whether two panels are in one row (0) or column (1)."""
    places = [panel.get_subplotspec() for panel in (axes, other)]
    spans = [((place.rowspan, place.colspan)[along]).start for place in places if place is not None]
    return len(spans) == 2 and spans[0] == spans[1]


def _tick_names(axis: Axis) -> dict[float, str]:
    """Names of places on an axis; none where they are the places' own numbers."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    places = [float(place) for place in axis.get_majorticklocs()]
    names = [str(name) for name in axis.get_major_formatter().format_ticks(places)]
    return {
        round(place, 9): " ".join(name.split())
        for place, name in zip(places, names, strict=True)
        if name.strip() and not _is_number(name, place)
    }


def _is_number(name: str, place: float) -> bool:
    try:
        return bool(np.isclose(float(name.replace("−", "-")), place, rtol=0.01))
    except ValueError:
        return False
