"""What verbs return, and the files that topicscope writes: what is in each, as structs, and how it is read again.

A ``File`` is read as structs, or refused in an ``UnreadableError`` of one sentence. Older and newer versions may have
other keys beside those that are declared. A caller that can go on without a file catches the error.

    run folder        settings.toml  run.safetensors (``measure.run``)  versions.json
    run on text       passages/passages.json, beside these
    reproduce         claims.json  article.json  settings.json  runs/…/run.safetensors  landscapes.json
    probe             probe.json  probe-settings.json  comparisons.json  corpus.json  words.json  topics.csv
    sweep, landscape  sweep.json; landscapes.json
"""

import ast
import dataclasses
import importlib
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

import numpy as np
from msgspec import Meta, Struct, structs

from topicscope.errors import InputError
from topicscope.store import read_struct, read_table, struct_text, table_text, write_atomically

T = TypeVar("T")
Number = float | None
Count = Annotated[int, Meta(ge=0)]
# The name of a file inside a folder, not a way out of it.
Name = Annotated[str, Meta(pattern=r"^[^/\\]*$")]
Arrays = dict[str, np.ndarray]


# What a verb returns.


def field_docstrings(kind: type) -> dict[str, str]:
    """The docstrings under a dataclass's fields, each on one line; a name in backticks is quoted, code is not."""
    docstrings = {}
    for parent in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(parent):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(parent))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise(definition.body):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = " ".join(text.replace("``", "").replace("`", '"').split())
    return docstrings


class Result:
    """A dataclass of numbers and arrays: its numbers for JSON, as a pandas frame, and as a table in notebooks.

    Arrays are in files, and in attributes; they are no part of the numbers.
    """

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values: dict[str, Any] = plain(self)
        return values

    def rows(self) -> list[dict[str, Any]]:
        """The rows of a frame; by default one, with all numbers by dotted names such as ``finite.same_word``."""
        return [flat_row(self.to_dict())]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        return frame_of(self.rows())

    def _repr_html_(self) -> str:
        numbers = flat_row({name: part for name, part in self.to_dict().items() if isinstance(part, dict)})
        return table_html(("quantity", "value"), list(numbers.items()), str(self))


def plain(value: Any) -> Any:
    """Dataclasses and structs as dictionaries, without their arrays; paths as text."""
    if isinstance(value, Struct):
        value = structs.asdict(value)
    elif dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if not _is_array(item)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def _is_array(value: Any) -> bool:
    several = isinstance(value, Mapping) and bool(value)
    return isinstance(value, np.ndarray) or (several and all(isinstance(item, np.ndarray) for item in value.values()))


def flat_row(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A row without nesting: ``norm.value``, and with several layers or heads ``norm.value.0``, ``norm.value.1``."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            value = value[0] if len(value) == 1 else {str(place): item for place, item in enumerate(value)}
        flat |= flat_row(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows as a pandas DataFrame, if pandas is installed."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise InputError("to_frame needs pandas: pip install pandas.") from None
    return pandas.DataFrame(list(rows))


def table_html(columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str) -> str:
    """A table for a notebook, everything in it escaped; numbers have five digits."""

    def line(tag: str, cells: Sequence[Any]) -> str:
        texts = ("–" if cell is None else f"{cell:.5g}" if isinstance(cell, float) else str(cell) for cell in cells)
        return "<tr>" + "".join(f'<{tag} style="text-align: left">{escape(text)}</{tag}>' for text in texts) + "</tr>"

    body = "".join(line("td", row) for row in rows)
    head = f"<caption>{escape(caption)}</caption><thead>{line('th', columns)}</thead>"
    return f"<table>{head}<tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class File(Generic[T]):
    """One of our files: its name, what it holds, and what a user can do if it cannot be read."""

    name: str
    kind: Any
    """T: the content of a .json file, or a list of the rows of a .csv file."""

    remedy: str

    def read(self, folder: Path) -> T:
        """What the file in a folder holds."""
        path = folder / self.name
        if path.suffix == ".json":
            return read_struct(path, self.kind, self.remedy)
        [row] = get_args(self.kind)
        return read_table(path, row, self.remedy)

    def write(self, folder: Path, content: T) -> None:
        """Write the file into a folder."""
        rows: Any = content
        is_json = self.name.endswith(".json")
        text = struct_text(content) if is_json else table_text([structs.asdict(row) for row in rows])
        write_atomically(folder / self.name, text)


# A comparison whose p is below this is distinguished from chance.
SIGNIFICANT = 0.05


# What ``probe`` writes. These structs are what measures return, files hold, and pages and tables show.


class Comparison(Struct, frozen=True, kw_only=True):
    """Averages over same-topic and different-topic pairs, and how they compare; None for what is not defined.

    Intervals are 95 % percentile intervals over the replicates that have pairs of both kinds, None if fewer than half
    have: with few topics, some replicates draw only one of them and have no pair of two (``replicates_left_out`` counts
    them). ``ratio`` and its interval are None unless the interval of the denominator (the denominator itself, if it has
    none) is above 0: around 0 the ratio may be any number, and below it is meaningless.
    """

    same: Number = None
    different: Number = None
    ratio: Number = None
    low: Number = None
    high: Number = None
    difference: Number = None
    difference_low: Number = None
    difference_high: Number = None
    auc: Number = None
    auc_low: Number = None
    auc_high: Number = None
    p: Number = None
    replicates_left_out: int = 0


class Ratio(Struct, frozen=True, kw_only=True):
    """A ratio with its 95 % interval."""

    ratio: Number = None
    low: Number = None
    high: Number = None


class LayerAttention(Comparison, frozen=True, kw_only=True):
    """The attention of one layer, averaged over its heads."""

    layer: Count = 0
    """The network's own number, from 1."""


class HeadComparison(Comparison, frozen=True, kw_only=True):
    """One head; ``p`` is corrected for all layers and heads by the maximum statistic."""

    layer: Count = 0
    head: Count = 0
    """Its number in the layer, from 1."""

    p_single: Number = None
    """The head's own p, not corrected."""

    q: Number = None
    """The false discovery rate."""

    matched: Ratio = Ratio()
    """The ratio among pairs of positions that are equally far apart."""

    examples: list[str] = []
    """The same-topic pairs of words that it connects most."""


class MatchedComparison(Comparison, frozen=True, kw_only=True):
    """Same- against different-topic pairs that are alike in co-occurrence and frequency (attention: and distance)."""

    share: Number = None
    """The share of same-topic pairs that have a match."""


class LayerComparison(Comparison, frozen=True, kw_only=True):
    """Hidden states of one layer; ``p`` is not corrected."""

    p_all_layers: Number = None
    """p corrected for all layers by the maximum statistic."""


class TopicComparison(Comparison, frozen=True, kw_only=True):
    """The pairs of one topic's words against pairs of one of them and a word of another topic."""

    q: Number = None
    """The false discovery rate among all topics."""


class HiddenLayer(Struct, frozen=True, kw_only=True):
    """Similarity of words' hidden states in different passages, in one layer; 0 is the embedding layer's output."""

    layer: Count
    words: Count
    centred_cosine: LayerComparison
    """After the layer's mean vector was subtracted."""


class TopicRow(Struct, frozen=True, kw_only=True):
    """One topic: its likeliest words, how many words it keeps, and how far they stand out."""

    topic: str | int
    words: list[str]
    kept: Count
    cosine: TopicComparison
    attention: TopicComparison | None = None
    hidden: TopicComparison | None = None
    hidden_layer: Count | None = None


class TopPairs(Struct, frozen=True, kw_only=True):
    """One row of Table 2: same-topic pairs, and the pairs of any words that co-occur most.

    In both comparisons ``different`` stands for the top pairs. Their intervals are over words (each counts a Poisson(1)
    number of times, a pair the product of its words'), since chance may decide which words a topic or the list has,
    and in addition over LDA seeds.
    """

    pairs: Count
    """How many top pairs."""

    attention: Comparison
    cosine: Comparison


class MatchedPairs(Struct, frozen=True, kw_only=True):
    """The matched comparisons of a row."""

    attention: MatchedComparison = MatchedComparison()
    cosine: MatchedComparison = MatchedComparison()


class ProbeRow(Struct, frozen=True, kw_only=True):
    """A row of probe.json: topic structure of a model at one threshold, assignment and embedding."""

    model: str
    revision: str | None
    fraction: Number = None
    """The ambiguity threshold; None for a user's own topics."""

    assignment: str
    embedding: str
    centred: bool = False
    words: Count = 0
    topics: Count = 0
    cosine: Comparison | None = None
    dot: Comparison | None = None
    attention: Comparison | None = None
    attention_by_layer: list[LayerAttention] = []
    attention_by_layer_head: list[list[HeadComparison]] = []
    hidden_by_layer: list[HiddenLayer] | None = None
    by_topic: list[TopicRow] | None = None
    """At the largest threshold of each assignment."""

    over_largest_threshold: dict[str, Ratio] | None = None
    """By measure, how many times as large the ratio is as that of the largest threshold; None for the largest."""

    top_co_occurring: TopPairs | None = None
    matched: MatchedPairs | None = None
    causal: bool = False
    sink: list[list[float]] | None = None
    """For a causal model, each head's attention to the first token."""

    articles: Count = 0
    passages: Count = 0
    corpus: str = ""
    corpus_digest: str = ""
    tokenizer: str = ""
    length: Count = 0
    fitted_on: str | None = None
    label: str | None = None
    """What tables and figures call the model."""

    @property
    def title(self) -> str:
        """Name and checkpoint, as in comparisons.json."""
        return f"{self.model} {self.revision or ''}".strip()

    def __post_init__(self) -> None:
        for name in ("attention_by_layer_head", "sink"):
            if len({len(layer) for layer in getattr(self, name) or ()}) > 1:
                raise ValueError(f"{name} does not have the same number of heads in each layer")


class TopicWord(Struct, frozen=True, kw_only=True):
    """A row of topics.csv: a word with one of its topics, at one threshold and assignment."""

    tokenizer: str = ""
    length: Count = 0
    seed: int | None = None
    fraction: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """None for a user's own topics."""

    assignment: str = ""
    topic: str
    word: str


class CorpusRow(Struct, frozen=True, kw_only=True):
    """A row of corpus.json: how a tokenizer cut the corpus at one passage length, and how good the topics are."""

    tokenizer: str
    tokenizer_name: str
    length: Count
    source: str
    articles: Count
    passages: Count
    measured: Count
    problems: list[str]
    words: Count
    words_left_out: list[str]
    words_without_attention: list[str]
    topic_quality: dict[str, Number] | None


class WordMap(Struct, frozen=True, kw_only=True):
    """A row of words.json: cosines of a few words in one model."""

    model: str
    words: list[str]
    left_out: list[str] = []
    """Words that the tokenizer splits."""

    cosine: list[list[float]]
    label: str | None = None

    def __post_init__(self) -> None:
        if [len(line) for line in self.cosine] != [len(self.words)] * len(self.words):
            raise ValueError("it does not have a cosine for each pair of words")


class PairedRow(Struct, frozen=True, kw_only=True):
    """A row of comparisons.json: one measure of two models, compared on the same passages and topics."""

    model: str
    against: str
    fraction: Number = None
    assignment: str
    measure: str
    layer: Count | None = None
    ratio_of_ratios: Number = None
    low: Number = None
    high: Number = None
    difference: Number = None
    difference_low: Number = None
    difference_high: Number = None
    auc_difference: Number = None
    auc_difference_low: Number = None
    auc_difference_high: Number = None
    p: Number = None


class ProbeResult(Struct, frozen=True, kw_only=True):
    """What a probe found: rows of probe.json and words.json."""

    rows: list[ProbeRow]
    maps: list[WordMap]
    """One for each model, in the order asked for."""


class TopicFit(Struct, frozen=True, kw_only=True):
    """One fit of LDA."""

    seed: Count
    tokenizer: str = ""
    tokenizer_name: str = ""
    merged: bool = False
    several_tokens: bool = False
    corpus: str = ""
    passages: str = ""
    split: bool = True
    """Whether it saw one half of the articles."""

    log_likelihood_per_word: Number = None
    diversity: Number = None
    c_npmi: Number = None


# Run folders.


class Level(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A loss to compare a run's with, or the reason why there is none."""

    loss: Number = None
    low: Number = None
    high: Number = None
    documents: Count | None = None
    """How many documents it was estimated on."""

    reason: str = ""


class PredictedStages(Struct, frozen=True, kw_only=True):
    """The predicted step at which attention takes off, norms over steps, and what they are or why there are none."""

    take_off: Number = None
    steps: list[float] = []
    norms: dict[str, list[float]] = {}
    note: str = ""


class Reference(Struct, frozen=True, kw_only=True):
    """What theory expects of a run."""

    bayes_floor: Level = Level()
    uniform_attention_optimum: Level = Level()
    theorem_2: Level = Level()
    matrices: dict[str, str] = {}
    """What each matrix is compared with, or why with nothing."""

    stages: PredictedStages = PredictedStages()


class Versions(Struct, frozen=True, kw_only=True):
    """What a run was made with."""

    packages: dict[str, str]
    python: str
    machine: str
    seeds: list[int]
    threads: int
    facts: dict[str, str] = {}
    """What no setting contains: the engine or the device, and the passages of a corpus."""


class PassagesFile(Struct, frozen=True, kw_only=True):
    """A passages.json: what passages were cut from and how, and how many there are."""

    version: Count = 0
    corpus: str = ""
    """The digest of the corpus and of how it is read."""

    tokenizer: str = ""
    """The digest of the tokenizer."""

    length: Count = 0
    every: Count = 1
    several_tokens: bool = False
    """Whether words of several tokens count as words too."""

    source: str
    """The corpus as the user named it."""

    tokenizer_name: str = ""
    passages: Count = 0
    tokens: Count = 0
    documents: Count = 0
    words: Count = 0
    words_whole: Count = 0
    """Words that the tokenizer keeps whole."""

    language: str | None = None
    """The code of the language that was guessed."""

    problems: list[str]
    """Sentences on the parts of the corpus that could not be read."""

    digest: str = ""
    """Identifies the content of the files."""


TRAIN_AGAIN = "remove it, and train with --resume to have it written again"
READ_AGAIN = "remove its folder, to have the corpus read again"
VERSIONS = File[Versions]("versions.json", Versions, "remove it to go on without knowing what the run was begun with")
PASSAGES = File[PassagesFile]("passages.json", PassagesFile, READ_AGAIN)


# A claim as claims.json has it: what a paper says, and what was measured.

Verdict = Literal["holds", "fails", "undecided", "not run"]
# Whose statement a claim is: the paper's; the paper's, on a model or a corpus that is not the paper's; ours, beside it.
Kind = Literal["paper", "elsewhere", "ours"]
# Why a claim does not hold: an error in the paper, its wording, settings (or a model, a corpus) in which it does not
# while it does in others, too few runs to tell; unknown, if nobody has looked into it yet.
Cause = Literal["error", "wording", "settings", "power", "unknown"]
Details = dict[str, float | str | bool | None]


class DiagnosisRecord(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a claim fails, is undecided or was not run."""

    cause: Cause
    explanation: str
    """What explains it, in whole sentences."""

    holds: str = ""
    """The nearest setting at which the verdict changes; empty if there is none."""

    see: list[str] = []
    """Claims that show this."""


class ClaimRowRecord(Struct, frozen=True, kw_only=True):
    """One setting of a claim about several."""

    name: str
    measured: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    margin: float | None
    seeds: int = 0
    details: Details = {}


class ClaimRecord(Struct, frozen=True, kw_only=True):
    """A claim with its verdict.

    ``low`` and ``high`` are a 95 % interval, null where the number is exact; ``margin`` is the distance from the rule's
    nearest end, negative outside. If the claim has rows, its number is that of the row that decides, which ``details``
    names.
    """

    id: str
    paper: str = ""
    source: str
    kind: Kind = "paper"
    statement: str
    rule: str = ""
    expected: float | str | None
    measured: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    verdict: Verdict
    margin: float | None = None
    diagnosis: DiagnosisRecord | None = None
    rows: list[ClaimRowRecord] = []
    seeds: Count = 0
    seconds: float | None = None
    figure: Name = ""
    details: Details = {}


class ReproduceSettings(Struct, frozen=True, kw_only=True):
    """What a folder's claims depend on, in its settings.json."""

    preset: str = ""
    seeds: int = 0
    seed: int = 0
    models: list[str] = []


Address = Annotated[str, Meta(pattern=r"^(https://[^\s\"<>]*)?$")]


# The words of a paper's page, as article.json has them: the page is made from the folder alone.


class FindingRecord(Struct, frozen=True, kw_only=True):
    """What a reader takes home; ``claims`` are those that carry it."""

    title: str
    sentence: str
    """With this run's numbers; if the claims' verdicts are not what it needs, it says which are not."""

    confirmed: bool
    claims: list[str]
    figure: Name = ""


class ArticlePart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of: a paragraph, claims by their ids, a drawing by its name, something to play with."""

    text: str = ""
    claims: list[str] = []
    figure: Name = ""
    show: Literal["", "document", "landscape", "player"] = ""


class ArticleSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section, in the paper's order."""

    anchor: Annotated[str, Meta(pattern=r"^[a-z0-9-]+$")]
    title: str
    part: list[ArticlePart]


class SourceGroup(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sources that are counted together, each with the section of the paper that it is in ("5.2"), if that is known."""

    title: str
    sources: dict[str, str]


class ArticleRecord(Struct, frozen=True, kw_only=True):
    """The words of one paper."""

    paper: str
    title: str
    cite: str
    url: Address
    html: Address
    """The address of a copy in HTML, whose sections have the anchors S1, S1.SS1 and A1; empty if there is none."""

    opening: list[str]
    sections: list[ArticleSection]
    findings: list[FindingRecord]
    groups: list[SourceGroup]
    captions: dict[Name, str]
    """By a figure's name."""


# A landscape, of ``landscape`` (one) and ``reproduce`` (many).


class LandscapeRecord(Struct, frozen=True, kw_only=True):
    """The loss over α and β: its setting, optimum and Theorem 3's interval."""

    value: str
    topics: Count
    per_document: Count
    words: Count
    alpha: float
    beta: float
    loss: float
    uniform: float
    """The loss at α = β = 1."""

    attained: bool
    low: Number = None
    high: Number = None
    limit: Number = None
    weights: list[float]
    """The values of α and of β on the grid."""

    grid: list[list[float]]
    """The loss, a row per α and a column per β."""

    def __post_init__(self) -> None:
        if {len(self.grid), *map(len, self.grid)} != {len(self.weights)}:
            raise ValueError("the grid does not have a loss for each pair of weights")


AGAIN = "run topicscope reproduce again with the same --out to have it written again"
CLAIMS = File[list[ClaimRecord]]("claims.json", list[ClaimRecord], AGAIN)
ARTICLES = File[list[ArticleRecord]]("article.json", list[ArticleRecord], AGAIN)
REPRODUCE_SETTINGS = File[ReproduceSettings](
    "settings.json", ReproduceSettings, "remove it if the claims there may be lost, or give another --out"
)
LANDSCAPES = File[list[LandscapeRecord]](
    "landscapes.json", list[LandscapeRecord], "run the same command again into another folder"
)


# Files of the probe.


PROBE_AGAIN = "remove it and run topicscope probe again with the same --out"


PROBE = File[list[ProbeRow]]("probe.json", list[ProbeRow], PROBE_AGAIN)
COMPARISONS = File[list[PairedRow]]("comparisons.json", list[PairedRow], PROBE_AGAIN)
CORPORA = File[list[CorpusRow]]("corpus.json", list[CorpusRow], PROBE_AGAIN)
WORDS = File[list[WordMap]]("words.json", list[WordMap], PROBE_AGAIN)
TOPICS = File[list[TopicWord]]("topics.csv", list[TopicWord], PROBE_AGAIN)


# What ``sweep`` writes.


class SweepRow(Struct, frozen=True, kw_only=True):
    """A row of sweep.json: a run of a sweep."""

    settings: dict[str, Any]
    """The settings that vary, by dotted name."""

    seed: int
    diverged: bool
    last_step: int
    measures: dict[str, float | bool | None]
    """By the names of the table's columns; empty if the run diverged."""

    train_seconds: float
    run: str
    """The run's folder, seen from the sweep's."""


def sweep_table(rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """The table as sweep.csv has it: the same columns in all rows; a setting that is a list is its JSON text."""
    # Models of different kinds have different measures.
    names = dict.fromkeys(name for row in rows for name in row.measures)
    return [
        {name: json.dumps(value) if isinstance(value, list) else value for name, value in row.settings.items()}
        | {"seed": row.seed, "diverged": row.diverged, "last_step": row.last_step}
        | {name: row.measures.get(name) for name in names}
        | {"train_seconds": row.train_seconds, "run": row.run}
        for row in rows
    ]


SWEEP = File[list[SweepRow]](
    "sweep.json",
    list[SweepRow],
    "run topicscope sweep again with --resume and the same --out to have it written again",
)
