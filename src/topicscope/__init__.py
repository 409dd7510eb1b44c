"""topicscope: how transformers learn topic structure, checked against theory.

``import topicscope as ts`` offers the verbs under the names of the commands (``ts.train``, ``ts.check``, ``ts.sweep``,
``ts.reproduce``, ``ts.landscape``, ``ts.playground``, ``ts.probe``, ``ts.report``, ``ts.demo``), and the
packages ``ts.theory``, ``ts.synthetic``, ``ts.measure``, ``ts.papers`` and ``ts.settings``. Nothing heavy is imported
until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topicscope import measure as measure
    from topicscope import papers as papers
    from topicscope import settings as settings
    from topicscope import synthetic as synthetic
    from topicscope import theory as theory
    from topicscope.commands.check import check as check
    from topicscope.commands.demo import demo as demo
    from topicscope.commands.landscape import landscape as landscape
    from topicscope.commands.playground import playground as playground
    from topicscope.commands.probe import probe as probe
    from topicscope.commands.report import report as report
    from topicscope.commands.report import show as show
    from topicscope.commands.reproduce import reproduce as reproduce
    from topicscope.commands.sweep import sweep as sweep
    from topicscope.commands.train import train as train
    from topicscope.measure.run import Run as Run
    from topicscope.measure.run import read_run as read_run
    from topicscope.probing.topics import word_topics as word_topics
    from topicscope.settings import Settings as Settings
    from topicscope.settings import TextData as TextData
    from topicscope.settings.sweep import Sweep as Sweep
    from topicscope.settings.sweep import load_sweep as load_sweep
    from topicscope.settings.toml import load_settings as load_settings
    from topicscope.theory.setting import TheorySetting as TheorySetting

__version__ = "0.1.0"

_PACKAGES = ("measure", "papers", "settings", "synthetic", "theory")
_VERBS = ("check", "demo", "landscape", "playground", "probe", "report", "reproduce", "sweep", "train")
# Where each public name is: a verb is in the command of its name.
_MODULES = {name: f"commands.{name}" for name in _VERBS} | {
    "Run": "measure.run",
    "Settings": "settings",
    "Sweep": "settings.sweep",
    "TextData": "settings",
    "TheorySetting": "theory.setting",
    "load_settings": "settings.toml",
    "load_sweep": "settings.sweep",
    "read_run": "measure.run",
    "show": "commands.report",
    "word_topics": "probing.topics",
}
__all__ = sorted((*_PACKAGES, *_MODULES, "__version__"))


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"topicscope.{name}")
    if name in _MODULES:
        return getattr(importlib.import_module(f"topicscope.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'topicscope' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
