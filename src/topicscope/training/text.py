"""Training on text: the corpus as passages, the engine that trains an encoder on them, and the folder it is saved to.

A tokenizer, trained or given, and the passages are kept in the run's folder. A trained encoder becomes a Hugging Face
folder, which ``AutoModelForMaskedLM`` and ``topicscope probe`` load.
"""

import logging
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from topicscope.errors import InputError
from topicscope.model.encoder import Encoder, PackedBatch, bert_config, encoder_weights, pack_parts, to_bert
from topicscope.model.transformer import ATTENTION
from topicscope.randomness import Purpose, generator
from topicscope.settings.text import Device, TextData, TextSettings, with_absolute_paths
from topicscope.store import as_before_if_refused
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.text.corpora import Corpus, Document, Progress, bytes_read, open_corpus
from topicscope.text.tokenizers import (
    AFTER,
    BEFORE,
    MASK,
    PADDING,
    Tokenizer,
    load_tokenizer,
    model_source,
    save_tokenizer,
    train_wordpiece,
)
from topicscope.text.tokens import Passages, write_passages
from topicscope.training.batches import PassageStream, Specials, Text
from topicscope.training.engines import Engine, losses
from topicscope.training.folder import RunFolder
from topicscope.training.loop import UNWATCHED, Trainer, Watching, empty_run
from topicscope.training.machine import check_memory, find_device, out_of_memory_said, torch_threads, with_threads
from topicscope.training.optimizers import Gradients
from topicscope.training.record import Numbers, head_norms, norms
from topicscope.work import Report

logger = logging.getLogger(__name__)

# Corpora up to this size on disk (compressed or not) are read once and kept; larger ones are read for each pass.
KEPT_BYTES = 32_000_000


@dataclass(frozen=True, eq=False)
class PreparedText:
    """A corpus as passages, with the tokenizer that made them."""

    text: Text
    passages: Passages
    tokenizer: Tokenizer
    tokenizer_folder: Path


def prepare_text(data: TextData, folder: Path, *, report: Report | None = None) -> PreparedText:
    """Read the corpus, train or load the tokenizer and cut passages into a folder, unless they are there already."""
    corpus = _kept(open_corpus(data.corpus, field=data.field, split=data.split, layout=data.layout))
    where = folder / "tokenizer"
    if not (where / "tokenizer.json").exists():
        _make_tokenizer(data, corpus, where, report)
    # Named as the user named it: files of a run do not depend on where its folder is.
    tokenizer = replace(load_tokenizer(str(where)), name=data.tokenizer or "wordpiece")
    passages = write_passages(
        corpus,
        tokenizer,
        length=data.length,
        folder=folder / "passages",
        every=data.every,
        progress=bytes_read(corpus, report),
    )
    specials = read_specials(where, data.tokenizer or "the tokenizer that was trained")
    text = Text(passages.tokens, passages.offsets, passages.articles, specials)
    return PreparedText(text, passages, tokenizer, where)


def read_specials(folder: Path, name: str) -> Specials:
    """The special tokens of a tokenizer; one that lacks any of BERT's four is refused."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    kinds = {"mask": "mask", "before": "cls", "after": "sep", "padding": "pad"}
    for kind, example in zip(kinds.values(), (MASK, BEFORE, AFTER, PADDING), strict=True):
        if getattr(tokenizer, f"{kind}_token_id") is None:
            raise InputError(
                f'data.tokenizer = "{name}" has no {kind} token: give a tokenizer that has one (such as {example}), '
                "or leave it out to train one."
            )
    words = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    numbers = {place: getattr(tokenizer, f"{kind}_token_id") for place, kind in kinds.items()}
    return Specials(**numbers, words=words, vocabulary=len(tokenizer))


def _make_tokenizer(data: TextData, corpus: Corpus, folder: Path, report: Report | None) -> None:
    """Written to a temporary folder first, so that it is there whole or not at all."""
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    if data.tokenizer:
        from transformers import AutoTokenizer

        # An existing one is copied into the run, so that the folder is complete. It is loaded once for its checks
        # and one-sentence errors.
        load_tokenizer(data.tokenizer)
        source = model_source(data.tokenizer)
        AutoTokenizer.from_pretrained(source, trust_remote_code=False).save_pretrained(str(part))
    else:
        logger.info("training a tokenizer of %d tokens.", data.vocabulary)

        def texts() -> Iterator[str]:
            progress = bytes_read(corpus, report, why="for the tokenizer")
            return (document.text for document in corpus.documents(progress))

        engine = train_wordpiece(texts, data.vocabulary, lowercase=data.lowercase)
        save_tokenizer(engine, part, longest=data.length + 2)
    part.rename(folder)


def _kept(corpus: Corpus) -> Corpus:
    if corpus.size is None or corpus.size > KEPT_BYTES:
        return corpus
    same = {each.name: getattr(corpus, each.name) for each in fields(Corpus)}
    return _KeptCorpus(**same)


@dataclass(frozen=True, eq=False, kw_only=True)
class _KeptCorpus(Corpus):
    """A small corpus, kept in memory once it has been read: training a tokenizer and cutting passages both need it."""

    kept: list[Document] = field(default_factory=list)

    def documents(self, progress: Progress | None = None) -> Iterator[Document]:
        """All documents."""
        if not self.kept:
            self.kept.extend(super().documents(progress))
        yield from self.kept


class AttentionDistances:
    """How far each layer's attention is from uniform, a(t): always on the same held-out passages, with their masks."""

    def __init__(self, settings: TextSettings, text: Text, passages: int) -> None:
        enough = replace(settings, training=replace(settings.training, validation_passages=len(text.lengths)))
        masked = PassageStream(enough, text).validation()
        if masked is None:
            raise InputError("data.held_out leaves no passage to measure attention on: raise it.")
        # Passages of the longest length, so that they are computed at once.
        chosen = np.flatnonzero(masked.lengths == masked.lengths.max())[:passages]
        rows = [masked.span(place, place + 1).tokens for place in chosen.tolist()]
        specials = text.specials
        tokens = np.stack([[specials.before, *row, specials.after] for row in rows])
        self.tokens = torch.from_numpy(tokens.astype(np.int64))
        self.queries = {"words": specials.is_word[tokens], "mask": tokens == specials.mask}

    @torch.no_grad()
    def measure(self, encoder: Encoder) -> dict[str, Float[np.ndarray, " layer"]]:
        r"""Each layer's total variation ½ Σ_k |A_kq − 1/N|, averaged over heads and word (or [MASK]) queries q.

        All N tokens of a passage are keys, special ones too. It is NaN if there is no such query.
        """
        attention = encoder.attention(self.tokens.to(encoder.parameter("embedding").device))
        distance = (attention - 1 / attention.shape[-1]).abs().sum(dim=-1).mean(dim=2).double().cpu().numpy() / 2
        return {
            name: np.array([layer[chosen].mean() if chosen.any() else np.nan for layer in distance])
            for name, chosen in self.queries.items()
        }


class TextEngine(Engine):
    """An encoder on the passages of a text: a step's passages are computed part after part, gradients included."""

    smaller_start = "let the weights start smaller (model.scale, model.attention_scale)"

    def __init__(
        self,
        settings: TextSettings,
        text: Text,
        *,
        device: torch.device | None = None,
        attention_passages: int = 0,
    ) -> None:
        """At every row attention is compared with uniform attention on ``attention_passages`` passages."""
        self.settings: TextSettings = settings
        self.training, self.seeds = settings.training, [settings.seed]
        self.text = text
        self.device = device or torch.device("cpu")
        self.streams = [PassageStream(settings, text)]
        vocabulary = text.specials.vocabulary
        if self.device.type == "cpu":
            # This comes before weights are drawn: they alone may be too large.
            check_memory(settings, vocabulary)
        draw = generator(settings.seed, Purpose.WEIGHTS)
        weights = encoder_weights(settings.model, vocabulary, settings.positions, generator=draw)
        self.encoder = Encoder(settings.model, weights).to(self.device)
        self._parameters = dict(self.encoder.named_parameters())
        self.weights = {name: weight.detach()[None] for name, weight in self._parameters.items()}
        self.trained = list(self.weights)
        self._gradients: Gradients = {}
        self._distances = AttentionDistances(settings, text, attention_passages) if attention_passages else None

    def prepare(self, members: Iterable[MaskedDocuments], steps: int = 1) -> list[list[PackedBatch]]:
        """Pack the only member's passages, each step's in the parts that they are computed in."""
        [passages] = members
        return [self._packed(part) for part in passages.parts(steps)]

    def losses(self, batch: list[PackedBatch]) -> Float[Tensor, " 1"]:
        """The loss of eq. 1, part after part, and its gradient with it, so that one part is in memory at a time."""
        total, training = 0.0, torch.is_grad_enabled()
        if training:
            self._gradients = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        for part in batch:
            loss = self.part_loss(part)
            if training:
                found = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True)
                for sum_so_far, gradient in zip(self._gradients.values(), found, strict=True):
                    if gradient is not None:
                        sum_so_far += gradient
            total += float(loss.detach())
        return torch.tensor([total], dtype=torch.float64)

    def part_loss(self, part: PackedBatch) -> Float[Tensor, ""]:
        """A part's share of the loss."""
        return losses(self.encoder.predict_masked(part), part.words, self.training.loss) @ part.weights

    def gradients(self, losses: Float[Tensor, " 1"]) -> Gradients:
        """The gradients of the losses computed last."""
        return self._gradients

    def recorded(self, step: int) -> Numbers:
        """Norms of each head and of the gradients, and attention's distances if they are measured."""
        heads = self.settings.model.heads
        numbers = {f"head_norm/{name}": head_norms(self.weights[name], heads) for name in ATTENTION}
        numbers |= norms(self._gradients, "gradient_norm")
        if self._distances:
            numbers |= {f"attention/{name}": own[None] for name, own in self._distances.measure(self.encoder).items()}
        return numbers

    def _packed(self, passages: MaskedDocuments) -> list[PackedBatch]:
        specials, training = self.text.specials, self.training
        parts = max(training.accumulate, -(-len(passages) * training.accumulate // training.batch))
        batches = pack_parts(
            passages, min(parts, len(passages)), before=specials.before, after=specials.after, average=training.average
        )
        return [batch.to(self.device) for batch in batches]


def train_on_text(
    settings: TextSettings,
    out: Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    watching: Watching = UNWATCHED,
) -> RunFolder:
    """Train an encoder on a corpus into a new folder, or resume the run in it.

    The corpus must be read first; the folder is left as it was if something is wrong. At the end a Hugging Face folder
    is saved, if the architecture is BERT's.
    """
    folder, place = RunFolder(out), find_device(device)
    settings, seeds = with_absolute_paths(with_threads(settings)), [settings.seed]
    facts = {"device": place.type}
    folder.settings_to_train(settings, seeds, resume=resume, facts=facts)
    trainer: Trainer | None = None
    with (
        as_before_if_refused(folder.path, folder.locked(), lambda: trainer is not None and trainer.step > 0),
        torch_threads(settings.training.threads),
    ):
        # Once more, now that nobody else can write here.
        folder.settings_to_train(settings, seeds, resume=resume, facts=facts)
        if not folder.settings_path.exists():
            # Left by a run whose settings are lost, and may have been different. The settings come before the corpus
            # is read: if the run is killed meanwhile, it resumes with them.
            shutil.rmtree(folder.tokenizer_path, ignore_errors=True)
            folder.create(settings)
        prepared = prepare_text(settings.data, folder.path, report=watching.report)
        facts["passages"] = prepared.passages.digest
        folder.settings_to_train(settings, seeds, resume=True, facts=facts)
        specials = prepared.text.specials
        with out_of_memory_said(settings, specials.vocabulary):
            engine = TextEngine(settings, prepared.text, device=place)
            trainer = Trainer(engine, folder)
        folder.create(settings)
        folder.describe(seeds, settings.training.threads, facts)
        trainer.begin(*(folder.newest() or (empty_run(str(folder.path), settings, seeds, {}), None)))
        with out_of_memory_said(settings, specials.vocabulary):
            trainer.run(watching)
        if settings.model.is_bert:
            longest = settings.positions
            export(engine.encoder, specials, prepared.tokenizer_folder, folder.export_path, longest=longest)
        else:
            logger.info("the model is not BERT's architecture: no Hugging Face folder is saved.")
    folder.notes = tuple(prepared.passages.about.notes())
    return folder


def export(encoder: Encoder, specials: Specials, tokenizer_folder: Path, folder: Path, *, longest: int) -> None:
    """Write settings, weights (safetensors) and tokenizer; whole or not at all."""
    try:
        from transformers import BertConfig, BertForMaskedLM
        from transformers.utils import logging
    except ImportError:
        raise InputError(
            'saving a Hugging Face folder needs transformers: pip install "topicscope[language]".'
        ) from None
    logging.disable_progress_bar()
    fields = bert_config(encoder.settings, vocabulary=specials.vocabulary, longest=longest, padding=specials.padding)
    model = BertForMaskedLM(BertConfig(**fields))
    weights = {name: parameter.detach().cpu() for name, parameter in encoder.named_parameters()}
    model.load_state_dict(to_bert(weights))
    part = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(tokenizer_folder, part)
    model.save_pretrained(part)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
