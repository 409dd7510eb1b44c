"""What the fuzzer leaves out or does once: it takes time in every case, and reads nothing of what is given."""

import dataclasses
import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import docstring_parser
import jaxtyping
import jinja2
import pytest

import topicscope
from support.small_registry import SMALL as SMALL_REGISTRY
from topicscope.commands import options
from topicscope.errors import InputError
from topicscope.scale import Task


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Small claims, pages without the plotting library, work in one process; help and templates are read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("topicscope.commands.reproduce.registry", lambda preset: SMALL_REGISTRY)
        patch.setattr("topicscope.reporting.page._library", lambda: "")
        patch.setattr("topicscope.commands.bench.bench", _refused)
        patch.setattr("topicscope.commands.demo.demo", _refused)
        patch.setattr("topicscope.reporting.figures.probe.draw", lambda *given: [])
        # Work is done in this process, and nobody asks the hub.
        patch.setattr("topicscope.scale.run_local", _in_this_process)
        patch.setattr("topicscope.scale._ray", _refused)
        patch.setattr("topicscope.text.hub.reachable", lambda: False)
        patch.setattr(options, "parse_from_object", functools.cache(docstring_parser.parse_from_object))
        patch.setattr(jinja2.Environment, "compile", _compiled_once(jinja2.Environment.compile))
        yield


@pytest.fixture
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes and types are not checked: a check could refuse, with an error that is caught, what users would get past.

    The small versions run with the checks.
    """
    # Whatever is loaded only now would never be checked again, for other tests either.
    for module in pkgutil.walk_packages(topicscope.__path__, "topicscope."):
        importlib.import_module(module.name)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


def _compiled_once(compiled: Callable[..., Any]) -> Callable[..., Any]:
    found: dict[Any, Any] = {}

    def once(environment: Any, source: str, *words: Any, **names: Any) -> Any:
        if source not in found:
            found[source] = compiled(environment, source, *words, **names)
        return found[source]

    return once


def _in_this_process(tasks: Sequence[Task], workers: int) -> Iterator[Task]:
    for task in tasks:
        # Its timer is the fuzzer's own.
        dataclasses.replace(task, timeout=None).compute()
        yield task


def _refused(**_: Any) -> None:
    raise InputError("it takes too long here.")
