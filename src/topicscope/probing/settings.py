"""The settings of a study with the probe; each checks itself and says what is allowed.

Messages name a setting by its option on the command line.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from topicscope.errors import LARGEST_NUMBER, InputError, check_at_least, check_one_of, refuse
from topicscope.settings.data import Device, Layout
from topicscope.text.corpora import Corpus, open_corpus
from topicscope.work import check_engine

Assignment = Literal["one", "several"]
Precision = Literal["float32", "float64", "bfloat16", "float16"]

# LDA's seeds for one ``seed`` are the numbers from seed · MOST_FITS on, which no other ``seed`` shares.
MOST_FITS = 1_000

# Settings without effect where topics are already fitted, and further ones where words are given with their topics.
OF_LDA = ("topics", "fits", "iterations", "most_tokens", "stop_words")
OF_LABELS = ("fractions", "assignments")

# What a row compares between same- and different-topic pairs, in the order of Table 1's columns.
MEASURES = ("cosine", "dot", "attention")

# Tables 1, 2 and 5.
PAPER_FRACTIONS = (0.0005, 0.001, 0.002)

# Figure 3: nine words of three topics.
PAPER_WORDS = {
    "animals": ("frog", "toad", "lizard"),
    "musicians": ("mozart", "beethoven", "schubert"),
    "mathematics": ("algebra", "arithmetic", "calculus"),
}


def name_of(model: Any) -> str:
    """The name of a model, which is the model itself, or of the caller's own subject."""
    return model if isinstance(model, str) else str(getattr(model, "name", type(model).__name__))


@dataclass(frozen=True, kw_only=True)
class CorpusSettings:
    """Which text, and how it is cut."""

    corpus: str = "wiki-sample"
    """wiki-sample, a file, a folder or a Hugging Face dataset."""

    field: str = "text"
    """The field of JSON lines and datasets, or the column of a CSV file, that holds the text."""

    split: str = "train"
    """Which part of a dataset."""

    layout: Layout = "auto"
    """What a document is in plain text: each line, paragraph or file."""

    length: int = 128
    """Tokens per passage, special ones included; fewer where a model takes fewer."""

    every: int = 1
    """Keep one passage in so many."""

    merge_words: bool = True
    """Treat spellings that differ only in case or leading space, such as "net", "Net" and " net", as one word."""

    several_tokens: bool = False
    """Also measure words of several tokens: their mean vector, summed attention to them, mean attention by them."""

    halves: bool = True
    """Fit topics on one half of the articles and measure on the other; with --no-halves on all, as in the paper."""

    def __post_init__(self) -> None:
        check_at_least("--length", self.length, 4)
        check_at_least("--every", self.every, 1)
        check_one_of("--layout", self.layout, get_args(Layout))

    def open(self) -> Corpus:
        """The corpus itself."""
        return open_corpus(self.corpus, field=self.field, split=self.split, layout=self.layout)


@dataclass(frozen=True, kw_only=True)
class TopicOptions:
    """Which words belong to which topics."""

    topics: int | None = None
    """How many topics LDA fits; by default the paper's 100, or fewer for a small corpus."""

    fractions: tuple[float, ...] = ()
    """Ambiguity thresholds: each topic keeps ⌊fraction · words in LDA's vocabulary⌋ + 1 words; by default the paper's
    0.0005, 0.001 and 0.002, or larger ones for a small vocabulary."""

    assignments: tuple[Assignment, ...] = ("one", "several")
    """"one": a word keeps the topic where it is likeliest (Table 1). "several": all topics that keep it (Table 5)."""

    fits: int = 2
    """LDA seeds."""

    iterations: int = 200
    """How many sweeps LDA's sampler makes."""

    most_tokens: int = 20_000_000
    """LDA is fitted on at most so many tokens, from passages drawn at random: it holds about 17.5 bytes per word."""

    stop_words: str = "auto"
    """Words left out: "auto" (those of the corpus's language, which is guessed), the code of a language such as "de",
    "gensim" (the English list of its package), "none", or a file with one word per line."""

    topics_from: Path | None = None
    """Use the topics that an earlier probe with the same tokenizer saved in this folder, instead of fitting them."""

    word_topics: Path | None = None
    """Your own topics, a CSV file with columns word and topic, instead of LDA."""

    def __post_init__(self) -> None:
        if self.topics_from and self.word_topics:
            raise InputError("--topics-from and --word-topics are both given: give one of them.")
        if self.topics is not None:
            check_at_least("--topics", self.topics, 2)
        # Beyond them are the LDA seeds of the next --seed.
        check_at_least("--fits", self.fits, 1, MOST_FITS)
        check_at_least("--iterations", self.iterations, 1)
        check_at_least("--most-tokens", self.most_tokens, 1)
        if not all(0 < each < 1 for each in self.fractions):
            raise refuse("--fractions", self.fractions, "give numbers above 0 and below 1, such as 0.0005")
        if len(set(self.fractions)) < len(self.fractions):
            raise refuse("--fractions", self.fractions, "give each value once")
        if len(set(self.assignments)) < max(len(self.assignments), 1):
            raise refuse("--assignments", self.assignments, "give each value once")
        given = "--topics-from" if self.topics_from else "--word-topics" if self.word_topics else None
        unused = () if given is None else OF_LDA if self.topics_from else (*OF_LDA, *OF_LABELS)
        for name in unused:
            if (value := getattr(self, name)) != getattr(TopicOptions, name):
                remedy = f"{given} brings topics that it does not change; leave it out"
                raise refuse(f"--{name.replace('_', '-')}", value, remedy)
        if self.topics_from and not (self.topics_from / "topics.safetensors").is_file():
            what = "give a folder topics-… that an earlier probe made"
            raise InputError(f"--topics-from {self.topics_from} has no topics.safetensors: {what}.")
        if self.word_topics and not self.word_topics.is_file():
            raise InputError(
                f"--word-topics {self.word_topics} is no file: give a CSV file with columns word and topic."
            )


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """How certain the numbers are to be."""

    replicates: int = 1_000
    """Bootstrap replicates, of articles for attention, of topics and words for embeddings."""

    permutations: int = 9_999
    """Permutations of words in the tests of a model's numbers."""

    head_permutations: int = 999
    """Permutations in the test over all layers and heads, and in those of hidden states and single topics."""

    details: bool = True
    """Also measure hidden states, single topics and the coherence of fitted topics."""

    def __post_init__(self) -> None:
        check_at_least("--replicates", self.replicates, 2)
        check_at_least("--permutations", self.permutations, 1)
        check_at_least("--head-permutations", self.head_permutations, 1)


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """A study, except for its models. On the command line the names of its parts are not written."""

    text: Annotated[CorpusSettings, "inline"] = CorpusSettings()
    topics: Annotated[TopicOptions, "inline"] = TopicOptions()
    measures: Annotated[MeasureSettings, "inline"] = MeasureSettings()

    dtype: Precision = "float32"
    """The precision in which models run."""

    seed: int = 0
    """The seed of untrained weights, bootstrap replicates, permutations and LDA."""

    def __post_init__(self) -> None:
        check_at_least("--seed", self.seed, 0, LARGEST_NUMBER // MOST_FITS)

    def record(self, corpus: Corpus) -> "Record":
        """By option, as probe-settings.json has them: folders of results are compared by it. Files count by content.

        corpus: the one that the settings name.
        """
        table = msgspec.to_builtins(self, enc_hook=str)
        options = table.pop("text") | table.pop("topics") | table.pop("measures") | table
        options["corpus"] = f"{self.text.corpus} ({corpus.digest})"
        files = {"word_topics": self.topics.word_topics, "stop_words": Path(self.topics.stop_words)}
        if self.topics.topics_from:
            files["topics_from"] = self.topics.topics_from / "topics.safetensors"
        for name, path in files.items():
            if path and path.is_file():
                options[name] = f"{path} ({hashlib.sha256(path.read_bytes()).hexdigest()[:20]})"
        return msgspec.convert(options, Record)


Record = dict[str, str | int | float | bool | list[str | float] | None]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where and how the work is done; results do not depend on it, except for rounding."""

    device: Device = "auto"
    """Where models run."""

    batch: int | None = None
    """Tokens per batch, halved when memory runs out; by default 1,024 on a CPU and 8,192 on a GPU."""

    workers: int | None = None
    """How many processes work at once; by default as many as there are cores, or one on a GPU."""

    engine: str = "local"
    """Where the processes are: "local", or "ray" for a cluster."""

    address: str | None = None
    """A Ray cluster, HOST:PORT or auto, instead of a Ray on this machine; --out must be on a disk it shares."""

    def __post_init__(self) -> None:
        if self.batch is not None:
            check_at_least("--batch", self.batch, 1)
        check_engine(self.engine, address=self.address, workers=self.workers)
