"""What claims rest on: trainings, probes and other work that is expensive, done once and kept on disk.

A need is a value. Its ``key`` has everything that the result depends on, among it ``VERSION``, a number that is raised
by hand when the computation changes. Equal keys mean the same work, so equal experiments of two figures are trained
once. What trains is imported only where that is done: experiments can be named without torch.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec
import numpy as np
from safetensors import SafetensorError

from topicscope import work
from topicscope.errors import InputError, UnreadableError
from topicscope.measure.run import Run, run_bytes, run_of
from topicscope.records import ProbeResult
from topicscope.settings import Settings, TextData
from topicscope.settings.toml import to_table
from topicscope.store import alone_in, first_line
from topicscope.synthetic.topics import TopicModel

Seeds = tuple[int, ...]


@dataclass(frozen=True)
class Preset:
    """How much is run: ``quick`` for everyone, ``paper`` for a number to cite."""

    name: str
    seeds: int
    models: tuple[str, ...] = ()
    """Language models to probe, as ``--models`` names them; by default the claims' own choice."""

    @property
    def full(self) -> bool:
        """Whether grids are the fuller ones."""
        return self.name == "paper"


PRESETS = {"quick": Preset("quick", 10), "paper": Preset("paper", 20)}


@runtime_checkable
class Need(Protocol):
    """One piece of work; a frozen dataclass at the top of a module, since it is pickled for the worker."""

    @property
    def name(self) -> str:
        """Readable and unique, with slashes: "figure2/squared-adam"."""

    @property
    def cost(self) -> float:
        """Rough seconds on one core: the longest pieces are begun first."""

    @property
    def suffix(self) -> str:
        """Ending of the file that keeps it."""

    @property
    def unavailable(self) -> str:
        """Why it cannot be done here (a model that is not on this machine), in one sentence; empty if it can."""

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Everything that the result depends on, as plain values, without the name."""

    def compute(self, seeds: Seeds, scratch: Path) -> bytes:
        """Do the work, keeping what is unfinished in a folder, beside which several may share others."""

    def restore(self, content: bytes) -> Any:
        """The result from what ``compute`` returned."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings that are trained with several seeds in one tensor; the result is a Run."""

    name: str
    settings: Settings
    """All settings except the seed."""

    topic_words: tuple[tuple[float, ...], ...] = ()
    """A topic-word matrix (one row per topic), instead of the topics that ``settings.data`` describes."""

    most_seeds: int = 0
    """How many of the seeds are trained at most; 0 means all."""

    gradients: bool = False
    """Whether the norms of gradients at the start are kept."""

    unavailable: str = ""
    """Why it is not trained here, in one sentence; empty if it is."""

    suffix: ClassVar[str] = ".safetensors"
    VERSION: ClassVar[int] = 2

    @property
    def cost(self) -> float:
        """Attention and trained embeddings take longer than uniform attention, and text takes longest."""
        model, training = self.settings.model, self.settings.training
        if isinstance(self.settings.data, TextData):
            return 12 + 5e-8 * training.steps * training.batch * model.dimension**2 * (self.most_seeds or 10)
        factor = (1.0 if model.uniform else 2.9) * (2.1 if model.embedding.train else 1.0)
        return 6e-5 * training.steps * training.batch * factor * (0.5 if self.most_seeds else 1.0)

    @property
    def topic_model(self) -> TopicModel:
        """The topic model that its documents are drawn from."""
        matrix = np.array(self.topic_words) if self.topic_words else None
        return TopicModel.from_settings(self.settings.documents, matrix)

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Settings and seeds."""
        return {
            "version": self.VERSION,
            "settings": to_table(self.settings) | {"seed": None},
            "topic_words": self.topic_words,
            "seeds": list(self._chosen(seeds)),
            "gradients": self.gradients,
        }

    def compute(self, seeds: Seeds, scratch: Path) -> bytes:
        """Train all seeds and measure: in memory, or on text, which takes long, with checkpoints to resume from."""
        from topicscope.training.loop import train_seeds

        seeds, data = self._chosen(seeds), self.settings.data
        if not isinstance(data, TextData):
            return run_bytes(train_seeds(self.settings, seeds, self.topic_model, gradients=self.gradients))
        from topicscope.training.folder import RunFolder
        from topicscope.training.text import prepare_text

        # Text is the same for experiments that differ in training alone: made once.
        shared, folder = scratch.parent / f"text-{work.content_digest(asdict(data))}", RunFolder(scratch / "run")
        with alone_in(shared):
            text, _ = prepare_text(data, shared)
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.create(self.settings)
        return run_bytes(train_seeds(self.settings, seeds, text, folder=folder))

    def restore(self, content: bytes) -> Run:
        """The run."""
        return run_of(content, self.name, self.settings)

    def _chosen(self, seeds: Seeds) -> Seeds:
        return seeds[: self.most_seeds] if self.most_seeds else seeds


@dataclass(frozen=True)
class Probing:
    """A language model probed on a corpus; the seeds choose LDA's seeds, the bootstrap and untrained weights."""

    model: str
    """As ``topicscope probe`` names it."""

    settings: Any
    """``ProbeSettings``, all but the seed."""

    group: str
    """Which models claims are about: "trained", "untrained"."""

    cost: float = 60.0
    reason: str = ""
    """Why it is not probed, if it is not asked for."""

    suffix: ClassVar[str] = ".json"
    VERSION: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """For people."""
        return f"probe/{self.group}/{self.model}"

    @cached_property
    def unavailable(self) -> str:
        """Why the model cannot be probed here."""
        from topicscope.probing.sources import find_model

        missing = [name for name in ("transformers", "tomotopy", "gensim") if find_spec(name) is None]
        if self.reason or missing:
            return self.reason or f'{missing[0]} is not installed: pip install "topicscope[language]".'
        try:
            find_model(self.model)
        except InputError as error:
            return str(error)
        return ""

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Model and settings."""
        from topicscope.probing.sources import find_model

        settings = msgspec.to_builtins(asdict(self._settings(seeds)), enc_hook=str)
        return {"version": self.VERSION, "model": find_model(self.model).digest, "settings": settings}

    def compute(self, seeds: Seeds, scratch: Path) -> bytes:
        """Fit topics, or use those of another model with the same tokenizer, and measure, in this process alone."""
        from topicscope.probing.settings import Machine
        from topicscope.probing.study import probe

        settings = self._settings(seeds)
        # Passages depend on this beside the tokenizer; topics are named by what they depend on.
        ground = work.content_digest({"version": self.VERSION, "text": asdict(settings.text)})
        machine, shared = Machine(device="cpu", workers=1), scratch.parent / f"ground-{ground}"
        # No claim is about the coherence of topics, hidden states or single topics.
        result = probe([self.model], settings, machine=machine, work=scratch, shared=shared, detailed=False)
        return msgspec.json.encode(result)

    def restore(self, content: bytes) -> ProbeResult:
        """What ``compute`` wrote."""
        return msgspec.json.decode(content, type=ProbeResult)

    def _settings(self, seeds: Seeds) -> Any:
        fits = min(len(seeds), self.settings.topics.fits)
        return replace(self.settings, seed=seeds[0], topics=replace(self.settings.topics, fits=fits))


def task(need: Need, seeds: Seeds, folder: Path) -> work.Task[Callable[[], bytes]]:
    """A need as work for any process; its file may be there under the name of an equal one."""
    key = need.key(seeds)
    ending = f"-{work.content_digest(key)}{need.suffix}"
    there = next(folder.glob(f"*{ending}"), None)
    name = there.name.removesuffix(ending) if there else need.name
    scratch = work.Task(name, key, None, suffix=need.suffix).scratch(folder)
    return work.Task(name, key, partial(need.compute, seeds, scratch), suffix=need.suffix)


def is_there(need: Need, seeds: Seeds, folder: Path) -> bool:
    """Whether it was done before."""
    return not need.unavailable and task(need, seeds, folder).path(folder).exists()


def computed(needs: Sequence[Need], seeds: Seeds, folder: Path, **where: Any) -> Iterator[tuple[list[Need], Any]]:
    """Results in the order in which they are finished, each with the needs (equal in all but name) that it meets.

    What is in the folder already is read, so a run that was interrupted resumes where it stopped. ``where`` are
    options of ``work.completed``.
    """
    groups: dict[str, list[Need]] = {}
    for need in sorted(needs, key=lambda need: -need.cost):
        groups.setdefault(work.content_digest(need.key(seeds)), []).append(need)
    members = list(groups.values())
    tasks = [task(group[0], seeds, folder) for group in members]
    for place, content in work.completed(operator.call, tasks, folder, **where):
        try:
            result = members[place][0].restore(content)
        except (KeyError, ValueError, SafetensorError, msgspec.DecodeError) as error:
            remedy = "remove it to have it done again"
            raise UnreadableError(tasks[place].path(folder), first_line(error), remedy) from None
        yield members[place], result
