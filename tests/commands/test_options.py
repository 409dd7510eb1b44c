"""Options are read from a dataclass, over a default, and handed to a verb; what cannot be read is one sentence."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from topicscope.commands.options import INLINE, POSITIONAL, parse
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
    # Without a default it is the class's own that stays; a hyphen stands for an underscore.
    assert read("--value.no-train").value == Part(start="zero", train=False)
    assert read("--rates", ".5", "1e-3", "-2", default=Options(files=(), workers=3)).rates == (0.5, 0.001, -2.0)
    assert parse_train(["--training.schedule", "two-stage", "--out", "x"]).settings.training.schedule == "two_stage"


BAD = [
    ("--workers x", '--workers = "x" is not allowed: give a whole number.'),
    ("--workers 1.5", '--workers = "1.5" is not allowed: give a whole number.'),
    ("--length 1 x", '--length = [1, "x"] is not allowed: give a list of 2 whole numbers.'),
    ("--length 1", "--length: expected 2 arguments; see --help for what is allowed."),
    ("--rates 1 x", '--rates = [1, "x"] is not allowed: give a list of numbers.'),
    ("--value.start two", '--value.start = "two" is not allowed: give one of zero, one.'),
    ("--value.strat one", "Unrecognized options: --value.strat; did you mean --value.start?"),
    # By the last part of a name, of which the first option is meant.
    ("--start one", "Unrecognized options: --start; did you mean --value.start?"),
    ("--trian", "Unrecognized options: --trian; did you mean --value.train?"),
    ("--per_document 1", "Unrecognized options: --per_document; did you mean --per-document?"),
    ("--zzzz", "Unrecognized options: --zzzz; see --help for what is allowed."),
    # No abbreviations, and a flag has no value.
    ("--work 3", "Unrecognized options: --work; did you mean --word?"),
    ("--value.train=no", "--value.train: ignored explicit argument 'no'; see --help for what is allowed."),
]


def test_what_cannot_be_read_is_one_sentence() -> None:
    for line, sentence in BAD:
        with pytest.raises(InputError) as error:
            read(*line.split())
        assert str(error.value) == sentence


def help_of(kind: type, columns: int, capsys: pytest.CaptureFixture[str], default: Any = None) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stop:
            parse(kind, ["--help"], command="try", description=DESCRIPTION, default=default)
    assert not stop.value.code
    return capsys.readouterr().out.splitlines()


def test_help_has_every_option_its_default_and_its_description_and_breaks_no_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = help_of(Options, 80, capsys, Options(files=(), out="there"))
    assert lines[0] == "usage: topicscope try [OPTIONS] FILE ..."
    assert LONG in lines
    assert max(len(line) for line in lines if line != LONG) <= 80
    printed = " ".join(" ".join(lines).split())
    for text in (
        "--value.start NAME Where it starts. [one of zero, one] [default: zero]",
        "--value.no-train",
        "--per-document INT How many. [default: 2]",
        "FILE Files.",
        "Where to. [default: there]",
        # Defaults are as they would be written; what is empty is not.
        "From, to. [default: 1 9]",
        'Some numbers. --word STR A "word". --per-document',
        # The field's docstring, or else that of its class.
        "value options: W^V. --value",
        "key options: Something within. --key",
    ):
        assert text in printed


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
    assert printed[0] == "usage: topicscope try --out PATH [OPTIONS] [SWEEP]"
    assert "DIR" not in " ".join(printed)
    assert "[default: 3]" in " ".join(printed)
    with pytest.raises(InputError, match="--out is missing"):
        parse(Needs, [], command="try", description="", default=default)
    assert parse(Needs, ["--out", "x"], command="try", description="", default=default) == Needs(out=Path("x"), seed=3)
    with pytest.raises(InputError, match="a and b are too many: give one SWEEP"):
        parse(Needs, ["a", "b", "--out", "x"], command="try", description="")


def test_help_all_has_every_setting_and_help_the_usual_ones(capsys: pytest.CaptureFixture[str]) -> None:
    for corpus, setting in (([], "--training.validation-documents"), (["--data.corpus", "x"], "--data.split")):
        printed = {}
        for option in ("--help", "--help-all"):
            with pytest.raises(SystemExit):
                parse_train([*corpus, option])
            printed[option] = set(re.findall(r"--[\w.-]+", capsys.readouterr().out))
        assert printed["--help"] - {"--help-all."} < printed["--help-all"]
        assert setting in printed["--help-all"]
