"""Settings of the transformer (§3.3, eq. 5–7): its eight parts and the switches beyond the equations."""

from dataclasses import dataclass
from typing import Literal

from topicscope.errors import check_at_least, check_not_negative, refuse
from topicscope.settings.values import settle

Start = Literal["normal", "uniform", "positive", "zero", "identity", "theorem", "finite", "file"]
Positions = Literal["none", "learned"]
MaskedKeys = Literal["visible", "hidden"]

BIASES = ("key_bias", "query_bias", "value_bias", "prediction_bias")
PARTS = ("embedding", "value", "key", "query", *BIASES)
# What attention is made of; the rest is what it mixes.
ATTENTION_PARTS = frozenset({"key", "query", "key_bias", "query_bias"})
# Parts that exist only when a switch is on; they are always trained, except W^pred, for which the settings decide.
EXTRAS = ("positions", "token_types", "embedding_norm", "output", "feed_forward", "layer_norm", "head", "prediction")


@dataclass(frozen=True, kw_only=True)
class Part:
    """Where one part of the model starts, and whether it is trained or frozen there."""

    start: Start = "normal"
    """"normal": drawn from N(0, scale²); "uniform": from U(−1/√d, 1/√d), PyTorch's default for linear maps; "positive":
    scale times a draw from U(0, 1); "zero"; "identity" (one-hot for the embedding); "theorem": Theorem 2's value
    matrix, Theorem 1's embedding or bias; "finite": the finite-document optimum; "file": the array in `file`. A part's
    error message lists the starts that it can have."""

    scale: float = 0.02
    """Standard deviation of "normal", and the upper end of "positive"."""

    file: str = ""
    """A .npy or .safetensors array, for "file"."""

    train: bool = True
    """Trained, or frozen where it starts."""

    @property
    def absent(self) -> bool:
        """Whether it is zero and stays zero."""
        return self.start == "zero" and not self.train

    def check(self, name: str) -> None:
        """Validate under the name that the user gave (a part does not know which part it is)."""
        settle(self, f"{name}.")
        check_not_negative(f"{name}.scale", self.scale)
        if (self.start == "file") != bool(self.file):
            raise refuse(f"{name}.file", self.file, f'give a file exactly when {name}.start is "file"')
        allowed = STARTS[name.removeprefix("model.")]
        if self.start not in allowed:
            raise refuse(f"{name}.start", self.start, "give one of " + ", ".join(allowed))


_ANY = ("normal", "uniform", "positive", "zero", "file")
STARTS: dict[str, tuple[str, ...]] = {
    "embedding": (*_ANY, "identity", "theorem"),
    "value": (*_ANY, "identity", "theorem", "finite"),
    "key": (*_ANY, "identity"),
    "query": (*_ANY, "identity"),
    "key_bias": _ANY,
    "query_bias": _ANY,
    "value_bias": _ANY,
    "prediction_bias": (*_ANY, "theorem"),
    "prediction": ("normal", "uniform", "positive", "zero", "identity"),
}
_ZERO = Part(start="zero")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The transformer; the defaults are eq. 6 with the biases of §6.1, all parts trained."""

    dimension: int = 0
    """d, the width of the embeddings; 0 means V = Tv + 1, as one-hot embeddings need."""

    attention_dimension: int = 0
    """d_a, the width of a head's keys and queries; 0 means d / heads."""

    heads: int = 1
    """Attention heads per layer; they must divide d."""

    layers: int = 1
    """Attention layers."""

    masked_keys: MaskedKeys = "visible"
    """Whether masked positions can be attended to; the paper's released code hides them."""

    positions: Positions = "none"
    """Positional information added to the embeddings."""

    token_types: float = 0.0
    """Add one trained vector to the embedding of every token, as BERT's token types do: its standard deviation at the
    start; 0 for none."""

    embedding_norm: bool = False
    """LayerNorm on the embedding layer's output."""

    residual: bool = False
    """Add each block's input to its output."""

    layer_norm: bool = False
    """LayerNorm after each block (and after its residual connection)."""

    output_projection: bool = False
    """A linear map after attention, W^O with its bias."""

    feed_forward: int = 0
    """Width of a GELU feed-forward block after attention; 0 for none."""

    head_transform: bool = False
    """BERT's dense, GELU and LayerNorm before prediction."""

    tied: bool = True
    """W^pred = W^E⊤; untied, W^pred is a matrix of its own (`prediction`)."""

    embedding: Part = Part()
    """W^E."""

    value: Part = Part()
    """W^V."""

    key: Part = Part()
    """W^K."""

    query: Part = Part()
    """W^Q."""

    key_bias: Part = _ZERO
    """b^K."""

    query_bias: Part = _ZERO
    """b^Q."""

    value_bias: Part = _ZERO
    """b^V."""

    prediction_bias: Part = _ZERO
    """b^pred."""

    prediction: Part = Part()
    """W^pred, where it is not tied to W^E."""

    def __post_init__(self) -> None:
        settle(self, "model.")
        check_at_least("model.dimension", self.dimension, 0)
        check_at_least("model.attention_dimension", self.attention_dimension, 0)
        check_at_least("model.heads", self.heads, 1)
        check_at_least("model.layers", self.layers, 1)
        check_at_least("model.feed_forward", self.feed_forward, 0)
        check_not_negative("model.token_types", self.token_types)
        for name in PARTS:
            self.part(name).check(f"model.{name}")
        self.prediction.check("model.prediction")
        if self.tied and self.prediction != Part():
            remedy = "W^pred is tied to W^E: set model.tied to false, or leave model.prediction out"
            raise refuse("model.prediction.start", self.prediction.start, remedy)
        if self.dimension and self.dimension % self.heads:
            raise refuse("model.heads", self.heads, f"it must divide model.dimension = {self.dimension}")
        if not self.trained_parts:
            remedy = "every part is frozen, so there is nothing to train; set train = true for at least one part"
            raise refuse("model.*.train", False, remedy)

    def part(self, name: str) -> Part:
        """One of the eight parts of the equations, by name."""
        part = getattr(self, name)
        assert isinstance(part, Part)
        return part

    @property
    def extras(self) -> tuple[str, ...]:
        """The parts that the switches add."""
        switches = {
            "positions": self.positions == "learned",
            "token_types": self.token_types > 0,
            "embedding_norm": self.embedding_norm,
            "output": self.output_projection,
            "feed_forward": self.feed_forward > 0,
            "layer_norm": self.layer_norm,
            "head": self.head_transform,
            "prediction": not self.tied,
        }
        return tuple(name for name in EXTRAS if switches[name])

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """Names of all parts that are trained."""
        extras = tuple(name for name in self.extras if name != "prediction" or self.prediction.train)
        return tuple(name for name in PARTS if self.part(name).train) + extras

    @property
    def is_bert(self) -> bool:
        """Whether every part of BERT is there, as it is in BERT."""
        return (
            len(self.extras) == len(EXTRAS) - 1
            and self.residual
            and self.tied
            and self.masked_keys == "visible"
            and self.attention_dimension in (0, self.dimension // self.heads)
        )

    @property
    def one_hot(self) -> bool:
        """Whether every token enters the first layer as a unit vector: one-hot embeddings, nothing added."""
        plain = self.positions == "none" and not self.token_types and not self.embedding_norm
        return plain and self.embedding.start == "identity" and not self.embedding.train

    @property
    def uniform(self) -> bool:
        """Whether attention is certainly 1/N, because all keys are the same or all queries are zero."""
        return self.key.absent or (self.query.absent and self.query_bias.absent)


# What text is trained with unless its settings say otherwise: BERT, with as many layers and heads as in Figure 5.
TEXT_MODEL = Model(
    dimension=256,
    heads=4,
    layers=4,
    positions="learned",
    token_types=0.02,
    embedding_norm=True,
    residual=True,
    layer_norm=True,
    output_projection=True,
    feed_forward=1_024,
    head_transform=True,
)
