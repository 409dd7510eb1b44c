"""A sweep: settings over lists of values in all combinations, with several seeds each; and its TOML."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tomli_w

from topicscope.errors import InputError, check_at_least, path_of, refuse, shown
from topicscope.settings import Settings
from topicscope.settings.toml import (
    FILE_SETTINGS,
    Table,
    flat,
    nested,
    overlay,
    read_table,
    settings_from_table,
    to_table,
    with_files_relative_to,
)
from topicscope.settings.values import check_keys, convert, made

# Each run is a folder, which is checked before the first run is trained.
MOST_RUNS = 100_000
RANGE = "{ low = 0.001, high = 0.1, count = 3 }"


@dataclass(frozen=True)
class Point:
    """One combination: the varied settings by name, and the whole."""

    values: Mapping[str, Any]
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Which settings are tried."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """What all runs share, as nested tables; what it leaves out has its default. Nothing that varies is in it."""

    vary: Mapping[str, Any]
    """A list of values of each setting that varies, by its dotted name."""

    seeds: tuple[int, ...] = (0,)
    """Seeds of the runs of every combination; a file may say how many instead."""

    together: int = 8
    """How many seeds are trained in one tensor. Numbers depend on it in the last bits, so it is a setting."""

    def __post_init__(self) -> None:
        for name in ("settings", "vary"):
            if not isinstance(getattr(self, name), Mapping):
                raise refuse(name, getattr(self, name), "give a dictionary")
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        check_at_least("together", self.together, 1)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise refuse("seeds", self.seeds, "give each seed once, and at least one")
        if not self.vary:
            raise InputError("vary is missing: give at least one setting with a list of values, below [vary].")
        complete = flat(self.settings)
        if "data.corpus" in {*complete, *self.vary}:
            raise InputError(
                "data.corpus is not allowed in a sweep, which is of runs on documents of a topic model: leave it out, "
                "or train on text with `topicscope train`, one run at a time."
            )
        check_keys(Settings, self.settings)
        for name, settings in (("settings", self.settings), ("vary", self.vary)):
            if "seed" in settings:
                raise InputError(f"{name}.seed is not allowed: a sweep has seeds = [0, 1, …] instead.")
        for name, values in self.vary.items():
            if name in complete:
                raise InputError(f"settings.{name} and vary.{name} are both given: leave one of them out.")
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise refuse(f"vary.{name}", values, f"give a list of values, or a range {RANGE}")
            if not values or len({shown(_tuples(value)) for value in values}) < len(values):
                raise refuse(f"vary.{name}", _tuples(values), "give each value once, and at least one")
        if (runs := math.prod(map(len, self.vary.values())) * len(self.seeds)) > MOST_RUNS:
            raise InputError(f"the sweep has {runs:,} runs, and at most {MOST_RUNS:,} are possible: vary less.")

    def points(self) -> list[Point]:
        """All combinations; the last setting varies fastest."""
        return [self._point(values) for values in itertools.product(*self.vary.values())]

    def groups(self) -> list[tuple[int, ...]]:
        """The seeds of every combination, as they are trained together."""
        return [tuple(self.seeds[at : at + self.together]) for at in range(0, len(self.seeds), self.together)]

    def _point(self, values: tuple[Any, ...]) -> Point:
        table = overlay(dict(self.settings), nested(dict(zip(self.vary, values, strict=True))))
        settings = settings_from_table(table)
        complete = flat(to_table(settings))
        for name in self.vary:
            if name not in complete:
                raise InputError(f"vary.{name} is a section, not a setting: name one setting, such as training.steps.")
        return Point({name: complete[name] for name in self.vary}, settings)


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends, both included, in a file; whole numbers if both ends are."""

    low: int | float
    high: int | float
    count: int
    spacing: Literal["linear", "log"] = "linear"
    """"linear", or "log": equal ratios between neighbours."""

    def values(self, name: str) -> list[Any]:
        """The values, each once."""
        if not np.isfinite([self.low, self.high]).all() or self.low >= self.high:
            raise refuse(f"{name}.low", self.low, f"it must be below {name}.high = {self.high}, both finite")
        if self.spacing == "log" and self.low <= 0:
            raise refuse(f"{name}.low", self.low, 'spacing = "log" needs numbers above 0')
        check_at_least(f"{name}.count", self.count, 2, MOST_RUNS)
        spaced = (np.geomspace if self.spacing == "log" else np.linspace)(self.low, self.high, self.count)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return list(dict.fromkeys(spaced.round().astype(int).tolist())) if whole else spaced.tolist()


@dataclass(frozen=True, kw_only=True)
class SweepFile:
    """The keys of a sweep's file."""

    vary: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int | list[int] = 1
    together: int = Sweep.together
    base: str = ""
    """A file of settings that those of the sweep override."""


def load_sweep(path: Path | str) -> Sweep:
    """Read a sweep; files that it names are found from its own folder."""
    path = path_of(path, "path")
    folder, table = path.parent.resolve(), read_table(path)
    check_keys(SweepFile, table)
    file: SweepFile = made(SweepFile, table)
    vary = {name: _values(name, value, folder) for name, value in _axes(file.vary).items()}
    settings = with_files_relative_to(folder, file.settings)
    if file.base:
        # A base may be complete; what varies overrides it, as do the sweep's own settings.
        below = flat(with_files_relative_to((folder / file.base).parent, read_table(folder / file.base)))
        settings = overlay(
            nested({name: value for name, value in below.items() if name not in {"seed", *vary}}), settings
        )
    return Sweep(settings=settings, vary=vary, seeds=_seeds(file.seeds), together=file.together)


def dump_sweep(sweep: Sweep) -> str:
    """The whole sweep as TOML, ranges as lists; reading it from any folder returns the same sweep."""
    return tomli_w.dumps(dataclasses.asdict(sweep))


def sweep_differences(ours: Sweep, theirs: Sweep) -> list[str]:
    """The parts in which two sweeps differ, each as a phrase."""
    left, right = (flat(dataclasses.asdict(sweep)) for sweep in (ours, theirs))
    # They are compared as they are written: 1 and 1.0 are not the same.
    names = [name for name in {**left, **right} if shown(left.get(name)) != shown(right.get(name))]
    same = set(ours.vary) == set(theirs.vary)
    return names + ["the order of vary"] * (same and list(ours.vary) != list(theirs.vary))


def brief(value: Any) -> str:
    """A setting's value for people, with four digits; a table has them all."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def labels(values: Sequence[Any]) -> dict[Any, str]:
    """Each value's label: numbers with four digits, files by the parts of their paths that distinguish them."""
    if not any(isinstance(value, str) and "/" in value for value in values):
        return {value: brief(value) for value in values}
    for parts in range(1, 1 + max(len(Path(str(value)).parts) for value in values)):
        ends = {value: "/".join(Path(str(value)).parts[-parts:]) for value in values}
        if len(set(ends.values())) == len(ends):
            return ends
    return {value: str(value) for value in values}


def _seeds(given: Any) -> tuple[int, ...]:
    """Seeds, or how many: 0, 1, 2 and so on."""
    if isinstance(given, int):
        check_at_least("seeds", given, 1, MOST_RUNS)
        given = range(given)
    seeds: tuple[int, ...] = convert(tuple[int, ...], list(given) if isinstance(given, range) else given, "seeds")
    return seeds


def _tuples(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


def _axes(table: Table, prefix: str = "") -> Table:
    """Lists and ranges by dotted name, however they are nested."""
    axes: Table = {}
    for key, value in table.items():
        inner = isinstance(value, dict) and not ({"low", "high"} & set(value))
        axes |= _axes(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return axes


def _values(name: str, value: Any, folder: Path) -> Any:
    """A list's values; a range's numbers; files from the sweep's folder."""
    if isinstance(value, dict):
        try:
            return made(Range, value).values(f"vary.{name}")
        except (KeyError, TypeError):
            raise InputError(
                f'vary.{name} = {shown(value)} is not a range: give {RANGE}, and spacing = "log" if you like.'
            ) from None
    if name in FILE_SETTINGS and isinstance(value, list):
        return [str(folder / file) if isinstance(file, str) and file else file for file in value]
    return value
