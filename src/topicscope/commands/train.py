"""Train one model into a run folder: on documents of a topic model, or on real text."""

from pathlib import Path

from topicscope.settings.text import Device, TextSettings
from topicscope.training import text
from topicscope.training.loop import train
from topicscope.training.text import TrainedText
from topicscope.training.text_loop import Report

__all__ = ["train", "train_text"]


def train_text(
    settings: TextSettings,
    out: Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    topics: int = 20,
    report: Report | None = None,
) -> TrainedText:
    """Train an encoder on a corpus, and measure its topic structure on the way (``training.measures`` steps)."""
    return text.train_text(settings, out, resume=resume, device=device, report=report)
