"""Training on text and the probe brought together: topic structure measured while a model trains.

Neither of the two knows the other: training is given a function, and the probe a model with embeddings and attention.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from topicscope.model.encoder import Encoder
from topicscope.probe.emergence import prepare_emergence
from topicscope.probe.encoders import EncoderSubject
from topicscope.settings.text import TextSettings
from topicscope.training.prepare import PreparedText
from topicscope.training.text_loop import Measure


def measuring(folder: Path) -> Callable[[PreparedText, TextSettings], Measure]:
    """What makes the function that training calls; topics are fitted into ``topics`` in the run's folder."""

    def make(prepared: PreparedText, settings: TextSettings) -> Measure:
        emergence = prepare_emergence(prepared.passages, prepared.tokenizer, settings.topics, Path(folder) / "topics")
        specials = prepared.text.specials

        def measure(encoder: Encoder) -> dict[str, Any]:
            return emergence.measure(EncoderSubject(encoder, specials.before, specials.after))

        return measure

    return make
