"""A study: names of models and a corpus in, rows of probe.json out; what is finished is found again.

Models whose tokenizers do the same share passages, topics and the plan of what is measured: a :class:`Study`. All of a
model's work (shards of passages, tasks on its embeddings) goes into one map over work items; as soon as a model's items
are there, its rows are made, while the others are still at work.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import save

from topicscope import scale
from topicscope.errors import InputError
from topicscope.files import Row, alone_in
from topicscope.probing.models import HuggingFaceModel, Loading, Subject, device_named, load_model
from topicscope.probing.passes import PASSAGES, Plan, Shard, measure_shard, places
from topicscope.probing.rows import (
    VARIANTS,
    AttentionTotals,
    EmbeddingTask,
    Variant,
    attention_summary,
    dump,
    measure_embedding,
    top_pairs,
)
from topicscope.probing.settings import MOST_FITS, PAPER_WORDS, SOURCES, Machine, ProbeSettings
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.cooccurrence import count_pairs
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import PairTable
from topicscope.probing.statistics.similarity import prepared
from topicscope.probing.topics import (
    FittedTopics,
    LdaSettings,
    fit_topics,
    label_words,
    load_topics,
    quality,
    read_own_topics,
)
from topicscope.scale.items import result_paths
from topicscope.text.corpora import Corpus, bytes_read
from topicscope.text.formats import corpus_notes
from topicscope.text.tokenizers import Tokenizer
from topicscope.text.tokens import Passages, write_passages

# Part of every key, as ``SOURCES``: what the passages and topics themselves depend on is in their own keys.
PACKAGES = ("numpy", "scipy", "torch", "transformers")
# Tokens.
CPU_BATCH, GPU_BATCH = 1_024, 8_192
# Passages whose pairs are counted at once.
COUNTED = 4_096

# A piece of work of either kind: the map runs both.
Work = Shard | EmbeddingTask


@dataclass(frozen=True, eq=False)
class WordMap:
    """Cosines of a few words' embeddings (word-embedding matrix), as in Figure 3."""

    words: tuple[str, ...]
    cosines: Float[np.ndarray, "word word"]


@dataclass(frozen=True, eq=False)
class Finished:
    """A model that was measured."""

    model: HuggingFaceModel
    study: "Study"
    rows: list[Row]
    shown: WordMap


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

    revisions: checkpoints of the one model given.
    work, shared: where finished work is kept; passages and topics in ``shared``, if it is given, for other models.
    corpus: the one that the settings name, if it is open already.
    show_words: words of the heat map; the paper's nine, as far as the tokenizer keeps them whole, if none are given.
    """
    names = [(name, revision) for name in models for revision in (revisions or ("",))]
    sources = [find_model(name, revision=revision, allow_bin=machine.allow_bin) for name, revision in names]
    loading = Loading(machine.device, settings.dtype, settings.seed, settings.text.length)
    maps: dict[HuggingFaceModel, WordMap] = {}
    together: dict[tuple[str, int], tuple[Tokenizer, list[HuggingFaceModel]]] = {}
    for source in sources:
        if report:
            report(len(maps), len(sources), f"loading {source.name}")
        model, tokenizer = load_model(source, loading)
        # At once, while the model is loaded.
        maps[model] = word_map(model, tokenizer, show_words)
        together.setdefault((tokenizer.digest, model.length), (tokenizer, []))[1].append(model)
    corpus = corpus or settings.text.open()
    for (_, length), (tokenizer, alike) in together.items():
        study = prepare_study(corpus, tokenizer, length, settings, machine, work=work, shared=shared, report=report)
        for model, rows in study.rows(alike, report=report):
            yield Finished(model, study, rows, maps[model])


def word_map(model: HuggingFaceModel, tokenizer: Tokenizer, show_words: Sequence[str]) -> WordMap:
    """Cosines of the words asked for; one that the tokenizer splits is refused."""
    found = {word: tokenizer.token(word) for word in show_words or chain(*PAPER_WORDS.values())}
    split = [word for word, token in found.items() if token is None]
    if show_words and split:
        raise InputError(
            f'--show-words "{split[0]}" is not one token of {model.title}: give words that its tokenizer keeps whole.'
        )
    tokens = {word: token for word, token in found.items() if token is not None}
    vectors = prepared(model.embedding_matrix()[list(tokens.values())], "cosine")
    return WordMap(tuple(tokens), vectors @ vectors.T)


def prepare_study(
    corpus: Corpus,
    tokenizer: Tokenizer,
    length: int,
    settings: ProbeSettings,
    machine: Machine,
    *,
    work: Path,
    shared: Path | None = None,
    report: scale.Report | None = None,
) -> "Study":
    """Passages, topics and plan for models with one tokenizer and length.

    What is in the folder is used: another process that prepares the same there is waited for.
    """
    folder = shared or work
    every, word_topics = settings.text.every, settings.topics.word_topics
    cut = folder / f"passages-{tokenizer.digest}-{length}-{every}"
    progress = bytes_read(corpus, report)
    with alone_in(folder):
        passages = write_passages(corpus, tokenizer, length=length, folder=cut, every=every, progress=progress)
        chosen = _measured(passages, corpus, settings)
        fits: list[FittedTopics] = []
        split_words: list[str] = []
        if word_topics:
            own, split_words = read_own_topics(word_topics, tokenizer)
            labellings = [own]
        else:
            fits = _fits(passages, tokenizer, settings, folder, _workers(machine), report)
            labellings = _labellings(fits, settings)
        plan = make_plan(labellings, passages, chosen, settings)
        if word_topics and not plan.frequency.any():
            raise InputError(
                f'none of the words of --word-topics {word_topics} is in a passage of corpus = "{corpus.source}": give '
                "words that it has, or another corpus."
            )
        return Study(
            settings=settings,
            machine=machine,
            work=work / "measured",
            tokenizer=tokenizer,
            length=length,
            passages=passages,
            folder=cut,
            chosen=chosen,
            fits=fits,
            plan=plan,
            plan_file=plan.write(folder),
            split_words=tuple(split_words),
        )


def _measured(passages: Passages, corpus: Corpus, settings: ProbeSettings) -> Int[np.ndarray, " chosen"]:
    """One half of the articles, if topics are fitted on the other; all of them for the user's own topics."""
    if not settings.text.halves or settings.topics.word_topics:
        return np.arange(len(passages))
    if not len(passages.for_topics) or not len(passages.for_measures):
        raise InputError(
            f'corpus = "{corpus.source}" has too few articles to fit topics on one half and measure on the other: '
            "give more text, or --no-halves."
        )
    return passages.for_measures


def _fits(
    passages: Passages,
    tokenizer: Tokenizer,
    settings: ProbeSettings,
    folder: Path,
    workers: int,
    report: scale.Report | None,
) -> list[FittedTopics]:
    options = settings.topics
    if options.topics_from:
        fits = load_topics(options.topics_from, tokenizer)
        check_fitted_text(fits, passages, halves=settings.text.halves, folder=options.topics_from)
        return fits
    first = settings.seed * MOST_FITS
    how = LdaSettings(
        topics=options.topics,
        iterations=options.iterations,
        seeds=tuple(range(first, first + options.fits)),
        most_tokens=options.most_tokens,
        stop_words=options.stop_words,
        split=settings.text.halves,
    )
    return fit_topics(passages, tokenizer, how, folder=folder / "topics", workers=workers, report=report)


def check_fitted_text(fits: Sequence[FittedTopics], passages: Passages, *, halves: bool, folder: Path) -> None:
    """Refuse topics of an earlier probe if what ``halves`` promises would not be so with them."""
    about = [each.description for each in fits]
    same_corpus = all(each.get("corpus") == passages.description["corpus"] for each in about)
    if not same_corpus and halves:
        raise InputError(
            f"--topics-from {folder} was fitted on another corpus, so no half of this one is known to be new to it: "
            "give the corpus that it was fitted on, or --no-halves to measure on all of this one."
        )
    if same_corpus and any(each["split"] != halves for each in about):
        raise InputError(
            f"--topics-from {folder} was fitted on all articles, so that none is left to measure on: add --no-halves, "
            "to measure on the same as the paper does, or fit anew."
            if halves
            else f"--topics-from {folder} was fitted on one half of the articles, and --no-halves asks for all: leave "
            "--no-halves out, or fit anew."
        )


def fitted_on(fits: Sequence[FittedTopics], passages: Passages) -> str | None:
    """What LDA saw, as rows say it: ``check_fitted_text`` made sure that it goes with what is measured.

    None if the user brought topics.
    """
    if not fits:
        return None
    about = fits[0].description
    if about.get("corpus") != passages.description["corpus"]:
        return "another corpus"
    return "the other half of the articles" if about["split"] else "the same articles"


def _labellings(fits: Sequence[FittedTopics], settings: ProbeSettings) -> list[Labelling]:
    """Those of the first LDA seed first."""
    options = settings.topics
    return [
        label_words(fitted, fraction, assignment)
        for fitted in fits
        for fraction in options.fractions
        for assignment in options.assignments
    ]


def make_plan(
    labellings: Sequence[Labelling], passages: Passages, chosen: Int[np.ndarray, " chosen"], settings: ProbeSettings
) -> Plan:
    """Count the words of the labellings, and their pairs, in the measured passages."""
    together = over_one_vocabulary(labellings)
    words = together[0].tokens
    frequency, pairs = np.zeros(len(words)), PairTable.empty(len(words))
    for start in range(0, len(chosen), COUNTED):
        found = [places(passages.whole_tokens(place), words) for place in chosen[start : start + COUNTED].tolist()]
        offsets = np.cumsum([0, *map(len, found)])
        flat = np.concatenate(found)
        frequency += np.bincount(flat[flat >= 0], minlength=len(words))
        pairs = PairTable.merged([pairs, count_pairs(flat, offsets, len(words))])
    return Plan(together, frequency, pairs, settings.measures.head_permutations, settings.seed)


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """What models with one tokenizer and length are measured on, and their measures, in a folder of finished work."""

    settings: ProbeSettings
    machine: Machine
    work: Path
    tokenizer: Tokenizer
    length: int
    """Content tokens of a passage."""

    passages: Passages
    folder: Path
    """Where the passages are."""

    chosen: Int[np.ndarray, " chosen"]
    """The passages that are measured: not those that topics are fitted on, unless the user wants it so."""

    fits: Sequence[FittedTopics]
    """LDA's; empty if the user brought topics."""

    plan: Plan
    plan_file: Path
    split_words: tuple[str, ...] = ()
    """Words of the user's topics that the tokenizer splits: left out."""

    @property
    def name(self) -> str:
        """Of files about its topics: those of other passage lengths are others."""
        return f"{self.tokenizer.digest}-{self.length}"

    def topic_rows(self) -> list[Row]:
        """Rows of topics.csv: the words of every labelling, with their topics."""
        words = self.tokenizer.words(self.plan.tokens)
        return [
            {
                "tokenizer": self.tokenizer.digest,
                "length": self.length,
                "seed": each.seed,
                "fraction": each.fraction,
                "assignment": each.assignment,
                "topic": each.topic_names[topic] if each.topic_names else int(topic),
                "word": words[word],
            }
            for each in self.plan.labellings
            for topic, word in np.argwhere(each.membership.T)
        ]

    def corpus_row(self) -> Row:
        """A row of corpus.json: how much was read, what could not be, and how good the topics are."""
        about, absent = self.passages.description, self.plan.tokens[self.plan.frequency == 0]
        return {
            "tokenizer": self.tokenizer.digest,
            "tokenizer_name": self.tokenizer.name,
            "length": self.length,
            "source": about["source"],
            "articles": about["documents"],
            "passages": len(self.passages),
            "measured": len(self.chosen),
            "problems": corpus_notes(about),
            "words": len(self.plan.tokens),
            "words_left_out": list(self.split_words),
            # A user's words that the measured passages lack: they have embeddings, and no attention.
            "words_without_attention": [] if self.fits else list(self.tokenizer.words(absent)),
            "topic_quality": quality(self.fits) if self.fits else None,
        }

    def rows(
        self, models: Sequence[HuggingFaceModel], *, report: scale.Report | None = None
    ) -> Iterator[tuple[HuggingFaceModel, list[Row]]]:
        """Rows of each model as soon as all of its work is done."""
        items = [[*self._shards(model), *self._embeddings(model)] for model in models]
        # Of each model the longest first, so that no worker is left with a long one at the end.
        order = [
            (number, item)
            for number, mine in enumerate(items)
            for item in sorted(mine, key=lambda item: -self._size(item.argument))
        ]
        waiting = [len(mine) for mine in items]
        machine = self.machine
        done = scale.completed(
            run_work,
            [item for _, item in order],
            folder=self.work,
            workers=_workers(machine),
            engine=machine.engine,
            address=machine.address,
            timeout=machine.timeout,
        )
        # Contents stay on disk until they are summed up: their size grows with the corpus.
        for finished, (place, _) in enumerate(done, start=1):
            number, item = order[place]
            model = models[number]
            waiting[number] -= 1
            if report:
                report(finished, len(order), item.name)
            if not waiting[number]:
                if report:
                    report(finished, len(order), f"{model.title}: tests and intervals")
                yield model, self._rows(model, items[number])

    def _size(self, work: Work) -> float:
        """Passages come first, then embeddings by their words."""
        return np.inf if isinstance(work, Shard) else float(self.plan.labellings[work.labellings[0]].words)

    def _shards(self, model: HuggingFaceModel) -> list[scale.Item[Work]]:
        # Few enough tokens for a layer's attention to stay in a processor's cache; a GPU likes many.
        on_cpu = device_named(self.machine.device).type == "cpu"
        batch = self.machine.batch or (CPU_BATCH if on_cpu else GPU_BATCH)
        chosen = self.chosen.tolist()
        return [
            scale.Item(
                f"{model.title} attention {number}",
                self._key(model, "attention", chosen=chosen[start : start + PASSAGES]),
                Shard(model, self.folder, self.plan_file, tuple(chosen[start : start + PASSAGES]), batch),
            )
            for number, start in enumerate(range(0, len(chosen), PASSAGES))
        ]

    def _embeddings(self, model: HuggingFaceModel) -> list[scale.Item[Work]]:
        vectors, measures = self._vectors(model), self.settings.measures
        numbers = {"replicates": measures.replicates, "permutations": measures.permutations}
        return [
            scale.Item(
                f"{model.title} embeddings {self.plan.labellings[labellings[0]].name}",
                self._key(model, "embeddings", labellings=list(labellings), **numbers),
                EmbeddingTask(vectors, self.plan_file, labellings, seed=self.settings.seed, **numbers),
                suffix=".json",
            )
            for labellings in self.plan.groups
        ]

    def _vectors(self, model: HuggingFaceModel) -> Path:
        """The embeddings of the plan's words, taken once and kept as a file."""

        def take(model: HuggingFaceModel) -> bytes:
            return save(word_vectors(model, self.plan))

        item = scale.Item(f"{model.title} vectors", self._key(model, "vectors"), model, suffix=".safetensors")
        scale.map_items(take, [item], folder=self.work)
        return item.path(self.work)

    def _rows(self, model: HuggingFaceModel, items: Sequence[scale.Item[Work]]) -> list[Row]:
        done = [(item.argument, path) for item, path in zip(items, result_paths(items, self.work), strict=True)]
        shards = [path for work, path in done if isinstance(work, Shard)]
        embeddings = [(work, path) for work, path in done if isinstance(work, EmbeddingTask)]
        attention = self._attention(model, shards, [task for task, _ in embeddings])
        groups = zip(embeddings, attention["groups"], attention["top_pairs"], strict=True)
        return [
            {
                **self._about(model, self.plan.labellings[task.labellings[0]], variant),
                "cosine": found["cosine"],
                "dot": found["dot"],
                "attention": group["attention"],
                "attention_by_layer_head": group["attention_by_layer_head"],
                "top_co_occurring": top,
                "matched": {"attention": group["matched"], "cosine": found["matched"]},
                "causal": model.causal,
                "sink": attention["sink"],
                "lda_seeds": len(task.labellings),
                **self._text(),
            }
            for (task, path), group, tops in groups
            for variant, found, top in zip(VARIANTS, json.loads(path.read_bytes()), tops, strict=True)
        ]

    def _about(self, model: HuggingFaceModel, labelling: Labelling, variant: Variant) -> Row:
        return {
            "model": model.name,
            "revision": model.revision,
            "fraction": labelling.fraction,
            "assignment": labelling.assignment,
            "embedding": variant.embedding,
            "centred": variant.centred,
            "words": labelling.words,
            "topics": labelling.topics,
        }

    def _text(self) -> Row:
        return {
            "articles": len(np.unique(self.passages.articles[self.chosen])),
            "passages": len(self.chosen),
            "corpus": self.settings.text.corpus,
            "corpus_digest": str(self.passages.description["corpus"]),
            "tokenizer": self.tokenizer.digest,
            "length": self.length,
            "fitted_on": fitted_on(self.fits, self.passages),
        }

    def _attention(
        self, model: HuggingFaceModel, shards: Sequence[Path], tasks: Sequence[EmbeddingTask]
    ) -> dict[str, Any]:
        """The summary of all shards, and Table 2's comparison for each embedding: kept, as it takes a while."""
        measures, plan = self.settings.measures, self.plan

        def summarise(shards: Sequence[Path]) -> bytes:
            totals = AttentionTotals.of((path.read_bytes() for path in shards), plan, measures)
            summary = attention_summary(totals, plan, measures)
            summary["top_pairs"] = [top_pairs(totals.pairs, plan, task) for task in tasks]
            return dump(summary)

        key = self._key(model, "summary", measures=asdict(measures), chosen=self.chosen.tolist())
        item = scale.Item(f"{model.title} summary", key, shards, suffix=".json")
        [content] = scale.map_items(summarise, [item], folder=self.work)
        found: dict[str, Any] = json.loads(content)
        return found

    def _key(self, model: HuggingFaceModel, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "code": scale.code_digest(SOURCES),
            "packages": {name: scale.versions()[name] for name in PACKAGES},
            "kind": kind,
            **model.key,
            "passages": self.passages.digest,
            "plan": self.plan_file.stem,
            **more,
        }


def run_work(work: Work) -> bytes:
    """Do a piece of work, in whatever process."""
    return measure_shard(work) if isinstance(work, Shard) else dump(measure_embedding(work))


def word_vectors(subject: Subject, plan: Plan) -> dict[str, np.ndarray]:
    """Both kinds of embedding of the plan's words."""
    return {
        "matrix": np.ascontiguousarray(subject.embedding_matrix()[plan.tokens]),
        "layer": np.ascontiguousarray(subject.embedding_layer(plan.tokens)),
    }


def _workers(machine: Machine) -> int:
    """As asked; else as many as cores, but one where a GPU is shared."""
    if machine.workers is not None:
        return machine.workers
    return scale.available_cores() if device_named(machine.device).type == "cpu" else 1
