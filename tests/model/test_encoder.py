"""The encoder for text: equal to Hugging Face's BERT with everything on, to the reference of topic models without."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from topicscope.errors import InputError
from topicscope.model.encoder import (
    BERT_LAYER_NAMES,
    BERT_NAMES,
    Encoder,
    PackedBatch,
    bert_config,
    encoder_weights,
    equal_lengths,
    pack,
    pack_parts,
    to_bert,
)
from topicscope.model.transformer import Transformer
from topicscope.model.weights import Sizes
from topicscope.settings import Masking
from topicscope.settings.text import Encoder as EncoderSettings
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.training.engines import losses

VOCABULARY, LONGEST = 23, 12
SMALL = EncoderSettings(layers=3, heads=2, width=8, feed_forward=12, scale=0.3, attention_scale=0.3)
LENGTHS = (9, 4, 10, 4, 2)


def small_encoder(settings: EncoderSettings = SMALL, *, dtype: torch.dtype = torch.float64) -> Encoder:
    """Weights drawn; biases and gains too, so that none of them goes untested."""
    draw = np.random.default_rng(0)
    weights = encoder_weights(settings, VOCABULARY, LONGEST, generator=draw)
    for name in weights:
        if name.endswith(("_bias", "_norm")):
            weights[name] = weights[name] + draw.normal(scale=0.3, size=weights[name].shape)
    return Encoder(settings, weights, dtype=dtype)


def some_passages(seed: int = 0) -> MaskedDocuments:
    draw = np.random.default_rng(seed)
    lengths = np.array(LENGTHS, dtype=np.int32)
    documents = Documents(lengths, draw.integers(3, VOCABULARY, size=lengths.sum(), dtype=np.int32))
    return mask_documents(documents, Masking(mask=0.4), VOCABULARY, generator=draw)


def packed(passages: MaskedDocuments) -> PackedBatch:
    return pack(passages, before=1, after=2, average="document", dtype=torch.float64)


def rectangle(passages: MaskedDocuments) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded tokens with their special tokens, and what is not padding: passages in order of length."""
    order = np.argsort(passages.lengths, kind="stable")
    texts = [passages.tokens[passages.offsets[place] : passages.offsets[place + 1]] for place in order]
    tokens = torch.zeros((len(texts), LONGEST), dtype=torch.long)
    present = torch.zeros((len(texts), LONGEST), dtype=torch.bool)
    for place, text in enumerate(texts):
        row = [1, *text.tolist(), 2]
        tokens[place, : len(row)] = torch.tensor(row)
        present[place, : len(row)] = True
    return tokens, present


def hugging_face(encoder: Encoder) -> Any:
    transformers = pytest.importorskip("transformers")
    # Hugging Face takes no gradient at its padding token, and here 0 is [MASK].
    fields = bert_config(encoder.settings, vocabulary=VOCABULARY, longest=LONGEST, padding=None)
    config = transformers.BertConfig(**fields)
    config._attn_implementation = "eager"
    model = transformers.BertForMaskedLM(config).to(encoder.parameter("value").dtype).eval()
    model.load_state_dict(to_bert(dict(encoder.named_parameters())))
    return model


def from_bert(state: Mapping[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """A state of ``BertForMaskedLM`` as weights of the encoder."""
    found = {ours: state[theirs] for ours, theirs in BERT_NAMES.items()}
    for ours, theirs in BERT_LAYER_NAMES.items():
        for end, kind in (("", "weight"), ("_bias", "bias")):
            each = [state[f"bert.encoder.layer.{layer}.{theirs}.{kind}"] for layer in range(layers)]
            found[ours + end] = torch.stack(each)
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_with_everything_on_it_is_hugging_faces_bert(dtype: torch.dtype, tolerance: float) -> None:
    encoder, passages = small_encoder(dtype=dtype), some_passages()
    tokens, present = rectangle(passages)
    batch = packed(passages)
    theirs = hugging_face(encoder)(
        input_ids=tokens, attention_mask=present.long(), output_attentions=True, output_hidden_states=True
    )
    with torch.no_grad():
        states = encoder.states(batch)
        for ours, hidden in zip(states, theirs.hidden_states, strict=True):
            assert ours.numpy() == pytest.approx(hidden[present].detach().numpy(), abs=tolerance)
        scores = encoder.predict(states[-1])
        expected = theirs.logits[present].detach()
        assert scores.numpy() == pytest.approx(expected.numpy(), abs=tolerance)
        masked = encoder.predict_masked(batch)
        assert masked.numpy() == pytest.approx(expected[batch.targets].numpy(), abs=tolerance)
        full = tokens[-1:]
        attention = encoder.attention(full)
        for ours, their in zip(attention, theirs.attentions, strict=True):
            assert ours[0].numpy() == pytest.approx(their[-1].detach().numpy(), abs=tolerance)
    # The control: with one bias nudged the numbers differ by far more than the tolerance.
    encoder.parameter("value_bias").data[1] += 0.1
    with torch.no_grad():
        assert np.abs(encoder.predict_masked(batch).numpy() - masked.numpy()).max() > 1e3 * tolerance


def test_gradients_are_those_of_hugging_faces_bert() -> None:
    encoder, passages = small_encoder(), some_passages()
    tokens, present = rectangle(passages)
    batch, model = packed(passages), hugging_face(encoder)
    (losses(encoder.predict_masked(batch), batch.words, "cross_entropy") @ batch.weights).backward()  # type: ignore[no-untyped-call]
    logits = model(input_ids=tokens, attention_mask=present.long()).logits[present][batch.targets]
    (losses(logits, batch.words, "cross_entropy") @ batch.weights).backward()  # type: ignore[no-untyped-call]
    theirs = from_bert({name: each.grad for name, each in model.named_parameters() if each.grad is not None}, 3)
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.numpy() == pytest.approx(theirs[name].numpy(), abs=1e-12), name
        if name != "key_bias":  # b^K shifts all scores of a query alike: its gradient is zero
            assert parameter.grad.abs().max() > 1e-6, name


SWITCHES: list[dict[str, Any]] = [
    {},
    {"residual": False},
    {"layer_norm": False},
    {"output_projection": False},
    {"feed_forward": 0},
    {"head_transform": False},
    {"tied": False},
    {"positions": "none"},
    {"positions": "sinusoidal"},
    {"residual": False, "layer_norm": False, "output_projection": False, "feed_forward": 0, "head_transform": False},
]


@pytest.mark.parametrize("switches", SWITCHES)
def test_each_part_switches_off_as_in_the_model_for_topic_models(switches: dict[str, Any]) -> None:
    # That one has neither token types nor a norm after the embeddings; its LayerNorm adds 1e-5.
    without: dict[str, Any] = {"token_types": False, "embedding_norm": False, "norm_epsilon": 1e-5}
    settings = dataclasses.replace(SMALL, **(without | switches))
    encoder, passages = small_encoder(settings), some_passages()
    weights = {name: parameter.detach().numpy() for name, parameter in encoder.named_parameters()}
    model = settings.as_model()
    reference = Transformer(model, Sizes.of(model, VOCABULARY, LONGEST), weights, dtype=torch.float64)
    tokens, present = rectangle(passages)
    batch = packed(passages)
    with torch.no_grad():
        expected = reference(tokens, present)[present][batch.targets].numpy()
        assert encoder.predict_masked(batch).numpy() == pytest.approx(expected, abs=1e-12)
        attention = reference.attention(tokens[-1:]).mT.numpy()
        assert encoder.attention(tokens[-1:]).numpy() == pytest.approx(attention, abs=1e-12)
    if switches:
        everything = Encoder(dataclasses.replace(SMALL, **without), small_weights(without))
        with torch.no_grad():
            assert np.abs(everything.double().predict_masked(batch).numpy() - expected).max() > 1e-3


def small_weights(switches: dict[str, Any]) -> dict[str, np.ndarray]:
    encoder = small_encoder(dataclasses.replace(SMALL, **switches))
    return {name: parameter.detach().numpy() for name, parameter in encoder.named_parameters()}


@pytest.mark.parametrize("switch", ["token_types", "embedding_norm"])
def test_token_types_and_embedding_norm_switch_off(switch: str) -> None:
    encoder = small_encoder()
    off: dict[str, Any] = {switch: False}
    less = dataclasses.replace(SMALL, **off)
    weights = {name: parameter.detach().numpy() for name, parameter in encoder.named_parameters()}
    kept = {name: array for name, array in weights.items() if not name.startswith(switch)}
    other, tokens = Encoder(less, kept, dtype=torch.float64), torch.arange(5)
    embedded = weights["embedding"][:5] + weights["positions"][:5]
    if switch == "embedding_norm":
        expected = embedded + weights["token_types"][0]
    else:
        centred = embedded - embedded.mean(axis=1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + SMALL.norm_epsilon)
        expected = unit * weights["embedding_norm"] + weights["embedding_norm_bias"]
    with torch.no_grad():
        assert other.embed(tokens, tokens).numpy() == pytest.approx(expected, abs=1e-12)
        assert encoder.embed(tokens, tokens).numpy() != pytest.approx(expected, abs=1e-3)


def test_a_passage_gives_the_same_packed_with_others_and_alone() -> None:
    encoder, passages = small_encoder(), some_passages()
    with torch.no_grad():
        together = encoder.predict_masked(packed(passages)).numpy()
        order = np.argsort(passages.lengths, kind="stable").tolist()
        alone = [encoder.predict_masked(packed(passages.span(place, place + 1))).numpy() for place in order]
        assert np.concatenate(alone) == pytest.approx(together, abs=1e-12)
        moved = MaskedDocuments(passages.lengths, passages.tokens[::-1], passages.words, passages.masked)
        assert encoder.predict_masked(packed(moved)).numpy() != pytest.approx(together, abs=1e-3)


def test_packing_holds_every_token_once_and_no_padding() -> None:
    passages = some_passages()
    batch = packed(passages)
    assert len(batch.tokens) == sum(LENGTHS) + 2 * len(LENGTHS)
    assert batch.groups == ((1, 4), (2, 6), (1, 11), (1, 12))
    assert sorted(batch.tokens.tolist()) == sorted([*passages.tokens.tolist(), *[1, 2] * len(LENGTHS)])
    starts = (batch.places == 0).nonzero()[:, 0]
    assert batch.tokens[starts].tolist() == [1] * len(LENGTHS)
    assert sorted(batch.words.tolist()) == sorted(passages.words[passages.masked].tolist())
    assert float(batch.weights.sum()) == pytest.approx(1)
    assert equal_lengths(np.array([3, 3, 5])) == ((2, 3), (1, 5))


@pytest.mark.parametrize("average", ["document", "batch"])
@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_step_in_parts_has_the_gradient_of_the_whole(average: Any, parts: int) -> None:
    passages = some_passages()
    divided = pack_parts(passages, parts, before=1, after=2, average=average)
    assert len(divided) == parts
    whole = gradient_of([pack(passages, before=1, after=2, average=average)])
    for name, gradient in gradient_of(divided).items():
        assert gradient == pytest.approx(whole[name], abs=1e-6), name
    # The control: the mean of the parts' own losses is another loss, unless each part is one passage of eq. 1's mean.
    alike = [dataclasses.replace(batch, weights=batch.weights / batch.weights.sum() / parts) for batch in divided]
    off = max(np.abs(gradient - whole[name]).max() for name, gradient in gradient_of(alike).items())
    if average == "document" and parts == len(LENGTHS):
        assert off < 1e-6
    else:
        assert off > 1e-3


def gradient_of(batches: list[PackedBatch]) -> dict[str, np.ndarray]:
    """Of the batches' losses, summed up one after another."""
    encoder = small_encoder()
    for batch in batches:
        scores = encoder.predict_masked(batch)
        (losses(scores, batch.words, "cross_entropy") @ batch.weights.double()).backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad.numpy() for name, parameter in encoder.named_parameters()}  # type: ignore[union-attr]


def test_an_architecture_that_is_not_berts_is_refused() -> None:
    assert SMALL.is_bert
    with pytest.raises(InputError, match="not BERT's architecture"):
        bert_config(dataclasses.replace(SMALL, residual=False), vocabulary=5, longest=4, padding=0)
