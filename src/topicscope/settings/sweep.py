"""A sweep: settings over lists or ranges, in all combinations or random ones, with several seeds each; and its TOML."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import tomli_w

from topicscope.errors import InputError, check_at_least, check_one_of, path_of, refuse, shown
from topicscope.randomness import Purpose, generator
from topicscope.settings import Settings
from topicscope.settings.toml import (
    FILE_SETTINGS,
    flat,
    names_a_corpus,
    overlay,
    read_table,
    settings_from_table,
    to_table,
    with_files_relative_to,
)
from topicscope.settings.values import convert

# Each run is a folder, which is checked before the first run is trained.
MOST_RUNS = 100_000

Method = Literal["grid", "random"]
Spacing = Literal["linear", "log"]


@dataclass(frozen=True, kw_only=True)
class Range:
    """Numbers between two ends, both included; whole numbers if both ends are."""

    low: int | float
    high: int | float

    count: int = 0
    """How many values a grid takes from it; a random sweep does not use it."""

    spacing: Spacing = "linear"
    """"linear", or "log": equal ratios between neighbours."""

    @property
    def whole(self) -> bool:
        """Whether its values are whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def check(self, name: str, method: Method) -> None:
        """Validate under the name that the user gave."""
        check_one_of(f"{name}.spacing", self.spacing, get_args(Spacing))
        if not np.isfinite([self.low, self.high]).all() or self.low >= self.high:
            raise refuse(f"{name}.low", self.low, f"it must be below {name}.high = {self.high}, both finite")
        if self.spacing == "log" and self.low <= 0:
            raise refuse(f"{name}.low", self.low, 'spacing = "log" needs numbers above 0')
        if method == "grid" and self.count < 2:
            raise refuse(f"{name}.count", self.count, "a grid needs to know how many values, 2 or more")

    def values(self) -> list[Any]:
        """The values of a grid, rounded and each once if they are whole."""
        space = np.geomspace if self.spacing == "log" else np.linspace
        spaced = space(self.low, self.high, self.count)
        return list(dict.fromkeys(spaced.round().astype(int).tolist())) if self.whole else spaced.tolist()

    def draw(self, *, generator: np.random.Generator) -> Any:
        """A value of a random sweep: uniform, or uniform in its logarithm."""
        if self.spacing == "log":
            # Half a step beyond both ends, so that the ends of whole numbers are as likely as they should be.
            margin = 0.5 if self.whole else 0.0
            drawn = np.exp(generator.uniform(np.log(self.low - margin), np.log(self.high + margin)))
            drawn = np.clip(drawn, self.low, self.high)
            return round(float(drawn)) if self.whole else float(drawn)
        if self.whole:
            return int(generator.integers(int(self.low), int(self.high), endpoint=True))
        return float(generator.uniform(self.low, self.high))


Axis = tuple[Any, ...] | Range


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

    vary: Mapping[str, Axis]
    """Settings by dotted name: a list of values, or a range."""

    method: Method = "grid"
    """All combinations, or ``samples`` random ones."""

    samples: int = 0
    """For "random": how many combinations."""

    seed: int = 0
    """For "random": another seed draws other combinations."""

    seeds: tuple[int, ...] = (0,)
    """Seeds of the runs of every combination."""

    together: int = 8
    """How many seeds are trained in one tensor. Numbers depend on it in the last bits, so it is a setting."""

    def __post_init__(self) -> None:
        check_one_of("method", self.method, get_args(Method))
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        for name, of in (("settings", "settings"), ("vary", "lists and ranges")):
            if not isinstance(getattr(self, name), Mapping):
                raise refuse(name, getattr(self, name), f"give a dictionary of {of}")
        check_at_least("together", self.together, 1)
        check_at_least("seed", self.seed, 0)
        if not self.vary:
            raise InputError(
                "vary is missing: name the settings to vary, such as training.learning_rate = [0.01, 0.1]."
            )
        if names_a_corpus(dict(self.settings)) or "data.corpus" in self.vary:
            raise InputError(
                "data.corpus is not allowed in a sweep, which is of runs on documents of a topic model: leave it out, "
                "or train on text with `topicscope train`, one run at a time."
            )
        for name, axis in self.vary.items():
            self._check_axis(name, axis)
        if "seed" in self.settings:
            raise InputError("settings.seed is not allowed: a sweep has seeds = [0, 1, …] instead.")
        if self.method == "random":
            check_at_least("samples", self.samples, 1)
        elif self.samples:
            raise refuse("samples", self.samples, 'it is for method = "random"; leave it out')
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise refuse("seeds", self.seeds, "give each seed once, and at least one")
        for seed in self.seeds:
            check_at_least("seeds", seed, 0)
        if (runs := self._most_combinations() * len(self.seeds)) > MOST_RUNS:
            raise InputError(f"the sweep has {runs:,} runs, and at most {MOST_RUNS:,} are possible: vary less.")

    def points(self) -> list[Point]:
        """The combinations in a fixed order, each once; the last setting varies fastest in a grid."""
        points = [self._point(values) for values in self._combinations()]
        different = {shown(tuple(point.values.values())): point for point in reversed(points)}
        return list(reversed(different.values()))

    def groups(self) -> list[tuple[int, ...]]:
        """The seeds of every combination, as they are trained together."""
        return [tuple(self.seeds[at : at + self.together]) for at in range(0, len(self.seeds), self.together)]

    def _check_axis(self, name: str, axis: Axis) -> None:
        if name == "seed":
            raise InputError("vary.seed is not allowed: a sweep has seeds = [0, 1, …] instead.")
        section: Any = self.settings
        for place, key in enumerate(name.split(".")[:-1], start=1):
            section = section.get(key, {})
            if not isinstance(section, Mapping):
                path = ".".join(["settings", *name.split(".")[:place]])
                raise refuse(path, section, f"it is a table, write [{path}]")
        if name.rpartition(".")[2] in section:
            raise InputError(f"settings.{name} and vary.{name} are both given: leave one of them out.")
        if not isinstance(axis, list | tuple | Range):
            raise refuse(f"vary.{name}", axis, "give a list of values, or a Range")
        if isinstance(axis, Range):
            axis.check(f"vary.{name}", self.method)
        elif not axis or len({shown(_plain(value)) for value in axis}) < len(axis):
            raise refuse(f"vary.{name}", _plain(axis), "give each value once, and at least one")

    def _combinations(self) -> Iterator[tuple[Any, ...]]:
        axes = self.vary.values()
        if self.method == "grid":
            yield from itertools.product(*(axis.values() if isinstance(axis, Range) else axis for axis in axes))
            return
        draw = generator(self.seed, Purpose.SWEEP)
        for _ in range(self.samples):
            yield tuple(
                axis.draw(generator=draw) if isinstance(axis, Range) else axis[int(draw.integers(len(axis)))]
                for axis in axes
            )

    def _most_combinations(self) -> int:
        """How many combinations there are, with repetitions."""
        if self.method == "random":
            return self.samples
        return math.prod(axis.count if isinstance(axis, Range) else len(axis) for axis in self.vary.values())

    def _point(self, values: tuple[Any, ...]) -> Point:
        table = dict(self.settings)
        for name, value in zip(self.vary, values, strict=True):
            for key in reversed(name.split(".")):
                value = {key: value}
            table = overlay(table, value)
        settings = settings_from_table(table)
        complete = flat(to_table(settings))
        for name in self.vary:
            if name not in complete:
                raise InputError(f"vary.{name} is a section, not a setting: name one setting, such as training.steps.")
        return Point({name: complete[name] for name in self.vary}, settings)


def brief(value: Any) -> str:
    """A setting's value for people, with four digits; a table has them all."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def labels(values: Sequence[Any]) -> dict[Any, str]:
    """Each value's label: numbers with four digits, files by the parts of their paths that distinguish them."""
    if not any(isinstance(value, str) and "/" in value for value in values):
        return {value: brief(value) for value in values}
    for parts in range(1, 1 + max(len(Path(str(value)).parts) for value in values)):
        found = {value: "/".join(Path(str(value)).parts[-parts:]) for value in values}
        if len(set(found.values())) == len(found):
            return found
    return {value: str(value) for value in values}


def _plain(value: Any) -> Any:
    """Lists as tuples, all the way down."""
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


KEYS = ("base", *(field.name for field in dataclasses.fields(Sweep)))


def load_sweep(path: Path | str) -> Sweep:
    """Read a sweep; files that it names are found from its own folder.

    ``base`` is a file of settings that those of the sweep override; ``seeds`` is a list, or a number K for 0 to K − 1.
    """
    path = path_of(path, "path")
    folder, table = path.parent.resolve(), {"settings": {}, "vary": {}} | read_table(path)
    for key in table:
        if key not in KEYS:
            raise InputError(f"{key} is not a key of a sweep: give {', '.join(KEYS)}; settings go below [settings].")
    for key in ("settings", "vary"):
        if not isinstance(table[key], dict):
            raise refuse(key, table[key], f"it is a table, write [{key}]")
    kinds = {"method": Method, "samples": int, "seed": int, "together": int}
    table |= {key: convert(kind, table[key], key) for key, kind in kinds.items() if key in table}
    table["seeds"] = _seeds(table.get("seeds", [0]))
    table["vary"] = {name: _axis(name, value, folder) for name, value in _axes(table["vary"]).items()}
    table["settings"] = with_files_relative_to(folder, table["settings"])
    if (base := table.pop("base", None)) is not None:
        if not isinstance(base, str):
            raise refuse("base", base, "give the path of a TOML file with settings")
        # A base may be complete; what varies overrides it, as do the sweep's own settings.
        below = with_files_relative_to((folder / base).parent, read_table(folder / base))
        table["settings"] = overlay(_without(["seed", *table["vary"]], below), table["settings"])
    return Sweep(**table)


def dump_sweep(sweep: Sweep) -> str:
    """The whole sweep as TOML; reading it from any folder returns the same sweep."""
    numbers = {key: getattr(sweep, key) for key in ("method", "samples", "seed", "together")}
    head = tomli_w.dumps(numbers | {"seeds": list(sweep.seeds), "settings": dict(sweep.settings)})
    # A writer of TOML puts lists before tables, but the order of what varies is that of the combinations.
    return head + "\n[vary]\n" + "".join(_axis_line(name, axis) for name, axis in sweep.vary.items())


def sweep_differences(ours: Sweep, theirs: Sweep) -> list[str]:
    """The parts in which two sweeps differ, each as a phrase."""
    found = []
    for each in dataclasses.fields(Sweep):
        left, right = (flat({each.name: getattr(sweep, each.name)}) for sweep in (ours, theirs))
        # They are compared as they are written: 1 and 1.0 are not the same.
        found += [name for name in dict.fromkeys([*left, *right]) if shown(left.get(name)) != shown(right.get(name))]
    if set(ours.vary) == set(theirs.vary) and list(ours.vary) != list(theirs.vary):
        found.append("the order of vary")
    return found


def _without(names: Sequence[str], table: dict[str, Any]) -> dict[str, Any]:
    """Nested tables without the settings of these dotted names."""
    return {
        key: _without([name.removeprefix(f"{key}.") for name in names if name.startswith(f"{key}.")], value)
        if isinstance(value, dict)
        else value
        for key, value in table.items()
        if key not in names
    }


def _axis_line(name: str, axis: Axis) -> str:
    """A setting that varies on a line of its own, a range as an inline table."""
    if not isinstance(axis, Range):
        return tomli_w.dumps({name: list(axis)})
    inside = ", ".join(tomli_w.dumps(dataclasses.asdict(axis)).splitlines())
    key, _, _ = tomli_w.dumps({name: 0}).rpartition(" = ")
    return f"{key} = {{ {inside} }}\n"


def _axes(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Lists and ranges by dotted name, however they are nested."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        inner = isinstance(value, dict) and not ({"low", "high"} & set(value))
        found |= _axes(value, f"{prefix}{key}.") if inner else {prefix + key: value}
    return found


def _axis(name: str, value: Any, folder: Path) -> Axis:
    if isinstance(value, dict):
        kinds = {"low": (int, float), "high": (int, float), "count": (int,), "spacing": (str,)}
        if not {"low", "high"} <= set(value) or any(
            type(each) not in kinds.get(key, ()) for key, each in value.items()
        ):
            raise InputError(
                f"vary.{name} = {shown(value)} is not a range: give {{ low = 0.001, high = 0.1, count = 3 }}, "
                'and spacing = "log" if you like.'
            )
        check_one_of(f"vary.{name}.spacing", value.get("spacing", "linear"), get_args(Spacing))
        return Range(**value)
    if not isinstance(value, list):
        raise refuse(f"vary.{name}", value, "give a list of values, or a range { low = …, high = …, count = … }")
    if tuple(name.split(".")) in FILE_SETTINGS:
        return tuple(str(folder / file) if isinstance(file, str) and file else file for file in value)
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    if type(value) is int and value >= 1:
        check_at_least("seeds", value, 1, MOST_RUNS)
        return tuple(range(value))
    if isinstance(value, list | tuple | range) and all(type(seed) is int for seed in value):
        return tuple(value)
    raise refuse("seeds", value, "give a list of whole numbers, or how many")
