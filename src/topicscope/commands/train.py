"""Train one model into a run folder: on documents of a topic model, or on real text."""

from pathlib import Path

from topicscope.paper.emergence import measuring
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
    report: Report | None = None,
) -> TrainedText:
    """Train an encoder on a corpus, and measure its topic structure on the way (``training.measures`` steps)."""
    return text.train_text(settings, out, resume=resume, device=device, measuring=measuring(out), report=report)
