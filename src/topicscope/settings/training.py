"""Settings of training: objective (eq. 1–4), optimiser, schedule, and what is written when."""

from dataclasses import dataclass
from typing import Literal

from topicscope.errors import check_at_least, check_not_negative, check_positive, refuse
from topicscope.settings.values import settle

Loss = Literal["cross_entropy", "squared"]
Average = Literal["document", "batch"]
Optimizer = Literal["sgd", "momentum", "adam"]
Decay = Literal["constant", "cosine"]
Schedule = Literal["joint", "two_stage", "alternating"]
Precision = Literal["float32", "float64"]
Engine = Literal["auto", "bag", "reference"]

# μ of SGD with momentum.
MOMENTUM = 0.9
# Nobody waits for more steps, keeps more snapshots or has more threads.
MOST_STEPS, MOST_SNAPSHOTS, MOST_THREADS = 10**12, 10**5, 10**4


@dataclass(frozen=True, kw_only=True)
class Training:
    """How the model is trained, and what is recorded."""

    loss: Loss = "cross_entropy"
    """Eq. 4, or eq. 3 (a sum over the vocabulary)."""

    average: Average = "document"
    """"document": each document's (or passage's) mean over its own masked positions, then over documents (eq. 1);
    "batch": one mean over all masked positions of a step, which weights a document by how many it has."""

    l2: float = 0.0
    """λ of eq. 2: adds λ‖θ‖² to the loss, θ all trained parts of eq. 6."""

    optimizer: Optimizer = "adam"
    """Plain SGD, SGD with momentum 0.9, or Adam."""

    learning_rate: float = 0.01
    """Learning rate at the first step; the paper's figures use 0.01."""

    adam_betas: tuple[float, float] = (0.9, 0.999)
    """Adam's β₁ and β₂."""

    adam_epsilon: float = 1e-8
    """Adam's ε."""

    decay: Decay = "constant"
    """The learning rate over steps: constant, or falling to zero along a cosine."""

    schedule: Schedule = "joint"
    """"joint": all parts at once; "two_stage": all but keys and queries under uniform attention, then keys and queries
    alone (§5.1); "alternating": all but keys and queries, then keys and queries alone, each twice in turn (§8.1)."""

    stage_steps: int = 0
    """For "two_stage": steps of the first stage; 0 means half of them all."""

    batch: int = 40
    """Documents (or passages) per step."""

    steps: int = 1_500
    """Training steps."""

    precision: Precision = "float32"
    """Floating-point numbers of weights and activations."""

    engine: Engine = "auto"
    """Rows are distinct tokens in "bag" (needs no positions), positions in "reference"; "auto": the first that can."""

    threads: int = 0
    """Threads of one run; results repeat to the bit for the same number only. 0 means one, or all cores on text; the
    run folder records the number chosen."""

    log_every: int = 10
    """Steps between recorded rows."""

    validate_every: int = 100
    """Steps between losses on held-out documents (or passages); 0 for never."""

    validation_documents: int = 1_000
    """How many documents are held out; on text, how many held-out passages are used at most."""

    checkpoint_every: int = 500
    """Steps between checkpoints; the last step has one too."""

    snapshots: int = 40
    """At how many steps, dense early and sparser later, the model is kept to be looked at: its matrices, or on text a
    Hugging Face folder that ``topicscope probe --revision`` reads; 0 for none."""

    def __post_init__(self) -> None:
        settle(self, "training.")
        check_positive("training.learning_rate", self.learning_rate)
        check_positive("training.adam_epsilon", self.adam_epsilon)
        if not all(0 <= beta < 1 for beta in self.adam_betas):
            raise refuse("training.adam_betas", self.adam_betas, "give two numbers from 0 up to, but not including, 1")
        check_at_least("training.stage_steps", self.stage_steps, 0)
        if self.stage_steps > self.steps:
            remedy = f"the first stage cannot be longer than training.steps = {self.steps}"
            raise refuse("training.stage_steps", self.stage_steps, remedy)
        check_not_negative("training.l2", self.l2)
        for name in ("batch", "steps", "log_every", "checkpoint_every"):
            check_at_least(f"training.{name}", getattr(self, name), 1, MOST_STEPS)
        check_at_least("training.validation_documents", self.validation_documents, 1)
        check_at_least("training.validate_every", self.validate_every, 0)
        check_at_least("training.threads", self.threads, 0, MOST_THREADS)
        check_at_least("training.snapshots", self.snapshots, 0, MOST_SNAPSHOTS)

    @property
    def can_grow(self) -> bool:
        """Whether a longer run begins as this one did: early steps do not depend on how many there are."""
        own_length = self.schedule == "two_stage" and self.stage_steps > 0
        return self.decay == "constant" and (self.schedule == "joint" or own_length)


# What text is trained with unless its settings say otherwise.
TEXT_TRAINING = Training(
    learning_rate=0.001, batch=32, steps=1_000, validation_documents=256, checkpoint_every=100, snapshots=0
)
