"""Options are read from a dataclass, over a default, and handed to a verb; what cannot be read is one sentence."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from topicscope.commands.options import INLINE, POSITIONAL, keywords, parse
from topicscope.commands.train import parse_options as parse_train
from topicscope.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Part:
    """Something within."""

    start: Literal["zero", "one"] = "zero"
    """Where it
    starts."""

    train: bool = True
    """Whether it is trained."""


@dataclass(frozen=True, kw_only=True)
class Flat:
    """Something whose name is left out."""

    per_document: int = 2
    """How many."""

    length: tuple[int, int] = (1, 9)
    """From, to."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command."""

    files: Annotated[tuple[Path, ...], POSITIONAL]
    """Files."""

    out: str = "here"
    """Where ``to``."""

    workers: int | None = None
    """How many at once."""

    rates: tuple[float, ...] = ()
    """Some numbers."""

    word: str = ""
    """A `word`."""

    value: Part = Part()
    """W^V."""

    key: Part = Part()
    flat: Annotated[Flat, INLINE] = Flat()


LONG = f"  topicscope try {'--out there ' * 12}--workers 1"
DESCRIPTION = f"Try {'many ' * 30}\nwords.\n\nexamples:\n{LONG}\n  topicscope try\n"


def read(*words: str, default: Options | None = None) -> Options:
    return parse(Options, words, command="try", description=DESCRIPTION, default=default)


def test_words_go_over_the_default_and_leave_the_rest_of_it() -> None:
    default = Options(files=(), value=Part(start="one"), flat=Flat(length=(3, 4)))
    found = read(
        "a", "b", "--value.no-train", "--per-document", "5", "--rates", "1", "-2.5", "--out=x", default=default
    )
    expected = Options(
        files=(Path("a"), Path("b")),
        out="x",
        rates=(1.0, -2.5),
        value=Part(start="one", train=False),
        flat=Flat(per_document=5, length=(3, 4)),
    )
    assert found == expected
    # Without a default it is the class's own that stays.
    assert read("--value.no-train").value == Part(start="zero", train=False)


def test_hyphens_are_read_where_a_value_has_underscores() -> None:
    assert parse_train(["--training.schedule", "two-stage", "--out", "x"]).settings.training.schedule == "two_stage"


def test_underscores_and_none_are_read_as_well() -> None:
    default = Options(files=(), workers=3)
    assert read("--per_document", "7", "--workers", "None", default=default).flat.per_document == 7
    assert read("--workers", "None", default=default).workers is None
    assert read(default=default).workers == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", "x"], "--workers x is not allowed: give a whole number; see --help for what is allowed."),
        (["--workers", "1.5"], "--workers 1.5 is not allowed: give a whole number; see --help for what is allowed."),
        (["--length", "1", "x"], "--length x is not allowed: give a whole number; see --help for what is allowed."),
        (
            ["--length", "1"],
            "Missing value for argument '--length'. Expected 2 values; see --help for what is allowed.",
        ),
        (["--rates", "1", "x"], "--rates x is not allowed: give a number; see --help for what is allowed."),
        (
            ["--value.start", "two"],
            "--value.start two is not allowed: give one of zero, one; see --help for what is allowed.",
        ),
        (["--value.strat", "one"], "Unrecognized options: --value.strat; did you mean --value.start?"),
        # By the last part of a name, of which the first option is meant.
        (["--start", "one"], "Unrecognized options: --start; did you mean --value.start?"),
        (["--trian"], "Unrecognized options: --trian; did you mean --value.train?"),
        (["--zzzz"], "Unrecognized options: --zzzz; see --help for what is allowed."),
        (["--value.train=no"], "Unrecognized options: no; see --help for what is allowed."),
    ],
)
def test_what_cannot_be_read_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(InputError) as error:
        read(*words)
    assert str(error.value) == said


def test_help_has_every_option_its_default_and_its_description(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        read("--help", default=Options(files=(), out="there"))
    assert not stop.value.code
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("--value.start", "Where it starts. [choices: zero, one] [default: zero]", "--value.no-train"):
        assert text in printed
    for text in ("--per-document INT", "Where to. [default: there]", "FILE ... Files. ╰"):
        assert text in printed
    # Defaults are as they would be written; what is empty is not.
    for text in (
        "From, to. [default: 1 9]",
        'Some numbers. --word STR A "word". --per-document',
        "How many. [default: 2]",
    ):
        assert text in printed


def help_of(kind: type, columns: int, capsys: pytest.CaptureFixture[str], default: Any = None) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            parse(kind, ["--help"], command="try", description=DESCRIPTION, default=default)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [80, 120])
def test_help_breaks_paragraphs_and_no_examples(columns: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = help_of(Options, columns, capsys)
    assert lines[0] == "Usage: topicscope try [OPTIONS] FILE ..."
    assert LONG in lines
    assert len(LONG) > columns
    assert max(len(line) for line in lines if line != LONG) <= columns
    assert " ".join(" ".join(lines[2 : lines.index("examples:")]).split()) == f"Try {'many ' * 30}words."


def test_boxes_of_help_are_in_the_order_of_declaration_and_say_what_they_are_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = help_of(Options, 80, capsys)
    titles = {line.strip("╭╮─ "): lines[place + 1].strip("│ ") for place, line in enumerate(lines) if line[:1] == "╭"}
    assert list(titles) == ["arguments", "options", "value options", "key options", "help"]
    # The field's docstring, or else that of its class.
    assert titles["value options"] == "W^V."
    assert titles["key options"] == "Something within."


def test_what_has_no_default_of_its_own_must_be_given_whatever_the_default_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Needs:
        """Options with one that is needed, and a place that is not."""

        out: Path
        sweep: Annotated[Path | None, POSITIONAL] = None
        seed: int = 0

    default = Needs(out=Path("DIR"), seed=3)
    printed = help_of(Needs, 80, capsys, default)
    assert printed[0] == "Usage: topicscope try --out PATH [OPTIONS] [SWEEP]"
    assert any("--out PATH" in line and "[required]" in line for line in printed)
    assert "DIR" not in " ".join(printed)
    assert "[default: 3]" in " ".join(printed)
    with pytest.raises(InputError, match="--out is missing"):
        parse(Needs, [], command="try", description="", default=default)
    assert parse(Needs, ["--out", "x"], command="try", description="", default=default) == Needs(out=Path("x"), seed=3)


@dataclass(frozen=True, kw_only=True)
class Few:
    """Options of another command."""

    out: str = "here"
    workers: int | None = 2
    dry_run: bool = False
    quiet: bool = False
    json: bool = False


def test_a_verb_is_called_with_all_options_but_those_of_the_command_and_must_know_them() -> None:
    def verb(out: str, *, workers: int | None, report: Any = None) -> tuple[Any, ...]:
        return out, workers, report

    assert verb(**keywords(Few(), without=("dry_run",)), report="bar") == ("here", 2, "bar")
    assert verb(workers=5, **keywords(Few(), without=("dry_run", "workers"))) == ("here", 5, None)
    with pytest.raises(TypeError, match="dry_run"):
        verb(**keywords(Few()))


@pytest.mark.parametrize("corpus", [[], ["--data.corpus", "x"]])
def test_help_breaks_no_name_of_an_option_at_80_columns(
    corpus: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {}
    for columns in (80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit):
            parse_train([*corpus, "--help-all"])
        printed = capsys.readouterr().out
        names[columns] = set(re.findall(r"--[\w.-]+", printed))
    assert max(map(len, printed.splitlines())) > 80
    assert names[80] == names[200]
    assert "--training.validation-documents" in names[80] or corpus
