"""Settings of training: objective (eq. 1–4), optimiser, schedule, and what is written when.

What training on text has in common with training on documents of a topic model is ``AnyTraining``.
"""

from dataclasses import dataclass
from typing import Literal

from topicscope.errors import check_at_least, check_not_negative, check_one_of, check_positive, refuse
from topicscope.settings.model import EXTRAS, PARTS
from topicscope.settings.values import settle

Loss = Literal["cross_entropy", "squared"]
Average = Literal["document", "batch"]
Squared = Literal["sum", "mean"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw"]
Decay = Literal["constant", "step", "cosine"]
Schedule = Literal["joint", "two_stage", "alternating"]
Precision = Literal["float32", "float64"]
Engine = Literal["auto", "bag", "reference"]

# Nobody waits for more steps, keeps more snapshots or has more threads.
MOST_STEPS, MOST_SNAPSHOTS, MOST_THREADS = 10**12, 10**5, 10**4


@dataclass(frozen=True, kw_only=True)
class AnyTraining:
    """How a model is trained, whatever it is trained on."""

    loss: Loss = "cross_entropy"
    """Eq. 4, or eq. 3 (a sum over the vocabulary)."""

    average: Average = "document"
    """"document": each document's (or passage's) mean over its own masked positions, then over documents (eq. 1);
    "batch": one mean over all masked positions of a step, which weights a document by how many it has."""

    optimizer: Optimizer = "adam"
    """Plain SGD, SGD with momentum, Adam or AdamW."""

    learning_rate: float = 0.01
    """Learning rate at the first step; the paper's figures use 0.01."""

    momentum: float = 0.9
    """The momentum, for "momentum"."""

    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Adam's β₁ and β₂, for "adam" and "adamw"."""

    adam_epsilon: float = 1e-8
    """Adam's ε, for "adam" and "adamw"."""

    weight_decay: float = 0.01
    """The decay of weights per step, relative to the learning rate, for "adamw"."""

    decay: Decay = "constant"
    """The learning rate over steps: constant, multiplied at regular intervals, or falling to zero along a cosine."""

    decay_every: int = 500
    """For "step": steps between multiplications."""

    decay_factor: float = 0.1
    """For "step": what the rate is multiplied by."""

    batch: int = 40
    """Documents (or passages) per step."""

    steps: int = 1_500
    """Training steps."""

    threads: int = 0
    """Threads of one run; results repeat to the bit for the same number only. 0 means one, or all cores if a step is
    large, as it is on text; the run folder records the number chosen."""

    log_every: int = 10
    """Steps between recorded rows."""

    validate_every: int = 100
    """Steps between losses on held-out documents (or passages); 0 for never."""

    checkpoint_every: int = 500
    """Steps between checkpoints; the last step has one too."""

    def __post_init__(self) -> None:
        settle(self, "training.")
        check_positive("training.learning_rate", self.learning_rate)
        rates = (("momentum", self.momentum), *(("adam_betas", beta) for beta in self.adam_betas))
        for name, rate in rates:
            if not 0 <= rate < 1:
                raise refuse(f"training.{name}", rate, "give a number from 0 up to, but not including, 1")
        check_positive("training.adam_epsilon", self.adam_epsilon)
        check_not_negative("training.weight_decay", self.weight_decay)
        check_positive("training.decay_factor", self.decay_factor)
        for name in ("batch", "steps", "decay_every", "log_every", "checkpoint_every"):
            check_at_least(f"training.{name}", getattr(self, name), 1, MOST_STEPS)
        check_at_least("training.validate_every", self.validate_every, 0)
        check_at_least("training.threads", self.threads, 0, MOST_THREADS)


@dataclass(frozen=True, kw_only=True)
class Training(AnyTraining):
    """How the model is trained, and what is recorded."""

    l2: float = 0.0
    """λ of eq. 2: adds λ‖θ‖² to the loss."""

    l2_parts: tuple[str, ...] = PARTS
    """The parts θ that L2 applies to; only trained ones among them count."""

    squared: Squared = "sum"
    """The squared loss of a masked position: "sum" over the vocabulary (eq. 3), or "mean" over its V entries, as the
    paper's released code has it, which is V times smaller."""

    schedule: Schedule = "joint"
    """"joint": all parts at once; "two_stage": all but keys and queries under uniform attention, then keys and queries
    alone (§5.1); "alternating": all but keys and queries, then keys and queries alone, in turn (§8.1)."""

    stage_steps: int = 0
    """For "two_stage": steps of the first stage; 0 means half."""

    rounds: int = 2
    """For "alternating": how many times each of the two is trained."""

    precision: Precision = "float32"
    """Floating-point numbers of weights and activations."""

    engine: Engine = "auto"
    """Rows are distinct tokens in "bag" (needs no positions), positions in "reference"; "auto": the first that can."""

    validation_documents: int = 1_000
    """How many documents are held out."""

    snapshots: int = 40
    """At how many steps, dense early and sparser later, matrices are kept to be looked at; 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_not_negative("training.l2", self.l2)
        for name in self.l2_parts:
            check_one_of("training.l2_parts", name, PARTS + EXTRAS)
        for name in ("rounds", "validation_documents"):
            check_at_least(f"training.{name}", getattr(self, name), 1)
        check_at_least("training.stage_steps", self.stage_steps, 0)
        check_at_least("training.snapshots", self.snapshots, 0, MOST_SNAPSHOTS)
        if self.squared == "mean" and self.loss != "squared":
            raise refuse("training.squared", self.squared, 'it is about training.loss = "squared"; leave it out')
        if self.stage_steps > self.steps:
            remedy = f"the first stage cannot be longer than training.steps = {self.steps}"
            raise refuse("training.stage_steps", self.stage_steps, remedy)

    def loss_unit(self, vocabulary: int) -> float:
        """What the loss of eq. 3 or 4 is multiplied by: 1, or 1/V for a mean over the entries."""
        return 1.0 / vocabulary if self.squared == "mean" else 1.0
