"""Kills at every place of the code that brings a file to disk, renames it or removes it, as a program of its own.

``python kills.py WORK FOLDER [BEGINNING ...]`` does a piece of work twice, undisturbed, and notes where it calls the
system; then, for each such place (or those alone whose names begin so), it kills the work right before the call and
right after it, and does it again in the same folder. It prints as JSON which places there are, how many kills there
were, and what then differed from the undisturbed work, which must be nothing.

Everything is done in forks of this process: it loads what takes seconds once, and computes nothing itself.
"""

import contextlib
import functools
import importlib
import json
import os
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

SOURCES = str(Path(__file__).parents[2] / "src" / "topicscope")
CALLS = ("fsync", "replace", "rename", "unlink", "remove")
# Places that write for others: who calls them is part of a place's name.
WRITERS = ("files.py", "scale.py")
LONGEST_NAME = 160

Tree = dict[str, bytes]


@dataclass(frozen=True)
class Work:
    """A command line, which goes on in a folder where it was stopped."""

    words: tuple[str, ...]
    again: tuple[str, ...] = ()
    """What is added to go on."""

    loaded: tuple[str, ...] = ()
    prepare: Callable[[Path], int] = lambda folder: 0
    patch: Callable[[], None] = lambda: None


def _write_settings(folder: Path) -> int:
    from support.helpers import small_settings
    from topicscope.settings.toml import dump_settings

    training = {"steps": 6, "checkpoint_every": 1, "snapshots": 2}
    (folder / "settings.toml").write_text(dump_settings(small_settings(training=training)))
    return 0


def _write_text(folder: Path) -> int:
    from support.text_corpus import small_text_settings, write_corpus
    from topicscope.settings.toml import dump_settings

    settings = small_text_settings(write_corpus(folder), training={"steps": 6, "checkpoint_every": 1, "measures": 0})
    (folder / "settings.toml").write_text(dump_settings(settings))
    return 0


def _write_sweep(folder: Path) -> int:
    _write_settings(folder)
    (folder / "sweep.toml").write_text(
        'seeds = 2\nbase = "settings.toml"\n[vary]\ntraining.learning_rate = [0.1, 1.0]\n'
    )
    return 0


def _write_models(folder: Path) -> int:
    from support.small_probe import write_tiny

    write_tiny(folder)
    return 0


def _small_claims() -> None:
    import topicscope.commands.reproduce
    from support.small_registry import SMALL

    vars(topicscope.commands.reproduce)["registry"] = lambda preset: SMALL


def _no_figures() -> None:
    """They take most of a probe's time, and are written as those of claims are."""
    import topicscope.reporting.figures.probe

    vars(topicscope.reporting.figures.probe)["draw"] = lambda *given: []


DRAWING = ("topicscope.reporting.page", "topicscope.reporting.figures.training", "matplotlib.pyplot")
WORKS = {
    "train": Work(
        ("train", "../settings.toml", "--out=out", "--quiet"),
        ("--resume",),
        ("topicscope.training.loop",),
        _write_settings,
    ),
    "text": Work(
        ("train", "../settings.toml", "--out=out", "--quiet", "--device=cpu"),
        ("--resume",),
        ("topicscope.training.loop", "transformers", "tokenizers"),
        _write_text,
    ),
    "sweep": Work(
        ("sweep", "../sweep.toml", "--out=out", "--workers=1", "--quiet", "--measures=loss"),
        ("--resume",),
        ("topicscope.training.sweep", *DRAWING),
        _write_sweep,
    ),
    "probe": Work(
        (
            *("probe", "../bert", "../gpt2", "--corpus=../corpus.txt", "--out=out", "--quiet", "--topics=3"),
            *("--fractions=0.2", "--fits=1", "--iterations=5", "--length=20", "--replicates=10", "--permutations=9"),
            *("--head-permutations=9", "--workers=1", "--device=cpu"),
        ),
        (),
        ("topicscope.probing.study", "topicscope.reporting.figures.probe", "transformers", *DRAWING),
        _write_models,
        _no_figures,
    ),
    "reproduce": Work(
        ("reproduce", "--only", "figure2/squared-adam", "--out=out", "--seeds=2", "--workers=1", "--quiet"),
        (),
        ("topicscope.paper.experiment", *DRAWING),
        patch=_small_claims,
    ),
}  # fmt: skip


def place_of(call: str) -> str:
    """The system's function and who calls it, from the inside out until the file is one that writes for itself."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(SOURCES):
            name = path.removeprefix(SOURCES + "/")
            found.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
            if name not in WRITERS:
                break
        frame = frame.f_back
    return " < ".join([call, *found])


def watch(at_call: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Have all calls go through a function that is given the place and the call itself."""

    def watched(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*words: Any, **names: Any) -> Any:
            return at_call(place_of(call), functools.partial(real, *words, **names))

        return instead

    for call in CALLS:
        setattr(os, call, watched(call, getattr(os, call)))


def noted(found: Counter[str]) -> None:
    """Count the calls of each place."""

    def at_call(place: str, call: Callable[[], Any]) -> Any:
        found[place] += 1
        return call()

    watch(at_call)


def killing(at: str, occurrence: int, when: str) -> None:
    """Kill this process before or after a call."""
    seen: Counter[str] = Counter()

    def at_call(place: str, call: Callable[[], Any]) -> Any:
        seen[place] += 1
        now = place == at and seen[place] == occurrence
        if now and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            return call()
        finally:
            if now:
                os.kill(os.getpid(), signal.SIGKILL)

    watch(at_call)


def forked(what: Callable[[], int], folder: Path) -> int:
    """How a fork of this process ends that does something in a folder, with what it prints in a file there."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        os.chdir(folder)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = what()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def tree(folder: Path) -> Tree:
    """All files of a folder, and folders that are empty."""
    return {
        str(path.relative_to(folder)): b"" if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or not any(path.iterdir())
    }


def differences(found: Tree, wanted: Tree) -> list[str]:
    return sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))


def check(work: Work, folder: Path, beginnings: Sequence[str]) -> dict[str, Any]:
    """Do it undisturbed, then with kills."""
    for module in ("topicscope.cli", f"topicscope.commands.{work.words[0]}", *work.loaded):
        importlib.import_module(module)
    from topicscope.cli import main

    work.patch()
    assert forked(lambda: work.prepare(folder), folder) == 0, (folder / "log").read_text()

    # Always the same one: pages name it.
    inside = folder / "here"

    def whole() -> tuple[Tree, Counter[str]]:
        inside.mkdir()

        def run() -> int:
            found: Counter[str] = Counter()
            noted(found)
            before = set(sys.modules)
            code = main(list(work.words))
            Path("places.json").write_text(json.dumps(found))
            Path("modules.json").write_text(json.dumps([name for name in sys.modules if name not in before]))
            return code

        assert forked(run, inside) == 0, (inside / "log").read_text()
        # So that the next forks need not load it.
        for module in json.loads((inside / "modules.json").read_text()):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
        found = tree(inside / "out"), Counter(json.loads((inside / "places.json").read_text()))
        shutil.rmtree(inside)
        return found

    # Of the second: in the first, modules that are loaded look for a place for temporary files, once.
    (wanted, _), (again, places) = whole(), whole()
    # Nothing but the kills may make a difference.
    assert not differences(again, wanted), differences(again, wanted)
    chosen = [place for place in places if not beginnings or place.startswith(tuple(beginnings))]
    found: dict[str, list[str]] = {}
    kills = [(place, when) for place in chosen for when in ("before", "after")]
    # Right after a file is on disk is right before it is renamed.
    kills = [each for each in kills if not (each[1] == "after" and re.match(r"fsync < files\.py", each[0]))]
    for place, when in kills:
        inside.mkdir()
        # Of many calls the one in the middle: something is there, and something is missing.
        occurrence = (places[place] + 1) // 2

        def killed(place: str = place, when: str = when, occurrence: int = occurrence) -> int:
            killing(place, occurrence, when)
            return main(list(work.words))

        ended = forked(killed, inside)
        assert ended == -signal.SIGKILL, f"{place}: {ended} {(inside / 'log').read_text()}"
        # Before anything of it is there, the command is given again as it was.
        words = [*work.words, *(work.again if (inside / "out").exists() else ())]
        code = forked(functools.partial(main, words), inside)
        said = [(inside / "log").read_text()[-600:]] if code else []
        if wrong := said + differences(tree(inside / "out"), wanted):
            found[f"{when} {place}"[:LONGEST_NAME]] = wrong
        shutil.rmtree(inside)
    return {"places": list(places), "kills": len(kills), "different": found, "files": len(wanted)}


if __name__ == "__main__":
    # Times are results too, and differ between any two runs; none of what is done here waits.
    time.perf_counter = time.process_time = lambda: 0.0
    outcome = check(WORKS[sys.argv[1]], Path(sys.argv[2]), sys.argv[3:])
    sys.stdout.write(json.dumps(outcome, indent=1) + "\n")
