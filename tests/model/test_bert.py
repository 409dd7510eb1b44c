"""With every part of BERT switched on, the reference model is Hugging Face's BERT: states, attention, gradients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from support.text_corpus import small_text, small_text_settings
from topicscope.model.bert import LAYER_NAMES, NAMES, save_bert, to_bert
from topicscope.model.transformer import Transformer, padded_batch
from topicscope.model.weights import NORM_EPSILON, shapes, start_weights
from topicscope.settings import TEXT_MODEL, Masking
from topicscope.synthetic.documents import Documents
from topicscope.synthetic.masking import mask_documents
from topicscope.training.engines import losses

VOCABULARY, LONGEST = 23, 12
SMALL = replace(TEXT_MODEL, layers=3, heads=2, dimension=8, feed_forward=12)


def small_model(dtype: torch.dtype = torch.float64) -> Transformer:
    """Every parameter drawn, biases and gains too, so that none of them goes untested."""
    draw = np.random.default_rng(0)
    weights = {
        name: draw.normal(scale=0.3, size=shape) + name.endswith("_norm")
        for name, shape in shapes(SMALL, VOCABULARY, LONGEST).items()
    }
    return Transformer(SMALL, weights, dtype=dtype)


def hugging_face(model: Transformer) -> Any:
    pytest.importorskip("transformers")
    theirs = to_bert(SMALL, dict(model.named_parameters()), VOCABULARY - 1)
    theirs.set_attn_implementation("eager")
    return theirs.to(model.parameter("value").dtype).eval()


def some_batch(dtype: torch.dtype = torch.float64) -> Any:
    draw, lengths = np.random.default_rng(0), np.array([9, 4, 12, 4, 2], dtype=np.int32)
    # Hugging Face takes no gradient at its padding token, the last.
    documents = Documents(lengths, draw.integers(3, VOCABULARY - 1, size=lengths.sum(), dtype=np.int32))
    masked = mask_documents(documents, Masking(mask=0.4), VOCABULARY - 1, generator=draw)
    return padded_batch(masked, masked_keys="visible", average="document").to(torch.device("cpu"), dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_with_everything_on_it_is_hugging_faces_bert(dtype: torch.dtype, tolerance: float) -> None:
    model, batch = small_model(dtype), some_batch(dtype)
    theirs = hugging_face(model)(
        input_ids=batch.tokens,
        attention_mask=batch.keys,
        output_attentions=True,
        output_hidden_states=True,
    )
    present = batch.queries > 0
    with torch.no_grad():
        states = model.states(batch.tokens, batch.keys)
        for ours, hidden in zip(states, theirs.hidden_states, strict=True):
            assert ours[present].numpy() == pytest.approx(hidden[present].detach().numpy(), abs=tolerance)
        for ours, attention in zip(model.attention(batch.tokens, batch.keys), theirs.attentions, strict=True):
            # Ours has queries in columns; those of padding mean nothing.
            expected = attention.detach().mT * present[:, None, None]
            assert (ours * present[:, None, None]).numpy() == pytest.approx(expected.numpy(), abs=tolerance)
        masked = model.predict_masked(batch)
        assert masked.numpy() == pytest.approx(theirs.logits[batch.masked].detach().numpy(), abs=tolerance)
        # The control: with one bias nudged the numbers differ by far more than the tolerance.
        model.parameter("value_bias").data[1] += 0.1
        assert np.abs(model.predict_masked(batch).numpy() - masked.numpy()).max() > 1e3 * tolerance


def test_gradients_are_those_of_hugging_faces_bert() -> None:
    model, batch = small_model(), some_batch()
    theirs = hugging_face(model)
    (losses(model.predict_masked(batch), batch.words, "cross_entropy") @ batch.weights).backward()
    logits = theirs(input_ids=batch.tokens, attention_mask=batch.keys).logits[batch.masked]
    (losses(logits, batch.words, "cross_entropy") @ batch.weights).backward()
    found = {name: each.grad for name, each in theirs.named_parameters() if each.grad is not None}
    expected = {ours: found[name] for ours, name in NAMES.items()}
    expected["token_types"] = found["bert.embeddings.token_type_embeddings.weight"][0]
    for ours, name in LAYER_NAMES.items():
        for end, kind in (("", "weight"), ("_bias", "bias")):
            layers = range(SMALL.layers)
            expected[ours + end] = torch.stack([found[f"bert.encoder.layer.{layer}.{name}.{kind}"] for layer in layers])
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.numpy() == pytest.approx(expected[name].numpy(), abs=1e-12), name
        if name != "key_bias":  # b^K shifts all scores of a query alike: its gradient is zero
            assert parameter.grad.abs().max() > 1e-6, name


def test_text_starts_where_bert_starts() -> None:
    theirs = pytest.importorskip("transformers").BertConfig()
    assert theirs.layer_norm_eps == NORM_EPSILON
    for name, weight in start_weights(small_text_settings(), 0, small_text()).items():
        if name.endswith(("_bias", "_norm")):
            assert (weight == name.endswith("_norm")).all(), name
        else:
            scale = np.sqrt((weight**2).mean()) / theirs.initializer_range
            assert scale == pytest.approx(1, abs=5 / np.sqrt(2 * weight.size)), name


def test_without_any_of_its_parts_it_is_not_bert() -> None:
    assert SMALL.is_bert
    off: list[dict[str, Any]] = [{name: False} for name in ("residual", "layer_norm", "embedding_norm", "tied")]
    off += [{"output_projection": False}, {"head_transform": False}, {"feed_forward": 0}, {"token_types": 0.0}]
    off += [{"masked_keys": "hidden"}, {"attention_dimension": 2}]
    assert not any(replace(SMALL, **change).is_bert for change in off)


def test_a_saved_model_replaces_an_older_one_and_leaves_other_files(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers")
    model, folder = small_model(torch.float32), tmp_path / "huggingface"
    (folder / "step-1").mkdir(parents=True)
    for _ in range(2):
        model.parameter("value").data += 1
        save_bert(to_bert(SMALL, dict(model.named_parameters()), 0), folder)
    there = transformers.BertForMaskedLM.from_pretrained(folder).state_dict()
    assert torch.equal(there["bert.encoder.layer.1.attention.self.value.weight"], model.parameter("value")[1])
    assert (folder / "step-1").is_dir()
    assert not list(tmp_path.glob("*.tmp"))
