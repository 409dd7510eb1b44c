"""``topicscope demo``: two trainings of seconds, and a page that shows them beside theory."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import path_of
from topicscope.measure.run import Run, read_run
from topicscope.papers.topic_structure.experiments import LDA, MILD_L2, ONE_HOT, UNIFORM
from topicscope.settings import Settings, Training
from topicscope.store import frame_of, table_html
from topicscope.work import Report

DESCRIPTION = """Train two small models in seconds, and write a page that shows them beside theory.

figure2: W^V alone, under uniform attention, as in the paper's Figure 2. two-stage: W^V, W^K and W^Q at once from near
zero; W^V learns first, attention follows. The same command again goes on where it was stopped.

examples:
  topicscope demo
  topicscope demo --out /tmp/demo
"""

# What is trained; examples/figure2.toml (with more steps) and examples/two-stage.toml are the same as files.
RUNS = {
    "figure2": Settings(data=LDA, model=UNIFORM, training=Training(loss="squared", l2=MILD_L2, steps=1_000)),
    "two-stage": Settings(
        data=LDA,
        model=ONE_HOT,
        training=Training(loss="squared", learning_rate=0.003, adam_epsilon=1e-6, steps=1_500),
    ),
}


@dataclass(frozen=True)
class Demo:
    """The two runs, what was found in them, and the page."""

    out: Path
    page: Path
    value: dict[str, tuple[float, float]]
    """Averages of W^V's entries by class, trained and in theory."""

    share: float
    """W^V's gain over predicting nothing as a share of the exact optimum's."""

    take_off: int | None
    """The step at which attention leaves uniform attention in the second run; None if it never does."""

    gain: float
    """The share of what uniform attention can gain that W^V has by then."""

    def to_frame(self) -> Any:
        """Averages of W^V's entries as a pandas DataFrame, a row per class."""
        rows = self.value.items()
        return frame_of({"entries": name, "trained": trained, "theory": theory} for name, (trained, theory) in rows)

    def _repr_html_(self) -> str:
        rows = [(name.replace("_", " "), *pair) for name, pair in self.value.items()]
        return table_html(("entries of W^V", "trained", "theory"), rows, f"Figure 2 in {self.out}; ts.show shows all")


def demo(out: Path | str = "topicscope-demo", *, report: Report | None = None) -> Demo:
    """Train both models into a folder, resuming where they were stopped, and write its page."""
    from topicscope.reporting.page import write_report
    from topicscope.training.loop import Watching, train

    out = path_of(out, "out")
    is_begun(out, "figure2", what="demo", command="demo")
    total, before, runs = sum(settings.training.steps for settings in RUNS.values()), 0, list[Run]()
    with locked(out):
        for name, settings in RUNS.items():
            folder = train(settings, out / name, resume=True, watching=Watching(_after(before, total, report)))
            before += settings.training.steps
            runs.append(read_run(folder.path))
        page = write_report([out / name for name in RUNS], out / "report.html")
    return Demo(out, page, *_value(runs[0]), *_stages(runs[1]))


def _after(before: int, total: int, report: Report | None) -> Report | None:
    """Progress of one run among both."""
    tell: Callable[[int, int, str], None] | None = report
    return None if tell is None else lambda done, steps, state: tell(before + done, total, state)


def _value(run: Run) -> tuple[dict[str, tuple[float, float]], float]:
    """W^V of the first run beside the exact optimum: averages by class, and its share of the optimum's gain."""
    from topicscope.measure.blocks import class_averages
    from topicscope.training.reference import optimum_measures

    value = run.weights["value"][0]
    trained, theory = (class_averages(matrix, run.word_topics) for matrix in (value[0], run.theory["value_products"]))
    names = ("same_word", "same_topic", "different_topic", "mask_column")
    share = optimum_measures(RUNS["figure2"], value)["share_of_optimum"]
    assert share is not None
    return {name: (getattr(trained, name), getattr(theory, name)) for name in names}, share


def _stages(run: Run) -> tuple[int | None, float]:
    """When attention takes off in the second run, and how far W^V is then."""
    from topicscope.measure.stages import run_stages

    [stages] = run_stages(run)
    return stages.take_off, stages.gain


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("topicscope-demo")
    """The folder to write; new or empty, or that of an earlier demo."""

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print what was found, and where the page is, as JSON."""


def main(words: list[str]) -> None:
    """Parse, train, print what was found and where the page is."""
    options = parse(Options, words, command="demo", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    with progress_bar("training", quiet=options.quiet) as report:
        found = demo(**keywords(options), report=report)
    if options.json:
        plain = dataclasses.asdict(found) | {"out": str(found.out), "page": str(found.page)}
        print_json(plain | {"gain": found.gain if found.take_off is not None else None})
        return
    screen = console()
    screen.print("Figure 2: W^V, trained alone under uniform attention, and the exact optimum; averages of entries")
    for name, (trained, theory) in found.value.items():
        screen.print(
            f"  {name.replace('mask', '[MASK]').replace('_', ' '):<16}{trained:9.4f}{theory:9.4f}", markup=False
        )
    screen.print(f"  it has {found.share:.1%} of what the optimum gains over predicting nothing")
    screen.print("Two stages: W^V, W^K and W^Q, trained at once from near zero")
    if found.take_off is None:
        screen.print("  attention stays uniform in all these steps")
    else:
        screen.print(
            f"  attention leaves uniform attention at step {found.take_off:,}, when W^V has {found.gain:.0%} of what "
            "uniform attention can gain"
        )
    screen.print(f"{found.page}: open it in any browser.", soft_wrap=True)
