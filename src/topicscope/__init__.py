"""topicscope: how transformers learn topic structure, checked against theory.

``import topicscope as ts`` offers training, checking and reproducing by the names of the commands; theory is a
package of functions, ``topicscope.theory``. Nothing heavy is imported until used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name → module that has it.
_PUBLIC = {
    "Settings": "topicscope.settings",
    "load_settings": "topicscope.settings.toml",
    "RunFolder": "topicscope.training.runs",
    "Ensemble": "topicscope.training.loop",
    "train_ensemble": "topicscope.training.loop",
    "bench": "topicscope.commands.bench",
    "train": "topicscope.commands.train",
    "probe": "topicscope.commands.probe",
    "reproduce": "topicscope.commands.reproduce",
    "show": "topicscope.commands.report",
    "write_report": "topicscope.reporting.page",
    "check": "topicscope.commands.check",
    "Sweep": "topicscope.settings.sweep",
    "load_sweep": "topicscope.settings.sweep",
    "sweep": "topicscope.commands.sweep",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'topicscope' has no attribute '{name}'")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
