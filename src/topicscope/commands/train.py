"""Train one model into a run folder, and write its page when it is finished."""

from pathlib import Path

from topicscope.report.page import write_report
from topicscope.settings import Settings
from topicscope.training.loop import Report
from topicscope.training.loop import train as train_run
from topicscope.training.runs import RunFolder

__all__ = ["train"]


def train(settings: Settings, out: Path, *, resume: bool = False, report: Report | None = None) -> RunFolder:
    """Train a model into a new folder, or go on with the run that is in it; report.html shows it."""
    folder = train_run(settings, Path(out), resume=resume, report=report)
    write_report([folder.path], folder.path / "report.html")
    return folder
