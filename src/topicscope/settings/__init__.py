"""Settings: frozen dataclasses that validate themselves, and their TOML form."""

from collections.abc import Mapping
from dataclasses import dataclass

from topicscope.errors import InputError, check_at_least, refuse, shown
from topicscope.settings.data import Data, Masking, TextData
from topicscope.settings.model import ATTENTION_PARTS, BIASES, PARTS, TEXT_MODEL, Model, Part
from topicscope.settings.training import TEXT_TRAINING, Training
from topicscope.settings.values import settle

__all__ = [
    "ATTENTION_PARTS",
    "BIASES",
    "PARTS",
    "TEXT_MODEL",
    "TEXT_TRAINING",
    "Data",
    "Masking",
    "Model",
    "Part",
    "Settings",
    "TextData",
    "Training",
]

# Masks are redrawn until they can be used; a setting that would redraw for ever is refused.
RAREST_USABLE_MASK = 1e-3
# Starts that are theorems' matrices, which need a topic model.
OF_THEORY = ("theorem", "finite")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that determines a training run."""

    seed: int = 0
    """Seed of documents, masks, their order and the initial weights."""

    data: TextData | Data = Data()
    """Documents of a topic model, or passages of a corpus if ``data.corpus`` names one."""

    masking: Masking = Masking()
    model: Model = None  # type: ignore[assignment]  # one default for documents of a topic model, another for text
    training: Training = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        on_text = isinstance(self.data, TextData) or (isinstance(self.data, Mapping) and "corpus" in self.data)
        sections = (
            {"model": TEXT_MODEL, "training": TEXT_TRAINING} if on_text else {"model": Model(), "training": Training()}
        )
        settle(self, "", sections)
        check_at_least("seed", self.seed, 0)
        self._check_masks_can_be_drawn()
        if self.training.engine == "bag" and self.model.positions != "none":
            remedy = f'it needs model.positions = "none", not "{self.model.positions}"; use "auto" or "reference"'
            raise refuse("training.engine", self.training.engine, remedy)
        self._check_something_is_trained()
        if isinstance(self.data, TextData):
            self._check_text()
        else:
            self._check_documents(self.data)

    @property
    def documents(self) -> Data:
        """The topic model's settings; a run on text, which has none, is refused."""
        if isinstance(self.data, TextData):
            raise InputError(
                f"data.corpus = {shown(self.data.corpus)} is not allowed here: this is about documents of a topic "
                "model, not about a run on text; give the settings or the folder of a run without a corpus."
            )
        return self.data

    @property
    def engine(self) -> str:
        """The engine that computes the model: without positions a document is a bag of tokens."""
        if self.training.engine != "auto":
            return self.training.engine
        return "bag" if self.model.positions == "none" else "reference"

    def check_vocabulary(self, vocabulary: int) -> None:
        """Refuse widths that do not fit a vocabulary of this size (known late with a topic-word file or a corpus)."""
        dimension = self.model.dimension or vocabulary
        if self.model.embedding.start == "identity" and dimension != vocabulary:
            remedy = f"one-hot embeddings need d = V = {vocabulary}; leave it out or set it to 0"
            raise refuse("model.dimension", dimension, remedy)
        if dimension % self.model.heads:
            raise refuse("model.heads", self.model.heads, f"it must divide d = {dimension}")

    def _check_documents(self, data: Data) -> None:
        if not data.topic_words:
            self.check_vocabulary(data.topics * data.words + 1)
        if data.fresh and self.masking.fixed:
            raise refuse(
                "masking.fixed", True, "documents that are fresh at every step are masked once anyway; leave it out"
            )
        if self.model.value.start == "finite" and self.model.masked_keys == "hidden":
            raise refuse("model.value.start", "finite", 'the closed form is for model.masked_keys = "visible"')

    def _check_text(self) -> None:
        if self.masking.fixed:
            raise refuse("masking.fixed", True, "masks are drawn afresh for each use of a passage; leave it out")
        for name in PARTS:
            if (start := self.model.part(name).start) in OF_THEORY:
                raise refuse(f"model.{name}.start", start, "that matrix is of a topic model, and text has none")

    def _check_masks_can_be_drawn(self) -> None:
        mask, shortest, hidden = self.masking.mask, self.data.shortest, self.model.masked_keys == "hidden"
        usable = 1 - (1 - mask) ** shortest - (mask**shortest if hidden and isinstance(self.data, Data) else 0)
        if usable < RAREST_USABLE_MASK:
            condition = "has a masked position and a visible key" if hidden else "has a masked position"
            raise refuse(
                "masking.mask",
                mask,
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
        if self.training.l2 and trained.isdisjoint(PARTS):
            raise refuse("training.l2", self.training.l2, "none of the parts that it applies to is trained")
