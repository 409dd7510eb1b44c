"""Training on text: the corpus as passages, what a run holds, that it repeats to the bit, what it saves and refuses."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from support.text_corpus import contents, small_text, small_text_settings, write_corpus
from topicscope.errors import DivergedError, InputError
from topicscope.measure.run import read_run
from topicscope.model.encoder import Encoder
from topicscope.settings.text import TextData
from topicscope.store import checkpoint_path
from topicscope.text.corpora import Corpus, open_corpus
from topicscope.training import text
from topicscope.training.batches import PassageStream
from topicscope.training.loop import Trainer
from topicscope.training.text import AttentionDistances, TextEngine, prepare_text, train_on_text

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


def test_a_run_records_norms_rotation_and_gradients_on_one_time_axis(corpus: Path, tmp_path: Path) -> None:
    run = train_on_text(small_text_settings(corpus), tmp_path / "run")
    recorded, metrics = read_run(run.path), {name: of[0] for name, of in read_run(run.path).metrics.items()}
    there = {name: np.flatnonzero(np.isfinite(of.reshape(15, -1)).any(axis=1)).tolist() for name, of in metrics.items()}
    assert recorded.steps.tolist() == there["loss"] == list(range(15))
    assert there["validation_loss"] == [0, 7, 14]
    assert there["rotation"] == [10, 11, 12, 13, 14]
    value = recorded.weights["value"][0].astype(float)
    norms = np.linalg.norm(value, axis=(1, 2))
    assert metrics["norm/value"][-1] == pytest.approx(norms, rel=1e-6)
    heads = metrics["head_norm/value"][-1]
    assert heads.shape == (2, 2)
    assert heads[1, 0] == pytest.approx(np.linalg.norm(value[1, :4]), rel=1e-6)
    assert np.sqrt((heads**2).sum(axis=1)) == pytest.approx(norms, rel=1e-6)
    assert metrics["gradient_norm/key"].shape == (15, 2)
    before = load_file(checkpoint_path(run.path, 14))["history/4"][0].astype(float)
    cosine = (before[1] * value[1]).sum() / (np.linalg.norm(before[1]) * np.linalg.norm(value[1]))
    assert metrics["rotation"][-1, 1] == pytest.approx((1 - cosine) / 2, rel=1e-4)
    assert metrics["rotation"][-1, 1] > 1e-6
    assert metrics["loss"][-1] < metrics["loss"][0]


def test_recorded_gradients_are_those_of_the_loss() -> None:
    settings = small_text_settings(model={"scale": 0.3, "attention_scale": 0.3})
    engine = TextEngine(settings, small_text())
    [batch] = engine.prepare([engine.streams[0].chunk(0)])
    gradients = {name: gradient[0].clone() for name, gradient in engine.gradients(engine.losses(batch)).items()}
    engine.encoder.double()
    draw, step = torch.Generator().manual_seed(0), 1e-5
    for name in ("query", "value", "embedding", "positions", "feed_forward_in"):
        weight = engine.encoder.parameter(name)
        direction = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                weight.add_(direction, alpha=sign * step)
                exact = [dataclasses.replace(each, weights=each.weights.double()) for each in batch]
                ends.append(float(engine.losses(exact)))
                weight.sub_(direction, alpha=sign * step)
        slope = (ends[0] - ends[1]) / (2 * step)
        expected = float((gradients[name].double() * direction).sum())
        assert expected == pytest.approx(slope, rel=2e-3, abs=1e-6), name
        assert abs(slope) > 1e-5, name


def test_attention_is_held_against_uniform_attention_query_by_query() -> None:
    settings, text = small_text_settings(model={"attention_scale": 1.0}), small_text()
    engine = TextEngine(settings, text, attention_passages=3)
    distances = engine._distances
    assert distances is not None
    measured = distances.measure(engine.encoder)
    tokens = distances.tokens
    assert len(tokens) <= 3
    assert (tokens[:, 0] == text.specials.before).all()
    attention = engine.encoder.attention(tokens).detach().numpy()
    length = tokens.shape[1]
    found: dict[str, list[list[float]]] = {"words": [[], []], "mask": [[], []]}
    for layer, passage, head, query in np.ndindex(attention.shape[:-1]):
        token = int(tokens[passage, query])
        kind = "mask" if token == text.specials.mask else "words" if token in text.specials.words else ""
        if kind:
            # Total variation is the most that the probability of any set of keys differs by.
            more = attention[layer, passage, head, query] - 1 / length
            found[kind][layer].append(float(more[more > 0].sum()))
    for kind, layers in found.items():
        assert measured[kind] == pytest.approx([np.mean(each) for each in layers], rel=1e-4)
    assert measured["words"] != pytest.approx(measured["mask"], rel=1e-3)
    # The controls: no keys and queries, uniform attention; nothing asked for, nothing measured.
    with torch.no_grad():
        engine.encoder.parameter("key").zero_()
    assert distances.measure(engine.encoder)["words"] == pytest.approx([0, 0], abs=1e-6)
    assert TextEngine(settings, text)._distances is None


def test_the_passages_of_attention_are_held_out() -> None:
    text = small_text()
    distances = AttentionDistances(small_text_settings(), text, 100)
    stream = PassageStream(small_text_settings(), text)
    longest = text.lengths[stream.held_out].max()
    assert len(distances.tokens) == (text.lengths[stream.held_out] == longest).sum() > 0
    assert distances.tokens.shape[1] == longest + 2


def test_the_same_seed_gives_the_same_files_and_another_seed_others(corpus: Path, tmp_path: Path) -> None:
    first = contents(train_on_text(small_text_settings(corpus), tmp_path / "first").path)
    again = contents(train_on_text(small_text_settings(corpus), tmp_path / "again").path)
    other = contents(train_on_text(small_text_settings(corpus, seed=1), tmp_path / "other").path)
    assert first == again
    assert first["tokenizer/tokenizer.json"] == other["tokenizer/tokenizer.json"]
    assert first["run.safetensors"] != other["run.safetensors"]


def test_a_step_in_parts_trains_like_the_whole() -> None:
    losses = []
    for changes in ({}, {"accumulate": 3}, {"accumulate": 3, "learning_rate": 0.002}):
        engine = TextEngine(small_text_settings(training=changes), small_text())
        trainer = Trainer(engine)
        for step in range(3):
            loss = engine.losses(engine.prepare([engine.streams[0].chunk(step)])[0])
            trainer.update(loss)
            trainer.step += 1
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[2], rel=1e-4)


def test_a_saved_model_loads_in_hugging_face_with_the_same_outputs(corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    settings = small_text_settings(corpus)
    run = train_on_text(settings, tmp_path / "run")
    tokenizer: Any = AutoTokenizer.from_pretrained(run.export_path)
    model: Any = AutoModelForMaskedLM.from_pretrained(run.export_path)
    inputs = tokenizer("the frog and the [MASK]", return_tensors="pt")
    assert inputs["input_ids"][0, -2] == tokenizer.mask_token_id
    theirs = model.eval()(**inputs).logits[0].detach()
    ours = Encoder(settings.model, {name: weight[0] for name, weight in read_run(run.path).weights.items()})
    places = torch.arange(inputs["input_ids"].shape[1])
    with torch.no_grad():
        state = ours.embed(inputs["input_ids"][0], places)
        for layer in ours._layers():
            state = ours._finish(state, ours._mix(state, ((1, len(places)),), layer), layer)
        assert ours.predict(state).numpy() == pytest.approx(theirs.numpy(), abs=1e-5)
        assert ours.predict(state + 0.1).numpy() != pytest.approx(theirs.numpy(), abs=1e-4)


def test_a_model_that_is_not_berts_trains_and_is_not_saved_for_hugging_face(corpus: Path, tmp_path: Path) -> None:
    run = train_on_text(small_text_settings(corpus, model={"residual": False}), tmp_path / "run")
    assert not run.export_path.exists()
    assert read_run(run.path).steps[-1] == 14


def test_diverged_training_says_so_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    # LayerNorm keeps the loss finite at any rate, so it is switched off here.
    off = {"layer_norm": False, "embedding_norm": False, "head_transform": False}
    settings = small_text_settings(corpus, model=off, training={"learning_rate": 1e6, "optimizer": "sgd", "steps": 30})
    with pytest.raises(DivergedError, match=r"training diverged: .* lower training.learning_rate \(now 1e\+06\)"):
        train_on_text(settings, tmp_path / "run")


@pytest.mark.parametrize("kept", [True, False])
def test_progress_counts_every_reading_of_the_corpus_in_bytes(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_corpus(tmp_path)
    size, seen = path.stat().st_size, list[tuple[int, int, str]]()
    monkeypatch.setattr(text, "KEPT_BYTES", size if kept else size - 1)
    data = TextData(corpus=str(path), vocabulary=80, length=12)
    prepare_text(data, tmp_path / "run", report=lambda *told: seen.append(told))
    learnt, cut = (size, size, "bytes read for the tokenizer"), (size, size, "bytes read")
    # The tokenizer is trained in two readings, and passages are cut in a third; what is kept is read once.
    assert [told for told in seen if told[0] == size] == ([learnt] if kept else [learnt, learnt, cut])
    seen.clear()
    prepare_text(data, tmp_path / "run", report=lambda *told: seen.append(told))
    assert not seen


def test_a_corpus_is_opened_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = write_corpus(tmp_path), dict[str, str]()

    def opened(source: str, **how: str) -> Corpus:
        told.update(how)
        return open_corpus(source, **how)

    monkeypatch.setattr(text, "open_corpus", opened)
    data = TextData(corpus=str(path), vocabulary=80, length=12)
    lines = prepare_text(data, tmp_path / "lines")
    assert told == {"field": "text", "split": "train", "layout": "auto"}
    assert lines.passages.articles.max() == 39
    other = TextData(corpus=str(path), vocabulary=80, length=12, split="test", layout="files", field="body")
    assert prepare_text(other, tmp_path / "whole").passages.articles.max() == 0
    assert told == {"field": "body", "split": "test", "layout": "files"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"vocabulary": 5_000}}, r"data.vocabulary = 5000 .* supports \d+ tokens at most"),
        ({"data": {"vocabulary": 20}}, r"data.vocabulary = 20 .* letters alone take \d+"),
        ({"data": {"length": 1}}, "data.length = 1 .* 2 tokens or more"),
        ({"data": {"corpus": ""}}, 'data.corpus = "" .* name a corpus'),
        ({"data": {"held_out": 1.0}}, "data.held_out = 1.0"),
        ({"data": {"tokenizer": "minilm", "vocabulary": 70}}, "data.tokenizer has a vocabulary already"),
        ({"data": {"corpsu": "x"}}, "data.corpsu is not a setting: did you mean data.corpus?"),
        ({"model": {"heads": 3}}, "model.heads = 3 .* must divide model.width = 8"),
        ({"model": {"scale": -1.0}}, "model.scale = -1.0"),
        ({"training": {"accumulate": 7}}, "training.accumulate = 7 .* only training.batch = 6"),
        ({"training": {"batch": 0}}, "training.batch = 0"),
        ({"masking": {"fixed": True}}, "masking.fixed"),
    ],
)
def test_bad_settings_are_refused_in_one_sentence(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train_on_text(small_text_settings(corpus, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_bad_input_leaves_an_empty_folder_empty_and_others_as_they_were(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, out = small_text_settings(corpus), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("topicscope.training.machine.available_bytes", lambda: 10_000)
        with pytest.raises(
            InputError, match=r"lower model\.width = 8, the vocabulary \(80 tokens\) or data\.length = 12"
        ):
            train_on_text(settings, out)
    assert not out.exists()
    out.mkdir()
    with pytest.raises(InputError, match="does not exist"):
        train_on_text(small_text_settings(tmp_path / "missing.txt"), out)
    assert not list(out.iterdir())
    before = contents(train_on_text(settings, out).path)
    other = small_text_settings(corpus, data={"vocabulary": 5_000})
    with pytest.raises(InputError, match="is not empty"):
        train_on_text(other, out)
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        train_on_text(other, out, resume=True)
    assert contents(out) == before


def test_a_corpus_of_single_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="has no passage of 2 tokens or more"):
        train_on_text(small_text_settings(path, data={"vocabulary": 11}), tmp_path / "run")


@pytest.mark.parametrize("missing", ["mask", "cls"])
def test_a_tokenizer_without_a_special_token_is_refused(missing: str, corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    run = train_on_text(small_text_settings(corpus, training={"steps": 1}), tmp_path / "run")
    tokenizer: Any = AutoTokenizer.from_pretrained(run.tokenizer_path)
    tokenizer.save_pretrained(tmp_path / "without")
    path = tmp_path / "without" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config[f"{missing}_token"]
    path.write_text(json.dumps(config))
    table = {"tokenizer": str(tmp_path / "without"), "vocabulary": 8_000}
    with pytest.raises(InputError, match=f"has no {missing} token"):
        train_on_text(small_text_settings(corpus, data=table), tmp_path / "other")
    whole = {"tokenizer": str(run.tokenizer_path), "vocabulary": 8_000}
    again = train_on_text(small_text_settings(corpus, data=whole, training={"steps": 1}), tmp_path / "given")
    assert read_run(again.path).metrics["loss"][0, -1] == read_run(run.path).metrics["loss"][0, -1]
