"""A study turns names of models and a corpus into rows of probe.json; finished work is found again.

Models with equivalent tokenizers share passages, topics and the plan of what is measured: a :class:`Study`. All of a
model's work (shards of passages, tasks on its embeddings) goes into one map over work items; as soon as a model's items
are finished, its rows are made, while the others are still being worked on.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from jaxtyping import Float, Int
from safetensors.numpy import load

from topicscope import scale
from topicscope.errors import InputError, collected, refuse_all
from topicscope.files import Row, alone_in, write_atomically
from topicscope.probing.models import HuggingFaceModel, Loading, Subject, device_named, model_tokenizer
from topicscope.probing.passes import PASSAGES, ModelVectors, Plan, Shard
from topicscope.probing.rows import (
    BY_TOPIC,
    COMPARED,
    RATIOS,
    VARIANTS,
    EmbeddingTask,
    attention_summary,
    over_groups,
    over_largest_threshold,
    packed,
    top_co_occurring,
    top_pair_number,
    unpacked,
)
from topicscope.probing.settings import MOST_FITS, PAPER_WORDS, SOURCES, Machine, ProbeSettings, TopicOptions
from topicscope.probing.sources import find_model
from topicscope.probing.statistics.attention import AttentionTotals, ShardSums
from topicscope.probing.statistics.hidden import SUMMED
from topicscope.probing.statistics.labelling import Labelling, over_one_vocabulary
from topicscope.probing.statistics.pairs import PairTable, count_pairs, top_pairs
from topicscope.probing.statistics.similarity import prepared, principal_places
from topicscope.probing.topics import (
    FittedTopics,
    fit_topics,
    label_fits,
    load_topics,
    quality,
    read_own_topics,
    topic_warnings,
)
from topicscope.text.corpora import Corpus, bytes_read
from topicscope.text.formats import corpus_notes
from topicscope.text.stop_words import stop_word_list
from topicscope.text.tokenizers import Tokenizer, load_tokenizer
from topicscope.text.tokens import Passages, write_passages
from topicscope.text.words import Words

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Part of every key, like ``SOURCES``; what the passages and topics themselves depend on is in their own keys.
PACKAGES = ("numpy", "scipy", "torch", "transformers")
# Tokens.
CPU_BATCH, GPU_BATCH = 1_024, 8_192
# How many passages' pairs are counted at once.
COUNTED = 4_096
# How many passages' hidden states are summed, and how many bytes a model's sums may take: about so many words of a
# passage are new to its shard, each with a vector for every layer and kind.
MOST_HIDDEN, FEWEST_HIDDEN, HIDDEN_ROOM, WORDS_OF_A_PASSAGE = 1_024, 64, 512_000_000, 15
# Workers that are started before there is work for them; the first map has as many pieces, one per LDA seed.
READY = 2
# The mean of hidden states is over at most this many passages.
CENTRED = 32
# How many words describe a topic, and how many pairs of words describe a head.
TOP_WORDS, SHOWN_PAIRS = 10, 3
# How many topics the map of words has: as many as colours can distinguish.
MAPPED_TOPICS = 8
# The pairs that co-occur most are looked for among this many words, the most frequent ones, so that their table stays
# small.
MOST_FREQUENT = 4_000


class Finished(NamedTuple):
    """A model that was measured."""

    model: "AnyModel"
    study: "Study"
    rows: list[Row]
    """Its rows of probe.json."""

    shown: Row
    """Its row of words.json."""

    arrays: dict[str, np.ndarray]
    """The arrays by which it is compared with other models."""

    def comparable(self) -> bytes:
        """A file with these arrays, and with what they were measured on."""
        plan = self.study.plan
        firsts = [plan.labellings[places[0]] for places in plan.groups]
        groups = [(each.fraction, each.assignment) for each in firsts]
        about = {"model": self.model.title, "plan": self.study.plan_file.stem, "groups": groups}
        return packed(about, self.arrays)


class GivenModel:
    """The caller's own :class:`~topicscope.probing.models.Subject`, with what else a study needs to know.

    The subject has a ``tokenizer`` (a folder with tokenizer.json, or minilm), and may have a ``name``. It stays in this
    process. Its results are kept under a digest of its embeddings and of its output for one short passage.
    """

    revision = ""

    def __init__(self, subject: Any, length: int, tokenizer: Tokenizer) -> None:
        """``length`` is the number of tokens per passage, including the tokenizer's special ones, if any."""
        self.subject, self.name = subject, str(getattr(subject, "name", type(subject).__name__))
        self.title, self.length = self.name, length - sum(map(len, tokenizer.special))
        self.layers, self.heads = int(subject.layers), int(subject.heads)
        self.causal, self.first = bool(subject.causal), int(subject.first)
        self.embedding_matrix, self.embedding_layer, self.run = (
            subject.embedding_matrix,
            subject.embedding_layer,
            subject.run,
        )
        digest = hashlib.sha256(np.ascontiguousarray(self.embedding_matrix()).tobytes())
        output = self.run([np.arange(min(8, tokenizer.size))])
        for layer in (*output.attention, *output.hidden):
            digest.update(np.ascontiguousarray(layer.detach().cpu().numpy()).tobytes())
        self.key = {"model": digest.hexdigest()[:20]}


AnyModel = HuggingFaceModel | GivenModel


def measure_models(
    models: Sequence[str | Subject],
    *,
    settings: ProbeSettings,
    machine: Machine,
    work: Path,
    shared: Path | None = None,
    corpus: Corpus | None = None,
    revisions: Sequence[str] = (),
    show_words: Sequence[str] = (),
    judged: bool = True,
    detailed: bool = True,
    report: scale.Report | None = None,
) -> Iterator[Finished]:
    """Measure models one after the other, as they are asked for.

    Whatever is wrong with models, corpus and topics is reported in one error, before anything is written; what only
    passages and topics show is reported before the first model is measured.

    models: names, or the caller's own subjects, which are measured in this process.
    revisions: checkpoints of the one model given.
    work, shared: where finished work is kept; passages and topics are in ``shared``, if given, for other models.
    corpus: the one that the settings name, if it is already open.
    show_words: words of the heat map; by default those of the paper's nine that the tokenizer keeps whole.
    judged: whether the coherence of fitted topics is measured.
    detailed: whether hidden states and single topics are measured too.
    """
    maps: dict[AnyModel, Row] = {}
    together: dict[tuple[str, int], tuple[Tokenizer, list[AnyModel]]] = {}
    problems: list[InputError] = []
    names = [(name, revision) for name in models for revision in (revisions or ("",))]
    for number, (name, revision) in enumerate(names):
        with collected(problems):
            if isinstance(name, str):
                if report:
                    report(number, len(names), f"loading {name}")
                source = find_model(name, revision=revision, allow_bin=machine.allow_bin)
                tokenizer = model_tokenizer(source)
            else:
                tokenizer = load_tokenizer(str(getattr(name, "tokenizer", "")))
                machine = replace(machine, workers=1, engine="local")
            with collected(problems):
                check_topics(settings, tokenizer)
            model: AnyModel
            if isinstance(name, str):
                longest = min(settings.text.length, tokenizer.longest or settings.text.length)
                loading = Loading(machine.device, settings.dtype, settings.seed, longest)
                model = HuggingFaceModel(source, tokenizer.special, loading)
                model.check_tokens(tokenizer)
            else:
                model = GivenModel(name, settings.text.length, tokenizer)
            # This is done at once, while the model is loaded.
            maps[model] = word_map(model, tokenizer, show_words)
            together.setdefault((tokenizer.digest, model.length), (tokenizer, []))[1].append(model)
    with collected(problems):
        stop_word_list(settings.topics.stop_words)
    with collected(problems):
        corpus = corpus or settings.text.open()
        # This refuses a field that is not there, and files without text.
        next(corpus.documents())
    refuse_all(problems)
    assert corpus is not None
    prepare = partial(
        Study, corpus, settings, machine, work, shared=shared, judged=judged, detailed=detailed, report=report
    )
    return _measured(prepare, together, maps, report)


@contextmanager
def workers_ready(machine: Machine) -> Iterator[None]:
    """Let workers load what they need while the models and the corpus are still being read here."""
    ready = READY if machine.engine == "local" and _workers(machine) > 1 else 0
    with scale.keeping_workers(ready, (__name__, "transformers.modeling_utils")):
        yield


def _measured(
    prepare: Callable[[Tokenizer, int], "Study"],
    together: Mapping[tuple[str, int], tuple[Tokenizer, list[AnyModel]]],
    maps: Mapping[AnyModel, Row],
    report: scale.Report | None,
) -> Iterator[Finished]:
    """Prepare what all models are measured on, then yield each model as soon as all of its work is done."""
    with scale.keeping_workers():
        problems: list[InputError] = []
        studies: list[tuple[Study, list[AnyModel]]] = []
        for (_, length), (tokenizer, alike) in together.items():
            with collected(problems):
                studies.append((prepare(tokenizer, length), alike))
        refuse_all(problems)
        twins = same_weights(maps)
        for study, alike in studies:
            machine = study.machine
            # Embeddings of the plan's words, and each layer's mean vector, are kept as a file of each model.
            vectors = [study.vectors(model) for model in alike]
            # A Ray of our own takes longer to start than these take.
            at_once = _workers(machine) if machine.engine == "local" else 1
            measure = methodcaller("measure")
            contents = dict(scale.completed(measure, vectors, folder=study.work, workers=at_once))
            work = {
                model: study.items(model, item.path(study.work), load(contents[place])["centre"].shape)
                for place, (model, item) in enumerate(zip(alike, vectors, strict=True))
            }
            order = [(model, item) for model, items in work.items() for item in items]
            waiting = {model: len(items) for model, items in work.items()}
            done = scale.completed(
                measure,
                [item for _, item in order],
                folder=study.work,
                workers=_workers(machine),
                engine=machine.engine,
                address=machine.address,
                timeout=machine.timeout,
                report=report,
            )
            # Contents stay on disk until they are summed up: their size grows with the corpus.
            for finished, (place, _) in enumerate(done, start=1):
                model = order[place][0]
                waiting[model] -= 1
                if not waiting[model]:
                    if report:
                        report(finished, len(order), f"{model.title}: tests and intervals")
                    rows, arrays = study.rows(model, work[model])
                    marked = [row | {"same_weights_as": twins.get(model)} for row in rows]
                    yield Finished(model, study, marked, maps[model] | study.topic_map(model), arrays)


def same_weights(models: Iterable[AnyModel]) -> dict[AnyModel, str]:
    """For each trained model that has the weights of an earlier one, the earlier one; a warning says so."""
    first: dict[str, AnyModel] = {}
    found: dict[AnyModel, str] = {}
    for model in models:
        if isinstance(model, GivenModel) or model.source.untrained:
            continue
        if (earlier := first.setdefault(model.source.weights, model)) is not model:
            found[model] = earlier.title
            logger.warning("%s has the same weights as %s, to the byte.", model.title, earlier.title)
    return found


def check_topics(settings: ProbeSettings, tokenizer: Tokenizer) -> None:
    """Refuse the user's topics if they do not fit a tokenizer, as far as that is known without the corpus."""
    options, text = settings.topics, settings.text
    if text.several_tokens or not (options.word_topics or options.topics_from):
        return
    words = Words.of(None, tokenizer, merged=text.merge_words)
    if options.word_topics:
        read_own_topics(options.word_topics, words)
    else:
        load_topics(cast("Path", options.topics_from), None, words)


def word_map(model: AnyModel, tokenizer: Tokenizer, show_words: Sequence[str]) -> Row:
    """Cosines of a few words in the embedding matrix, as in Figure 3.

    Those of the paper's nine words that the tokenizer splits are left out and named; a word that the user
    asked for is refused instead.
    """
    found = {word: tokenizer.token(word) for word in show_words or chain(*PAPER_WORDS.values())}
    split = [word for word, token in found.items() if token is None]
    if show_words and split:
        raise InputError(
            f'--show-words "{split[0]}" is not one token of {model.title}: give words that its tokenizer keeps whole.'
        )
    tokens = {word: token for word, token in found.items() if token is not None}
    vectors = prepared(model.embedding_matrix()[list(tokens.values())], "cosine")
    cosine = (vectors @ vectors.T).tolist()
    return {"model": model.title, "words": list(tokens), "left_out": split, "cosine": cosine}


def corpus_warnings(passages: Passages, tokenizer: Tokenizer, options: TopicOptions) -> list[str]:
    """Which language the corpus seems to be in, if stop words depend on it, and whether the tokenizer suits it."""
    found, about = [], passages.description
    if options.stop_words == "auto" and not options.word_topics and not options.topics_from:
        language = about["language"]
        found.append(
            f'the language seems to be "{language}": its stop words are left out'
            if language
            else "the language is not known: English stop words are left out; say which with --stop-words"
        )
    if passages.whole_share < 0.5 and not about["several_tokens"]:
        found.append(
            f'the tokenizer of "{tokenizer.name}" keeps only {passages.whole_share:.0%} of the words whole, and the '
            "others are not measured: give a model for this language, or --several-tokens"
        )
    return found


def fitted_on(fits: Sequence[FittedTopics], passages: Passages, *, halves: bool, folder: Path | None) -> str:
    """What LDA saw, in the words of a row; an earlier probe's topics that contradict ``halves`` are refused."""
    about = [each.description for each in fits]
    if any(each.get("corpus") != passages.description["corpus"] for each in about):
        if halves:
            raise InputError(
                f"--topics-from {folder} was fitted on another corpus, so no half of this one is known to be new to "
                "it: give the corpus that it was fitted on, or --no-halves to measure on all of this one."
            )
        return "another corpus"
    if any(each["split"] != halves for each in about):
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
) -> Int[np.ndarray, " found"]:
    """The words of so many pairs that co-occur most in these passages."""
    frequency, places = np.zeros(len(every)), words.places(every)
    for place in chosen.tolist():
        found = places[passages.spelled(place)]
        frequency += np.bincount(found[found >= 0], minlength=len(every))
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
        found = [places[passages.spelled(place)] for place in chosen[start : start + COUNTED].tolist()]
        flat = np.concatenate(found)
        frequency += np.bincount(flat[flat >= 0], minlength=size)
        pairs = PairTable.merged([pairs, count_pairs(flat, np.cumsum([0, *map(len, found)]), size)])
    return frequency, pairs


class Study:
    """What models with one tokenizer and length are measured on, and their measures, in a folder of finished work."""

    def __init__(
        self,
        corpus: Corpus,
        settings: ProbeSettings,
        machine: Machine,
        work: Path,
        tokenizer: Tokenizer,
        length: int,
        *,
        shared: Path | None = None,
        judged: bool = True,
        detailed: bool = True,
        report: scale.Report | None = None,
    ) -> None:
        """Passages, topics and plan for models with one tokenizer and so many content tokens per passage.

        What is in the folder is used; if another process is preparing the same there, this one waits for it.
        """
        self.settings, self.machine, self.work = settings, machine, work / "measured"
        self.tokenizer, self.length, self.detailed = tokenizer, length, detailed
        folder = shared or work
        text, options = settings.text, settings.topics
        several = "-several" if text.several_tokens else ""
        self.folder = folder / f"passages-{tokenizer.digest}-{length}-{text.every}{several}"
        with alone_in(folder):
            self.passages = passages = write_passages(
                corpus,
                tokenizer,
                length=length,
                folder=self.folder,
                every=text.every,
                several=text.several_tokens,
                progress=bytes_read(corpus, report),
            )
            self.words = words = Words.of(passages, tokenizer, merged=text.merge_words)
            # One half of the articles is measured if topics are fitted on the other; all of them for the user's own
            # topics, and if the user wants it so.
            self.chosen = np.arange(len(passages))
            if text.halves and not options.word_topics:
                self.chosen = passages.for_measures
                if not len(passages.for_topics) or not len(self.chosen):
                    raise InputError(
                        f'corpus = "{corpus.source}" has too few articles to fit topics on one half and measure on the '
                        "other: give more text, or --no-halves."
                    )
            self.notes = corpus_warnings(passages, tokenizer, options)
            # The user's own topics have no fits, and their words that the tokenizer splits are left out.
            self.fits: list[FittedTopics] = []
            self.split_words: list[str] = []
            self.fitted_on: str | None = None
            if options.word_topics:
                own, self.split_words, without = read_own_topics(options.word_topics, words)
                labellings = [own]
                if without:
                    self.notes.append(f"own topics without a word that is whole were left out: {', '.join(without)}")
            else:
                if options.topics_from:
                    self.fits = load_topics(options.topics_from, passages, words)
                else:
                    first = settings.seed * MOST_FITS
                    self.fits = fit_topics(
                        passages,
                        words,
                        options,
                        folder=folder / "topics",
                        seeds=range(first, first + options.fits),
                        halves=text.halves,
                        judged=judged,
                        workers=_workers(machine),
                        report=report,
                    )
                self.fitted_on = fitted_on(self.fits, passages, halves=text.halves, folder=options.topics_from)
                labellings, notes = label_fits(self.fits, options)
                self.notes += [*notes, *topic_warnings(self.fits, words)]
            # Top pairs are those of all words that LDA knows, which leaves stop words out.
            every = np.unique(np.concatenate([each.tokens for each in self.fits])) if self.fits else None
            self.plan = make_plan(labellings, passages, words, self.chosen, settings, every=every)
            if options.word_topics and not self.plan.frequency.any():
                raise InputError(
                    f"none of the words of --word-topics {options.word_topics} is in a passage of corpus = "
                    f'"{corpus.source}": give words that it has, or another corpus.'
                )
            content = self.plan.to_bytes()
            self.plan_file = folder / f"plan-{hashlib.sha256(content).hexdigest()[:20]}.safetensors"
            if not self.plan_file.exists():
                write_atomically(self.plan_file, content)

    @property
    def name(self) -> str:
        """The name in files about its topics, which differ between passage lengths."""
        return f"{self.tokenizer.digest}-{self.length}"

    def topic_rows(self) -> list[Row]:
        """Rows of topics.csv: the words of every labelling, with their topics."""
        words = self.words.named(self.plan.tokens)
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
        """A row of corpus.json: how much was read, what could not be read, and how good the topics are."""
        about, absent = self.passages.description, self.plan.tokens[self.plan.frequency == 0]
        return {
            "tokenizer": self.tokenizer.digest,
            "tokenizer_name": self.tokenizer.name,
            "length": self.length,
            "source": about["source"],
            "articles": about["documents"],
            "passages": len(self.passages),
            "measured": len(self.chosen),
            "problems": [*corpus_notes(about), *(f"{sentence}." for sentence in self.notes)],
            "words": int(np.any([each.kept for each in self.plan.labellings], axis=0).sum()),
            "words_left_out": self.split_words,
            # A user's words that the measured passages lack: they have embeddings, and no attention.
            "words_without_attention": [] if self.fits else self.words.named(absent),
            "topic_quality": quality(self.fits) if self.fits else None,
        }

    def vectors(self, model: AnyModel) -> scale.Item[ModelVectors]:
        """The work that comes before all other: embeddings of the plan's words, and means of hidden states."""
        few = self.chosen[:: -(-len(self.chosen) // CENTRED)].tolist() if self.detailed else []
        passages = tuple(np.asarray(self.passages[place]) for place in few)
        work = ModelVectors(model, *self.words.token_means(self.plan.tokens), passages)
        return self.item(model, "vectors", work, suffix=".safetensors")

    def items(self, model: AnyModel, vectors: Path, states: tuple[int, int]) -> list[scale.Item[Shard | EmbeddingTask]]:
        """All further work on a model: shards of passages, then the embeddings under each group of labellings.

        vectors: the file of its vectors. states: layers and width of its hidden states.
        """
        plan, measures, machine = self.plan, self.settings.measures, self.machine
        # Few enough tokens for a layer's attention to stay in a processor's cache; a GPU is faster with many.
        on_cpu = device_named(machine.device).type == "cpu"
        batch = machine.batch or (CPU_BATCH if on_cpu else GPU_BATCH)
        hidden = set(self._with_hidden_states(*states))
        found: list[scale.Item[Shard | EmbeddingTask]] = []
        for number, start in enumerate(range(0, len(self.chosen), PASSAGES)):
            chosen = self.chosen[start : start + PASSAGES].tolist()
            summed = tuple(place for place in chosen if place in hidden)
            shard = Shard(model, self.folder, self.plan_file, tuple(chosen), batch, vectors, summed)
            found.append(self.item(model, f"attention {number}", shard, {"chosen": chosen, "hidden": summed}))
        numbers = {"replicates": measures.replicates, "permutations": measures.permutations}
        # The longest come first, so that no worker is left with a long piece at the end.
        for group in sorted(plan.groups, key=lambda group: -plan.labellings[group[0]].words):
            task = EmbeddingTask(vectors, self.plan_file, group, measures, self.detailed)
            name = plan.labellings[group[0]].name
            found.append(self.item(model, f"embeddings {name}", task, {"labellings": group, **numbers}))
        return found

    def item(
        self, model: AnyModel, kind: str, argument: T, more: Mapping[str, Any] | None = None, *, suffix: str = ".bin"
    ) -> scale.Item[T]:
        """A piece of work on a model, and everything that its result depends on."""
        key = {
            "code": scale.code_digest(SOURCES),
            "detailed": self.detailed,
            "packages": {name: scale.versions()[name] for name in PACKAGES},
            "kind": kind,
            **model.key,
            "passages": self.passages.digest,
            "plan": self.plan_file.stem,
            **(more or {}),
        }
        return scale.Item(f"{model.title} {kind}", key, argument, suffix)

    def _with_hidden_states(self, layers: int, width: int) -> list[int]:
        """The passages whose hidden states are summed, evenly spread: as many as the room for their words allows.

        Even so millions of pairs of places are compared; what matters is how many words there are.
        """
        if not layers:
            return []
        of_a_passage = WORDS_OF_A_PASSAGE * layers * width * len(SUMMED) * 4
        number = min(max(HIDDEN_ROOM // of_a_passage, FEWEST_HIDDEN), MOST_HIDDEN)
        found: list[int] = self.chosen[:: -(-len(self.chosen) // number)].tolist()
        return found

    def _top_words(self) -> list[list[str]]:
        """Each topic's words, the likeliest first if LDA fitted them."""
        if not self.fits:
            own = self.plan.labellings[0].membership.T
            return [list(self.words.named(self.plan.tokens[each])[:TOP_WORDS]) for each in own]
        return [list(self.words.named(np.array(each))) for each in self.fits[0].top_words(TOP_WORDS)]

    def topic_map(self, model: AnyModel) -> Row:
        """Words of the topics that occur most, in two dimensions of the embedding matrix: part of words.json.

        Each topic has its likeliest words that the largest threshold keeps; they are the same for all models.
        """
        if not self.detailed:
            return {}
        every, names, likeliest = self.plan.labellings, self.words.named(self.plan.tokens), self._top_words()
        labelling = next(each for at, each in enumerate(every) if at in self.plan.widest)
        place_of = {name: place for place, name in enumerate(names)}
        often = labelling.membership.T @ self.plan.frequency
        found: list[tuple[int, int]] = []
        for topic in np.argsort(-often, kind="stable")[:MAPPED_TOPICS].tolist():
            kept = [place_of[word] for word in likeliest[topic] if word in place_of]
            found += [(topic, word) for word in kept if labelling.membership[word, topic]]
        if len(found) < 3:
            return {}
        vectors = load(self.vectors(model).path(self.work).read_bytes())["matrix"][[word for _, word in found]]
        places, share = principal_places(vectors.astype(np.float64))
        named = labelling.topic_names or range(labelling.membership.shape[1])
        topics = [f"{named[topic]}: {', '.join(likeliest[topic][:3])}" for topic, _ in found]
        words = [names[word] for _, word in found]
        return {"topic_map": {"words": words, "topics": topics, "places": places.tolist(), "share": share}}

    def rows(
        self, model: AnyModel, items: Sequence[scale.Item[Shard | EmbeddingTask]]
    ) -> tuple[list[Row], dict[str, np.ndarray]]:
        """Rows of a model whose work is done, and the arrays by which it is compared with others."""
        measures, plan = self.settings.measures, self.plan
        done = list(zip((item.argument for item in items), scale.result_paths(items, self.work), strict=True))
        shards = [path for work, path in done if isinstance(work, Shard)]
        embeddings = {work.labellings: (work, path) for work, path in done if isinstance(work, EmbeddingTask)}

        def summarise(shards: Sequence[Path]) -> bytes:
            read = (ShardSums.restore(path.read_bytes()) for path in shards)
            totals = AttentionTotals(read, measures.replicates, plan.seed)
            tops = over_groups(plan, lambda places: top_co_occurring(totals.pairs, plan, embeddings[places][0]))
            found = attention_summary(totals, plan, measures, by_topic=self.detailed)
            arrays = _numbered(group.pop(COMPARED) for group in found["groups"])
            return packed(found | {"top_pairs": tops}, arrays)

        # The summary of all shards, and Table 2's comparison for each embedding, are kept because they take a while.
        about = {"measures": asdict(measures), "chosen": self.chosen.tolist()}
        item = self.item(model, "summary", shards, about)
        list(scale.completed(summarise, [item], folder=self.work))
        attention, arrays = unpacked(item.path(self.work))
        labellings = [plan.labellings[places[0]] for places in plan.groups]
        similar, more = zip(*(unpacked(embeddings[group][1]) for group in plan.groups), strict=True)
        arrays |= _numbered(more)
        # By variant and group: attention is the same for all variants.
        falls = [
            over_largest_threshold(
                [
                    each[variant][RATIOS] | group[RATIOS]
                    for each, group in zip(similar, attention["groups"], strict=True)
                ],
                labellings,
            )
            for variant in range(len(VARIANTS))
        ]
        words = self._top_words()
        examples = _named_examples(attention["examples"], self.words.named(plan.tokens))
        rows = [
            {
                "model": model.name,
                "revision": model.revision,
                "fraction": labelling.fraction,
                "assignment": labelling.assignment,
                "embedding": variant.embedding,
                "centred": variant.centred,
                "words": labelling.words,
                "topics": labelling.topics,
                "cosine": found["cosine"],
                "dot": found["dot"],
                "attention": group["attention"],
                "attention_by_layer": group["attention_by_layer"],
                "attention_by_layer_head": [
                    [head | {"examples": pairs} for head, pairs in zip(*each, strict=True)]
                    for each in zip(group["attention_by_layer_head"], examples, strict=True)
                ],
                "hidden_by_layer": group["hidden_by_layer"],
                BY_TOPIC: self._by_topic(labelling, words, group, found),
                "over_largest_threshold": fall[number],
                "top_co_occurring": top,
                "matched": {"attention": group["matched"], "cosine": found["matched"]},
                "causal": model.causal,
                "sink": attention["sink"],
                "lda_seeds": len(places),
                "articles": len(np.unique(self.passages.articles[self.chosen])),
                "passages": len(self.chosen),
                "corpus": self.settings.text.corpus,
                "corpus_digest": str(self.passages.description["corpus"]),
                "tokenizer": self.tokenizer.digest,
                "length": self.length,
                "fitted_on": self.fitted_on,
            }
            for number, (places, labelling, group, variants, tops) in enumerate(
                zip(plan.groups, labellings, attention["groups"], similar, attention["top_pairs"], strict=True)
            )
            for variant, found, top, fall in zip(VARIANTS, variants, tops, falls, strict=True)
        ]
        return rows, arrays

    def _by_topic(
        self, labelling: Labelling, words: Sequence[Sequence[str]], group: Row, found: Row
    ) -> list[Row] | None:
        """For each topic with two words or more, its first words and its measures."""
        if not found[BY_TOPIC]:
            return None
        return [
            {
                "topic": labelling.topic_names[topic] if labelling.topic_names else topic,
                "words": words[topic],
                "kept": int(labelling.membership[:, topic].sum()),
                "cosine": cosine,
                **others,
            }
            for topic, (cosine, others) in enumerate(zip(found[BY_TOPIC], group[BY_TOPIC], strict=True))
            if labelling.membership[:, topic].sum() > 1
        ]


def _numbered(groups: Iterable[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {f"{number}/{name}": array for number, group in enumerate(groups) for name, array in group.items()}


def _named_examples(examples: Sequence[Sequence[Any]], words: Sequence[str]) -> list[list[list[str]]]:
    """For each layer and head, the pairs of words that it connects most."""
    return [
        [
            [f"{words[int(one)]} {words[int(other)]}" for value, one, other in head[:SHOWN_PAIRS] if value is not None]
            for head in layer
        ]
        for layer in examples
    ]


def _workers(machine: Machine) -> int:
    """As many workers as asked for; else as many as cores, or one where a GPU is shared."""
    if machine.workers is not None:
        return machine.workers
    return scale.available_cores() if device_named(machine.device).type == "cpu" else 1
