"""A study turns models and a corpus into rows of probe.json; finished work is found again.

Models with equivalent tokenizers share passages, topics and the plan of what is measured: a :class:`Study`. All of a
model's work (shards of passages, tasks on its embeddings) goes into one map over tasks; as soon as a model's tasks are
finished, its rows are made, while the others are still being worked on.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float, Int
from joblib import cpu_count
from safetensors.numpy import load_file

from topicscope.errors import InputError
from topicscope.precision import device_named
from topicscope.probing.folder import Measured
from topicscope.probing.models import HuggingFaceModel, Loading, Subject, model_tokenizer
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.passes import ModelVectors, Plan, Shard
from topicscope.probing.rows import EmbeddingTask, ModelRows, SummaryTask, top_pair_number
from topicscope.probing.settings import MOST_FITS, PAPER_WORDS, Machine, ProbeSettings, name_of
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import PairTable, count_pairs, top_pairs
from topicscope.probing.statistics.similarity import prepared
from topicscope.probing.topics import (
    FittedTopics,
    Fitting,
    fit_topics,
    label_fits,
    load_topics,
    quality,
    read_own_topics,
)
from topicscope.records import CorpusRow, ProbeResult, ProbeRow, TopicWord, WordMap
from topicscope.store import alone_in, write_atomically
from topicscope.text.corpora import Corpus, bytes_read
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokenizers import Tokenizer, load_tokenizer
from topicscope.text.tokens import Passages, write_passages
from topicscope.text.words import Words
from topicscope.work import Report, Task, completed, map_tasks

T = TypeVar("T")

# Part of every key: to be raised when the same passages and topics would be measured otherwise.
VERSION = 3
# Tokens per batch.
CPU_BATCH, GPU_BATCH = 1_024, 8_192
# Passages per shard: some ten seconds of a small model on one core, so that little is lost when a study is stopped.
PASSAGES = 256
# How many passages' pairs are counted at once.
COUNTED = 4_096
# How many passages' hidden states are summed, and how many bytes a model's sums may take: about so many words of a
# passage are new to its shard, each with a vector for every layer.
MOST_HIDDEN, FEWEST_HIDDEN, HIDDEN_ROOM, WORDS_OF_A_PASSAGE = 1_024, 64, 256_000_000, 15
# The mean of hidden states is over at most this many passages.
CENTRED = 32
# How many words describe a topic.
TOP_WORDS = 10
# The pairs that co-occur most are looked for among this many words, the most frequent ones, so that their table stays
# small.
MOST_FREQUENT = 4_000


class GivenModel:
    """The caller's own :class:`~topicscope.probing.models.Subject`, with what else a study needs to know.

    The subject has a ``tokenizer`` (a folder with tokenizer.json, or minilm), and may have a ``name``. It stays in this
    process. Its results are kept under a digest of its embeddings and of its output for one short passage.
    """

    revision = ""

    def __init__(self, subject: Any, length: int, tokenizer: Tokenizer) -> None:
        """``length``: tokens per passage, including the tokenizer's special ones, if any."""
        self._subject, self.title = subject, name_of(subject)
        self.name, self.length = self.title, length - sum(map(len, tokenizer.special))
        output = subject.run([np.arange(min(8, tokenizer.size))])
        layers = [layer.detach().cpu().numpy() for layer in (*output.attention, *output.hidden)]
        digest = hashlib.sha256()
        for array in (subject.embedding_matrix(), *layers):
            digest.update(np.ascontiguousarray(array).tobytes())
        self.key = {"model": digest.hexdigest()[:20]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)


AnyModel = HuggingFaceModel | GivenModel


@dataclass(frozen=True)
class Ground:
    """What models are measured on, and where."""

    settings: ProbeSettings
    corpus: Corpus
    """The one that the settings name."""

    machine: Machine
    work: Path
    """Where finished work is kept."""

    shared: Path | None = None
    """Where passages and topics are kept for other models too, if that is elsewhere."""

    report: Report | None = None


@dataclass(eq=False)
class ModelStudy:
    """A model that is asked for, and once it was measured, what came out."""

    place: int
    """Its place in the order asked for."""

    model: AnyModel
    shown: WordMap
    """Cosines of a few words; its label is also that of rows."""

    study: "Study" = field(init=False)
    rows: list[ProbeRow] = field(init=False)
    measured: Measured = field(init=False)


def probe(
    models: Sequence[str | Subject],
    settings: ProbeSettings,
    *,
    machine: Machine,
    work: Path,
    shared: Path | None = None,
    detailed: bool = True,
) -> ProbeResult:
    """Probe models, and return everything at once; ``work`` and ``shared`` are those of :class:`Ground`.

    detailed: whether hidden states, single topics and the coherence of fitted topics are measured too.
    """
    settings = replace(settings, measures=replace(settings.measures, details=detailed))
    ground = Ground(settings, settings.text.open(), machine, work, shared)
    finished = sorted(measure_models(models, ground), key=lambda model: model.place)
    return ProbeResult(
        rows=[row for model in finished for row in model.rows],
        maps=[model.shown for model in finished],
    )


def measure_models(
    models: Sequence[str | Subject],
    ground: Ground,
    *,
    revisions: Sequence[str] = (),
    show_words: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Iterator[ModelStudy]:
    """Measure models, each as soon as it is asked for; they come as they are finished.

    What is wrong with models, corpus and topics is refused before this returns, and before anything is written; what
    only passages and topics show is refused before the first model is measured.

    models: names, or the caller's own subjects, which are measured in this process.
    revisions: checkpoints of the one model given.
    show_words: those of the heat map; by default the paper's nine that the tokenizer keeps whole.
    labels: what tables and figures call the models, if anything.
    """
    settings, report = ground.settings, ground.report
    together: dict[tuple[str, int], tuple[Tokenizer, list[ModelStudy]]] = {}
    given = [(model, revision) for model in models for revision in (revisions or ("",))]
    if not all(isinstance(model, str) for model in models):
        ground = replace(ground, machine=replace(ground.machine, workers=1, engine="local"))
    for place, (name, revision) in enumerate(given):
        if report:
            report(place, len(given), f"loading {name_of(name)}")
        model: AnyModel
        if isinstance(name, str):
            source = find_model(name, revision=revision)
            tokenizer = model_tokenizer(source)
            longest = min(settings.text.length, tokenizer.longest or settings.text.length)
            loading = Loading(ground.machine.device, settings.dtype, settings.seed, longest)
            model = HuggingFaceModel(source, tokenizer.special, loading)
            model.check_tokens(tokenizer)
        else:
            tokenizer = load_tokenizer(str(getattr(name, "tokenizer", "")))
            model = GivenModel(name, settings.text.length, tokenizer)
        check_topics(settings, tokenizer)
        # The map is made at once, while the model is loaded.
        shown = word_map(model, tokenizer, show_words, labels[place] if labels else None)
        together.setdefault((tokenizer.digest, model.length), (tokenizer, []))[1].append(
            ModelStudy(place, model, shown)
        )
    stop_word_list(settings.topics.stop_words)
    # This refuses a field that is not there, and files without text.
    next(ground.corpus.documents())
    return _measured(ground, list(together.values()))


def _measured(ground: Ground, together: Sequence[tuple[Tokenizer, list[ModelStudy]]]) -> Iterator[ModelStudy]:
    """Prepare what all models are measured on, then yield each model as soon as all of its work is done."""
    for study in [Study(ground, tokenizer, models) for tokenizer, models in together]:
        yield from study.measured()


def workers(machine: Machine) -> int:
    """As many workers as asked for; else as many as cores, or one where a GPU is shared."""
    if machine.workers is not None:
        return machine.workers
    return cpu_count() if device_named(machine.device).type == "cpu" else 1


def check_topics(settings: ProbeSettings, tokenizer: Tokenizer) -> None:
    """Refuse the user's topics if they do not fit a tokenizer, as far as that is known without the corpus."""
    options, words = settings.topics, Words.of(None, tokenizer, merged=settings.text.merge_words)
    if options.word_topics and not settings.text.several_tokens:
        read_own_topics(options.word_topics, words)
    if options.topics_from:
        load_topics(options.topics_from, None, words)


def word_map(model: AnyModel, tokenizer: Tokenizer, show_words: Sequence[str], label: str | None) -> WordMap:
    """Cosines of a few words in the embedding matrix, as in Figure 3.

    Those of the paper's nine words that the tokenizer splits are left out and named; a word that the user
    asked for is refused instead.
    """
    wanted = {word: tokenizer.token(word) for word in show_words or chain(*PAPER_WORDS.values())}
    split = [word for word, token in wanted.items() if token is None]
    if show_words and split:
        raise InputError(
            f'--show-words "{split[0]}" is not one token of {model.title}: give words that its tokenizer keeps whole.'
        )
    tokens = {word: token for word, token in wanted.items() if token is not None}
    vectors = prepared(model.embedding_matrix()[list(tokens.values())], "cosine")
    cosine = (vectors @ vectors.T).tolist()
    return WordMap(model=model.title, words=list(tokens), left_out=split, cosine=cosine, label=label)


def fitted_on(fits: Sequence[FittedTopics], passages: Passages, *, halves: bool, folder: Path | None) -> str:
    """What LDA saw, in the words of a row; an earlier probe's topics that contradict ``halves`` are refused."""
    elsewhere = any(fitted.about.corpus != passages.about.corpus for fitted in fits)
    why = None
    if elsewhere and halves:
        why = "another corpus, so no half of this one is known to be new to it: give --no-halves, or fit anew"
    elif not elsewhere and any(fitted.about.split != halves for fitted in fits):
        why = "one half of the articles, and --no-halves asks for all: leave --no-halves out, or fit anew"
        if halves:
            why = "all articles, so that none is left to measure on: add --no-halves, as the paper does, or fit anew"
    if why:
        raise InputError(f"--topics-from {folder} was fitted on {why}.")
    return "another corpus" if elsewhere else "the other half of the articles" if halves else "the same articles"


@dataclass(frozen=True, eq=False)
class MeasuredText:
    """The passages that are measured."""

    passages: Passages
    words: Words
    chosen: Int[np.ndarray, " chosen"]

    def plan(self, labellings: Sequence[Labelling], every: Int[np.ndarray, " word"], settings: ProbeSettings) -> Plan:
        """Count the words of the labellings, and their pairs.

        every: all words among which the pairs that co-occur most are looked for (Table 2).
        """
        beside = self.most_co_occurring(every, max(map(top_pair_number, labellings)))
        together = over_one_vocabulary(labellings, beside)
        places, lengths = self.words.places(together[0].tokens), np.append(self.words.lengths, np.int32(1))
        permutations = settings.measures.head_permutations
        return Plan(together, *self._counted(places), permutations, settings.seed, places, lengths)

    def most_co_occurring(self, every: Int[np.ndarray, " word"], number: int) -> Int[np.ndarray, " top"]:
        """The words of so many pairs that co-occur most, of these words."""
        if not len(every):
            return every
        frequency, _ = self._counted(self.words.places(every), pairs=False)
        frequent = np.sort(every[np.argsort(-frequency, kind="stable")[:MOST_FREQUENT]])
        _, table = self._counted(self.words.places(frequent))
        top = top_pairs(table, number)
        return frequent[np.unique([table.first[top], table.second[top]])]

    def _counted(
        self, places: Int[np.ndarray, " spelling_plus_one"], *, pairs: bool = True
    ) -> tuple[Float[np.ndarray, " word"], PairTable]:
        """How often each word of a vocabulary, given by its spellings' places, and each pair occurs."""
        size = int(places.max()) + 1
        frequency, table = np.zeros(size), PairTable.merged(size, [])
        for start in range(0, len(self.chosen), COUNTED):
            some = self.chosen[start : start + COUNTED].tolist()
            texts = [places[self.passages.spelled(passage)] for passage in some]
            flat = np.concatenate(texts)
            frequency += np.bincount(flat[flat >= 0], minlength=size)
            if pairs:
                table = PairTable.merged(size, [table, count_pairs(flat, np.cumsum([0, *map(len, texts)]), size)])
        return frequency, table


class Study:
    """What models with one tokenizer and length are measured on, and their measures, in a folder of finished work."""

    fits: list[FittedTopics]
    """None for the user's own topics."""

    fitted_on: str | None = None
    split_words: Sequence[str] = ()
    """The user's own words that the tokenizer splits, which are left out."""

    def __init__(self, ground: Ground, tokenizer: Tokenizer, models: Sequence[ModelStudy]) -> None:
        """Passages, topics and plan for models with one tokenizer and so many content tokens per passage.

        What is in the folder is used; if another process is preparing the same there, this one waits for it.
        """
        self.settings, self.machine, self.work = ground.settings, ground.machine, ground.work / "measured"
        self.tokenizer, self.models, self.report = tokenizer, models, ground.report
        self.length = models[0].model.length
        corpus, shared, text = ground.corpus, ground.shared or ground.work, self.settings.text
        own = self.settings.topics.word_topics
        several = "-several" if text.several_tokens else ""
        self.folder = shared / f"passages-{tokenizer.digest}-{self.length}-{text.every}{several}"
        with alone_in(shared):
            self.passages = write_passages(
                corpus,
                tokenizer,
                length=self.length,
                folder=self.folder,
                every=text.every,
                several=text.several_tokens,
                progress=bytes_read(corpus, ground.report),
            )
            self.words = Words.of(self.passages, tokenizer, merged=text.merge_words)
            self.notes = self._corpus_notes()
            # One half of the articles is measured if topics are fitted on the other; all of them for the user's own
            # topics, and if the user wants it so.
            self.chosen = np.arange(len(self.passages))
            if text.halves and not own:
                self.chosen = self.passages.for_measures
                if not len(self.passages.for_topics) or not len(self.chosen):
                    raise InputError(
                        f'corpus = "{corpus.source}" has too few articles to fit topics on one half and measure on '
                        "the other: give more text, or --no-halves."
                    )
            labellings = self._own_topics(own) if own else self._fitted_topics(shared / "topics")
            # Top pairs are those of all words that LDA knows, which leaves stop words out.
            every = np.unique(np.concatenate([np.zeros(0, np.int32), *(fitted.tokens for fitted in self.fits)]))
            self.plan = MeasuredText(self.passages, self.words, self.chosen).plan(labellings, every, self.settings)
            if own and not self.plan.frequency.any():
                raise InputError(
                    f"none of the words of --word-topics {own} is in a passage of corpus = "
                    f'"{corpus.source}": give words that it has, or another corpus.'
                )
            content = packed(self.plan)
            self.plan_file = shared / f"plan-{hashlib.sha256(content).hexdigest()[:20]}.safetensors"
            if not self.plan_file.exists():
                write_atomically(self.plan_file, content)

    def _corpus_notes(self) -> list[str]:
        """Which language the corpus seems to be in, if stop words depend on it, and whether the tokenizer suits it."""
        notes, options, about = [], self.settings.topics, self.passages.about
        if options.stop_words == "auto" and not options.word_topics and not options.topics_from:
            notes.append(
                f'the language seems to be "{about.language}": its stop words are left out'
                if about.language
                else "the language is not known: English stop words are left out; say which with --stop-words"
            )
        if self.passages.whole_share < 0.5 and not about.several_tokens:
            notes.append(
                f'the tokenizer of "{self.tokenizer.name}" keeps only {self.passages.whole_share:.0%} of the words '
                "whole, and the others are not measured: give a model for this language, or --several-tokens"
            )
        return notes

    def _own_topics(self, path: Path) -> list[Labelling]:
        self.fits = []
        own, self.split_words, without = read_own_topics(path, self.words)
        if without:
            self.notes.append(f"own topics without a word that is whole were left out: {', '.join(without)}")
        return [own]

    def _fitted_topics(self, folder: Path) -> list[Labelling]:
        options, halves = self.settings.topics, self.settings.text.halves
        if options.topics_from:
            self.fits = load_topics(options.topics_from, self.passages, self.words)
        else:
            first = self.settings.seed * MOST_FITS
            seeds, judged = range(first, first + options.fits), self.settings.measures.details
            fitting = Fitting(folder, seeds, halves, judged, workers(self.machine), self.report)
            self.fits = fit_topics(self.passages, self.words, options, fitting)
        self.fitted_on = fitted_on(self.fits, self.passages, halves=halves, folder=options.topics_from)
        labellings, notes = label_fits(self.fits, options)
        self.notes += notes
        return labellings

    @property
    def name(self) -> str:
        """The name in files about its topics, which differ between passage lengths."""
        return f"{self.tokenizer.digest}-{self.length}"

    def topic_words(self) -> list[TopicWord]:
        """Rows of topics.csv: the words of every labelling, with their topics."""
        words = self.words.named(self.plan.tokens)
        return [
            TopicWord(
                tokenizer=self.tokenizer.digest,
                length=self.length,
                seed=labelling.seed,
                fraction=labelling.fraction,
                assignment=labelling.assignment,
                topic=labelling.topic_names[topic] if labelling.topic_names else str(topic),
                word=words[word],
            )
            for labelling in self.plan.labellings
            for topic, word in np.argwhere(labelling.membership.T).tolist()
        ]

    def corpus_row(self) -> CorpusRow:
        """How much was read, what could not be read, and how good the topics are."""
        about, absent = self.passages.about, self.plan.tokens[self.plan.frequency == 0]
        return CorpusRow(
            tokenizer=self.tokenizer.digest,
            tokenizer_name=self.tokenizer.name,
            length=self.length,
            source=about.source,
            articles=about.documents,
            passages=len(self.passages),
            measured=len(self.chosen),
            problems=[*about.problems, *(f"{sentence}." for sentence in self.notes)],
            words=int(np.any([labelling.kept for labelling in self.plan.labellings], axis=0).sum()),
            words_left_out=list(self.split_words),
            # A user's words that the measured passages lack: they have embeddings, and no attention.
            words_without_attention=[] if self.fits else list(self.words.named(absent)),
            topic_quality=quality(self.fits) if self.fits else None,
        )

    def measured(self) -> Iterator[ModelStudy]:
        """Each model as soon as all of its work is done."""
        measure, machine = methodcaller("measure"), self.machine
        # Embeddings of the plan's words, and each layer's mean vector, are kept as a file of each model. A Ray of our
        # own takes longer to start than these take.
        at_once = workers(machine) if machine.engine == "local" else 1
        map_tasks(measure, [self.vectors(own.model) for own in self.models], self.work, workers=at_once)
        tasks = [self.tasks(own.model) for own in self.models]
        order = [(place, task) for place, own in enumerate(tasks) for task in own]
        waiting = [len(own) for own in tasks]
        done = completed(
            measure,
            [task for _, task in order],
            self.work,
            workers=workers(machine),
            engine=machine.engine,
            address=machine.address,
            report=self.report,
        )
        # Contents stay on disk until they are summed up: their size grows with the corpus.
        for number, (task, _) in enumerate(done, start=1):
            place = order[task][0]
            waiting[place] -= 1
            if not waiting[place]:
                if self.report:
                    self.report(number, len(order), f"{self.models[place].model.title}: tests and intervals")
                yield self._finish(self.models[place], tasks[place])

    def vectors(self, model: AnyModel) -> Task[ModelVectors]:
        """The work that comes before all other: embeddings of the plan's words, and means of hidden states."""
        details = self.settings.measures.details
        few = self.chosen[:: -(-len(self.chosen) // CENTRED)].tolist() if details else []
        passages = tuple(np.asarray(self.passages[place]) for place in few)
        work = ModelVectors(model, *self.words.token_means(self.plan.tokens), passages)
        return self._task(model, "vectors", work, {"details": details})

    def tasks(self, model: AnyModel) -> list[Task[Shard | EmbeddingTask]]:
        """All further work on a model: shards of passages, then the embeddings under each group of labellings."""
        plan, measures, machine = self.plan, self.settings.measures, self.machine
        # Few enough tokens for a layer's attention to stay in a processor's cache; a GPU is faster with many.
        on_cpu = device_named(machine.device).type == "cpu"
        batch = machine.batch or (CPU_BATCH if on_cpu else GPU_BATCH)
        vectors = self.vectors(model).path(self.work)
        hidden = set(self._with_hidden_states(*load_file(vectors)["centre"].shape))
        tasks: list[Task[Shard | EmbeddingTask]] = []
        for number, start in enumerate(range(0, len(self.chosen), PASSAGES)):
            chosen = tuple(self.chosen[start : start + PASSAGES].tolist())
            summed = tuple(place for place in chosen if place in hidden)
            shard = Shard(model, self.folder, self.plan_file, chosen, batch, vectors, summed)
            tasks.append(self._task(model, f"attention {number}", shard, {"chosen": chosen, "hidden": summed}))
        words = tuple(map(tuple, self._top_words()))
        numbers = {
            "replicates": measures.replicates,
            "permutations": measures.permutations,
            "details": measures.details,
        }
        # The longest come first, so that no worker is left with a long piece at the end.
        for group in sorted(plan.groups, key=lambda group: -plan.labellings[group[0]].words):
            work = EmbeddingTask(vectors, self.plan_file, group, words, measures)
            name = plan.labellings[group[0]].name
            tasks.append(
                self._task(model, f"embeddings {name}", work, {"labellings": group, "words": words, **numbers})
            )
        return tasks

    def _task(self, model: AnyModel, kind: str, argument: T, more: Mapping[str, Any]) -> Task[T]:
        """A piece of work on a model, and everything that its result depends on."""
        ground = {"passages": self.passages.digest, "plan": self.plan_file.stem}
        key = {"version": VERSION, "kind": kind, **model.key, **ground, **more}
        return Task(f"{model.title} {kind}", key, argument, ".safetensors")

    def _with_hidden_states(self, layers: int, width: int) -> list[int]:
        """The passages whose hidden states are summed, evenly spread: as many as the room for their words allows.

        Even so millions of pairs of places are compared; what matters is how many words there are.
        """
        if not layers:
            return []
        number = min(max(HIDDEN_ROOM // (WORDS_OF_A_PASSAGE * layers * width * 4), FEWEST_HIDDEN), MOST_HIDDEN)
        return [int(place) for place in self.chosen[:: -(-len(self.chosen) // number)]]

    def _top_words(self) -> list[list[str]]:
        """Each topic's words, the likeliest first if LDA fitted them."""
        if not self.fits:
            own = self.plan.labellings[0].membership.T
            return [self.words.named(self.plan.tokens[topic])[:TOP_WORDS] for topic in own]
        return [self.words.named(topic) for topic in self.fits[0].top_words()]

    def _finish(self, own: ModelStudy, tasks: Sequence[Task[Shard | EmbeddingTask]]) -> ModelStudy:
        """Rows of a model whose work is done, and the numbers by which it is compared with others."""
        model, measures = own.model, self.settings.measures
        done = [(task.argument, task.path(self.work)) for task in tasks]
        shards = tuple(path for work, path in done if isinstance(work, Shard))
        paths = {work.labellings: path for work, path in done if isinstance(work, EmbeddingTask)}
        summing = SummaryTask(
            shards,
            tuple(paths[group] for group in self.plan.groups),
            self.vectors(model).path(self.work),
            self.plan_file,
            tuple(self.words.named(self.plan.tokens)),
            measures,
        )
        key = {"measures": msgspec.to_builtins(measures), "tasks": [path.name for _, path in done]}
        # Kept because tests and intervals take a while.
        item = self._task(model, "summary", summing, key)
        map_tasks(methodcaller("measure"), [item], self.work, workers=1)
        result = unpacked(item.path(self.work), ModelRows)
        about: dict[str, Any] = {
            "model": model.name,
            "revision": model.revision,
            "label": own.shown.label,
            "causal": model.causal,
            "articles": len(np.unique(self.passages.articles[self.chosen])),
            "passages": len(self.chosen),
            "corpus": self.settings.text.corpus,
            "corpus_digest": self.passages.about.corpus,
            "tokenizer": self.tokenizer.digest,
            "length": self.length,
            "fitted_on": self.fitted_on,
        }
        own.study, own.rows = self, [msgspec.structs.replace(row, **about) for row in result.rows]
        own.measured = Measured(model.title, self.plan_file.stem, result.groups)
        return own
