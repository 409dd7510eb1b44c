"""A study: models, passages and labels in, rows of probe.json out, as work items that are found again.

Models whose tokenizers do the same share passages, topics and the plan of what is measured. All of a model's work
(shards of passages, tasks on its embeddings) goes into one map over work items; as soon as a model's items are there,
its rows are made, while the others are still at work.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from safetensors.numpy import load_file, save

from topicscope import scale
from topicscope.errors import InputError
from topicscope.probing.ground import Ground, prepare_ground
from topicscope.probing.models import (
    HuggingFaceModel,
    Loading,
    Source,
    Subject,
    check_architecture,
    check_tokenizer,
    device_named,
    find_model,
    special_tokens,
)
from topicscope.probing.passes import PASSAGES, Plan, Shard, load_model, measure_shard
from topicscope.probing.rows import (
    VARIANTS,
    AttentionTotals,
    EmbeddingTask,
    Variant,
    attention_summary,
    dump,
    groups,
    measure_embedding,
)
from topicscope.probing.settings import PAPER_WORDS, SOURCES, Machine, ProbeSettings, check_names
from topicscope.probing.statistics.cooccurrence import compare_top_pairs
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.similarity import prepared
from topicscope.randomness import Purpose, generator
from topicscope.scale.items import result_paths
from topicscope.text.corpora import Corpus
from topicscope.text.tokenizers import Tokenizer, load_tokenizer

Row = dict[str, Any]


# Part of every key, as ``SOURCES``: what the passages and topics themselves depend on is in their own keys.
PACKAGES = ("numpy", "scipy", "torch", "transformers")


# Tokens.
CPU_BATCH, GPU_BATCH = 1_024, 8_192


@dataclass(frozen=True, eq=False)
class Target:
    """A model that was found, loaded once and looked at."""

    source: Source
    tokenizer: Tokenizer
    special: tuple[tuple[int, ...], tuple[int, ...]]
    loading: Loading
    causal: bool
    length: int
    """Content tokens of a passage."""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.source.name} {self.source.revision}".strip()

    @property
    def key(self) -> dict[str, Any]:
        """What determines its embeddings and attention."""
        seed = self.loading.seed if self.source.untrained else None
        special = [list(each) for each in self.special]
        return {"model": self.source.digest, "dtype": self.loading.dtype, "seed": seed, "special": special}

    def model(self) -> HuggingFaceModel:
        """The model itself."""
        return load_model(self.source, self.special, self.loading)


def find_target(source: Source, settings: ProbeSettings, machine: Machine) -> Target:
    """Load a model once, so that whatever is wrong with it is said before anything is measured."""
    check_architecture(source)
    check_tokenizer(source)
    tokenizer = load_tokenizer(str(source.tokenizer_folder))
    longest = min(settings.text.length, tokenizer.longest or settings.text.length)
    loading = Loading(machine.device, settings.dtype, settings.seed, longest)
    special = special_tokens(tokenizer)
    model = load_model(source, special, loading)
    return Target(source, tokenizer, special, loading, model.causal, model.length)


@dataclass(frozen=True)
class Task:
    """A piece of work of either kind: the map runs both."""

    work: Shard | EmbeddingTask


def run_task(task: Task) -> bytes:
    """Do a piece of work, in whatever process."""
    return measure_shard(task.work) if isinstance(task.work, Shard) else dump(measure_embedding(task.work))


class Study:
    """Measures targets on one ground, into a folder of finished work."""

    def __init__(self, ground: Ground, settings: ProbeSettings, machine: Machine, work: Path) -> None:
        self.ground, self.settings, self.machine, self.work = ground, settings, machine, work

    def rows(
        self, targets: Sequence[Target], *, workers: int, report: scale.Report | None = None
    ) -> Iterator[tuple[Target, list[Row]]]:
        """Rows of each target as soon as all of its work is done."""
        items: list[scale.Item[Task]] = []
        owner: list[int] = []
        for number, target in enumerate(targets):
            of_target = [*self._shards(target), *self._embeddings(target)]
            items += of_target
            owner += [number] * len(of_target)
        waiting = {number: owner.count(number) for number in range(len(targets))}
        # Of each target the longest first, so that no worker is left with a long one at the end.
        order = sorted(range(len(items)), key=lambda place: (owner[place], -self._size(items[place].argument)))
        machine = self.machine
        done = scale.completed(
            run_task,
            [items[place] for place in order],
            folder=self.work,
            workers=workers,
            engine=machine.engine,
            address=machine.address,
            timeout=machine.timeout,
        )
        # Contents stay on disk until they are summed up: their size grows with the corpus.
        for finished, (number, _) in enumerate(done, start=1):
            place = order[number]
            waiting[owner[place]] -= 1
            if report:
                report(finished, len(items), items[place].name)
            if not waiting[owner[place]]:
                if report:
                    report(finished, len(items), f"{targets[owner[place]].name}: tests and intervals")
                mine = [item for item, other in zip(items, owner, strict=True) if other == owner[place]]
                yield targets[owner[place]], self._rows(targets[owner[place]], mine)

    def _size(self, task: Task) -> float:
        """Passages come first, then embeddings by their words."""
        if isinstance(task.work, Shard):
            return np.inf
        return float(self.ground.plan.labels[task.work.labellings[0]].words)

    @property
    def _batch(self) -> int:
        """Few enough tokens for a layer's attention to stay in a processor's cache; a GPU likes many."""
        on_cpu = device_named(self.machine.device).type == "cpu"
        return self.machine.batch or (CPU_BATCH if on_cpu else GPU_BATCH)

    def _shards(self, target: Target) -> list[scale.Item[Task]]:
        ground = self.ground
        starts = range(0, len(ground.chosen), PASSAGES)
        return [
            scale.Item(
                f"{target.name} attention {start // PASSAGES}",
                self._key(target, "attention", chosen=[int(place) for place in chosen]),
                Task(
                    Shard(
                        target.source,
                        target.special,
                        target.loading,
                        ground.folder,
                        ground.plan_file,
                        tuple(int(place) for place in chosen),
                        self._batch,
                    )
                ),
            )
            for start in starts
            for chosen in [ground.chosen[start : start + PASSAGES]]
        ]

    def _embeddings(self, target: Target) -> list[scale.Item[Task]]:
        vectors = self._vectors(target)
        measures, plan = self.settings.measures, self.ground.plan
        numbers = {"replicates": measures.replicates, "permutations": measures.permutations}
        return [
            scale.Item(
                f"{target.name} embeddings {plan.labels[labellings[0]].name}",
                self._key(target, "embeddings", labellings=list(labellings), **numbers),
                Task(EmbeddingTask(vectors, self.ground.plan_file, labellings, seed=self.settings.seed, **numbers)),
                suffix=".json",
            )
            for labellings in groups(plan)
        ]

    def _vectors(self, target: Target) -> Path:
        """The embeddings of the plan's words, taken once and kept as a file."""

        def take(target: Target) -> bytes:
            vectors = word_vectors(target.model(), self.ground.plan)
            return save(vectors)

        item = scale.Item(f"{target.name} vectors", self._key(target, "vectors"), target, suffix=".safetensors")
        scale.map_items(take, [item], folder=self.work)
        return item.path(self.work)

    def _rows(self, target: Target, items: Sequence[scale.Item[Task]]) -> list[Row]:
        paths = result_paths(items, self.work)
        shards = [path for item, path in zip(items, paths, strict=True) if isinstance(item.argument.work, Shard)]
        embeddings = [
            (item.argument.work, json.loads(path.read_bytes()))
            for item, path in zip(items, paths, strict=True)
            if isinstance(item.argument.work, EmbeddingTask)
        ]
        attention = self._attention(target, shards, [task for task, _ in embeddings])
        return [
            self._row(target, task, variant, found, attention, top)
            for (task, of_variants), tops in zip(embeddings, attention["top_pairs"], strict=True)
            for variant, found, top in zip(VARIANTS, of_variants, tops, strict=True)
        ]

    def _attention(self, target: Target, shards: Sequence[Path], tasks: Sequence[EmbeddingTask]) -> dict[str, Any]:
        """The summary of all shards, and Table 2's comparison for each embedding: kept, as it takes a while."""
        measures, plan = self.settings.measures, self.ground.plan

        def summarise(shards: Sequence[Path]) -> bytes:
            totals = AttentionTotals.of((path.read_bytes() for path in shards), plan, measures)
            summary = attention_summary(totals, plan, measures)
            summary["top_pairs"] = [_top_pairs(totals.pairs, plan, task) for task in tasks]
            return dump(summary)

        key = self._key(target, "summary", measures=asdict(measures), chosen=[int(each) for each in self.ground.chosen])
        item = scale.Item(f"{target.name} summary", key, shards, suffix=".json")
        [content] = scale.map_items(summarise, [item], folder=self.work)
        return json.loads(content)

    def _row(
        self,
        target: Target,
        task: EmbeddingTask,
        variant: Variant,
        found: dict[str, Any],
        attention: dict[str, Any],
        top: dict[str, Any],
    ) -> Row:
        plan = self.ground.plan
        labels = plan.labels[task.labellings[0]]
        group = attention["groups"][groups(plan).index(task.labellings)]
        return {
            "model": target.source.name,
            "revision": target.source.revision,
            "fraction": labels.fraction,
            "assignment": labels.assignment,
            "embedding": variant.embedding,
            "centred": variant.centred,
            "words": labels.words,
            "topics": labels.topics,
            "cosine": found["cosine"],
            "dot": found["dot"],
            "attention": group["attention"],
            "attention_by_layer_head": group["attention_by_layer_head"],
            "top_co_occurring": top,
            "matched": {"attention": group["matched"], "cosine": found["matched"]},
            "causal": target.causal,
            "sink": attention["sink"],
            "lda_seeds": len(task.labellings),
            "articles": len(np.unique(self.ground.passages.articles[list(self.ground.chosen)])),
            "passages": len(self.ground.chosen),
            "corpus": self.settings.text.corpus,
            "corpus_digest": self.ground.corpus,
            "tokenizer": self.ground.tokenizer.digest,
            "length": self.ground.length,
            "fitted_on": self.ground.fitted_on,
        }

    def _key(self, target: Target, kind: str, **more: Any) -> dict[str, Any]:
        ground = self.ground
        return {
            "code": scale.code_digest(SOURCES),
            "packages": {name: scale.versions()[name] for name in PACKAGES},
            "kind": kind,
            **target.key,
            "passages": ground.passages.digest,
            "plan": ground.plan_file.stem,
            **more,
        }


def _top_pairs(pairs: PairTable, plan: Plan, task: EmbeddingTask) -> list[dict[str, Any]]:
    """A row of Table 2 for each variant."""
    stored = load_file(task.vectors)
    labellings = [plan.labellings[place] for place in task.labellings]
    vectors = [
        [prepared(stored[variant.embedding][each.kept], "cosine", centred=variant.centred) for each in labellings]
        for variant in VARIANTS
    ]
    draw = generator(task.seed, Purpose.BOOTSTRAP, 2, task.labellings[0])
    found = compare_top_pairs(pairs, labellings, vectors, replicates=task.replicates, generator=draw)
    return [asdict(each) for each in found]


def word_vectors(subject: Subject, plan: Plan) -> dict[str, np.ndarray]:
    """Both kinds of embedding of the plan's words."""
    return {
        "matrix": np.ascontiguousarray(subject.embedding_matrix()[plan.tokens]),
        "layer": np.ascontiguousarray(subject.embedding_layer(plan.tokens)),
    }


# From names to rows: find the models, cut the corpus, fit topics, measure; what is finished is found again.


@dataclass(frozen=True, eq=False)
class WordMap:
    """Cosines of a few words' embeddings (word-embedding matrix), as in Figure 3."""

    words: tuple[str, ...]
    cosines: Float[np.ndarray, "word word"]


@dataclass(frozen=True, eq=False)
class Finished:
    """A model that was measured."""

    target: Target
    ground: Ground
    rows: list[Row]
    shown: WordMap


def find_sources(models: Sequence[str], revisions: Sequence[str], *, allow_bin: bool) -> list[Source]:
    """The models' folders; with revisions, the checkpoints of one model in their order."""
    check_names(models, revisions)
    pairs = [(name, revision) for name in models for revision in (revisions or ("",))]
    return [find_model(name, revision=revision, allow_bin=allow_bin) for name, revision in pairs]


def measure_models(
    models: Sequence[str],
    *,
    settings: ProbeSettings,
    machine: Machine,
    work: Path,
    shared: Path | None = None,
    corpus: Corpus | None = None,
    revisions: Sequence[str] = (),
    show_words: Sequence[str] = (),
    report: scale.Report | None = None,
) -> Iterator[Finished]:
    """Measure models one after the other; whatever is wrong with any of them is said before the first is measured.

    work, shared: where finished work is kept; passages and topics in ``shared``, if it is given, for other models.
    corpus: the one that the settings name, if it is open already.
    show_words: words of the heat map; the paper's nine, as far as the tokenizer keeps them whole, if none are given.
    """
    sources = find_sources(models, revisions, allow_bin=machine.allow_bin)
    targets: list[Target] = []
    maps: dict[Source, WordMap] = {}
    for source in sources:
        if report:
            report(len(targets), len(sources), f"loading {source.name}")
        targets.append(find_target(source, settings, machine))
        # At once, while the model is loaded.
        maps[source] = word_map(targets[-1], show_words)
    corpus = corpus or settings.text.open()
    workers = _workers(machine)
    together: dict[tuple[str, int], list[Target]] = {}
    for target in targets:
        together.setdefault((target.tokenizer.digest, target.length), []).append(target)
    for alike in together.values():
        ground = prepare_ground(corpus, alike[0].tokenizer, alike[0].length, settings, shared or work, workers, report)
        study = Study(ground, settings, machine, work / "measured")
        for target, rows in study.rows(alike, workers=workers, report=report):
            yield Finished(target, ground, rows, maps[target.source])


def word_map(target: Target, show_words: Sequence[str]) -> WordMap:
    """Cosines of the words asked for; one that the tokenizer splits is refused."""
    found = {word: target.tokenizer.token(word) for word in show_words or chain(*PAPER_WORDS.values())}
    split = [word for word, token in found.items() if token is None]
    if show_words and split:
        raise InputError(
            f'--show-words "{split[0]}" is not one token of {target.name}: give words that its tokenizer keeps whole.'
        )
    tokens = {word: token for word, token in found.items() if token is not None}
    vectors = prepared(target.model().embedding_matrix()[list(tokens.values())], "cosine")
    return WordMap(tuple(tokens), vectors @ vectors.T)


def _workers(machine: Machine) -> int:
    """As asked; else as many as cores, but one where a GPU is shared."""
    if machine.workers is not None:
        return machine.workers
    from topicscope.probing.models import device_named

    return scale.available_cores() if device_named(machine.device).type == "cpu" else 1
