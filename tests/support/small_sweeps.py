"""A sweep of a second: four combinations, three seeds."""

import copy
from collections.abc import Iterable
from typing import Any

from support.helpers import SMALL
from topicscope.commands.sweep import SweepResult
from topicscope.records import sweep_table
from topicscope.settings.sweep import Sweep

VARY: dict[str, Any] = {"training.learning_rate": (0.01, 0.1), "data.length": ((4, 9), (5, 9))}


def small_sweep(**changes: Any) -> Sweep:
    options: dict[str, Any] = {"settings": SMALL, "vary": VARY, "seeds": (0, 3, 4), "together": 2}
    options |= changes
    return Sweep(**(options | {"settings": shared(options["settings"], options["vary"])}))


def shared(settings: dict[str, Any], vary: Iterable[str]) -> dict[str, Any]:
    """Settings without those that vary."""
    left = copy.deepcopy(settings)
    for name in vary:
        *sections, last = name.split(".")
        table = left
        for section in sections:
            table = table.get(section, {})
        table.pop(last, None)
    return left


def untimed(result: SweepResult) -> list[dict[str, Any]]:
    """Whatever the machine, a row without its times is the same."""
    return [
        {name: value for name, value in row.items() if not name.endswith("_seconds")}
        for row in sweep_table(result.rows)
    ]
