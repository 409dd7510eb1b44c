"""Training on text: the corpus as passages, what a run holds, that it repeats to the bit, what it saves and refuses."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from support.helpers import run_files
from support.text_corpus import small_text, small_text_settings, write_corpus
from topicscope.errors import DivergedError, InputError
from topicscope.measure.run import read_run
from topicscope.model.bert import to_bert
from topicscope.model.transformer import Transformer
from topicscope.settings import TextData
from topicscope.store import checkpoint_path
from topicscope.text.corpora import Corpus, open_corpus
from topicscope.training import text
from topicscope.training.engines import make_engine
from topicscope.training.folder import RunFolder
from topicscope.training.loop import Trainer, empty_run, train
from topicscope.training.record import Measures
from topicscope.training.text import prepare_text

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two seeds, with snapshots."""
    settings = small_text_settings(corpus, training={"snapshots": 3})
    return train(settings, tmp_path_factory.mktemp("text") / "run", seeds=(0, 1))


def test_a_run_records_norms_rotation_and_attention_by_layer(run: RunFolder) -> None:
    recorded, metrics = read_run(run.path), {name: of[0] for name, of in read_run(run.path).metrics.items()}
    there = {name: np.flatnonzero(np.isfinite(of.reshape(15, -1)).any(axis=1)).tolist() for name, of in metrics.items()}
    assert recorded.steps.tolist() == there["loss"] == there["attention/words"] == list(range(15))
    assert there["validation_loss"] == [0, 7, 14]
    assert there["rotation"] == [10, 11, 12, 13, 14]
    value = recorded.weights["value"][0].astype(float)
    assert metrics["norm/value"][-1] == pytest.approx(np.linalg.norm(value, axis=(1, 2)), rel=1e-6)
    before = load_file(checkpoint_path(run.path, 14))["history/4"][0].astype(float)
    cosine = (before[1] * value[1]).sum() / (np.linalg.norm(before[1]) * np.linalg.norm(value[1]))
    assert metrics["rotation"][-1, 1] == pytest.approx((1 - cosine) / 2, rel=1e-4)
    assert metrics["rotation"][-1, 1] > 1e-6
    assert metrics["loss"][-1] < metrics["loss"][0]


def test_seeds_trained_together_are_those_trained_alone_and_repeat_to_the_bit(
    run: RunFolder, corpus: Path, tmp_path: Path
) -> None:
    together = read_run(run.path)
    again = train(small_text_settings(corpus, training={"snapshots": 3}), tmp_path / "again", seeds=(0, 1))
    assert run_files(again.path) == run_files(run.path)
    alone = read_run(train(small_text_settings(corpus, seed=1), tmp_path / "alone").path)
    assert alone.metrics["loss"][0] == pytest.approx(together.metrics["loss"][1], rel=1e-5)
    assert alone.metrics["loss"][0] != pytest.approx(together.metrics["loss"][0], rel=1e-3)


def test_training_is_that_of_hugging_faces_bert_with_pytorchs_adam() -> None:
    settings = small_text_settings(training={"precision": "float64", "steps": 6, "validate_every": 0})
    source = small_text()
    trainer = Trainer(make_engine(settings, [0], source))
    start = {name: weight[0].clone() for name, weight in trainer.engine.weights.items()}
    trainer.begin(empty_run("", settings, [0], source))
    trainer.run()
    metrics = {name: of[0] for name, of in trainer.recorded().metrics.items()}
    # The same masked passages, one after another without padding; the loss is the mean of their means (eq. 1).
    theirs, stream = to_bert(settings.model, start, source.specials.padding), trainer.engine.streams[0]
    values = [layer.attention.self.value.weight for layer in theirs.bert.encoder.layer]
    optimizer = torch.optim.Adam(theirs.parameters(), lr=settings.training.learning_rate)
    for step, batch in enumerate(stream.chunk(0).parts(stream.steps)[:7]):
        by_passage = []
        for passage in (batch.span(place, place + 1) for place in range(len(batch))):
            asked = np.where(passage.masked, passage.words, -100)
            tokens, labels = (torch.from_numpy(of.astype(np.int64))[None] for of in (passage.tokens, asked))
            by_passage.append(theirs(input_ids=tokens, labels=labels).loss)
        loss = torch.stack(by_passage).mean()
        assert metrics["loss"][step] == pytest.approx(loss.item(), rel=1e-9)
        assert metrics["norm/value"][step] == pytest.approx([value.norm().item() for value in values], rel=1e-7)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    # The control: on the way the loss and the norms have moved by far more than that.
    assert np.ptp(metrics["loss"]) > 1e-2
    assert (np.ptp(metrics["norm/value"], axis=0) > 1e-3).all()


def test_text_without_positions_is_computed_on_bags_with_the_same_loss_and_gradients() -> None:
    fast, slow = (
        make_engine(
            small_text_settings(model={"positions": "none"}, training={"precision": "float64", "engine": engine}),
            [0, 1],
            small_text(),
        )
        for engine in ("auto", "reference")
    )
    outcomes = []
    for engine in (fast, slow):
        batch = engine.prepare([own.chunk(0) for own in engine.streams], engine.streams[0].steps)[0]
        losses = engine.losses(batch)
        outcomes.append((losses.detach(), engine.gradients(losses)))
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0])
    for name, gradient in outcomes[1][1].items():
        torch.testing.assert_close(outcomes[0][1][name], gradient, rtol=1e-7, atol=1e-12)


def test_attention_is_held_against_uniform_attention_query_by_query_on_held_out_passages() -> None:
    large = {"scale": 1.0}
    settings, source = small_text_settings(model={"key": large, "query": large, "value": large}), small_text()
    engine = make_engine(settings, [0], source)
    measures = Measures(engine)
    measured = {name: of[0] for name, of in measures.numbers().items()}
    batch = measures._few
    assert batch is not None
    tokens, visible = batch.tokens.numpy(), batch.keys.numpy()
    held_out = {tuple(source.select(np.array([place])).tokens) for place in engine.streams[0]._held_out}  # type: ignore[union-attr]
    assert {len(row) for row in held_out} >= set(visible.sum(axis=1).tolist())
    attention = engine.models[0].attention(batch.tokens, batch.keys).detach().numpy()
    found: dict[str, list[list[float]]] = {"words": [[], []], "mask": [[], []]}
    for layer, passage, head, query in np.ndindex(*attention.shape[:3], attention.shape[4]):
        token = int(tokens[passage, query])
        kind = "mask" if token == source.specials.mask else "words" if token in source.specials.words else ""
        if kind and visible[passage, query]:
            # Total variation is the most that the probability of any set of keys differs by.
            more = attention[layer, passage, head, :, query] - visible[passage] / visible[passage].sum()
            found[kind][layer].append(float(more[more > 0].sum()))
    for kind, layers in found.items():
        assert measured[f"attention/{kind}"] == pytest.approx([np.mean(each) for each in layers], rel=1e-4)
    assert measured["attention/words"] != pytest.approx(measured["attention/mask"], rel=1e-3)
    # The control: no keys and queries, uniform attention.
    engine.weights["key"].zero_()
    assert measures.numbers()["attention/words"][0] == pytest.approx([0, 0], abs=1e-6)


def test_a_saved_model_loads_in_hugging_face_with_the_same_outputs(run: RunFolder) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(run.export_path)
    model: Any = AutoModelForMaskedLM.from_pretrained(run.export_path)
    inputs = tokenizer("the frog and the [MASK]", return_tensors="pt")
    assert inputs["input_ids"][0, -2] == tokenizer.mask_token_id
    theirs = model.eval()(**inputs).logits.detach().numpy()
    settings = run.settings()
    weights = {name: weight[0] for name, weight in read_run(run.path).weights.items()}
    with torch.no_grad():
        assert Transformer(settings.model, weights)(inputs["input_ids"]).numpy() == pytest.approx(theirs, abs=1e-5)
    # Snapshots are folders of the same kind, each of its own step.
    assert {path.name for path in run.export_path.glob("step-*")} == {"step-0", "step-1", "step-14"}
    first, last = (
        AutoModelForMaskedLM.from_pretrained(run.export_path / f"step-{step}").eval()(**inputs).logits.detach().numpy()
        for step in (0, 14)
    )
    assert last == pytest.approx(theirs, abs=1e-6)
    assert first != pytest.approx(theirs, abs=1e-4)


def test_a_model_that_is_not_berts_trains_and_is_not_saved_for_hugging_face(corpus: Path, tmp_path: Path) -> None:
    frozen = {"residual": False, "embedding": {"train": False}}
    training = {"schedule": "two_stage", "l2": 0.01, "snapshots": 3}
    run = train(small_text_settings(corpus, model=frozen, training=training), tmp_path / "run")
    assert not run.export_path.exists()
    recorded = read_run(run.path)
    assert recorded.steps[-1] == 14
    assert np.ptp(recorded.metrics["norm/embedding"]) == 0
    assert recorded.metrics["penalty"].min() > 0


def test_diverged_training_says_so_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    # LayerNorm keeps the loss finite at any rate, so it is switched off here.
    off = {"layer_norm": False, "embedding_norm": False, "head_transform": False}
    settings = small_text_settings(corpus, model=off, training={"learning_rate": 1e6, "optimizer": "sgd", "steps": 30})
    with pytest.raises(DivergedError, match=r"training diverged: .* lower training.learning_rate \(now 1e\+06\)"):
        train(settings, tmp_path / "run")


def test_progress_counts_every_reading_of_the_corpus_in_bytes(tmp_path: Path) -> None:
    path, seen = write_corpus(tmp_path), list[tuple[int, int, str]]()
    size, data = path.stat().st_size, TextData(corpus=str(path), vocabulary=80, length=12)
    prepare_text(data, tmp_path / "run", report=lambda *progress: seen.append(progress))
    learnt, cut = (size, size, "bytes read for the tokenizer"), (size, size, "bytes read")
    # The tokenizer is trained in two readings, and passages are cut in a third.
    assert [progress for progress in seen if progress[0] == size] == [learnt, learnt, cut]
    seen.clear()
    prepare_text(data, tmp_path / "run", report=lambda *progress: seen.append(progress))
    assert not seen


def test_a_corpus_is_opened_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, told = write_corpus(tmp_path), dict[str, str]()

    def opened(source: str, **how: str) -> Corpus:
        told.update(how)
        return open_corpus(source, **how)

    monkeypatch.setattr(text, "open_corpus", opened)
    data = TextData(corpus=str(path), vocabulary=80, length=12)
    assert prepare_text(data, tmp_path / "lines")[0].articles.max() == 39
    assert told == {"field": "text", "split": "train", "layout": "auto"}
    other = TextData(corpus=str(path), vocabulary=80, length=12, split="test", layout="files", field="body")
    assert prepare_text(other, tmp_path / "whole")[0].articles.max() == 0
    assert told == {"field": "body", "split": "test", "layout": "files"}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"data": {"vocabulary": 5_000}}, r"data.vocabulary = 5000 .* supports \d+ tokens at most"),
    ({"data": {"vocabulary": 20}}, r"data.vocabulary = 20 .* letters alone take \d+"),
    ({"data": {"length": 1}}, "data.length = 1 .* 2 or more"),
    ({"data": {"corpus": ""}}, 'data.corpus = "" .* name a corpus'),
    ({"data": {"held_out": 1.0}}, "data.held_out = 1.0"),
    ({"data": {"tokenizer": "minilm", "vocabulary": 70}}, "data.tokenizer has a vocabulary already"),
    ({"data": {"corpsu": "x"}}, "data.corpsu is not a setting: did you mean data.corpus?"),
    ({"data": {"topics": 3}}, "data.topics is not a setting"),
    ({"model": {"heads": 3}}, "model.heads = 3 .* must divide model.dimension = 8"),
    ({"model": {"value": {"start": "theorem"}}}, "model.value.start = .* text has none"),
    ({"model": {"token_types": -1.0}}, "model.token_types = -1.0"),
    ({"model": {"embedding": {"start": "identity"}}}, "one-hot embeddings need d = V = 80"),
    ({"training": {"batch": 0}}, "training.batch = 0"),
    ({"masking": {"fixed": True}}, "masking.fixed"),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_settings_are_refused_in_one_sentence(
    changes: dict[str, Any], message: str, corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        train(small_text_settings(corpus, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_bad_input_leaves_an_empty_folder_empty_and_others_as_they_were(
    run: RunFolder, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with pytest.raises(InputError, match="does not exist"):
        train(small_text_settings(tmp_path / "missing.txt"), out)
    assert not list(out.iterdir())
    before, other = run_files(run.path), small_text_settings(corpus, data={"vocabulary": 5_000})
    with pytest.raises(InputError, match="is not empty"):
        train(other, run.path)
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        train(other, run.path, resume=True)
    assert run_files(run.path) == before


def test_a_corpus_of_single_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="has no passage of 2 tokens or more"):
        train(small_text_settings(path, data={"vocabulary": 11}), tmp_path / "run")


@pytest.mark.parametrize("missing", ["mask", "cls"])
def test_a_tokenizer_without_a_special_token_is_refused(
    missing: str, run: RunFolder, corpus: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(run.tokenizer_path)
    tokenizer.save_pretrained(tmp_path / "without")
    path = tmp_path / "without" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config[f"{missing}_token"]
    path.write_text(json.dumps(config))
    table = {"tokenizer": str(tmp_path / "without"), "vocabulary": 8_000}
    with pytest.raises(InputError, match=f"has no {missing} token"):
        train(small_text_settings(corpus, data=table), tmp_path / "other")
    # The control: as it is, it makes the same run.
    whole = small_text_settings(corpus, data={"tokenizer": str(run.tokenizer_path), "vocabulary": 8_000})
    given = read_run(train(whole, tmp_path / "given").path)
    assert given.metrics["loss"][0] == pytest.approx(read_run(run.path).metrics["loss"][0], rel=1e-6)
