"""Values of settings as the types that they declare, or one sentence on what is expected.

Files, the command line and Python all give plain values; ``msgspec`` converts them, here alone.
"""

import dataclasses
import os
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from topicscope.errors import InputError, nearest, refuse

NOTHING: Mapping[str, Any] = {}


def settle(settings: Any, prefix: str, sections: Mapping[str, Any] = NOTHING) -> None:
    """Convert every field of a frozen dataclass to its type; ``sections`` are defaults that the class does not have."""
    values = {name: value for name, value in vars(settings).items() if value is not None}
    for name, value in {**sections, **_converted(type(settings), values, prefix, sections)}.items():
        object.__setattr__(settings, name, value)


def made(kind: Any, values: Mapping[str, Any], default: Any = None, prefix: str = "") -> Any:
    """Settings from a dictionary; what it leaves out keeps the default of its section, not of its type."""
    given = _converted(kind, values, prefix, NOTHING if default is None else vars(default))
    return kind(**given) if default is None else dataclasses.replace(default, **given)


def _converted(kind: Any, values: Mapping[str, Any], prefix: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Values as the types of a dataclass's fields; a dictionary becomes the settings of its section."""
    converted = {}
    for name, value in values.items():
        hint, path = hints(kind)[name], prefix + name
        if not sections_of(hint):
            value = convert(hint, value, path)
        elif not isinstance(value, sections_of(hint)):
            check_keys(hint, value, path)
            section, default = section_of(hint, value), defaults.get(name, getattr(kind, name, None))
            value = made(section, value, default if isinstance(default, section) else None, f"{path}.")
        converted[name] = value
    return converted


@cache
def hints(kind: Any) -> dict[str, Any]:
    """Types of the fields by name."""
    return {name: hint for name, hint in typing.get_type_hints(kind).items() if name in kind.__dataclass_fields__}


@cache
def sections_of(hint: Any) -> tuple[type, ...]:
    """The dataclasses that a section may be; none for a single value."""
    kinds = typing.get_args(hint) or (hint,)
    return tuple(kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind))


def section_of(hint: Any, values: Mapping[str, Any]) -> type:
    """The first of the dataclasses that a section may be all of whose fields without a default are given."""

    def fits(kind: Any) -> bool:
        return all(
            field.name in values or field.default is not dataclasses.MISSING for field in dataclasses.fields(kind)
        )

    *chosen, last = sections_of(hint)
    return next((kind for kind in chosen if fits(kind)), last)


def names_of(kind: Any, prefix: str = "") -> list[str]:
    """Dotted names of all settings, then of the sections."""
    inside = {name: sections_of(hint) for name, hint in hints(kind).items() if sections_of(hint)}
    names = [prefix + name for name in hints(kind) if name not in inside]
    for key, kinds in inside.items():
        names += [name for own in kinds for name in names_of(own, f"{prefix}{key}.")]
    return [*names, *inside]


def check_keys(hint: Any, values: object, path: str = "", names: Sequence[str] = ()) -> None:
    """Refuse what is no setting, with the nearest one, and a value in the place of a section."""
    if not isinstance(values, Mapping):
        raise refuse(path, values, f"give a table, [{path}] in TOML or a dictionary in Python")
    kind, prefix = section_of(hint, values), path and f"{path}."
    names = names or names_of(kind, prefix)
    for key, value in values.items():
        name, inner = f"{prefix}{key}", hints(kind).get(key)
        if inner is None:
            meant = nearest(name, names)
            advice = f"did you mean {meant}?" if meant else f"give any of {', '.join(hints(kind))}."
            raise InputError(f"{name} is not a setting: {advice}")
        if sections_of(inner) and not isinstance(value, sections_of(inner)):
            check_keys(inner, value, name, names)


def convert(hint: Any, value: Any, name: str) -> Any:
    """A value as the type of its setting; one value may stand for a list of one, and hyphens for underscores."""
    plain, origin = _plain(value), typing.get_origin(hint)
    if origin is tuple and typing.get_args(hint)[-1] is Ellipsis and not isinstance(plain, list):
        plain = [plain]
    if origin is typing.Literal and isinstance(plain, str) and plain not in typing.get_args(hint):
        plain = plain.replace("-", "_")
    try:
        return msgspec.convert(plain, hint, dec_hook=lambda kind, given: kind(given))
    except msgspec.ValidationError:
        shown = tuple(plain) if isinstance(plain, list) else value
        raise refuse(name, shown, f"give {described(hint)}") from None


def described(hint: Any) -> str:
    """What a setting takes, in words."""
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", dict: "a table"}
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(arguments)
    if origin in (tuple, list):
        count = f"{len(arguments)} " if origin is tuple and arguments[-1] is not Ellipsis else ""
        return f"a list of {count}{described(arguments[0]).removeprefix('a ')}s"
    if origin is not None and origin not in words:
        return " or ".join(described(kind) for kind in arguments if kind is not type(None))
    return words.get(origin or hint, "a path")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, tuples and paths as what files have."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
