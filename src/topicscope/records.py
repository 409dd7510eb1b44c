"""The files that topicscope writes, and how they are read again: one reader for each, and what it must contain.

Each reader returns the file's content as plain rows and arrays, or raises an ``UnreadableError`` of one sentence. A
``TypedDict`` declares the keys that the code relies on, with their types; older and newer versions may have other keys
beside them. A caller that can go on without a file catches the error, which has the path and the reason.

    run folder        settings.toml  metrics.jsonl  reference.json  versions.json  snapshots.safetensors
    run on text       passages/passages.json, beside these
    reproduce         claims.json  progress.json  settings.json  runs/…/trained.safetensors  landscapes.json, .npz
    probe             probe.json  probe-settings.json  comparisons.json  corpus.json  words.json  topics.csv
                      topics-…/topics.json
    sweep, landscape  sweep.csv; landscape.json, .npz
"""

import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import numpy as np
from msgspec import Meta

from topicscope.errors import UnreadableError
from topicscope.files import (
    Row,
    checked,
    checked_json,
    read_arrays,
    read_json,
    read_json_lines,
    read_table,
    read_tensors,
    read_toml,
)

Number = float | None
Count = Annotated[int, Meta(ge=0)]
# The name of a file inside a folder, not a way out of it.
Name = Annotated[str, Meta(pattern=r"^[^/\\]*$")]
Snapshot = dict[str, np.ndarray]


# A comparison whose p is below this is distinguished from chance.
SIGNIFICANT = 0.05


class Comparison(TypedDict, total=False):
    """Same- against different-topic averages; null where a number is not defined."""

    same: Number
    different: Number
    ratio: Number
    low: Number
    high: Number
    difference: Number
    difference_low: Number
    difference_high: Number
    auc: Number
    auc_low: Number
    auc_high: Number
    p: Number
    ratio_note: str | None


# Run folders.


class _DataTable(TypedDict, total=False):
    topics: Count
    words: Count
    corpus: str


class _ModelTable(TypedDict, total=False):
    layers: Count
    heads: Count
    width: Count


class _TrainingTable(TypedDict, total=False):
    steps: Required[Count]
    learning_rate: float


class RunSettings(TypedDict, total=False):
    """What a page shows of a run's settings."""

    data: Required[_DataTable]
    model: Required[_ModelTable]
    training: Required[_TrainingTable]
    seed: Count


class Structure(TypedDict, total=False):
    """Topic structure at a step of a run on text."""

    embedding_layer: Comparison
    embedding_matrix: Comparison
    attention: Comparison
    attention_by_layer: list[Comparison]
    attention_by_layer_head: list[list[Comparison]]


class Contrast(TypedDict, total=False):
    """Same- minus different-topic averages of W^E⊤ W^V W^E in each layer, and of W^E⊤ W^E."""

    value: list[Number]
    embedding: Number


class LoggedStep(TypedDict):
    """What is needed of a logged step to go on with a run."""

    step: Count


class MetricsRow(LoggedStep, total=False):
    """A logged step; norms are by part, one per layer."""

    loss: float
    penalty: float
    validation_loss: Number
    learning_rate: float
    norm: dict[str, list[float]]
    rotation: list[Number] | None
    contrast: Contrast
    attention: dict[str, Number]
    modes: dict[str, dict[str, float]]
    uniform_gain: Number
    head_norm: dict[str, list[list[float]]]
    gradient_norm: dict[str, list[float]]
    topics: Structure | None


class _Level(TypedDict, total=False):
    loss: Required[Number]
    low: Number
    high: Number
    reason: str


class _Said(TypedDict, total=False):
    what: str
    reason: str


class PredictedStages(TypedDict):
    """The predicted step at which attention takes off, norms over steps, and what they are or why there are none."""

    take_off: float | None
    steps: list[float]
    norms: dict[str, list[float]]
    note: str


class Reference(TypedDict, total=False):
    """Losses to compare a run with, and what its matrices are compared with or why with nothing."""

    bayes_floor: Required[_Level]
    uniform_attention_optimum: _Level
    theorem_2: _Level
    matrices: dict[str, _Said]
    stages: PredictedStages


class _Member(TypedDict):
    seed: int
    learning_rate: float


class Versions(TypedDict, total=False):
    """What a run was made with, besides versions of packages by name.

    ``together`` are the runs trained with it, ``earlier_steps`` the numbers of steps it was meant to have before it
    was made longer.
    """

    seed: int
    threads: int
    together: list[_Member]
    earlier_steps: list[Count]


class PassagesAbout(TypedDict, total=False):
    """How passages were cut from a corpus, and which parts of it could not be read."""

    source: Required[str]
    problems: Required[dict[str, int | str | list[str]]]
    tokens: Count
    passages: Count
    documents: Count
    words: Count
    words_whole: Count
    language: str | None
    digest: str


def read_run_settings(path: Path) -> Row:
    """The table of a run's settings.toml, whichever version wrote it; ``settings.toml`` turns it into settings."""
    remedy = "give the folder of a run"
    table = read_toml(path, remedy)
    try:
        text = json.dumps(table, default=str, allow_nan=False)
    except ValueError:
        raise UnreadableError(path, "it has a number that is not finite", remedy) from None
    return checked_json(text.encode(), RunSettings, path, remedy)


def read_metrics(path: Path, schema: Any = MetricsRow) -> list[Row]:
    """Rows of a metrics.jsonl, up to the first that was cut short or damaged; none if there is no file."""
    return read_json_lines(path, schema, "give the folder of a run")


# A run's reference.json and versions.json, and the passages.json beside passages of a corpus.
TRAIN_AGAIN = "remove it, and train with --resume to have it written again"
read_reference = partial(read_json, schema=Reference, remedy=TRAIN_AGAIN)
UNKNOWN = "remove it to go on without knowing what the run was begun with"
read_versions = partial(read_json, schema=Versions, remedy=UNKNOWN)
READ_AGAIN = "remove its folder, to have the corpus read again"
read_passages_about = partial(read_json, schema=PassagesAbout, remedy=READ_AGAIN)
read_several_token_words = partial(read_json, schema=list[tuple[str, list[Count]]], remedy=READ_AGAIN)


def read_snapshots(path: Path) -> dict[int, Snapshot]:
    """The snapshots' matrices by step and name, with steps in order; those of one name have one shape."""
    remedy = "remove it, and train with --resume to have it made again"
    found: dict[int, Snapshot] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for title, array in read_tensors(path, remedy).items():
        match = re.fullmatch(r"(\d{1,18})/([^/]+)", title)
        if not match:
            raise UnreadableError(path, f'"{title}" is not the name of a snapshot, STEP/NAME', remedy)
        step, name = int(match[1]), match[2]
        if array.dtype.kind != "f" or not 2 <= array.ndim <= 3 or not array.size:
            raise UnreadableError(path, f'"{title}" is not a matrix', remedy)
        if array.dtype.itemsize > 4 and (np.abs(array[np.isfinite(array)]) > np.finfo(np.float32).max).any():
            raise UnreadableError(path, f'"{title}" has numbers beyond single precision', remedy)
        if shapes.setdefault(name, array.shape) != array.shape or (name == "attention" and len(array) != 3):
            raise UnreadableError(path, f'"{title}" has the shape {array.shape}', remedy)
        found.setdefault(step, {})[name] = array
    return dict(sorted(found.items()))


# What ``reproduce`` writes.


class ClaimDiagnosis(TypedDict):
    """Why a claim does not hold."""

    cause: str
    explanation: str
    holds: str
    see: list[str]


class ClaimRow(TypedDict, total=False):
    """A claim with its verdict."""

    id: Required[str]
    source: Required[str]
    statement: Required[str]
    expected: Required[float | str | None]
    measured: Required[Number]
    low: Number
    high: Number
    unit: str
    verdict: Required[str]
    verdict_corrected: str
    verdict_before: str | None
    asked_before: str | None
    diagnosis: ClaimDiagnosis | None
    sensitivity: dict[str, str] | None
    kind: str
    ours: bool
    rule: str
    seeds: Count
    seconds: Number
    figure: Name
    details: dict[str, float | str | bool | None]


class Progress(TypedDict):
    """How many claims were asked for, and how many of them are measured."""

    asked: Count
    measured: Count


class ReproduceSettings(TypedDict, total=False):
    """Preset, seeds and models of a folder's claims."""

    preset: str
    seeds: int
    seed: int
    models: list[str]


class _Film(TypedDict, total=False):
    name: Required[str]
    settings: Required[RunSettings]
    seeds: Required[list[int]]
    levels: Required[dict[str, Any]]
    labels: Required[list[str]]
    theory: Required[list[str]]
    layers: list[int | None]


AGAIN = "run topicscope reproduce again with the same --out to have it written again"


# Rows of a claims.json, and the progress.json and settings.json beside it.
read_claims = partial(read_json, schema=list[ClaimRow], remedy=AGAIN)
read_progress = partial(read_json, schema=Progress, remedy=AGAIN)
CLAIMS_LOST = "remove it if the claims there may be lost, or give another --out"
read_reproduce_settings = partial(read_json, schema=ReproduceSettings, remedy=CLAIMS_LOST)


def read_film(path: Path) -> tuple[Row, Snapshot]:
    """A trained.safetensors, the matrices of an experiment over training: what they are, and the arrays."""
    arrays = read_tensors(path, AGAIN)
    about: Row = checked_json(_taken(arrays, "about", path).tobytes(), _Film, path, AGAIN)
    places = range(len(about["labels"]))
    if not len(about["theory"]) == len(about.get("layers", places)) == len(places):
        raise UnreadableError(path, "it does not have one label per matrix", AGAIN)
    seeds, rows, frames = len(about["seeds"]), _rows(arrays, "steps", path), _rows(arrays, "frame_steps", path)
    tokens = _rows(arrays, "word_topics", path)
    expected: dict[str, tuple[int, ...]] = {
        "loss": (seeds, rows),
        **{name: (seeds, rows) for name in arrays if name.startswith(("norms-", "stages-"))},
        **{f"frames-{place}": (frames, tokens, tokens) for place in places},
        **{f"classes-{place}": (seeds, frames, 5) for place in places},
        **{name: (tokens, tokens) for name in arrays if name.startswith("theory-")},
    }
    for name, wanted in expected.items():
        if (shape := _taken(arrays, name, path).shape) != wanted:
            raise UnreadableError(path, f'"{name}" has the shape {shape}', AGAIN)
    # Files from before layers were distinguished have no axis for them.
    attention = _taken(arrays, "attention", path)
    if attention.ndim not in (3, 4) or attention.shape[:2] != (seeds, frames) or attention.shape[-1] != 3:
        raise UnreadableError(path, f'"attention" has the shape {attention.shape}', AGAIN)
    return about, arrays


def _taken(arrays: Snapshot, name: str, path: Path) -> np.ndarray:
    if name not in arrays:
        raise UnreadableError(path, f"it has no array {name}", AGAIN)
    return arrays[name]


def _rows(arrays: Snapshot, name: str, path: Path) -> int:
    """How long a row of whole numbers is."""
    array = _taken(arrays, name, path)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UnreadableError(path, f'"{name}" is not a row of whole numbers', AGAIN)
    return len(array)


# Landscapes, of ``landscape`` (one) and ``reproduce`` (many).


class Landscape(TypedDict, total=False):
    """One of many landscapes: its setting, optimum and Theorem 3's interval."""

    value: Required[str]
    topics: Required[Count]
    per_document: Required[Count]
    words: Required[Count]
    alpha: Required[float]
    beta: Required[float]
    loss: Required[float]
    uniform: Required[float]
    attained: Required[bool]
    low: Number
    high: Number
    limit: Number


class _Setting(TypedDict):
    topics: Count
    per_document: Count
    words: Count


class _Optimum(TypedDict):
    alpha: float
    beta: float
    loss: float
    loss_uniform: float
    attained: bool


class _Theorem3(TypedDict, total=False):
    low: Number
    high: Number
    limit: Number


class _OneLandscape(TypedDict):
    value: str
    setting: _Setting
    optimum: _Optimum
    theorem3: _Theorem3


def read_landscape(folder: Path) -> tuple[Row, Snapshot]:
    """A landscape.json, and ``alpha`` and ``loss`` of the landscape.npz beside it."""
    remedy = "run topicscope landscape again into another folder"
    path = folder / "landscape.npz"
    about: Row = read_json(folder / "landscape.json", _OneLandscape, remedy)
    arrays = read_arrays(path, ("alpha", "loss"), remedy)
    if arrays["alpha"].ndim != 1 or arrays["loss"].shape != 2 * arrays["alpha"].shape:
        raise UnreadableError(path, f'"loss" has the shape {arrays["loss"].shape}', remedy)
    return about, arrays


def read_landscapes(folder: Path) -> tuple[list[Row], Snapshot]:
    """A landscapes.json, and ``weights`` and ``loss`` of each in the landscapes.npz beside it."""
    path = folder / "landscapes.npz"
    about: list[Row] = read_json(folder / "landscapes.json", list[Landscape], AGAIN)
    arrays = read_arrays(path, ("weights", "loss"), AGAIN)
    weights, loss = arrays["weights"], arrays["loss"]
    if weights.ndim != 2 or len(weights) != len(about) or loss.shape != (*weights.shape, weights.shape[1]):
        raise UnreadableError(path, f'"loss" has the shape {loss.shape}', AGAIN)
    return about, arrays


# What ``probe`` writes.


class ProbeRow(TypedDict, total=False):
    """Topic structure of a model at one threshold, assignment and embedding."""

    model: Required[str]
    revision: Required[str | None]
    fraction: Number
    assignment: Required[str]
    embedding: Required[str]
    centred: bool
    words: Count
    topics: Count
    tokenizer: str
    length: Count
    cosine: Comparison | None
    dot: Comparison | None
    attention: Comparison | None
    attention_by_layer_head: list[list[Comparison]] | None
    sink: list[list[float]] | None
    matched: dict[str, Comparison] | None
    over_largest_threshold: dict[str, Any] | None
    top_co_occurring: dict[str, Any] | None


class CorpusRow(TypedDict, total=False):
    """How a tokenizer cut the corpus at one passage length."""

    tokenizer: Required[str]
    tokenizer_name: Required[str]
    length: Required[Count]
    source: Required[str]
    articles: Required[Count]
    passages: Required[Count]
    measured: Required[Count]
    problems: Required[list[str]]
    words: Required[Count]
    words_left_out: Required[list[str]]
    words_without_attention: Required[list[str]]
    topic_quality: Required[dict[str, Number] | None]


class TopicMap(TypedDict):
    """Words of some topics in two dimensions, and the share of the variance that these hold."""

    words: list[str]
    topics: list[str]
    places: list[tuple[float, float]]
    share: float


class WordMap(TypedDict, total=False):
    """Cosines of a few words in one model, and its topics' words in two dimensions."""

    model: Required[str]
    words: Required[list[str]]
    cosine: Required[list[list[float]]]
    label: str
    left_out: list[str]
    topic_map: TopicMap


class PairedRow(TypedDict, total=False):
    """One measure of two models, compared on the same passages and topics."""

    model: Required[str]
    against: Required[str]
    fraction: Number
    assignment: Required[str]
    measure: Required[str]
    layer: Count | None
    ratio_of_ratios: Number
    low: Number
    high: Number
    difference: Number
    difference_low: Number
    difference_high: Number
    auc_difference: Number
    auc_difference_low: Number
    auc_difference_high: Number
    p: Number


class _FittedTopics(TypedDict, total=False):
    seed: Required[Count]
    tokenizer: Required[str]
    tokenizer_name: Required[str]
    split: Required[bool]
    corpus: str
    passages: str
    c_npmi: float
    c_v: float
    diversity: float
    log_likelihood_per_word: float


class _Fits(TypedDict):
    fits: Annotated[list[_FittedTopics], Meta(min_length=1)]


# Arrays of a fit: each word's number (``text.words``), P(word | topic), and how often each word occurs.
FITTED = {"tokens": "int32", "topic_word": "float32", "counts": "int64"}
PROBE_AGAIN = "run topicscope probe again with the same --out to have it written again"


def read_probe_rows(path: Path) -> list[Row]:
    """Rows of a probe.json."""
    return [probe_row(row, path) for row in read_json(path, list[Any], PROBE_AGAIN)]


def probe_row(row: Any, path: Path) -> Row:
    """A row of a probe.json, if it is one; a model must have equally many heads in each layer."""
    checked(row, ProbeRow, path, PROBE_AGAIN)
    for name in ("attention_by_layer_head", "sink"):
        if len({len(layer) for layer in row.get(name) or ()}) > 1:
            raise UnreadableError(path, f"{name} does not have the same number of heads in each layer", PROBE_AGAIN)
    return row


def keepable_rows(path: Path, *keys: str) -> list[Row]:
    """The rows of a JSON list that have these keys: they can stay beside new ones, whatever else is wrong with them."""
    rows = read_json(path, list[Any], PROBE_AGAIN)
    return [row for row in rows if isinstance(row, dict) and all(key in row for key in keys)]


# A probe-settings.json, and rows of a corpus.json.
STUDY_LOST = "give another --out, or remove the folder if its study may be lost"
read_probe_settings = partial(read_json, schema=dict[str, Any], remedy=STUDY_LOST)
read_corpus_rows = partial(read_json, schema=list[CorpusRow], remedy=PROBE_AGAIN)
read_comparisons = partial(read_json, schema=list[PairedRow], remedy=PROBE_AGAIN)


def read_words(path: Path) -> list[Row]:
    """Rows of a words.json."""
    return [word_map(row, path) for row in read_json(path, list[Any], PROBE_AGAIN)]


def word_map(row: Any, path: Path) -> Row:
    """A row of a words.json if it is one, with a square of cosines."""
    checked(row, WordMap, path, PROBE_AGAIN)
    if [len(line) for line in row["cosine"]] != [len(row["words"])] * len(row["words"]):
        raise UnreadableError(path, "it does not have a cosine for each pair of words", PROBE_AGAIN)
    found = row.get("topic_map") or {}
    if len({len(found.get(name, ())) for name in ("words", "topics", "places")}) > 1:
        raise UnreadableError(path, "the topic map does not have a topic and a place for each word", PROBE_AGAIN)
    return row


def read_topic_words(path: Path) -> list[dict[str, str]]:
    """Rows of a topics.csv, one per word of a topic; ``fraction`` is a number, or empty for the user's own topics."""
    rows = read_table(path, ("fraction", "topic", "word"), PROBE_AGAIN)
    for row in rows:
        if row["fraction"] and not re.fullmatch(r"[\d.]+(e-?\d+)?", row["fraction"]):
            raise UnreadableError(path, f'the fraction "{row["fraction"]}" is not a number', PROBE_AGAIN)
    return rows


def read_fitted_topics(folder: Path) -> tuple[list[Row], Snapshot]:
    """Topics that were fitted: a description of each fit, and arrays ``seedN/NAME`` for each."""
    remedy = "give a folder with topics.safetensors and topics.json, as probe writes them"
    descriptions: list[Row] = read_json(folder / "topics.json", _Fits, remedy)["fits"]
    path = folder / "topics.safetensors"
    arrays = read_tensors(path, remedy)
    for one in descriptions:
        found = {name: arrays.get(f"seed{one['seed']}/{name}") for name in FITTED}
        shapes = [each.shape for name, each in found.items() if each is not None and each.dtype == FITTED[name]]
        if len(shapes) < len(FITTED):
            raise UnreadableError(path, f"it lacks some of the numbers of seed {one['seed']}", remedy)
        words, topics, counts = shapes
        if len(topics) != 2 or 0 in topics or not words == counts == topics[1:]:
            raise UnreadableError(path, f"the arrays of seed {one['seed']} have different lengths", remedy)
        tokens = arrays[f"seed{one['seed']}/tokens"]
        if tokens[0] < 0 or not (tokens[1:] > tokens[:-1]).all():
            raise UnreadableError(path, f"the words of seed {one['seed']} are not in order", remedy)
    return descriptions, arrays


# What ``sweep`` writes.


def read_sweep_rows(path: Path) -> list[dict[str, str]]:
    """Rows of a sweep.csv, one per run; cells as text."""
    remedy = "run topicscope sweep again with --resume and the same --out to have it written again"
    rows = read_table(path, ("seed",), remedy)
    if not rows:
        raise UnreadableError(path, "it has no row", remedy)
    return rows
