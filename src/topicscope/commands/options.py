"""Options of the commands: a dataclass, parsed from the words of a command line and handed to a verb by name.

The fields of a dataclass within it are options with its name before theirs (``--data.topics``), or without if it is
marked ``INLINE``; what is marked ``POSITIONAL`` is given by its place. A field's docstring is its help. A field whose
class has no default for it must be given. ``argparse`` splits the words; their values are converted as those of
settings are.
"""

import argparse
import contextlib
import dataclasses
import shutil
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from topicscope.errors import InputError, nearest
from topicscope.records import field_docstrings
from topicscope.settings.toml import nested
from topicscope.settings.values import convert, made
from topicscope.store import expanded

T = TypeVar("T")

INLINE, POSITIONAL = "inline", "positional"
# Options that a command handles itself, with what its verb returns.
PRINTING = ("json", "quiet")
SEE_HELP = "see --help for what is allowed."


@dataclass(frozen=True)
class Option:
    """One option: the fields that lead to it, its name on the command line, its type and its help."""

    path: str
    """The names of the fields, joined by dots."""

    name: str
    kind: Any
    default: Any
    """``MISSING`` if it must be given."""

    help: str
    group: tuple[str, str]
    """The heading of its group, and what is said below it."""

    positional: bool

    @property
    def scalar(self) -> Any:
        """What one value is: ``int`` of ``tuple[int, ...]`` and of ``int | None``."""
        kind = self.kind
        while get_args(kind) and get_origin(kind) is not Literal:
            kind = next(inner for inner in get_args(kind) if inner is not type(None))
        return kind

    @property
    def unit(self) -> str:
        """What stands for a value in the help."""
        return "NAME" if get_origin(self.scalar) is Literal else self.scalar.__name__.upper()

    def add_to(self, group: Any, *, hidden: bool) -> None:
        """Tell the parser."""
        chosen: dict[str, Any] = {"dest": self.path, "default": argparse.SUPPRESS}
        shown = argparse.SUPPRESS if hidden else self._help
        if self.kind is bool:
            section, dot, last = self.name.removeprefix("--").rpartition(".")
            for name, value in ((self.name, True), (f"--{section}{dot}no-{last}", False)):
                own = argparse.SUPPRESS if value == self.default else shown
                group.add_argument(name, action="store_const", const=value, help=own, **chosen)
        elif self.positional:
            group.add_argument(metavar=self.name.partition(" ")[0].strip("[]"), nargs="*", help=shown, **chosen)
        else:
            several = get_args(self.kind) if get_origin(self.kind) is tuple else ()
            count: Any = "+" if several[1:] == (...,) else len(several) or None
            group.add_argument(self.name, metavar=self.unit, nargs=count, help=shown, **chosen)

    @property
    def _help(self) -> str:
        """Its help with what is allowed and its default, as a user would write them."""
        written = " ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)
        known = self.default not in (None, "", (), dataclasses.MISSING) and self.kind is not bool
        choices = ", ".join(get_args(self.scalar)) if get_origin(self.scalar) is Literal else ""
        parts = (self.help, f"[one of {choices}]" if choices else "", f"[default: {written}]" if known else "")
        return " ".join(part for part in parts if part).replace("%", "%%")

    def value(self, words: Any) -> Any:
        """The words as the option's type."""
        if isinstance(words, bool):
            return words
        if self.positional and get_origin(self.kind) is not tuple:
            if len(words) > 1:
                raise InputError(f"{' and '.join(words)} are too many: give one {self.name.strip('[]')}.")
            words = words[0]
        read = [*map(self._read, words)] if isinstance(words, list) else self._read(words)
        return convert(self.kind, read, self.name)

    def _read(self, word: str) -> Any:
        """A number, or a path with ~ as a home folder; what is neither is refused when it is converted."""
        if self.scalar is Path:
            word = str(expanded(word))
            if word.startswith("~"):
                raise InputError(f"{word} is in the home folder of a user who does not exist: give another path.")
        for kind in {int: (int,), float: (int, float)}.get(self.scalar, ()):
            with contextlib.suppress(ValueError):
                return kind(word)
        return word


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')}; {SEE_HELP}")


def parse(
    options: type[T],
    words: Sequence[str],
    *,
    command: str,
    description: str,
    default: T | None = None,
    usual: Collection[str] = (),
) -> T:
    """The default with the options that the words set; --help prints options and exits.

    What cannot be read is refused in one sentence. ``usual`` names the options of nested dataclasses that --help
    prints; the others are left to --help-all. Without it, --help prints all.
    """
    known = list(_options(options, default))
    everything = not usual or "--help-all" in words
    hidden = [option for option in known if not everything and "." in option.path and option.name not in usual]
    needed = [option for option in known if option.default is dataclasses.MISSING and not option.positional]
    usage = [f"{option.name} {option.unit}" for option in needed]
    usage += ["[OPTIONS]", *(option.name for option in known if option.positional)]
    parser = _Parser(
        usage=f"topicscope {command} {' '.join(usage)}",
        description=_wrapped(description),
        epilog=f"{len(hidden)} more settings, each with its default, are in --help-all." if hidden else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    for heading in dict.fromkeys(option.group for option in known):
        members = [option for option in known if option.group == heading]
        group = parser.add_argument_group(*heading if any(option not in hidden for option in members) else ())
        for option in members:
            option.add_to(group, hidden=option in hidden)
    parser.add_argument("--help", action="store_true", help="Print this.")
    if not {"--help", "-h", "--help-all"}.isdisjoint(words):
        parser.print_help()
        raise SystemExit
    given, unknown = parser.parse_known_intermixed_args(words)
    if unknown:
        _refuse(unknown[0], known)
    written = {path: words for path, words in vars(given).items() if words != []}
    values = {option.path: option.value(written[option.path]) for option in known if option.path in written}
    for option in known:
        if option.path not in values and option in needed:
            raise InputError(f"{option.name} is missing; {SEE_HELP}")
        if option.path not in values and option.positional and option.default is dataclasses.MISSING:
            values[option.path] = ()
    settings: T = made(options, nested(values), default)
    return settings


def keywords(options: Any, *, without: Collection[str] = ()) -> dict[str, Any]:
    """The options by name, to call a verb with; those in ``PRINTING`` and ``without`` are for the command itself."""
    kept = {field.name for field in dataclasses.fields(options)} - {*PRINTING, *without}
    return {name: getattr(options, name) for name in kept}


def value_of(words: Sequence[str], option: str) -> str | None:
    """The value of an option that is needed before all options can be parsed."""
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return words[place + 1]
        if word.startswith(option + "="):
            return word.removeprefix(option + "=")
    return None


def _options(
    kind: Any,
    default: Any,
    prefix: str = "",
    path: str = "",
    group: tuple[str, str] = ("options", ""),
) -> Iterator[Option]:
    """Every option of a dataclass and of those within it, with the default's values."""
    hints, helps = get_type_hints(kind, include_extras=True), field_docstrings(kind)
    for field in dataclasses.fields(kind):
        hint: Any = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        hint = get_args(hint)[0] if marks else hint
        own = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        # Outside of sections, what has no default must be given, whatever the default has.
        needed = default is None or (own is dataclasses.MISSING and not path)
        value = own if needed else getattr(default, field.name)
        # A section may be of two kinds.
        hint = type(value) if dataclasses.is_dataclass(value) else hint
        place, name, text = path + field.name, prefix + field.name.replace("_", "-"), helps.get(field.name, "")
        if dataclasses.is_dataclass(hint):
            inner = getattr(default, field.name, None) if value is dataclasses.MISSING else value
            if INLINE in marks:
                yield from _options(hint, inner, prefix, f"{place}.", group)
            else:
                heading = (f"{name} options", text or (hint.__doc__ or "").partition("\n")[0])
                yield from _options(hint, inner, f"{name}.", f"{place}.", heading)
        elif POSITIONAL in marks:
            # ``FILE ...`` for files, of which one must be given, and ``[SWEEP]`` for a sweep that can be left out.
            shown = f"{field.name.removesuffix('s')} ..." if get_origin(hint) is tuple else field.name
            shown = (shown if own is dataclasses.MISSING else f"[{shown}]").upper()
            yield Option(place, shown, hint, value, text, ("arguments", ""), True)
        else:
            yield Option(place, f"--{name}", hint, value, text, group, False)


def _wrapped(description: str) -> str:
    """Paragraphs wrapped at the terminal's width; examples stay whole, for copying."""
    width = shutil.get_terminal_size().columns
    blocks = description.strip().split("\n\n")
    return "\n\n".join(block if "\n  " in block else textwrap.fill(block, width) for block in blocks)


def _refuse(unknown: str, options: Sequence[Option]) -> NoReturn:
    """An option that there is not, in one sentence."""
    name = unknown.partition("=")[0]
    # Names are compared without their hyphens, which make any two options alike.
    known = {option.name.removeprefix("--").replace("-", "_"): option.name for option in options}
    meant = nearest(name.removeprefix("--").replace("-", "_"), list(known)) if name.startswith("-") else None
    raise InputError(f"Unrecognized options: {name}; {f'did you mean {known[meant]}?' if meant else SEE_HELP}")
