"""The playground's speed in Chromium while it draws, beside wasmtime and our engine.

``python benchmarks/playground.py`` prints a table and the time from a slider to the picture; it takes two minutes.
Speeds are steps per second of processor time, so that a busy machine does not matter much; what the reader of a page
waits for is by the clock.
"""

import json
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Browser, browser, require_browser  # noqa: E402
from support.wasm import Core, Setting  # noqa: E402
from topicscope.commands.playground import playground  # noqa: E402
from topicscope.papers.topic_structure.experiments import LDA, ONE_HOT, QUIET, UNIFORM  # noqa: E402
from topicscope.settings import Model, Settings  # noqa: E402
from topicscope.synthetic.topics import TopicModel  # noqa: E402
from topicscope.training.engines import make_engine  # noqa: E402
from topicscope.training.loop import (  # noqa: E402
    Trainer,
    empty_run,
    torch_threads,
)

API = "window.topicscope.playground"
TICKS = 100.0
SEEDS = 8
MODELS: dict[str, tuple[str, int, Model]] = {
    "all of eq. 7": ("all", 0, ONE_HOT),
    "uniform attention": ("uniform", 1, UNIFORM),
}


def main() -> None:
    require_browser()
    with tempfile.TemporaryDirectory() as folder, browser(Path(folder) / "profile") as opened:
        open_page(opened, playground(out=Path(folder) / "playground.html"))
        print("steps per second of processor time, V = 101, batches of 40 documents, Adam, squared loss\n")
        print("                      Chromium  wasmtime  engine  8 seeds")
        for name, (parts, number, model) in MODELS.items():
            speeds = [in_chromium(opened, parts), in_wasmtime(number), engine(model, 1), engine(model, SEEDS)]
            print(
                f"{name:20}"
                + "".join(f"{speed:>{wide}.0f}" for speed, wide in zip(speeds, (10, 10, 8, 9), strict=True))
            )
        print(f"\nfrom slider to picture, milliseconds of the clock: {slider_to_picture(opened)}")


def open_page(opened: Browser, file: Path) -> None:
    opened.resize(1400, 1000)
    opened.driver.get(file.resolve().as_uri())
    opened.wait(f"window.topicscope !== undefined && {API}.state().value !== undefined")
    opened.value(f"{API}.pause()")


def thread_seconds(opened: Browser, named: str = "") -> dict[str, float]:
    """Processor time of every thread of this browser, or of those with this name."""
    found: dict[str, float] = {}
    for process in family(opened):
        for thread in Path(f"/proc/{process}/task").glob("*/stat"):
            with suppress(OSError):
                text = thread.read_text()
                if f"({named}" in text:
                    numbers = text.rpartition(")")[2].split()
                    found[thread.parent.name] = (int(numbers[11]) + int(numbers[12])) / TICKS
    return found


def family(opened: Browser) -> set[int]:
    """This browser's processes."""
    families = {opened.driver.service.process.pid}
    parents = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        # A process may end while it is looked at.
        with suppress(OSError):
            parents[int(each.parent.name)] = int(each.read_text().rpartition(")")[2].split()[1])
    while more := {process for process, parent in parents.items() if parent in families} - families:
        families |= more
    return families


def in_chromium(opened: Browser, parts: str) -> float:
    """While the page draws: the training worker's own processor time."""
    opened.value(f"{API}.pause(), {API}.set({json.dumps({'parts': parts, 'l2': 0})}), {API}.restart(), {API}.run()")
    time.sleep(4)
    step, before = opened.value(f"{API}.state().step"), thread_seconds(opened, "DedicatedWorker")
    time.sleep(12)
    steps, after = opened.value(f"{API}.state().step") - step, thread_seconds(opened, "DedicatedWorker")
    opened.value(f"{API}.pause()")
    return float(steps / max(after[thread] - before.get(thread, 0.0) for thread in after))


def in_wasmtime(parts: int) -> float:
    core = Core(Setting(parts=parts))
    core.call("train", 50)
    began, steps = time.process_time(), 0
    while time.process_time() - began < 3:
        core.call("train", 100)
        steps += 100
    return steps / (time.process_time() - began)


def engine(model: Model, seeds: int) -> float:
    """Our engine's training loop, documents and metrics included: per seed."""
    topic_model = TopicModel.from_settings(LDA)
    training = replace(QUIET, loss="squared", optimizer="adam", log_every=100)

    def seconds(steps: int) -> float:
        settings = Settings(data=LDA, model=model, training=replace(training, steps=steps))
        began = time.process_time()
        with torch_threads(1):
            trainer = Trainer(make_engine(settings, range(seeds), topic_model))
            trainer.begin(empty_run("benchmark", settings, range(seeds), topic_model))
            trainer.run()
        return time.process_time() - began

    seconds(20)
    few, many = 100, 600
    return float(seeds * (many - few) / (seconds(many) - seconds(few)))


def slider_to_picture(opened: Browser) -> str:
    """From a slider's movement to the next picture with the new theory, and, for T, with the new W^V."""
    found = {}
    for name, values in {"mask": (0.2, 0.3, 0.4, 0.25, 0.15), "topics": (8, 9, 11, 12, 10)}.items():
        times = []
        for value in values:
            times.append(
                opened.run(
                    f"const slider = document.getElementById('playground-{name}'), began = performance.now();"
                    f"slider.value = {value}; slider.dispatchEvent(new Event('input'));"
                    f"while (!({API}.state().drawn.at > began && {API}.state().drawn.{name} === {value}))"
                    " await new Promise(requestAnimationFrame); return performance.now() - began;"
                )
            )
        found[name] = f"{np.median(times):.0f} (largest {max(times):.0f})"
    return f"p_m {found['mask']}, T {found['topics']}"


if __name__ == "__main__":
    main()
