"""Settings: frozen dataclasses that validate themselves, and their TOML form."""

from dataclasses import dataclass

from topicscope.errors import check_at_least, refuse
from topicscope.settings.data import Data, Masking
from topicscope.settings.model import ATTENTION_PARTS, BIASES, EXTRAS, PARTS, WEIGHTS, Model, Part
from topicscope.settings.training import Training
from topicscope.settings.values import settle

__all__ = [
    "ATTENTION_PARTS",
    "BIASES",
    "EXTRAS",
    "PARTS",
    "WEIGHTS",
    "Data",
    "Masking",
    "Model",
    "Part",
    "Settings",
    "Training",
]

# Masks are redrawn until they can be used; a setting that would redraw for ever is refused.
RAREST_USABLE_MASK = 1e-3


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that determines a training run."""

    seed: int = 0
    """Seed of documents, masks, their order and the initial weights."""

    data: Data = Data()
    masking: Masking = Masking()
    model: Model = Model()
    training: Training = Training()

    def __post_init__(self) -> None:
        settle(self, "")
        check_at_least("seed", self.seed, 0)
        self._check_masks_can_be_drawn()
        if self.training.engine == "bag" and self.model.positions != "none":
            remedy = f'it needs model.positions = "none", not "{self.model.positions}"; use "auto" or "reference"'
            raise refuse("training.engine", self.training.engine, remedy)
        if not self.data.topic_words:
            self.check_vocabulary(self.data.topics * self.data.words + 1)
        self._check_something_is_trained()
        if self.data.fresh and self.masking.fixed:
            raise refuse(
                "masking.fixed", True, "documents that are fresh at every step are masked once anyway; leave it out"
            )
        if self.model.value.start == "finite" and self.model.masked_keys == "hidden":
            raise refuse("model.value.start", "finite", 'the closed form is for model.masked_keys = "visible"')

    @property
    def engine(self) -> str:
        """The engine that computes the model: without positions a document is a bag of tokens."""
        if self.training.engine != "auto":
            return self.training.engine
        return "bag" if self.model.positions == "none" else "reference"

    def check_vocabulary(self, vocabulary: int) -> None:
        """Refuse widths that do not fit a vocabulary of this size (known late with a topic-word file)."""
        dimension = self.model.dimension or vocabulary
        if self.model.embedding.start == "identity" and dimension != vocabulary:
            remedy = f"one-hot embeddings need d = V = {vocabulary}; leave it out or set it to 0"
            raise refuse("model.dimension", dimension, remedy)
        if dimension % self.model.heads:
            raise refuse("model.heads", self.model.heads, f"it must divide d = {dimension}")

    def _check_masks_can_be_drawn(self) -> None:
        shortest = self.data.length[0]
        some, all_masked = 1 - (1 - self.masking.mask) ** shortest, self.masking.mask**shortest
        usable = some - all_masked if self.model.masked_keys == "hidden" else some
        if usable < RAREST_USABLE_MASK:
            condition = (
                "has a masked position and a visible key"
                if self.model.masked_keys == "hidden"
                else "has a masked position"
            )
            raise refuse(
                "masking.mask",
                self.masking.mask,
                f"a document of data.length = {shortest} words almost never {condition}; "
                "change masking.mask or lengthen documents",
            )

    def _check_something_is_trained(self) -> None:
        """Under uniform attention keys and queries do not reach the loss: each phase needs a part that does."""
        trained = frozenset(self.model.trained_parts)
        if self.model.uniform and trained <= ATTENTION_PARTS:
            raise refuse(
                "model.*.train",
                ", ".join(sorted(trained)),
                "attention is uniform whatever these parts are, so there is nothing to train; train another part, "
                "or let key and query start elsewhere than at zero",
            )
        stages = self.training.schedule != "joint"
        if stages and (self.model.uniform or not trained & ATTENTION_PARTS or not trained - ATTENTION_PARTS):
            remedy = 'it needs attention that is not uniform, key or query trained, and another part; use "joint"'
            raise refuse("training.schedule", self.training.schedule, remedy)
        if self.training.l2 and not trained & frozenset(self.training.l2_parts):
            raise refuse("training.l2_parts", self.training.l2_parts, "none of them is trained; name one that is")
