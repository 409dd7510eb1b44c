"""Settings of training on real text: passages of a corpus, a deeper transformer, and how it is trained.

A settings file is one of these if it names a corpus (``data.corpus``); otherwise it is a ``Settings``, about documents
drawn from a topic model.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from topicscope.errors import check_at_least, check_not_negative, check_positive, refuse
from topicscope.settings.data import Masking
from topicscope.settings.model import Model, Part, Positions
from topicscope.settings.training import AnyTraining
from topicscope.settings.values import settle
from topicscope.store import expanded

# Settings that may name a file or a folder, and the name that always means what comes with a package.
PACKAGED = {"corpus": "wiki-sample", "tokenizer": "minilm"}
# [CLS] before a passage and [SEP] after it.
SPECIAL_POSITIONS = 2
# A passage of one token has nothing beside it to be predicted from.
SHORTEST_PASSAGE = 2

# What an encoder and the model for documents of a topic model both have, beside their widths and scales.
SHARED = (
    *("heads", "layers", "positions", "residual", "layer_norm"),
    *("output_projection", "feed_forward", "head_transform", "tied"),
)

Device = Literal["auto", "cpu", "cuda", "mps"]
Layout = Literal["auto", "lines", "paragraphs", "files"]


def found_from(folder: Path, data: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in ``data`` that name an existing path, seen from this folder, with absolute paths.

    Others are left out: a name may belong to the Hugging Face Hub.
    """
    found: dict[str, Any] = {}
    for setting, packaged in PACKAGED.items():
        name = data.get(setting)
        if isinstance(name, str) and name not in ("", packaged):
            path = folder / expanded(name)
            if path.is_dir() or (setting == "corpus" and path.is_file()):
                # Links are not followed: what they are called tells the format.
                found[setting] = os.path.abspath(path)  # noqa: PTH100
    return found


@dataclass(frozen=True, kw_only=True)
class TextData:
    """The corpus, its tokenizer, and how articles are cut into passages."""

    corpus: str = ""
    """As for ``topicscope probe``: wiki-sample, a file (text, JSON lines or a Wikipedia dump), a folder, or a Hugging
    Face dataset as NAME or NAME:CONFIG."""

    field: str = "text"
    """The field of JSON lines and datasets, or the column of a CSV file, that holds the text."""

    split: str = "train"
    """Which part of a dataset."""

    layout: Layout = "auto"
    """What a document is in plain text: each line, paragraph or file."""

    tokenizer: str = ""
    """The folder or name of an existing tokenizer; if empty, WordPiece is trained on the corpus."""

    vocabulary: int = 8_000
    """Size of the vocabulary that is trained, special tokens included; not for an existing tokenizer."""

    lowercase: bool = True
    """Whether the tokenizer that is trained lowercases letters and drops accents, as BERT's uncased one does."""

    length: int = 126
    """Tokens per passage, without [CLS] and [SEP]; the last passage of an article is shorter."""

    every: int = 1
    """Keep one passage in so many of each article."""

    held_out: float = 0.05
    """The share of articles that is not trained on; the loss on it is the validation loss."""

    def __post_init__(self) -> None:
        settle(self, "data.")
        if not self.corpus:
            raise refuse("data.corpus", self.corpus, "name a corpus to train on")
        if self.tokenizer and self.vocabulary != TextData.vocabulary:
            raise refuse("data.vocabulary", self.vocabulary, "data.tokenizer has a vocabulary already; leave it out")
        check_at_least("data.vocabulary", self.vocabulary, 1)
        check_at_least("data.every", self.every, 1)
        if not isinstance(self.length, int) or self.length < SHORTEST_PASSAGE:
            raise refuse("data.length", self.length, f"give a whole number, {SHORTEST_PASSAGE} tokens or more")
        if not 0 <= self.held_out < 1:
            raise refuse("data.held_out", self.held_out, "give a share from 0 up to, but not including, 1")


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A transformer encoder: with everything on it is BERT exactly, and each part can be switched off."""

    layers: int = 4
    """How many layers; Figure 5 has 4."""

    heads: int = 4
    """Attention heads per layer; they must divide the width. Figure 5 has 4."""

    width: int = 256
    """d, the width of embeddings and states."""

    feed_forward: int = 1_024
    """Width of the GELU feed-forward block after attention; 0 for none."""

    positions: Positions = "learned"
    """Positional information added to the embeddings."""

    token_types: bool = True
    """Add the embedding of the token type, which is the same for all tokens here."""

    embedding_norm: bool = True
    """LayerNorm after the embeddings."""

    residual: bool = True
    """Add each block's input to its output."""

    layer_norm: bool = True
    """LayerNorm after each block."""

    output_projection: bool = True
    """A linear map after attention, W^O with its bias."""

    head_transform: bool = True
    """BERT's dense, GELU and LayerNorm before prediction."""

    tied: bool = True
    """W^pred = W^E⊤; untied, W^pred is a matrix of its own."""

    scale: float = 0.02
    """Standard deviation of all weights at the start but W^K, W^Q and W^V; biases start at zero."""

    attention_scale: float = 0.02
    """Standard deviation of W^K, W^Q and W^V at the start; near zero in Figure 5."""

    norm_epsilon: float = 1e-12
    """The ε that LayerNorm adds to the variance; by default BERT's."""

    def __post_init__(self) -> None:
        settle(self, "model.")
        for name, low in (("layers", 1), ("heads", 1), ("width", 1), ("feed_forward", 0)):
            check_at_least(f"model.{name}", getattr(self, name), low)
        check_not_negative("model.scale", self.scale)
        check_not_negative("model.attention_scale", self.attention_scale)
        check_positive("model.norm_epsilon", self.norm_epsilon)
        if self.width % self.heads:
            raise refuse("model.heads", self.heads, f"it must divide model.width = {self.width}")

    @property
    def is_bert(self) -> bool:
        """Whether every part of BERT is there, as it is in BERT."""
        return self.positions == "learned" and all(
            getattr(self, name) for name in ("token_types", "embedding_norm", *SHARED)
        )

    def as_model(self) -> Model:
        """Settings of the model for topic-model documents with all parts but token types and ``embedding_norm``."""
        attention = Part(scale=self.attention_scale)
        same = {name: getattr(self, name) for name in SHARED}
        embedding = Part(scale=self.scale)
        return Model(dimension=self.width, embedding=embedding, value=attention, key=attention, query=attention, **same)


@dataclass(frozen=True, kw_only=True)
class TextTraining(AnyTraining):
    """How the encoder is trained, and what is recorded."""

    # As in ``AnyTraining``, with defaults for text.
    learning_rate: float = 0.001
    batch: int = 32
    steps: int = 1_000
    log_every: int = 1
    checkpoint_every: int = 100

    accumulate: int = 1
    """Parts that a step's passages are computed in, one after another: memory falls, the gradient stays the same."""

    validation_passages: int = 256
    """The validation loss is computed on at most so many held-out passages."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("accumulate", "validation_passages"):
            check_at_least(f"training.{name}", getattr(self, name), 1)
        if self.accumulate > self.batch:
            remedy = f"there are only training.batch = {self.batch} passages per step"
            raise refuse("training.accumulate", self.accumulate, remedy)


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Everything that determines a training run on text."""

    seed: int = 0
    """Seed of the initial weights, the order of passages and their masks."""

    data: TextData
    masking: Masking = Masking()
    model: Encoder = Encoder()
    training: TextTraining = TextTraining()

    def __post_init__(self) -> None:
        settle(self, "")
        check_at_least("seed", self.seed, 0)
        if self.masking.fixed:
            raise refuse("masking.fixed", True, "masks are drawn afresh for each use of a passage; leave it out")

    @property
    def positions(self) -> int:
        """How many positions the longest passage has, special tokens included."""
        return self.data.length + SPECIAL_POSITIONS


def with_absolute_paths(settings: TextSettings) -> TextSettings:
    """The same settings, valid from any folder."""
    return replace(settings, data=replace(settings.data, **found_from(Path(), vars(settings.data))))
