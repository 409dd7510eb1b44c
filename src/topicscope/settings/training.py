"""Settings of training: objective (eq. 1–4), optimiser, schedule, and what is written when."""

from dataclasses import dataclass
from typing import Literal

from topicscope.errors import check_at_least, check_not_negative, check_one_of, check_positive, refuse
from topicscope.settings.model import EXTRAS, PARTS
from topicscope.settings.values import settle

Loss = Literal["cross_entropy", "squared"]
Average = Literal["document", "batch"]
Optimizer = Literal["sgd", "momentum", "adam", "adamw"]
Decay = Literal["constant", "cosine"]
Schedule = Literal["joint", "two_stage", "alternating"]
Precision = Literal["float32", "float64"]
Engine = Literal["auto", "bag", "reference"]

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
    """λ of eq. 2: adds λ‖θ‖² to the loss."""

    l2_parts: tuple[str, ...] = PARTS
    """The parts θ that L2 applies to; only trained ones among them count."""

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
    """The learning rate over steps: constant, or falling to zero along a cosine."""

    schedule: Schedule = "joint"
    """"joint": all parts at once; "two_stage": all but keys and queries under uniform attention, then keys and queries
    alone (§5.1); "alternating": all but keys and queries, then keys and queries alone, in turn (§8.1)."""

    stage_steps: int = 0
    """For "two_stage": steps of the first stage; 0 means half."""

    rounds: int = 2
    """For "alternating": how many times each of the two is trained."""

    batch: int = 40
    """Documents (or passages) per step."""

    steps: int = 1_500
    """Training steps."""

    precision: Precision = "float32"
    """Floating-point numbers of weights and activations."""

    engine: Engine = "auto"
    """Rows are distinct tokens in "bag" (needs no positions), positions in "reference"; "auto": the first that can."""

    threads: int = 0
    """Threads of one run; results repeat to the bit for the same number only. 0 means one, or all cores if a step is
    large, as it mostly is on text; the run folder records the number chosen."""

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
        rates = (("momentum", self.momentum), *(("adam_betas", beta) for beta in self.adam_betas))
        for name, rate in rates:
            if not 0 <= rate < 1:
                raise refuse(f"training.{name}", rate, "give a number from 0 up to, but not including, 1")
        check_positive("training.adam_epsilon", self.adam_epsilon)
        check_not_negative("training.weight_decay", self.weight_decay)
        check_not_negative("training.l2", self.l2)
        for name in self.l2_parts:
            check_one_of("training.l2_parts", name, PARTS + EXTRAS)
        for name in ("batch", "steps", "log_every", "checkpoint_every"):
            check_at_least(f"training.{name}", getattr(self, name), 1, MOST_STEPS)
        for name in ("rounds", "validation_documents"):
            check_at_least(f"training.{name}", getattr(self, name), 1)
        for name in ("validate_every", "stage_steps"):
            check_at_least(f"training.{name}", getattr(self, name), 0)
        check_at_least("training.threads", self.threads, 0, MOST_THREADS)
        check_at_least("training.snapshots", self.snapshots, 0, MOST_SNAPSHOTS)
        if self.stage_steps > self.steps:
            remedy = f"the first stage cannot be longer than training.steps = {self.steps}"
            raise refuse("training.stage_steps", self.stage_steps, remedy)


# What text is trained with unless its settings say otherwise.
TEXT_TRAINING = Training(
    learning_rate=0.001, batch=32, steps=1_000, validation_documents=256, checkpoint_every=100, snapshots=0
)
