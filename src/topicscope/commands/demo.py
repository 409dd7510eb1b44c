"""``topicscope demo``: two trainings of seconds, and a page that shows them beside theory."""

from dataclasses import dataclass
from pathlib import Path

from topicscope.commands.folders import is_begun, locked
from topicscope.commands.options import keywords, parse
from topicscope.commands.terminal import console, log_to_terminal, print_json, progress_bar
from topicscope.errors import path_of
from topicscope.measure.run import read_run
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


@dataclass(frozen=True)
class Demo(Result):
    """The two runs, in their folders below ``out``, and the page about them."""

    out: Path
    page: Path
    outcomes: dict[str, str]
    """How each run ended, in sentences."""


def demo(out: Path | str = "topicscope-demo", *, report: Report | None = None) -> Demo:
    """Train both models into a folder, resuming where they were stopped, and write its page."""
    from topicscope.reporting.page import write_report
    from topicscope.reporting.page.runs import outcome, title_of
    from topicscope.training.loop import train

    out, before, outcomes = path_of(out, "out"), 0, dict[str, str]()
    total = sum(settings.training.steps for settings in RUNS.values())
    is_begun(out, "figure2", what="demo", command="demo")

    def progress(done: int, _: int, state: str) -> None:
        if report:
            report(before + done, total, state)

    with locked(out):
        for name, settings in RUNS.items():
            run = read_run(train(settings, out / name, resume=True, report=progress).path)
            outcomes[title_of(run)] = outcome(run)
            before += settings.training.steps
        page = write_report([out / name for name in RUNS], out / "report.html")
    return Demo(out, page, outcomes)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    out: Path = Path("topicscope-demo")
    """The folder to write; new or empty, or that of an earlier demo."""

    quiet: bool = False
    """No progress bar."""

    json: bool = False
    """Print how the runs ended, and where the page is, as JSON."""


def main(words: list[str]) -> None:
    """Parse, train, print how the runs ended and where the page is."""
    options = parse(Options, words, command="demo", description=DESCRIPTION)
    log_to_terminal(quiet=True)
    with progress_bar("training", quiet=options.quiet) as report:
        result = demo(**keywords(options), report=report)
    if options.json:
        print_json(result.to_dict())
        return
    for title, sentences in result.outcomes.items():
        console().print(f"{title}. {sentences}", markup=False)
    console().print(f"{result.page}: open it in any browser.", soft_wrap=True)
