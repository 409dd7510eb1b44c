"""A sweep: settings over lists of values in all combinations, with several seeds each; and its TOML."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from topicscope.errors import InputError, check_at_least, path_of, refuse
from topicscope.settings import Settings
from topicscope.settings.toml import (
    flat,
    nested,
    overlay,
    read_table,
    settings_from_table,
    to_table,
    with_files_relative_to,
)
from topicscope.settings.values import check_keys, convert, made, settle

# Each run is a folder, which is checked before the first run is trained.
MOST_RUNS = 100_000


@dataclass(frozen=True)
class Point:
    """One combination: the varied settings by name, and the whole."""

    values: Mapping[str, Any]
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Which settings are tried."""

    vary: dict[str, Any] = field(default_factory=dict)
    """A list of values of each setting that varies, by its dotted name."""

    settings: dict[str, Any] = field(default_factory=dict)
    """What all runs share, as nested tables; what it leaves out has its default. Nothing that varies is in it."""

    seeds: tuple[int, ...] = (0,)
    """Seeds of the runs of every combination, or how many: 0, 1, 2 and so on."""

    together: int = 8
    """How many seeds are trained in one tensor. Numbers depend on it in the last bits, so it is a setting."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        settle(self, "")
        check_at_least("together", self.together, 1)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise refuse("seeds", self.seeds, "give each seed once, and at least one")
        vary, shared = flat(self.vary), flat(self.settings)
        object.__setattr__(self, "vary", vary)
        if not vary:
            raise InputError("vary is missing: give at least one setting with a list of values, below [vary].")
        if "data.corpus" in {*shared, *vary}:
            raise InputError(
                "data.corpus is not allowed in a sweep, which is of runs on documents of a topic model: leave it out, "
                "or train on text with `topicscope train`, one run at a time."
            )
        check_keys(Settings, self.settings)
        for name, settings in (("settings", shared), ("vary", vary)):
            if "seed" in settings:
                raise InputError(f"{name}.seed is not allowed: a sweep has seeds = [0, 1, …] instead.")
        for name, values in vary.items():
            if name in shared:
                raise InputError(f"settings.{name} and vary.{name} are both given: leave one of them out.")
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise refuse(f"vary.{name}", values, "give a list of values")
            if not values or len(set(map(repr, values))) < len(values):
                raise refuse(f"vary.{name}", values, "give each value once, and at least one")
        if (runs := math.prod(map(len, vary.values())) * len(self.seeds)) > MOST_RUNS:
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


def load_sweep(path: Path | str) -> Sweep:
    """Read a sweep; files that it names are found from its own folder."""
    path = path_of(path, "path")
    table = read_table(path)
    check_keys(Sweep, table)
    sweep: Sweep = made(Sweep, table | {"seeds": _seeds(table.get("seeds", 1))})
    folder = path.parent.resolve()
    vary, settings = (with_files_relative_to(folder, part) for part in (sweep.vary, sweep.settings))
    return dataclasses.replace(sweep, vary=vary, settings=settings)


def dump_sweep(sweep: Sweep) -> str:
    """The whole sweep as TOML; reading it from any folder returns the same sweep."""
    return tomli_w.dumps(dataclasses.asdict(sweep))


def _seeds(given: Any) -> tuple[int, ...]:
    """Seeds, or how many: 0, 1, 2 and so on."""
    seeds: int | tuple[int, ...] = convert(int | tuple[int, ...], given, "seeds")
    if isinstance(seeds, int):
        check_at_least("seeds", seeds, 1, MOST_RUNS)
        return tuple(range(seeds))
    return seeds
