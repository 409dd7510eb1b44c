"""``import topicscope as ts``: every public name is there, and nothing heavy is imported before it is used."""

import subprocess
import sys
from types import ModuleType

import pytest

import topicscope as ts
from topicscope.cli import COMMANDS

PACKAGES = {"measure", "papers", "settings", "synthetic", "theory"}


def test_every_public_name_is_there_and_no_other() -> None:
    assert dir(ts) == sorted(ts.__all__)
    for name in ts.__all__:
        assert isinstance(getattr(ts, name), ModuleType) == (name in PACKAGES), name
    with pytest.raises(AttributeError, match="has no attribute 'write_report'"):
        ts.write_report  # noqa: B018


def test_the_verbs_have_the_names_of_the_commands() -> None:
    """All but theory, which is a package of functions."""
    for name in set(COMMANDS) - {"theory"}:
        verb = getattr(ts, name)
        assert (verb.__name__, verb.__module__) == (name, f"topicscope.commands.{name}")


def test_what_the_packages_offer_is_found_without_importing_its_modules() -> None:
    code = "import topicscope as ts; print(ts.theory.theorem2(3, 2).shape, ts.settings.Masking().mask)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert printed == "(7, 7) 0.15\n"


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)"
    code = f"import sys, topicscope as ts; ts.Settings; sys.exit(bool({heavy}))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    control = code.replace("ts.Settings", "ts.theory")
    assert subprocess.run([sys.executable, "-c", control]).returncode == 1
