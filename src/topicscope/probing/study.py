"""A study turns names of models and a corpus into rows of probe.json; finished work is found again.

Models with equivalent tokenizers share passages, topics and the plan of what is measured: a :class:`Study`. All of a
model's work (shards of passages, tasks on its embeddings) goes into one map over tasks; as soon as a model's tasks are
finished, its rows are made, while the others are still being worked on.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from jaxtyping import Float, Int
from joblib import cpu_count
from safetensors.numpy import load, load_file

from topicscope.errors import InputError, collected, refuse_all
from topicscope.precision import device_named
from topicscope.probing.folder import Measured, MeasuredGroup
from topicscope.probing.models import HuggingFaceModel, Loading, Subject, model_tokenizer
from topicscope.probing.packing import packed, unpacked
from topicscope.probing.passes import PASSAGES, ModelVectors, Plan, Shard
from topicscope.probing.rows import (
    VARIANTS,
    AttentionNumbers,
    Embeddings,
    EmbeddingTask,
    Summary,
    SummaryTask,
    over_largest_threshold,
    top_pair_number,
)
from topicscope.probing.settings import MOST_FITS, PAPER_WORDS, Machine, ProbeSettings, TopicOptions
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.hidden import KINDS as STATES
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
    topic_warnings,
)
from topicscope.records import (
    CorpusRow,
    MatchedPairs,
    ProbeResult,
    ProbeRow,
    TopicComparison,
    TopicMap,
    TopicRow,
    TopicWord,
    WordMap,
)
from topicscope.store import alone_in, write_atomically
from topicscope.text.corpora import Corpus, bytes_read
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokenizers import Tokenizer, load_tokenizer
from topicscope.text.tokens import Passages, write_passages
from topicscope.text.words import Words
from topicscope.work import Report, Task, completed

T = TypeVar("T")

# Part of every key: to be raised when the same passages and topics would be measured otherwise.
VERSION = 2
# Tokens.
CPU_BATCH, GPU_BATCH = 1_024, 8_192
# How many passages' pairs are counted at once.
COUNTED = 4_096
# How many passages' hidden states are summed, and how many bytes a model's sums may take: about so many words of a
# passage are new to its shard, each with a vector for every layer and kind.
MOST_HIDDEN, FEWEST_HIDDEN, HIDDEN_ROOM, WORDS_OF_A_PASSAGE = 1_024, 64, 512_000_000, 15
# The mean of hidden states is over at most this many passages.
CENTRED = 32
# How many words describe a topic.
TOP_WORDS = 10
# How many topics the map of words has: as many as colours can distinguish.
MAPPED_TOPICS = 7
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
        self.name = self.title = name_of(subject)
        self.length = length - sum(map(len, tokenizer.special))
        self.layers, self.heads = int(subject.layers), int(subject.heads)
        self.causal, self.first = bool(subject.causal), int(subject.first)
        self.embedding_matrix, self.embedding_layer = subject.embedding_matrix, subject.embedding_layer
        self.run = subject.run
        digest = hashlib.sha256(np.ascontiguousarray(self.embedding_matrix()).tobytes())
        output = self.run([np.arange(min(8, tokenizer.size))])
        for layer in (*output.attention, *output.hidden):
            digest.update(np.ascontiguousarray(layer.detach().cpu().numpy()).tobytes())
        self.key = {"model": digest.hexdigest()[:20]}


AnyModel = HuggingFaceModel | GivenModel


def name_of(model: str | Subject) -> str:
    """The name of a model, or of the caller's own subject."""
    return model if isinstance(model, str) else str(getattr(model, "name", type(model).__name__))


@dataclass(frozen=True)
class Asked:
    """Which models are to be measured, and what is shown of them."""

    models: Sequence[str | Subject]
    """Names, or the caller's own subjects, which are measured in this process."""

    revisions: Sequence[str] = ()
    """Checkpoints of the one model given."""

    show_words: Sequence[str] = ()
    """Words of the heat map; by default those of the paper's nine that the tokenizer keeps whole."""

    @property
    def names(self) -> list[tuple[str, str]]:
        """Names with checkpoints, in the order asked for."""
        return [(name_of(model), revision) for model in self.models for revision in (self.revisions or ("",))]


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


class Finished(NamedTuple):
    """A model that was measured."""

    study: "Study"
    rows: list[ProbeRow]
    shown: WordMap
    measured: Measured

    @property
    def title(self) -> str:
        """The model's name and checkpoint."""
        return self.measured.model

    @property
    def name(self) -> tuple[str, str]:
        """The same apart."""
        return self.rows[0].model, self.rows[0].revision or ""

    def labelled(self, labels: Mapping[tuple[str, str], str]) -> "Finished":
        """With what tables and figures call the model."""
        label = labels.get(self.name)
        rows = [msgspec.structs.replace(row, label=label) for row in self.rows]
        return self._replace(rows=rows, shown=msgspec.structs.replace(self.shown, label=label))


def probe(
    models: Sequence[str | Subject],
    settings: ProbeSettings,
    *,
    machine: Machine,
    work: Path,
    shared: Path | None = None,
    detailed: bool = True,
    report: Report | None = None,
) -> ProbeResult:
    """Probe models, and return everything at once; ``work`` and ``shared`` are those of :class:`Ground`.

    detailed: whether hidden states, single topics and the coherence of fitted topics are measured too.
    """
    settings = replace(settings, measures=replace(settings.measures, details=detailed))
    asked, ground = Asked(models), Ground(settings, settings.text.open(), machine, work, shared, report)
    finished = in_order(asked, measure_models(asked, ground))
    return ProbeResult(
        rows=[row for each in finished for row in each.rows],
        corpora=[study.corpus_row() for study in dict.fromkeys(each.study for each in finished)],
        maps=[each.shown for each in finished],
    )


def in_order(asked: Asked, finished: Iterator[Finished] | Sequence[Finished]) -> list[Finished]:
    """Finished models in the order asked for, not of completion: checkpoints are in the order of training."""
    return sorted(finished, key=lambda each: asked.names.index(each.name))


def measure_models(asked: Asked, ground: Ground) -> Iterator[Finished]:
    """Measure models one after the other, as they are asked for.

    Whatever is wrong with models, corpus and topics is reported in one error, before anything is written; what only
    passages and topics show is reported before the first model is measured.
    """
    settings, report, problems = ground.settings, ground.report, list[InputError]()
    maps: dict[AnyModel, WordMap] = {}
    together: dict[tuple[str, int], tuple[Tokenizer, list[AnyModel]]] = {}
    given = [(model, revision) for model in asked.models for revision in (asked.revisions or ("",))]
    for number, (name, revision) in enumerate(given):
        with collected(problems):
            if report:
                report(number, len(given), f"loading {name_of(name)}")
            if isinstance(name, str):
                source = find_model(name, revision=revision)
                tokenizer = model_tokenizer(source)
            else:
                tokenizer = load_tokenizer(str(getattr(name, "tokenizer", "")))
                ground = replace(ground, machine=replace(ground.machine, workers=1, engine="local"))
            with collected(problems):
                check_topics(settings, tokenizer)
            model: AnyModel
            if isinstance(name, str):
                longest = min(settings.text.length, tokenizer.longest or settings.text.length)
                loading = Loading(ground.machine.device, settings.dtype, settings.seed, longest)
                model = HuggingFaceModel(source, tokenizer.special, loading)
                model.check_tokens(tokenizer)
            else:
                model = GivenModel(name, settings.text.length, tokenizer)
            # This is done at once, while the model is loaded.
            maps[model] = word_map(model, tokenizer, asked.show_words)
            together.setdefault((tokenizer.digest, model.length), (tokenizer, []))[1].append(model)
    with collected(problems):
        stop_word_list(settings.topics.stop_words)
    with collected(problems):
        # This refuses a field that is not there, and files without text.
        next(ground.corpus.documents())
    refuse_all(problems)
    return _measured(ground, list(together.values()), maps)


def _measured(
    ground: Ground, together: Sequence[tuple[Tokenizer, list[AnyModel]]], maps: Mapping[AnyModel, WordMap]
) -> Iterator[Finished]:
    """Prepare what all models are measured on, then yield each model as soon as all of its work is done."""
    machine, report, problems = ground.machine, ground.report, list[InputError]()
    studies: list[tuple[Study, list[AnyModel]]] = []
    for tokenizer, models in together:
        with collected(problems):
            studies.append((Study(ground, tokenizer, models[0].length), models))
    refuse_all(problems)
    measure = methodcaller("measure")
    for study, models in studies:
        # Embeddings of the plan's words, and each layer's mean vector, are kept as a file of each model.
        vectors = [study.vectors(model) for model in models]
        # A Ray of our own takes longer to start than these take.
        at_once = workers(machine) if machine.engine == "local" else 1
        contents = dict(completed(measure, vectors, study.work, workers=at_once))
        tasks = {
            model: study.tasks(model, task.path(study.work), load(contents[place])["centre"].shape)
            for place, (model, task) in enumerate(zip(models, vectors, strict=True))
        }
        order = [(model, task) for model, own in tasks.items() for task in own]
        waiting = {model: len(own) for model, own in tasks.items()}
        done = completed(
            measure,
            [task for _, task in order],
            study.work,
            workers=workers(machine),
            engine=machine.engine,
            address=machine.address,
            report=report,
        )
        # Contents stay on disk until they are summed up: their size grows with the corpus.
        for finished, (place, _) in enumerate(done, start=1):
            model = order[place][0]
            waiting[model] -= 1
            if not waiting[model]:
                if report:
                    report(finished, len(order), f"{model.title}: tests and intervals")
                rows, measured = study.rows(model, tasks[model])
                shown = msgspec.structs.replace(maps[model], topic_map=study.topic_map(model))
                yield Finished(study, rows, shown, measured)


def workers(machine: Machine) -> int:
    """As many workers as asked for; else as many as cores, or one where a GPU is shared."""
    if machine.workers is not None:
        return machine.workers
    return cpu_count() if device_named(machine.device).type == "cpu" else 1


def check_topics(settings: ProbeSettings, tokenizer: Tokenizer) -> None:
    """Refuse the user's topics if they do not fit a tokenizer, as far as that is known without the corpus."""
    options, text = settings.topics, settings.text
    if not text.several_tokens and options.word_topics:
        read_own_topics(options.word_topics, Words.of(None, tokenizer, merged=text.merge_words))
    elif not text.several_tokens and options.topics_from:
        load_topics(options.topics_from, None, Words.of(None, tokenizer, merged=text.merge_words))


def word_map(model: AnyModel, tokenizer: Tokenizer, show_words: Sequence[str]) -> WordMap:
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
    return WordMap(model=model.title, words=list(tokens), left_out=split, cosine=(vectors @ vectors.T).tolist())


def corpus_warnings(passages: Passages, tokenizer: Tokenizer, options: TopicOptions) -> list[str]:
    """Which language the corpus seems to be in, if stop words depend on it, and whether the tokenizer suits it."""
    sentences, about = [], passages.about
    if options.stop_words == "auto" and not options.word_topics and not options.topics_from:
        sentences.append(
            f'the language seems to be "{about.language}": its stop words are left out'
            if about.language
            else "the language is not known: English stop words are left out; say which with --stop-words"
        )
    if passages.whole_share < 0.5 and not about.several_tokens:
        sentences.append(
            f'the tokenizer of "{tokenizer.name}" keeps only {passages.whole_share:.0%} of the words whole, and the '
            "others are not measured: give a model for this language, or --several-tokens"
        )
    return sentences


def fitted_on(fits: Sequence[FittedTopics], passages: Passages, *, halves: bool, folder: Path | None) -> str:
    """What LDA saw, in the words of a row; an earlier probe's topics that contradict ``halves`` are refused."""
    about = [fitted.about for fitted in fits]
    if any(each.corpus != passages.about.corpus for each in about):
        if halves:
            raise InputError(
                f"--topics-from {folder} was fitted on another corpus, so no half of this one is known to be new to "
                "it: give the corpus that it was fitted on, or --no-halves to measure on all of this one."
            )
        return "another corpus"
    if any(each.split != halves for each in about):
        raise InputError(
            f"--topics-from {folder} was fitted on all articles, so that none is left to measure on: add --no-halves, "
            "to measure on the same as the paper does, or fit anew."
            if halves
            else f"--topics-from {folder} was fitted on one half of the articles, and --no-halves asks for all: leave "
            "--no-halves out, or fit anew."
        )
    return "the other half of the articles" if halves else "the same articles"


def make_plan(
    labellings: Sequence[Labelling],
    passages: Passages,
    words: Words,
    chosen: Int[np.ndarray, " chosen"],
    settings: ProbeSettings,
    *,
    every: Int[np.ndarray, " word"] | None = None,
) -> Plan:
    """Count the words of the labellings, and their pairs, in the measured passages.

    every: all words among which the pairs that co-occur most are looked for (Table 2); by default the labelled ones.
    """
    beside = None
    if every is not None:
        number = max(top_pair_number(each) for each in labellings)
        beside = most_co_occurring(every, passages, words, chosen, number)
    together = over_one_vocabulary(labellings, beside)
    places = words.places(together[0].tokens)
    frequency, pairs = counted(places, passages, chosen)
    lengths = np.append(words.lengths, np.int32(1))
    return Plan(together, frequency, pairs, settings.measures.head_permutations, settings.seed, places, lengths)


def most_co_occurring(
    every: Int[np.ndarray, " word"],
    passages: Passages,
    words: Words,
    chosen: Int[np.ndarray, " chosen"],
    number: int,
) -> Int[np.ndarray, " top"]:
    """The words of so many pairs that co-occur most in these passages."""
    frequency, places = np.zeros(len(every)), words.places(every)
    for passage in chosen.tolist():
        present = places[passages.spelled(passage)]
        frequency += np.bincount(present[present >= 0], minlength=len(every))
    frequent = np.sort(every[np.argsort(-frequency, kind="stable")[:MOST_FREQUENT]])
    _, pairs = counted(words.places(frequent), passages, chosen)
    top = top_pairs(pairs, number)
    return frequent[np.unique([pairs.first[top], pairs.second[top]])]


def counted(
    places: Int[np.ndarray, " spelling_plus_one"], passages: Passages, chosen: Int[np.ndarray, " chosen"]
) -> tuple[Float[np.ndarray, " word"], PairTable]:
    """How often each word of a vocabulary, given by its spellings' places, and each pair occurs in these passages."""
    size = int(places.max()) + 1
    frequency, pairs = np.zeros(size), PairTable.empty(size)
    for start in range(0, len(chosen), COUNTED):
        texts = [places[passages.spelled(passage)] for passage in chosen[start : start + COUNTED].tolist()]
        flat = np.concatenate(texts)
        frequency += np.bincount(flat[flat >= 0], minlength=size)
        pairs = PairTable.merged([pairs, count_pairs(flat, np.cumsum([0, *map(len, texts)]), size)])
    return frequency, pairs


def principal_places(
    vectors: Float[np.ndarray, "word width"],
) -> tuple[Float[np.ndarray, "word 2"], float]:
    """Words in two dimensions: their directions (unit vectors) along the two in which these vary most.

    Principal components of unit vectors are classical multidimensional scaling of their distances √(2 − 2 cosine). The
    second number is the share of the variance that the two dimensions hold. Signs are chosen so that in each
    dimension the coordinate of largest size is positive.
    """
    ready = prepared(prepared(vectors, "cosine"), "dot", centred=True)
    left, sizes, _ = np.linalg.svd(ready, full_matrices=False)
    places = np.zeros((len(vectors), 2))
    places[:, : min(2, len(sizes))] = left[:, :2] * sizes[:2]
    signs = np.sign(places[np.abs(places).argmax(axis=0), np.arange(2)])
    total = float((sizes**2).sum())
    return places * np.where(signs == 0, 1.0, signs), float((sizes[:2] ** 2).sum()) / total if total > 0 else 0.0


class StudyTopics(NamedTuple):
    """The words that have topics, and where the topics come from."""

    labellings: list[Labelling]
    fits: list[FittedTopics]
    """None for the user's own topics."""

    fitted_on: str | None
    notes: list[str]
    split_words: list[str]
    """The user's own words that the tokenizer splits, which are left out."""


class Study:
    """What models with one tokenizer and length are measured on, and their measures, in a folder of finished work."""

    def __init__(self, ground: Ground, tokenizer: Tokenizer, length: int) -> None:
        """Passages, topics and plan for models with one tokenizer and so many content tokens per passage.

        What is in the folder is used; if another process is preparing the same there, this one waits for it.
        """
        self.settings, self.machine, self.work = ground.settings, ground.machine, ground.work / "measured"
        self.tokenizer, self.length = tokenizer, length
        corpus, shared, text = ground.corpus, ground.shared or ground.work, self.settings.text
        own = self.settings.topics.word_topics
        several = "-several" if text.several_tokens else ""
        self.folder = shared / f"passages-{tokenizer.digest}-{length}-{text.every}{several}"
        with alone_in(shared):
            self.passages = write_passages(
                corpus,
                tokenizer,
                length=length,
                folder=self.folder,
                every=text.every,
                several=text.several_tokens,
                progress=bytes_read(corpus, ground.report),
            )
            self.words = Words.of(self.passages, tokenizer, merged=text.merge_words)
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
            self.topics = self._own_topics(own) if own else self._fitted_topics(shared / "topics", ground.report)
            # Top pairs are those of all words that LDA knows, which leaves stop words out.
            every = np.unique(np.concatenate([each.tokens for each in self.topics.fits])) if self.topics.fits else None
            labellings = self.topics.labellings
            self.plan = make_plan(labellings, self.passages, self.words, self.chosen, self.settings, every=every)
            if own and not self.plan.frequency.any():
                raise InputError(
                    f"none of the words of --word-topics {own} is in a passage of corpus = "
                    f'"{corpus.source}": give words that it has, or another corpus.'
                )
            content = packed(self.plan)
            self.plan_file = shared / f"plan-{hashlib.sha256(content).hexdigest()[:20]}.safetensors"
            if not self.plan_file.exists():
                write_atomically(self.plan_file, content)

    def _own_topics(self, path: Path) -> StudyTopics:
        own, split, without = read_own_topics(path, self.words)
        notes = [f"own topics without a word that is whole were left out: {', '.join(without)}"] if without else []
        return StudyTopics([own], [], None, notes, split)

    def _fitted_topics(self, folder: Path, report: Report | None) -> StudyTopics:
        options, halves = self.settings.topics, self.settings.text.halves
        if options.topics_from:
            fits = load_topics(options.topics_from, self.passages, self.words)
        else:
            first = self.settings.seed * MOST_FITS
            seeds, judged = range(first, first + options.fits), self.settings.measures.details
            fitting = Fitting(folder, seeds, halves=halves, judged=judged, workers=workers(self.machine), report=report)
            fits = fit_topics(self.passages, self.words, options, fitting)
        seen = fitted_on(fits, self.passages, halves=halves, folder=options.topics_from)
        labellings, notes = label_fits(fits, options)
        return StudyTopics(labellings, fits, seen, [*notes, *topic_warnings(fits, self.words)], [])

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
        about, absent, fits = self.passages.about, self.plan.tokens[self.plan.frequency == 0], self.topics.fits
        warnings = [*corpus_warnings(self.passages, self.tokenizer, self.settings.topics), *self.topics.notes]
        return CorpusRow(
            tokenizer=self.tokenizer.digest,
            tokenizer_name=self.tokenizer.name,
            length=self.length,
            source=about.source,
            articles=about.documents,
            passages=len(self.passages),
            measured=len(self.chosen),
            problems=[*about.notes(), *(f"{sentence}." for sentence in warnings)],
            words=int(np.any([each.kept for each in self.plan.labellings], axis=0).sum()),
            words_left_out=self.topics.split_words,
            # A user's words that the measured passages lack: they have embeddings, and no attention.
            words_without_attention=[] if fits else list(self.words.named(absent)),
            topic_quality=quality(fits) if fits else None,
        )

    def vectors(self, model: AnyModel) -> Task[ModelVectors]:
        """The work that comes before all other: embeddings of the plan's words, and means of hidden states."""
        details = self.settings.measures.details
        few = self.chosen[:: -(-len(self.chosen) // CENTRED)].tolist() if details else []
        passages = tuple(np.asarray(self.passages[place]) for place in few)
        work = ModelVectors(model, *self.words.token_means(self.plan.tokens), passages)
        return self.task(model, "vectors", work, {"details": details})

    def tasks(self, model: AnyModel, vectors: Path, states: tuple[int, int]) -> list[Task[Shard | EmbeddingTask]]:
        """All further work on a model: shards of passages, then the embeddings under each group of labellings.

        vectors: the file of its vectors. states: layers and width of its hidden states.
        """
        plan, measures, machine = self.plan, self.settings.measures, self.machine
        # Few enough tokens for a layer's attention to stay in a processor's cache; a GPU is faster with many.
        on_cpu = device_named(machine.device).type == "cpu"
        batch = machine.batch or (CPU_BATCH if on_cpu else GPU_BATCH)
        hidden = set(self._with_hidden_states(*states))
        tasks: list[Task[Shard | EmbeddingTask]] = []
        for number, start in enumerate(range(0, len(self.chosen), PASSAGES)):
            chosen = self.chosen[start : start + PASSAGES].tolist()
            summed = tuple(place for place in chosen if place in hidden)
            shard = Shard(model, self.folder, self.plan_file, tuple(chosen), batch, vectors, summed)
            tasks.append(self.task(model, f"attention {number}", shard, {"chosen": chosen, "hidden": summed}))
        numbers = {
            "replicates": measures.replicates,
            "permutations": measures.permutations,
            "details": measures.details,
        }
        # The longest come first, so that no worker is left with a long piece at the end.
        for group in sorted(plan.groups, key=lambda group: -plan.labellings[group[0]].words):
            work = EmbeddingTask(vectors, self.plan_file, group, measures)
            name = plan.labellings[group[0]].name
            tasks.append(self.task(model, f"embeddings {name}", work, {"labellings": group, **numbers}))
        return tasks

    def task(self, model: AnyModel, kind: str, argument: T, more: Mapping[str, Any]) -> Task[T]:
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
        of_a_passage = WORDS_OF_A_PASSAGE * layers * width * len(STATES) * 4
        number = min(max(HIDDEN_ROOM // of_a_passage, FEWEST_HIDDEN), MOST_HIDDEN)
        return [int(place) for place in self.chosen[:: -(-len(self.chosen) // number)]]

    def _top_words(self) -> list[list[str]]:
        """Each topic's words, the likeliest first if LDA fitted them."""
        if not self.topics.fits:
            own = self.plan.labellings[0].membership.T
            return [list(self.words.named(self.plan.tokens[topic])[:TOP_WORDS]) for topic in own]
        return [list(self.words.named(np.array(topic))) for topic in self.topics.fits[0].top_words(TOP_WORDS)]

    def topic_map(self, model: AnyModel) -> TopicMap | None:
        """Words of the topics that occur most, in two dimensions of the embedding matrix.

        Each topic has its likeliest words that the largest threshold keeps; they are the same for all models.
        """
        if not self.settings.measures.details:
            return None
        names, likeliest = self.words.named(self.plan.tokens), self._top_words()
        labelling = self.plan.labellings[min(self.plan.widest)]
        place_of = {name: place for place, name in enumerate(names)}
        often = labelling.membership.T @ self.plan.frequency
        shown: list[tuple[int, int]] = []
        for topic in np.argsort(-often, kind="stable")[:MAPPED_TOPICS].tolist():
            kept = [place_of[word] for word in likeliest[topic] if word in place_of]
            shown += [(topic, word) for word in kept if labelling.membership[word, topic]]
        if len(shown) < 3:
            return None
        vectors = load_file(self.vectors(model).path(self.work))["matrix"][[word for _, word in shown]]
        places, share = principal_places(vectors.astype(np.float64))
        named = labelling.topic_names or range(labelling.membership.shape[1])
        topics = [f"{named[topic]}: {', '.join(likeliest[topic][:3])}" for topic, _ in shown]
        words = [names[word] for _, word in shown]
        return TopicMap(words=words, topics=topics, places=[(x, y) for x, y in places.tolist()], share=share)

    def rows(self, model: AnyModel, tasks: Sequence[Task[Shard | EmbeddingTask]]) -> tuple[list[ProbeRow], Measured]:
        """Rows of a model whose work is done, and the numbers by which it is compared with others."""
        measures, plan, labellings = self.settings.measures, self.plan, self.plan.tested_labellings
        done = [(task.argument, task.path(self.work)) for task in tasks]
        shards = tuple(path for work, path in done if isinstance(work, Shard))
        vectors, words = self.vectors(model).path(self.work), tuple(self.words.named(plan.tokens))
        summing = SummaryTask(shards, vectors, self.plan_file, words, measures)
        key = {"measures": msgspec.to_builtins(measures), "shards": [path.name for path in shards]}
        # Kept because tests and intervals take a while.
        item = self.task(model, "summary", summing, key)
        list(completed(methodcaller("measure"), [item], self.work, workers=1))
        summary = unpacked(item.path(self.work), Summary)
        paths = {work.labellings: path for work, path in done if isinstance(work, EmbeddingTask)}
        embeddings = [unpacked(paths[group], Embeddings) for group in plan.groups]
        compared = [one.compared | other.compared for one, other in zip(summary.groups, embeddings, strict=True)]
        likeliest = self._top_words()
        rows = [
            ProbeRow(
                model=model.name,
                revision=model.revision,
                fraction=labelling.fraction,
                assignment=labelling.assignment,
                embedding=variant.embedding,
                centred=variant.centred,
                words=labelling.words,
                topics=labelling.topics,
                cosine=numbers.cosine,
                dot=numbers.dot,
                attention=group.attention,
                attention_by_layer=group.by_layer,
                attention_by_layer_head=group.by_layer_head,
                hidden_by_layer=group.hidden,
                by_topic=_by_topic(labelling, likeliest, group, numbers.by_topic),
                over_largest_threshold=over_largest_threshold(compared, labellings, place, variant),
                top_co_occurring=top,
                matched=MatchedPairs(attention=group.matched, cosine=numbers.matched),
                causal=model.causal,
                sink=summary.sink,
                lda_seeds=len(plan.groups[place]),
                articles=len(np.unique(self.passages.articles[self.chosen])),
                passages=len(self.chosen),
                corpus=self.settings.text.corpus,
                corpus_digest=str(self.passages.about.corpus),
                tokenizer=self.tokenizer.digest,
                length=self.length,
                fitted_on=self.topics.fitted_on,
            )
            for place, (labelling, group, own) in enumerate(zip(labellings, summary.groups, embeddings, strict=True))
            for variant, numbers, top in zip(VARIANTS, own.variants, group.top_pairs, strict=True)
        ]
        groups = [
            MeasuredGroup(labelling.fraction, labelling.assignment, numbers)
            for labelling, numbers in zip(labellings, compared, strict=True)
        ]
        return rows, Measured(model.title, self.plan_file.stem, groups)


def _by_topic(
    labelling: Labelling,
    words: Sequence[Sequence[str]],
    group: AttentionNumbers,
    cosines: Sequence[TopicComparison] | None,
) -> list[TopicRow] | None:
    """For each topic with two words or more, its first words and its measures."""
    if not cosines or group.by_topic is None:
        return None
    hidden: Sequence[TopicComparison | None] = group.hidden_by_topic or [None] * len(cosines)
    return [
        TopicRow(
            topic=labelling.topic_names[topic] if labelling.topic_names else topic,
            words=list(words[topic]),
            kept=int(labelling.membership[:, topic].sum()),
            cosine=cosine,
            attention=attention,
            hidden=states,
            hidden_layer=group.hidden_layer,
        )
        for topic, (cosine, attention, states) in enumerate(zip(cosines, group.by_topic, hidden, strict=True))
        if labelling.membership[:, topic].sum() > 1
    ]
