"""topicscope: how transformers learn topic structure, checked against theory.

``import topicscope as ts`` offers the verbs under the names of the commands (``ts.train``, ``ts.check``, ``ts.sweep``,
``ts.reproduce``, ``ts.landscape``, ``ts.playground``, ``ts.probe``, ``ts.report``, ``ts.demo``), and the
packages ``ts.theory``, ``ts.synthetic``, ``ts.measure``, ``ts.papers`` and ``ts.settings``. Nothing heavy is imported
until it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topicscope import measure, papers, settings, synthetic, theory
    from topicscope.commands.check import check
    from topicscope.commands.demo import demo
    from topicscope.commands.landscape import landscape
    from topicscope.commands.playground import playground
    from topicscope.commands.probe import probe
    from topicscope.commands.report import report, show
    from topicscope.commands.reproduce import reproduce
    from topicscope.commands.sweep import sweep
    from topicscope.commands.train import train
    from topicscope.measure.run import Run, read_run
    from topicscope.probing.topics import word_topics
    from topicscope.settings import Settings, TextData
    from topicscope.settings.sweep import Sweep, load_sweep
    from topicscope.settings.toml import load_settings
    from topicscope.theory.setting import TheorySetting

__version__ = "0.1.0"

__all__ = [
    "Run",
    "Settings",
    "Sweep",
    "TextData",
    "TheorySetting",
    "__version__",
    "check",
    "demo",
    "landscape",
    "load_settings",
    "load_sweep",
    "measure",
    "papers",
    "playground",
    "probe",
    "read_run",
    "report",
    "reproduce",
    "settings",
    "show",
    "sweep",
    "synthetic",
    "theory",
    "train",
    "word_topics",
]

_PACKAGES = {"measure", "papers", "settings", "synthetic", "theory"}
# Where public names are that are neither packages nor verbs; a verb is in the command of its name.
_MODULES = {
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'topicscope' has no attribute '{name}'")
    if name in _PACKAGES:
        return importlib.import_module(f"topicscope.{name}")
    return getattr(importlib.import_module(f"topicscope.{_MODULES.get(name, f'commands.{name}')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
