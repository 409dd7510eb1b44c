"""Train one model into a run folder, on documents of a topic model or on real text, and write its page."""

from pathlib import Path

from topicscope.paper.emergence import measuring
from topicscope.report.page import write_report
from topicscope.settings import Settings
from topicscope.settings.text import Device, TextSettings
from topicscope.training import text
from topicscope.training.loop import Report
from topicscope.training.loop import train as train_run
from topicscope.training.runs import RunFolder
from topicscope.training.text import TrainedText
from topicscope.training.text_loop import Report as TextReport

__all__ = ["train", "train_text"]


def train(settings: Settings, out: Path, *, resume: bool = False, report: Report | None = None) -> RunFolder:
    """Train a model into a new folder, or go on with the run that is in it; report.html shows it."""
    folder = train_run(settings, Path(out), resume=resume, report=report)
    write_report([folder.path], folder.path / "report.html")
    return folder


def train_text(
    settings: TextSettings,
    out: Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    report: TextReport | None = None,
) -> TrainedText:
    """Train an encoder on a corpus, and measure its topic structure on the way (``training.measures`` steps).

    report.html shows it.
    """
    trained = text.train_text(settings, out, resume=resume, device=device, measuring=measuring(out), report=report)
    write_report([trained.path], trained.path / "report.html")
    return trained
