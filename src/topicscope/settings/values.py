"""Convert values of settings, from a file or from Python, to their types, or say in one sentence what is expected."""

import dataclasses
import operator
import os
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from topicscope.errors import InputError, nearest, refuse

T = typing.TypeVar("T")


def settle(settings: Any, prefix: str) -> None:
    """Convert every field of a frozen dataclass to the type that it declares, if possible.

    Lists become tuples, one value becomes a list of one, and a dictionary the settings of its section. Anything else
    is an error of one sentence.
    """
    kind: Any = type(settings)
    for name in _hints(kind):
        value = getattr(settings, name)
        found = _field(kind, name, value, prefix)
        if found is not value:
            object.__setattr__(settings, name, found)


def section(kind: type[T], values: Mapping[str, Any], default: Any, prefix: str = "") -> T:
    """Settings from a dictionary; what it leaves out keeps the default of its section, not of its type."""
    given = {name: _field(kind, name, value, prefix) for name, value in values.items()}
    return kind(**given) if default is None else dataclasses.replace(default, **given)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _field(kind: Any, name: str, value: Any, prefix: str) -> Any:
    """A value as the type that the field declares."""
    path, inner = prefix + name, _hints(kind)[name]
    if not dataclasses.is_dataclass(typing.cast(object, inner)):
        return convert(inner, value, path)
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise refuse(path, value, f"give a {inner.__name__}, or a dictionary of its settings")
    if unknown := next((key for key in value if key not in _hints(inner)), None):
        meant = nearest(str(unknown), list(_hints(inner)), cutoff=0.0)
        raise InputError(f"{path}.{unknown} is not a setting: did you mean {path}.{meant}?")
    return section(inner, value, getattr(kind, name, None), f"{path}.")


def convert(hint: Any, value: Any, name: str) -> Any:
    """A value as the type of its setting, or one sentence on what is expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        several = arguments[-1] is Ellipsis
        if several and not isinstance(value, list | tuple):
            # A list of one item may be given as that item.
            value = (value,)
        kinds = [arguments[0]] * len(value) if several else list(arguments)
        if isinstance(value, list | tuple) and len(kinds) == len(value):
            found = tuple(convert(kind, item, name) for kind, item in zip(kinds, value, strict=True))
            return value if isinstance(value, tuple) and all(map(operator.is_, found, value)) else found
        value = tuple(value) if isinstance(value, list) else value
    elif origin is typing.Literal:
        # Words may be written with hyphens.
        written = value if value in arguments or not isinstance(value, str) else value.replace("-", "_")
        if isinstance(written, str) and written in arguments:
            return written
    elif (found := _scalar(hint, value)) is not None:
        return found
    raise refuse(name, value, f"give {_described(hint)}")


def _scalar(kind: Any, value: Any) -> Any:
    """The value as a whole number, a number, a text, or true or false, also from NumPy; None if it is none of these."""
    if type(value) is kind:
        return value
    if kind is str:
        return os.fspath(value) if isinstance(value, os.PathLike) else None
    if getattr(value, "shape", None) == ():
        value = value.item()
    if kind is bool or isinstance(value, bool):
        return value if kind is bool and isinstance(value, bool) else None
    if kind is float and isinstance(value, int | float):
        return float(value)
    return int(value) if kind is int and isinstance(value, int) else None


def _described(hint: Any) -> str:
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(typing.get_args(hint))
    if typing.get_origin(hint) is tuple:
        arguments = typing.get_args(hint)
        count = "" if arguments[-1] is Ellipsis else f"{len(arguments)} "
        return f"a list of {count}{words[arguments[0]].removeprefix('a ')}s"
    return words[hint]
