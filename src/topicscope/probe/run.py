"""From names to rows: find the models, cut the corpus, fit topics, measure; what is finished is found again."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from jaxtyping import Float

from topicscope import scale
from topicscope.errors import InputError
from topicscope.measure.similarity import prepared
from topicscope.probe.ground import Ground, prepare_ground
from topicscope.probe.settings import PAPER_WORDS, Machine, ProbeSettings
from topicscope.probe.sources import Source, check_names, find_model
from topicscope.probe.study import Row, Study, Target, find_target
from topicscope.text.corpora import Corpus


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
    from topicscope.probe.models import device_named

    return scale.available_cores() if device_named(machine.device).type == "cpu" else 1
