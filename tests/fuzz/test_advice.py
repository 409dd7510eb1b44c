"""Sentences advise options that the command at hand has."""

import ast
from pathlib import Path

import pytest

import topicscope
from support.fuzzing import OPTION, Ended, options_of
from topicscope.cli import COMMANDS

# Beginnings of options, which are no sentences.
SECTIONS = {"--data.", "--model.", "--training.", "--masking."}
OF_ALL = {"--help", "--help-all", "--version"}
SOURCE = Path(topicscope.__file__).parent


def sentences(path: Path) -> set[str]:
    """Texts of a module that name options, but for its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, described) and node.body
                  and isinstance(node.body[0], ast.Expr)}  # fmt: skip
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {id(part) for node in joined for part in node.values}
    whole = [[part.value if isinstance(part, ast.Constant) else "…" for part in node.values] for node in joined]
    alone = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings | inside]
    texts = {"".join(map(str, parts)) for parts in whole} | {str(node.value) for node in alone}
    return {text for text in texts if OPTION.search(text)} - SECTIONS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_own_sentences_name_its_own_options(command: str) -> None:
    found = sentences(SOURCE / "commands" / f"{command}.py")
    foreign = {
        option
        for text in found
        for option in OPTION.findall(text)
        if option not in options_of(command)
        # Examples and next steps name the command that they are of.
        and not any(f"topicscope {other}" in text and option in options_of(other) for other in COMMANDS)
    }
    assert not foreign - OF_ALL


def test_all_sentences_name_options_that_some_command_has() -> None:
    known = frozenset[str]().union(*map(options_of, COMMANDS)) | OF_ALL
    found = {option for path in SOURCE.rglob("*.py") for text in sentences(path) for option in OPTION.findall(text)}
    assert len(found) > 40
    assert not found - known


def test_an_option_of_another_command_is_found() -> None:
    """The control of what the fuzzer asks of every refusal."""

    def said(sentence: str) -> Ended:
        return Ended(("check", "--layer=9"), 2, "", f"topicscope: {sentence}\n", 0.0, 0, ())

    assert said("give --resume.").foreign_options == {"--resume"}
    assert not said("leave --layer out, or run `topicscope train --resume`.").foreign_options
