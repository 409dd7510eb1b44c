"""Options of the commands: a dataclass, parsed from the words of a command line and handed to a verb by name.

The fields of a dataclass within it are options with its name before theirs (``--data.topics``), or without if it is
marked ``INLINE``; what is marked ``POSITIONAL`` is given by its place. A field's docstring is its help. A field whose
class has no default for it must be given.
"""

import dataclasses
import functools
import inspect
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    Token,
    UnknownOptionError,
    convert,
)
from cyclopts.exceptions import UnusedCliTokensError
from cyclopts.help import AsteriskRenderer, ColumnSpec, DefaultFormatter, DescriptionRenderer, HelpEntry, NameRenderer
from docstring_parser import parse_from_object
from rich.console import Console, ConsoleOptions

from topicscope.errors import InputError, nearest
from topicscope.files import expanded

T = TypeVar("T")

INLINE, POSITIONAL = "inline", "positional"

# Options that a command handles itself, with what its verb returns.
PRINTING = ("json", "quiet")

# Boxes of the help come in this order, followed by those of nested dataclasses in the order of declaration.
ARGUMENTS, OPTIONS = Group("arguments", sort_key=(0,)), Group("options", sort_key=(1,))


@dataclass(frozen=True)
class Option:
    """One option: the fields that lead to it, its name on the command line, its type and its help."""

    path: tuple[str, ...]
    name: str
    kind: Any
    default: Any
    help: str
    group: Group
    positional: bool

    @property
    def key(self) -> str:
        """Its name in Python."""
        return "__".join(self.path)

    @property
    def parameter(self) -> inspect.Parameter:
        """What the parser needs to know about it."""
        written = " ".join(map(str, self.default)) if isinstance(self.default, tuple) else str(self.default)
        told = Parameter(
            name=self.name,
            help=self.help,
            group=self.group,
            # The default as a user would write it; nothing if it is empty.
            show_default=written if written and self.default is not None else False,
            # One option takes any number of values, and has no --empty-… beside it.
            consume_multiple=True,
            negative_iterable=(),
            converter=_converter(self.kind),
        )
        place = inspect.Parameter.POSITIONAL_ONLY if self.positional else inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(self.key, place, default=self.default, annotation=Annotated[self.kind, told])


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether the words ask for help."""
    return not {"--help", "-h", "--help-all"}.isdisjoint(words)


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
    found = every = list(_options(options, default))
    if usual and "--help-all" not in words and asks_for_help(words):
        found = [each for each in every if len(each.path) == 1 or each.name in usual]
    app = App(
        name=f"topicscope {command}",
        # Our own code prints it before.
        usage="",
        help_format="plaintext",
        help_formatter=DefaultFormatter(column_specs=_columns),
        group_commands=Group("help"),
        version_flags=(),
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
    )

    def given(*places: Any, **names: Any) -> dict[str, Any]:
        positional = [option.key for option in found if option.positional]
        return dict(zip(positional, places, strict=False)) | names

    parameters = sorted((option.parameter for option in found), key=lambda parameter: parameter.kind)
    given.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    app.default(given)
    if asks_for_help(words):
        # What must be given, and by place what can be.
        needed = [each for each in found if each.default is inspect.Parameter.empty]
        named = [f"{each.name} {_scalar(each.kind).__name__.upper()}" for each in needed]
        usage = " ".join([*named, "[OPTIONS]", *(each.name for each in found if each.positional)])
        text = f"Usage: topicscope {command} {usage}\n\n{description}"
        # Lines of a paragraph are joined and wrapped at the terminal's width; examples stay whole, for copying.
        for line in re.sub(r"(?<=\S)\n(?=\S)", " ", text).splitlines():
            app.console.print(line, soft_wrap=line.startswith("  "), markup=False, highlight=False)
        app.console.print()
        app.help_print([])
        if len(found) < len(every):
            left = f"{len(every) - len(found)} more settings, each with its default, are in --help-all."
            app.console.print(left, markup=False, highlight=False)
        raise SystemExit
    _refuse_values_of_flags(words, found)
    try:
        values: dict[str, Any] = app([_hyphens(word) for word in words])
    except CycloptsError as error:
        _refuse(error, found)
    return _made(options, default, {option.path: values.get(option.key, option.default) for option in found})


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


def check_out_is_given(words: Sequence[str], what: str) -> None:
    """Refuse a command line without --out, unless it asks for help."""
    if not asks_for_help(words) and not value_of(words, "--out"):
        raise InputError(f"--out is missing: give a folder to write the {what} to.")


def _columns(console: Console, options: ConsoleOptions, entries: list[HelpEntry]) -> tuple[ColumnSpec, ...]:
    """Required options, names and help; no name is broken, however narrow the terminal."""
    longest = max(len(word) for entry in entries for word in " ".join(entry.display_labels_with_metavar).split())
    # Two spaces go before a name on a line of its own.
    width = max(math.ceil(0.35 * console.width), longest + 2)
    marked = [ColumnSpec(AsteriskRenderer(), width=1, style="cyclopts.required_marker")]
    return (
        *(marked if any(entry.required for entry in entries) else []),
        ColumnSpec(NameRenderer(max_width=width), style="cyclopts.name", max_width=width),
        ColumnSpec(DescriptionRenderer(), overflow="fold"),
    )


def _options(
    kind: Any, default: Any, prefix: str = "", path: tuple[str, ...] = (), group: Group = OPTIONS
) -> Iterator[Option]:
    """Every option of a dataclass and of those within it, with the default's values."""
    hints, helps = get_type_hints(kind, include_extras=True), _field_helps(kind)
    for number, field in enumerate(dataclasses.fields(kind)):
        hint: Any = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        hint = get_args(hint)[0] if marks else hint
        own = _default(field)
        value = own if default is None else getattr(default, field.name)
        place, name, said = (*path, field.name), prefix + field.name.replace("_", "-"), helps.get(field.name, "")
        if dataclasses.is_dataclass(hint):
            inner = None if value is inspect.Parameter.empty else value
            if INLINE in marks:
                yield from _options(hint, inner, prefix, place, group)
            else:
                said = said or (hint.__doc__ or "").partition("\n")[0]
                within = Group(f"{name} options", said, sort_key=(*group.sort_key, number))
                yield from _options(hint, inner, f"{name}.", place, within)
        elif POSITIONAL in marks:
            # Giving none means no values; the command itself says what it needs.
            value = () if value is inspect.Parameter.empty else value
            # ``FILE ...`` for files, of which one must be given, and ``[SWEEP]`` for a sweep that can be left out.
            shown = f"{field.name.removesuffix('s')} ..." if get_origin(hint) is tuple else field.name
            shown = (shown if own is inspect.Parameter.empty else f"[{shown}]").upper()
            yield Option(place, shown, hint, value, said, ARGUMENTS, True)
        else:
            value = own if own is inspect.Parameter.empty else value
            yield Option(place, f"--{name}", hint, value, said, group, False)


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _field_helps(kind: type) -> dict[str, str]:
    """The docstrings under a dataclass's fields, each on one line; a name in backticks is quoted, code is not."""
    parents = [each for each in reversed(kind.__mro__) if dataclasses.is_dataclass(each)]
    found = [field for each in parents for field in parse_from_object(each).params]
    plain = {field.arg_name: (field.description or "").replace("``", "").replace("`", '"') for field in found}
    return {name: " ".join(text.split()) for name, text in plain.items()}


def _made(kind: type[T], default: Any, values: dict[tuple[str, ...], Any], path: tuple[str, ...] = ()) -> T:
    """The dataclass with these values, which checks itself."""
    given = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        place = (*path, field.name)
        if place in values:
            given[field.name] = values[place]
        else:
            inner = _default(field) if default is None else getattr(default, field.name)
            given[field.name] = _made(type(inner), inner, values, place)
    return kind(**given)


def _hyphens(word: str) -> str:
    """Options may be written with underscores as well."""
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word


def _converter(kind: Any) -> Callable[..., Any] | None:
    """Convert values as the parser does, except that the word "None" means None, and ``_read`` reads words."""
    scalar, optional = _scalar(kind), type(None) in get_args(kind)
    if not (optional or scalar in (int, Path) or get_origin(scalar) is Literal):
        return None
    return functools.partial(_converted, scalar, optional)


def _converted(scalar: Any, optional: bool, asked: Any, tokens: Sequence[Token]) -> Any:
    if optional and tokens[0].value == "None":
        return None
    return convert(asked, [_read(token, scalar) for token in tokens])


def _read(token: Token, scalar: Any) -> Token:
    """1.5 is refused where it would be rounded, ~ is a home folder, and two-stage is two_stage if that is allowed."""
    word = token.value
    if scalar is int:
        try:
            int(word)
        except ValueError:
            raise CoercionError(token=token, target_type=int) from None
    elif scalar is Path:
        word = str(expanded(word))
        if word.startswith("~"):
            raise InputError(f"{token.value} is in the home folder of a user who does not exist: give another path.")
    elif word not in get_args(scalar) and word.replace("-", "_") in get_args(scalar):
        word = word.replace("-", "_")
    return token.evolve(value=word)


def _refuse_values_of_flags(words: Sequence[str], options: Sequence[Option]) -> None:
    """Refuse --flag=no, which the parser would accept: a flag is given or not."""
    flags = {option.name for option in options if option.kind is bool}
    flags |= {re.sub(r"^--((?:.+\.)?)", r"--\1no-", name) for name in flags}
    for word in map(_hyphens, words):
        name, equals, value = word.partition("=")
        if equals and name in flags:
            raise InputError(f"Unrecognized options: {value}; see --help for what is allowed.")


def _refuse(error: CycloptsError, options: Sequence[Option]) -> NoReturn:
    """What is wrong with a command line, in one sentence."""
    said, hint = str(error).rstrip("."), "see --help for what is allowed."
    option = next((each for each in options if error.argument and each.name in error.argument.names), None)
    if isinstance(error, UnknownOptionError):
        unknown = error.token.keyword or error.token.value
        said = f"Unrecognized options: {unknown}"
        # Names are compared without their hyphens, which make any two options alike.
        known = {each.name.removeprefix("--").replace("-", "_"): each.name for each in options if not each.positional}
        if meant := nearest(unknown.removeprefix("--").replace("-", "_"), list(known)):
            hint = f"did you mean {known[meant]}?"
    elif isinstance(error, UnusedCliTokensError):
        said = f"Unrecognized options: {', '.join(error.unused_tokens or ())}"
    elif isinstance(error, CoercionError) and error.token and option:
        said = f"{option.name} {error.token.value} is not allowed: give {_allowed(option.kind)}"
    elif isinstance(error, MissingArgumentError) and option:
        values = len(get_args(option.kind)) if get_origin(option.kind) is tuple else 1
        said = (
            f"Missing value for argument '{option.name}'. Expected {values} values"
            if error.keyword
            else f"{option.name} is missing"
        )
    raise InputError(f"{said}; {hint}") from None


def _allowed(kind: Any) -> str:
    """What an option takes, in words."""
    scalar = _scalar(kind)
    if get_origin(scalar) is Literal:
        return f"one of {', '.join(get_args(scalar))}"
    return {int: "a whole number", float: "a number"}.get(scalar, "another value")


def _scalar(kind: Any) -> Any:
    """What one value of an option is: ``int`` of ``tuple[int, ...]`` and of ``int | None``."""
    if get_origin(kind) is Literal or not get_args(kind):
        return kind
    return _scalar(next(each for each in get_args(kind) if each is not type(None)))
