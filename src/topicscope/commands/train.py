"""Train one model into a run folder."""

from topicscope.training.loop import train

__all__ = ["train"]
