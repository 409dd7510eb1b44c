"""Sweeps from and to TOML."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import tomli_w

from topicscope.errors import InputError
from topicscope.settings.checks import check_one_of, refuse, shown
from topicscope.settings.sweep import Axis, Method, Range, Spacing, Sweep
from topicscope.settings.toml import FILE_SETTINGS, flat, overlay, read_table, with_files_relative_to

KEYS = ("base", "settings", "vary", "method", "samples", "seed", "seeds", "together")
RANGE_KEYS = tuple(field.name for field in dataclasses.fields(Range))


def load_sweep(path: Path) -> Sweep:
    """Read a sweep; files that it names are found from its own folder.

    ``base`` is a file of settings that those of the sweep go over; ``seeds`` is a list, or a number K for 0 to K − 1.
    """
    path = Path(path)
    table = read_table(path)
    for key in table:
        if key not in KEYS:
            raise InputError(f"{key} is not a key of a sweep: give {', '.join(KEYS)}; settings go below [settings].")
    vary = {name: _axis(name, value, path.parent.resolve()) for name, value in _axes(_table(table, "vary")).items()}
    settings = with_files_relative_to(path.parent.resolve(), _table(table, "settings"))
    if "base" in table:
        base = path.parent.resolve() / _typed(table, "base", str, "the path of a TOML file with settings")
        # A base may be complete; what varies lies over it, as do the sweep's own settings.
        below = _without(["seed", *vary], with_files_relative_to(base.parent, read_table(base)))
        settings = overlay(below, settings)
    plain = {key: _typed(table, key, int, "a whole number") for key in ("samples", "seed", "together") if key in table}
    method = table.get("method", "grid")
    check_one_of("method", method, get_args(Method))
    return Sweep(settings=settings, vary=vary, method=method, seeds=_seeds(table.get("seeds", [0])), **plain)


def dump_sweep(sweep: Sweep) -> str:
    """The whole sweep as TOML, such that reading it from anywhere gives it again."""
    numbers = {key: getattr(sweep, key) for key in ("method", "samples", "seed", "together")}
    head = tomli_w.dumps(numbers | {"seeds": list(sweep.seeds), "settings": dict(sweep.settings)})
    # A writer of TOML puts lists before tables, but the order of what varies is that of the combinations.
    return head + "\n[vary]\n" + "".join(_axis_line(name, axis) for name, axis in sweep.vary.items())


def sweep_differences(ours: Sweep, theirs: Sweep) -> list[str]:
    """The parts in which two sweeps differ, each as a phrase."""
    found = []
    for each in dataclasses.fields(Sweep):
        left, right = (_comparable(getattr(sweep, each.name)) for sweep in (ours, theirs))
        names = [name for name in dict.fromkeys([*left, *right]) if left.get(name) != right.get(name)]
        found += [f"{each.name}{'.' if name else ''}{name}" for name in names]
    if set(ours.vary) == set(theirs.vary) and list(ours.vary) != list(theirs.vary):
        found.append("the order of vary")
    return found


def _comparable(value: Any) -> dict[str, str]:
    return {name: shown(each) for name, each in flat(value).items()} if isinstance(value, dict) else {"": shown(value)}


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
        unknown = [key for key in value if key not in RANGE_KEYS]
        kinds = {"low": (int, float), "high": (int, float), "count": (int,), "spacing": (str,)}
        wrong = [key for key in RANGE_KEYS if key in value and type(value[key]) not in kinds[key]]
        if unknown or wrong or not {"low", "high"} <= set(value):
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
        return tuple(range(value))
    if isinstance(value, list) and all(type(seed) is int for seed in value):
        return tuple(value)
    raise refuse("seeds", value, "give a list of whole numbers, or how many")


def _table(table: dict[str, Any], key: str) -> dict[str, Any]:
    return _typed(table, key, dict, f"it is a table, write [{key}]") if key in table else {}


def _typed(table: dict[str, Any], key: str, kind: type, expected: str) -> Any:
    if type(table[key]) is not kind:
        raise refuse(key, table[key], expected if kind is dict else f"give {expected}")
    return table[key]
