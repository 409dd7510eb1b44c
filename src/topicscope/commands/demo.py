"""``topicscope demo``: two trainings of seconds, and a page that shows them beside theory."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import path_of
from topicscope.measure.blocks import class_averages
from topicscope.measure.run import Run, read_run
from topicscope.measure.stages import run_stages
from topicscope.papers.topic_structure.experiments import LDA, MILD_L2, ONE_HOT, UNIFORM
from topicscope.records import Result
from topicscope.settings import Settings, Training
from topicscope.work import Report

DESCRIPTION = """Train two small models in seconds, and write a page that shows them beside theory.

figure2: W^V alone, under uniform attention, as in the paper's Figure 2. two-stage: W^V, W^K and W^Q together from near
zero; W^V learns first, attention follows. If interrupted, the same command resumes where it stopped.

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
CLASSES = ("same_word", "same_topic", "different_topic", "mask_column")


@dataclass(frozen=True)
class Demo(Result):
    """What the two runs show, and the page about them."""

    out: Path
    page: Path
    value: dict[str, tuple[float, float]]
    """Averages of W^V's entries by class, trained and in theory."""

    share: float
    """W^V's gain over predicting nothing as a share of the exact optimum's."""

    take_off: int | None
    """The step at which attention leaves uniform attention in the second run; None if it never does."""

    gain: float | None
    """The share of what uniform attention can gain that W^V has by then."""


def demo(out: Path | str = "topicscope-demo", *, report: Report | None = None) -> Demo:
    """Train both models into a folder, resuming where they were stopped, and write its page."""
    from topicscope.reporting.page import write_report
    from topicscope.training.loop import train
    from topicscope.training.reference import optimum_measures

    out = path_of(out, "out")
    is_begun(out, "figure2", what="demo", command="demo")
    total, before, runs = sum(settings.training.steps for settings in RUNS.values()), 0, list[Run]()

    def progress(done: int, _: int, state: str) -> None:
        if report:
            report(before + done, total, state)

    with locked(out):
        for name, settings in RUNS.items():
            runs.append(read_run(train(settings, out / name, resume=True, report=progress).path))
            before += settings.training.steps
        page = write_report([out / name for name in RUNS], out / "report.html")
    value = runs[0].weights["value"][0]
    matrices = value[0], runs[0].theory["value_products"]
    trained, theory = (class_averages(matrix, runs[0].word_topics) for matrix in matrices)
    share = optimum_measures(RUNS["figure2"], value)["share_of_optimum"]
    assert share is not None
    [stages] = run_stages(runs[1])
    averages = {name: (getattr(trained, name), getattr(theory, name)) for name in CLASSES}
    return Demo(out, page, averages, share, stages.take_off, None if stages.take_off is None else stages.gain)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("topicscope-demo")
    """The folder to write; new or empty, or that of an earlier demo."""

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print the results, and where the page is, as JSON."""


def main(words: list[str]) -> None:
    """Parse, train, print the results and where the page is."""
    options = parse(Options, words, command="demo", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    with progress_bar("training", quiet=options.quiet) as report:
        result = demo(**keywords(options), report=report)
    if options.json:
        print_json(result.to_dict())
        return
    print_line = partial(console().print, soft_wrap=True, markup=False)
    print_line("Figure 2: W^V, trained alone under uniform attention, and the exact optimum; averages of entries")
    for name, (trained, theory) in result.value.items():
        print_line(f"  {name.replace('mask', '[MASK]').replace('_', ' '):<16}{trained:9.4f}{theory:9.4f}")
    print_line(f"  the trained W^V has {result.share:.1%} of what the optimum gains over predicting nothing")
    print_line("Two stages: W^V, W^K and W^Q, trained together from near zero")
    take_off = (
        f"leaves uniform attention at step {result.take_off:,}" if result.take_off else "stays uniform throughout"
    )
    gain = f", when W^V has {result.gain:.0%} of what uniform attention can gain" if result.take_off else ""
    print_line(f"  attention {take_off}{gain}")
    print_line(f"{result.page}: open it in any browser.")
