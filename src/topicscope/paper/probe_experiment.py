"""Probing a language model as work that claims need: which models there are, how they are probed, what comes out.

By default ``minilm`` (all-MiniLM-L6-v2, trained contrastively; not the paper's BERT) and the same network untrained are
probed on ``wiki-sample``, gensim's shortened Wikipedia; ``--models`` names others. Similarities are those of the
embedding layer's output, which the paper's untrained BERT suggests; the word-embedding matrix is reported beside them.

Each claim has its own test, not corrected for others: its p-value permutes words of the first LDA seed's topics within
strata of frequency. Its number is the average over LDA seeds; its interval draws articles (attention) or topics and
words (similarity) anew, and in addition LDA seeds. ``verdict_corrected`` corrects claims for each other (Holm).
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float

from topicscope.errors import InputError
from topicscope.files import Row
from topicscope.paper.claim import Claim, Detail, Kind, Measurement, Preset, Seeds, interval_given
from topicscope.probing.settings import (
    PAPER_FRACTIONS,
    SOURCES,
    CorpusSettings,
    Machine,
    MeasureSettings,
    ProbeSettings,
    TopicOptions,
)
from topicscope.scale import content_digest, made_with, scratch_folder, shared_folder
from topicscope.text.tokenizers import MINILM, UNTRAINED

# The code that a probe's numbers depend on.
MADE_BY = (*SOURCES, "paper/probe_experiment.py")
# The paper's thresholds: the share of a topic's probability that makes a word one of its own.
FRACTIONS = (0.0005, 0.001, 0.002)
BERT = "google-bert/bert-base-uncased"
UNTRAINED_BERT = f"{UNTRAINED}{BERT}"
# The hub's models that the paper's names stand for. It names no sizes; these are the base models.
PAPER_MODELS = {
    BERT: "Bert",
    "albert/albert-base-v2": "Albert",
    "facebook/bart-base": "Bart",
    "google/electra-base-discriminator": "Electra",
    "FacebookAI/roberta-base": "Roberta",
    UNTRAINED_BERT: "Bert (randomly initialized)",
}
DEFAULT_MODELS = (MINILM, f"{UNTRAINED}{MINILM}")
DESCRIBED = {
    "minilm": "minilm (all-MiniLM-L6-v2, trained contrastively)",
    "random:minilm": "random:minilm (its architecture, untrained)",
}
INSTALLED = ("transformers", "tomotopy", "gensim")
# Every fourth passage and two LDA seeds take a minute on two cores. Else it is every passage and five seeds.
QUICK_EVERY, QUICK_FITS, FULL_FITS = 4, 2, 5
QUICK_SECONDS, FULL_SECONDS = 45.0, 600.0
# The least p-value is then 1/3,000, which is still far below 0.05 when corrected for all claims of a table.
QUICK_PERMUTATIONS = 2_999
# For untrained models, whose p-values are details.
UNTRAINED_PERMUTATIONS = 999


@dataclass(frozen=True, eq=False)
class Probed:
    """A model's rows of probe.json, and the cosines of Figure 3's words."""

    rows: tuple[Row, ...]
    words: tuple[str, ...]
    """The words of Figure 3 that the tokenizer keeps whole."""

    cosines: Float[np.ndarray, "word word"]
    """Their cosines in the word-embedding matrix."""

    seconds: float

    def row(self, fraction: float, assignment: str, embedding: str = "layer", *, centred: bool = False) -> Row:
        """The row of these settings."""
        wanted = {"fraction": fraction, "assignment": assignment, "embedding": embedding, "centred": centred}
        [found] = [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]
        return found


@dataclass(frozen=True, kw_only=True)
class Probing:
    """A model probed on a corpus; the seeds choose LDA's seeds, the bootstrap and untrained weights."""

    model: str
    settings: ProbeSettings
    cost: float
    suffix: ClassVar[str] = ".json"

    @property
    def name(self) -> str:
        """For people."""
        return f"probe/{self.model}"

    @property
    def slug(self) -> str:
        """The model within a claim's id."""
        return slug(self.model)

    @property
    def words(self) -> str:
        """The model in a sentence."""
        return DESCRIBED.get(self.model, self.model)

    @property
    def kind(self) -> Kind:
        """The kind of claims on this model: the packaged one is not the paper's."""
        return "paper" if self.model in PAPER_MODELS else "elsewhere"

    @property
    def untrained(self) -> bool:
        """Whether the model's weights are freshly drawn."""
        return self.model.startswith(UNTRAINED)

    def key(self, seeds: Seeds) -> dict[str, Any]:
        """Model, settings, code and libraries."""
        from topicscope.probing.sources import find_model

        return {
            "probe": find_model(self.model).digest,
            "settings": self._settings(seeds).table(),
            **made_with(MADE_BY),
        }

    def compute(self, seeds: Seeds) -> bytes:
        """Fit topics, or use those of another model with the same tokenizer, and measure, in this process alone.

        If it is stopped, it goes on with the missing passages.
        """
        from topicscope.probing.study import measure_models

        began = time.perf_counter()
        machine, settings = Machine(device="cpu", workers=1), self._settings(seeds)
        with scratch_folder() as own, shared_folder() as everybodys:
            # Passages depend on this beside the tokenizer; topics are named by what they depend on.
            ground = content_digest({"text": asdict(settings.text), **made_with(MADE_BY)})
            shared = everybodys / f"ground-{ground}"
            # No claim is about the coherence of topics, hidden states or single topics.
            [found] = measure_models(
                [self.model], settings=settings, machine=machine, work=own, shared=shared, judged=False, detailed=False
            )
        content = {
            "rows": found.rows,
            "words": found.shown["words"],
            "cosines": found.shown["cosine"],
            "seconds": time.perf_counter() - began,
        }
        return json.dumps(content, allow_nan=False).encode()

    def restore(self, content: bytes) -> Probed:
        """What ``compute`` wrote."""
        found = json.loads(content)
        cosines = np.array(found["cosines"], dtype=np.float64).reshape(len(found["words"]), len(found["words"]))
        return Probed(tuple(found["rows"]), tuple(found["words"]), cosines, found["seconds"])

    def _settings(self, seeds: Seeds) -> ProbeSettings:
        fits = min(len(seeds), self.settings.topics.fits)
        return replace(self.settings, seed=seeds[0], topics=replace(self.settings.topics, fits=fits))


def probing(model: str, preset: Preset) -> Probing:
    """How a preset probes a model: on wiki-sample, with the paper's 100 topics and thresholds, and one token per word.

    Table 5 has no untrained model, and the claims on one rest on intervals, not on tests.
    """
    every, fits = (1, FULL_FITS) if preset.full else (QUICK_EVERY, QUICK_FITS)
    topics = TopicOptions(fits=fits, topics=100, fractions=PAPER_FRACTIONS, stop_words="gensim")
    measures = MeasureSettings() if preset.full else MeasureSettings(permutations=QUICK_PERMUTATIONS)
    if model.startswith(UNTRAINED):
        topics = replace(topics, assignments=("one",))
        measures = replace(measures, permutations=UNTRAINED_PERMUTATIONS)
    settings = ProbeSettings(text=CorpusSettings(every=every, merge_words=False), topics=topics, measures=measures)
    return Probing(model=model, settings=settings, cost=FULL_SECONDS if preset.full else QUICK_SECONDS)


def probings(preset: Preset, *, trained: bool = False) -> tuple[Probing, ...]:
    """Probes of the models in ``--models``, else of those that need no network; only trained ones if asked for."""
    found = (probing(model, preset) for model in preset.models or DEFAULT_MODELS)
    return tuple(need for need in found if not (trained and need.untrained))


@cache
def why_unavailable(model: str) -> str:
    """Why a model cannot be probed here, in one sentence; nothing if it can."""
    missing = [name for name in INSTALLED if find_spec(name) is None]
    if missing:
        return f'{missing[0]} is not installed: pip install "topicscope[language]".'
    from topicscope.probing.sources import find_model

    try:
        find_model(model)
    except InputError as error:
        return str(error)
    return ""


def probe_claim(need: Probing, measure: Callable[[Probed], Measurement], **claim: Any) -> Claim:
    """A claim on one model's probe; not run, with the reason, where the model cannot be probed."""
    reason = why_unavailable(need.model)
    # A missing model cannot even be named by its content.
    needs = () if reason else (need,)
    return Claim(needs=needs, measure=lambda results: measure(results[need.name]), unavailable=reason, **claim)


def fall(found: Probed, measure: str) -> Measurement:
    """How many times as large a ratio is at the smallest threshold as at the largest, under the same draws."""
    few, many = (found.row(fraction, "one")[measure]["ratio"] for fraction in (FRACTIONS[0], FRACTIONS[-1]))
    compared = found.row(FRACTIONS[0], "one")["over_largest_threshold"][measure]
    value, low, high = (np.nan if compared[name] is None else compared[name] for name in ("ratio", "low", "high"))
    return interval_given(value, low, high, at_0_0005=few, at_0_002=many)


def slug(model: str) -> str:
    """A name within a claim's id."""
    return re.sub(r"[^a-z0-9.]+", "-", model.lower()).strip("-.")


def tested(contrast: Row, **details: Detail) -> Measurement:
    """The ratio of a contrast with its interval and its test; without the test the interval decides nothing."""
    known = contrast | ({"ratio": None} if contrast["p"] is None else {})
    return replace(measured(known, test=contrast["p"]), details=details)


def measured(
    contrast: Row, *, number: Literal["ratio", "difference"] = "ratio", test: float | None = None, **details: Detail
) -> Measurement:
    """The ratio (or difference) of a contrast with its interval and its test; NaN where a ratio is not defined."""
    ends = ("low", "high") if number == "ratio" else ("difference_low", "difference_high")
    value, low, high = (np.nan if contrast[name] is None else contrast[name] for name in (number, *ends))
    return interval_given(value, low, high, p=test, null=1.0 if number == "ratio" else 0.0, **details)
