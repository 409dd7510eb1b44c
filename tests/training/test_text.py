"""Training on text: what a run folder holds, that it repeats and resumes to the bit, and what it refuses."""

import dataclasses
import json
import shutil
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers import start_program
from text_corpus import small_text, small_text_settings, write_corpus
from topicscope.errors import DivergedError, InputError
from topicscope.model.encoder import Encoder
from topicscope.randomness import Purpose, generator
from topicscope.settings.text import TextSettings
from topicscope.settings.toml import dump_settings
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.training.checkpoints import checkpoint_steps, newest_checkpoint
from topicscope.training.memory import check_memory, is_out_of_memory, out_of_memory_said, step_bytes
from topicscope.training.passages import PassageStream, Text
from topicscope.training.text import check_text_out, train_text
from topicscope.training.text_loop import TextTrainer
from topicscope.training.text_runs import TextRun

pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a run that must repeat to the bit."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def counting(encoder: Encoder) -> dict[str, Any]:
    """Stands for the probe's measures."""
    return {"embedding": float(encoder.parameter("embedding").detach().square().sum())}


def trained(settings: TextSettings, out: Path, **options: Any) -> TextRun:
    return train_text(settings, out, measuring=lambda text, settings: counting, **options).run


def test_a_run_records_norms_rotation_gradients_and_measures_on_one_time_axis(corpus: Path, tmp_path: Path) -> None:
    run = trained(small_text_settings(corpus), tmp_path / "run")
    rows = run.metrics()
    assert [row["step"] for row in rows] == list(range(15))
    assert [row["step"] for row in rows if row["validation_loss"] is not None] == [0, 7, 14]
    assert [row["step"] for row in rows if row["topics"]] == [0, 1, 4, 14]
    assert [row["step"] for row in rows if row["rotation"] is not None] == [10, 11, 12, 13, 14]
    checkpoint = newest_checkpoint(run.path)
    assert checkpoint is not None
    value, last = checkpoint.weights["value"].double(), rows[-1]
    assert last["norm"]["value"] == pytest.approx([float(layer.norm()) for layer in value], rel=1e-6)
    heads = np.array(last["head_norm"]["value"])
    assert heads.shape == (2, 2)
    assert heads[1, 0] == pytest.approx(float(value[1, :4].norm()), rel=1e-6)
    assert np.sqrt((heads**2).sum(axis=1)) == pytest.approx(last["norm"]["value"], rel=1e-6)
    assert len(last["gradient_norm"]["key"]) == 2
    before = checkpoint.history[4].double()
    cosine = float((before[1] * value[1]).sum() / (before[1].norm() * value[1].norm()))
    assert last["rotation"][1] == pytest.approx((1 - cosine) / 2, rel=1e-4)
    assert last["rotation"][1] > 1e-6
    assert last["loss"] < rows[0]["loss"]


def test_recorded_gradients_are_those_of_the_loss() -> None:
    settings = small_text_settings(model={"scale": 0.3, "attention_scale": 0.3})
    trainer = TextTrainer(settings, small_text())
    passages = trainer.stream.batch(0)
    _, gradients = trainer.gradients(passages)
    trainer.encoder.double()
    draw, step = torch.Generator().manual_seed(0), 1e-5
    for name in ("query", "value", "embedding", "positions", "feed_forward_in"):
        weight = trainer.weights[name]
        direction = torch.randn(weight.shape, generator=draw, dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                weight.add_(direction, alpha=sign * step)
                batch = [dataclasses.replace(each, weights=each.weights.double()) for each in trainer._packed(passages)]
                ends.append(sum(float(trainer._loss(each)) for each in batch))
                weight.sub_(direction, alpha=sign * step)
        slope = (ends[0] - ends[1]) / (2 * step)
        exact = float((gradients[name].double() * direction).sum())
        assert exact == pytest.approx(slope, rel=2e-3, abs=1e-6), name
        assert abs(slope) > 1e-5, name


def test_the_same_seed_gives_the_same_files_and_another_seed_others(corpus: Path, tmp_path: Path) -> None:
    first = contents(trained(small_text_settings(corpus), tmp_path / "first").path)
    again = contents(trained(small_text_settings(corpus), tmp_path / "again").path)
    other = contents(trained(small_text_settings(corpus, seed=1), tmp_path / "other").path)
    assert first == again
    assert first["tokenizer/tokenizer.json"] == other["tokenizer/tokenizer.json"]
    assert first["metrics.jsonl"] != other["metrics.jsonl"]


def test_a_step_in_parts_trains_like_the_whole() -> None:
    losses = []
    for changes in ({}, {"accumulate": 3}, {"accumulate": 3, "learning_rate": 0.002}):
        trainer = TextTrainer(small_text_settings(training=changes), small_text())
        for step in range(3):
            loss, gradients = trainer.gradients(trainer.stream.batch(step))
            trainer.update(gradients)
            trainer.step += 1
        losses.append(loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0] != pytest.approx(losses[2], rel=1e-4)


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Callable[[int, int, str], None]:
    def report(done: int, total: int, state: str) -> None:
        if done == step:
            raise StoppedError

    return report


@pytest.mark.parametrize("step", [0, 3, 4, 11, 13])
def test_a_stopped_run_goes_on_to_the_same_bits(step: int, corpus: Path, tmp_path: Path) -> None:
    settings = small_text_settings(corpus)
    whole = contents(trained(settings, tmp_path / "whole").path)
    with pytest.raises(StoppedError):
        trained(settings, tmp_path / "stopped", report=stop_at(step))
    assert contents(tmp_path / "stopped") != whole
    assert contents(trained(settings, tmp_path / "stopped", resume=True).path) == whole


def test_a_damaged_row_or_checkpoint_is_made_again(corpus: Path, tmp_path: Path) -> None:
    settings = small_text_settings(corpus)
    whole = contents(trained(settings, tmp_path / "run").path)
    (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
    assert contents(trained(settings, tmp_path / "run", resume=True).path) == whole
    path = tmp_path / "run" / "checkpoint-14.safetensors"
    path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    again = contents(trained(settings, tmp_path / "run", resume=True).path)
    assert {name: content for name, content in again.items() if "damaged" not in name} == whole


def check_killed_runs_end_alike(corpus: Path, folder: Path, kills: int) -> None:
    settings = small_text_settings(corpus, training={"steps": 150, "checkpoint_every": 3, "measures": 0})
    whole = contents(train_text(settings, folder / "whole").run.path)
    toml, draw = folder / "settings.toml", np.random.default_rng(0)
    toml.write_text(dump_settings(settings))
    for number in range(kills):
        out = folder / f"killed-{number}"
        process = start_program("train", str(toml), "--out", str(out), "--quiet", "--device", "cpu")
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and checkpoint_steps(out):
                break
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.3))
        assert process.poll() is None, "the run was over before it could be killed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert max(checkpoint_steps(out)) < 150
        ended = contents(train_text(settings, out, resume=True, device="cpu").run.path)
        assert ended == whole


def test_a_killed_run_ends_like_one_that_was_not_killed(corpus: Path, tmp_path: Path) -> None:
    check_killed_runs_end_alike(corpus, tmp_path, kills=1)


@pytest.mark.slow
def test_ten_killed_runs_end_like_one_that_was_not_killed(corpus: Path, tmp_path: Path) -> None:
    check_killed_runs_end_alike(corpus, tmp_path, kills=10)


def test_a_saved_model_loads_in_hugging_face_with_the_same_outputs(corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    settings = small_text_settings(corpus)
    run = trained(settings, tmp_path / "run")
    tokenizer: Any = AutoTokenizer.from_pretrained(run.export_path)
    model: Any = AutoModelForMaskedLM.from_pretrained(run.export_path)
    inputs = tokenizer("the frog and the [MASK]", return_tensors="pt")
    assert inputs["input_ids"][0, -2] == tokenizer.mask_token_id
    theirs = model.eval()(**inputs).logits[0].detach()
    checkpoint = newest_checkpoint(run.path)
    assert checkpoint is not None
    ours = Encoder(settings.model, {name: weight.numpy() for name, weight in checkpoint.weights.items()})
    places = torch.arange(inputs["input_ids"].shape[1])
    with torch.no_grad():
        state = ours.embed(inputs["input_ids"][0], places)
        for layer in ours._layers():
            state = ours._finish(state, ours._mix(state, ((1, len(places)),), layer), layer)
        assert ours.predict(state).numpy() == pytest.approx(theirs.numpy(), abs=1e-5)
        assert ours.predict(state + 0.1).numpy() != pytest.approx(theirs.numpy(), abs=1e-4)


def test_a_model_that_is_not_berts_trains_and_is_not_saved_for_hugging_face(corpus: Path, tmp_path: Path) -> None:
    run = trained(small_text_settings(corpus, model={"residual": False}), tmp_path / "run")
    assert not run.export_path.exists()
    assert run.metrics()[-1]["step"] == 14


def test_masks_spare_special_tokens_and_random_words_are_words() -> None:
    settings = small_text_settings(masking={"mask": 0.5, "random": 0.5, "keep": 0.0})
    stream = PassageStream(settings, small_text(vocabulary=12))
    seen = [stream.batch(step) for step in range(300)]
    masked = np.concatenate([each.masked for each in seen])
    tokens = np.concatenate([each.tokens for each in seen])
    words = np.concatenate([each.words for each in seen])
    assert set(tokens[~masked]) <= set(range(5, 12))
    assert (tokens[~masked] == words[~masked]).all()
    drawn = tokens[masked & (tokens != 3)]
    # Of the masked positions half become [MASK], the others one of the 7 words, equally likely: 5 standard errors.
    count = masked.sum()
    assert (tokens[masked] == 3).sum() == pytest.approx(count / 2, abs=5 * np.sqrt(count) / 2)
    shares = np.bincount(drawn, minlength=12)[5:] / len(drawn)
    assert shares == pytest.approx(np.full(7, 1 / 7), abs=5 * np.sqrt(6 / 49 / len(drawn)))
    assert all(each.masked_counts.min() >= 1 for each in seen)


def test_special_tokens_in_the_text_are_never_masked_and_passages_of_nothing_else_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, settings = small_text(), small_text_settings(masking={"mask": 0.5})
    assert all(
        np.array_equal(PassageStream(settings, plain).batch(step).masked, unrestricted(settings, plain, step).masked)
        for step in range(5)
    )
    # A third of the tokens unknown (4), and one passage altogether.
    tokens = np.where(np.random.default_rng(1).random(len(plain.tokens)) < 1 / 3, np.int32(4), plain.tokens)
    tokens[plain.offsets[7] : plain.offsets[8]] = 4
    text = dataclasses.replace(plain, tokens=tokens)
    monkeypatch.setattr("topicscope.training.passages.BLOCK", 50)
    stream = PassageStream(settings, text)
    counted = [int((tokens[first:last] >= 5).sum()) for first, last in pairwise(text.offsets)]
    assert text.word_counts().tolist() == counted
    assert 7 not in {*stream.passages, *stream._held_out}
    assert 7 in {*PassageStream(settings, plain).passages, *PassageStream(settings, plain)._held_out}
    seen = [stream.batch(step) for step in range(40)]
    assert all(each.targets.min() >= 5 for each in seen)
    assert all(each.masked_counts.min() >= 1 for each in seen)
    # Unknown tokens are seen, and without the restriction would be targets.
    assert any((each.tokens == 4).any() for each in seen)
    assert any((unrestricted(settings, text, step).targets == 4).any() for step in range(5))
    unknown = dataclasses.replace(text, tokens=np.full_like(tokens, 4))
    with pytest.raises(InputError, match="one of them known to the tokenizer"):
        PassageStream(settings, unknown)


def unrestricted(settings: TextSettings, text: Text, step: int) -> MaskedDocuments:
    """The step's passages masked anywhere."""
    chosen = PassageStream(settings, text).passages[PassageStream(settings, text)._chosen(step * 6, 6)]
    draw = generator(settings.seed, Purpose.MASKS, step)
    return mask_documents(text.select(chosen), settings.masking, 30, mask_token=3, generator=draw)


def test_each_pass_sees_every_passage_once_and_no_held_out_one() -> None:
    text = small_text(passages=60)
    stream = PassageStream(small_text_settings(), text)
    assert len(stream.passages) == 54
    steps = len(stream.passages) // 6
    seen = sorted(place for step in range(steps) for place in stream._chosen(step * 6, 6).tolist())
    assert seen == list(range(54))
    held_out = stream.held_out()
    assert held_out is not None
    assert len(held_out) == 6
    trained_on = set(text.articles[stream.passages].tolist())
    assert len(trained_on) == 18
    assert not trained_on & set(text.articles[stream._held_out].tolist())


def test_diverged_training_says_so_in_one_sentence(corpus: Path, tmp_path: Path) -> None:
    # LayerNorm keeps the loss finite at any rate, so it is switched off here.
    off = {"layer_norm": False, "embedding_norm": False, "head_transform": False}
    settings = small_text_settings(corpus, model=off, training={"learning_rate": 1e6, "optimizer": "sgd", "steps": 30})
    with pytest.raises(DivergedError, match=r"training diverged: .* lower training.learning_rate \(now 1e\+06\)"):
        trained(settings, tmp_path / "run")


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
        train_text(small_text_settings(corpus, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_bad_input_leaves_an_empty_folder_empty_and_others_as_they_were(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, out = small_text_settings(corpus), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("topicscope.training.memory.available_bytes", lambda: 10_000)
        with pytest.raises(InputError, match=r"lower model\.width = 8"):
            trained(settings, out)
    assert not list(out.iterdir())
    before = contents(trained(settings, out).path)
    other = small_text_settings(corpus, data={"vocabulary": 5_000})
    with pytest.raises(InputError, match="is not empty"):
        trained(other, out)
    with pytest.raises(InputError, match=r"data\.vocabulary"):
        trained(other, out, resume=True)
    assert contents(out) == before


def test_a_tokenizer_of_a_run_without_settings_is_made_again(corpus: Path, tmp_path: Path) -> None:
    """Killed before its settings were written, a run may go on with others."""
    whole = contents(trained(small_text_settings(corpus), tmp_path / "whole").path)
    other = trained(small_text_settings(corpus, data={"vocabulary": 70}), tmp_path / "other").path
    begun = tmp_path / "begun"
    for name in ("tokenizer", "passages"):
        shutil.copytree(other / name, begun / name)
    assert (begun / "tokenizer" / "tokenizer.json").read_bytes() != whole["tokenizer/tokenizer.json"]
    assert contents(trained(small_text_settings(corpus), begun, resume=True).path) == whole


def test_a_corpus_of_single_words_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("a\nb\nc\n")
    with pytest.raises(InputError, match="has no passage of 2 tokens or more"):
        train_text(small_text_settings(path, data={"vocabulary": 11}), tmp_path / "run")


@pytest.mark.parametrize("missing", ["mask", "cls"])
def test_a_tokenizer_without_a_special_token_is_refused(missing: str, corpus: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    run = trained(small_text_settings(corpus, training={"steps": 1}), tmp_path / "run")
    tokenizer: Any = AutoTokenizer.from_pretrained(run.tokenizer_path)
    tokenizer.save_pretrained(tmp_path / "without")
    path = tmp_path / "without" / "tokenizer_config.json"
    config = json.loads(path.read_text())
    del config[f"{missing}_token"]
    path.write_text(json.dumps(config))
    table = {"tokenizer": str(tmp_path / "without"), "vocabulary": 8_000}
    with pytest.raises(InputError, match=f"has no {missing} token"):
        train_text(small_text_settings(corpus, data=table), tmp_path / "other")
    whole = {"tokenizer": str(run.tokenizer_path), "vocabulary": 8_000}
    again = train_text(small_text_settings(corpus, data=whole, training={"steps": 1}), tmp_path / "given")
    assert again.run.metrics()[-1]["loss"] == run.metrics()[-1]["loss"]


def test_too_little_memory_is_said_before_training_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    needed = step_bytes(settings, 30, 1_000)
    check_memory(settings, 30, 1_000, available=2 * needed)
    with pytest.raises(InputError, match=r"raise training.accumulate from 2 to 4.*lower training.batch from 64 to 32"):
        check_memory(settings, 30, 1_000, available=int(0.7 * needed))
    with pytest.raises(
        InputError, match=r"lower model.width = 8, or both the vocabulary \([\d,]+ tokens\) and model.layers = 2"
    ):
        check_memory(settings, 30, 1_000, available=16_000)


def test_weights_that_do_not_fit_are_refused_before_they_are_drawn() -> None:
    huge = small_text_settings(model={"width": 2**20, "feed_forward": 2**20})
    with pytest.raises(InputError, match=r"lower model\.width = 1048576, or both .* model\.layers = 2, [\d,]+-fold"):
        TextTrainer(huge, small_text())


def test_memory_that_runs_out_is_said_with_what_to_lower() -> None:
    settings = small_text_settings(training={"batch": 64, "accumulate": 2})
    with (
        pytest.raises(InputError, match=r"training.accumulate from 2 to 4.*training.batch to 32"),
        out_of_memory_said(settings),
    ):
        torch.empty(2**60, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="shape"), out_of_memory_said(settings):
        torch.ones(2).view(3)
    single = small_text_settings(training={"batch": 6, "accumulate": 6})
    with (
        pytest.raises(InputError, match=r"so lower data.length or model.width = 8") as caught,
        out_of_memory_said(single),
    ):
        raise MemoryError
    assert "accumulate from" not in str(caught.value)
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("shape"))


def test_estimated_memory_is_about_what_a_step_keeps() -> None:
    """Counted: every tensor that autograd saves for the backward pass, once."""
    settings = small_text_settings(
        model={"width": 64, "feed_forward": 256}, training={"batch": 48}, masking={"mask": 0.15}
    )
    trainer = TextTrainer(settings, small_text(passages=300, vocabulary=400))
    saved: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    passages = trainer.stream.batch(0)
    weights = sum(weight.untyped_storage().nbytes() for weight in trainer.weights.values())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        trainer._loss(trainer._packed(passages)[0])
    held = sum(saved.values()) - weights
    positions = len(passages.tokens) + 2 * len(passages)
    longest = settings.training.batch * settings.positions
    estimate = (step_bytes(settings, 400, 0)) * positions / longest
    assert 0.6 < estimate / held < 1.7


def test_a_run_killed_while_it_wrote_its_first_file_goes_on(tmp_path: Path) -> None:
    run = TextRun(tmp_path / "run")
    run.path.mkdir()
    (run.path / ".settings.toml.tmp").touch()
    check_text_out(run, resume=True)
    with pytest.raises(InputError, match="is not empty"):
        check_text_out(run, resume=False)
    (run.path / "notes.txt").touch()
    with pytest.raises(InputError, match="holds no run to resume"):
        check_text_out(run, resume=True)


def test_other_settings_and_another_corpus_are_refused_on_resume(corpus: Path, tmp_path: Path) -> None:
    settings = small_text_settings(corpus)
    run = trained(settings, tmp_path / "run")
    with pytest.raises(InputError, match=r"model.width \(8 there, 16 here\)"):
        trained(small_text_settings(corpus, model={"width": 16}), run.path, resume=True)
    with pytest.raises(InputError, match="is not empty"):
        trained(settings, run.path)
    moved = tmp_path / "moved.txt"
    moved.write_text(corpus.read_text())
    other = trained(small_text_settings(moved), tmp_path / "other")
    moved.write_text(corpus.read_text() + "the frog and the toad in the pond\n" * 9)
    with pytest.raises(InputError, match=r"passages \(\w+ there, \w+ here\); go on with the same corpus") as caught:
        trained(small_text_settings(moved), other.path, resume=True)
    assert "leave the settings out" not in str(caught.value)
    with pytest.raises(
        InputError, match=r"device \(cpu there, cuda here\); go on with the same corpus, tokenizer, device"
    ):
        run.check_same_settings(settings, device="cuda")
    run.check_same_settings(settings, device="cpu")
    with pytest.raises(InputError, match=r"seed \(0 there, 1 here\), device .*; leave the settings out to go on"):
        run.check_same_settings(small_text_settings(corpus, seed=1), device="cuda")


def test_memory_that_runs_out_while_weights_are_drawn_is_said_too(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("topicscope.training.text_loop.encoder_weights", fails)
    error: Exception = MemoryError()
    with pytest.raises(InputError, match="memory ran out"):
        trained(small_text_settings(corpus), tmp_path / "run")
    error = RuntimeError("shape")
    with pytest.raises(RuntimeError, match="shape"):
        trained(small_text_settings(corpus), tmp_path / "other")
