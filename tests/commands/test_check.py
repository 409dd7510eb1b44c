"""``check``: a matrix or a run folder beside the optimum that its own settings tend to; and its command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from support.helpers import build_model, small_settings
from support.theory import known
from topicscope.cli import main
from topicscope.commands.check import check
from topicscope.commands.train import train
from topicscope.errors import InputError
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.settings.toml import dump_settings
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.finite_documents import finite_optimum, moments
from topicscope.theory.theorem1 import (
    semidefinite_optimum,
    theorem1_bias,
    theorem1_embedding,
)
from topicscope.theory.theorem2 import theorem2, theorem2_of

DATA = Data(topics=3, words=2, length=(5, 9))
MASKING = Masking(mask=0.3)
POPULATION = moments(TopicModel.from_settings(DATA), MASKING)
FROZEN_ZERO = Part(start="zero", train=False)
UNIFORM: dict[str, Any] = {"key": FROZEN_ZERO, "query": FROZEN_ZERO, "query_bias": FROZEN_ZERO}
ONE_HOT: dict[str, Any] = {**UNIFORM, "embedding": Part(start="identity", train=False)}
NO_BIAS: dict[str, Any] = {"value_bias": FROZEN_ZERO, "prediction_bias": FROZEN_ZERO}


def run_folder(
    folder: Path,
    model: Model,
    weights: dict[str, np.ndarray],
    training: Training = Training(loss="squared"),  # noqa: B008
    data: Data = DATA,
    step: int | None = None,
) -> Path:
    folder.mkdir(exist_ok=True)
    settings = Settings(data=data, masking=MASKING, model=model, training=training)
    (folder / "settings.toml").write_text(dump_settings(settings), encoding="utf-8")
    tensors = {f"weights/{name}": np.ascontiguousarray(array) for name, array in weights.items()}
    saved = training.steps if step is None else step
    # With an axis of seeds.
    save_file({name: array[None] for name, array in tensors.items()}, folder / f"checkpoint-{saved}.safetensors")
    return folder


def embedding_of(gram: np.ndarray) -> np.ndarray:
    """A W^E⊤ with W^E⊤W^E = E."""
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0)))


def test_an_optimum_is_at_no_distance_from_itself_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", finite_optimum(POPULATION))
    best = check(tmp_path / "w.npy", DATA, MASKING)
    assert known(best.finite).distance < 1e-12
    assert known(best.theorem_2).relative_distance > 0.1
    assert known(best.lemma_1).excess_loss > 1e-4
    save_file({"w": theorem2(3, 2, MASKING)}, tmp_path / "w.safetensors")
    limit = check(tmp_path / "w.safetensors", DATA, MASKING)
    assert known(limit.theorem_2).distance == 0
    assert known(limit.finite).excess_loss > 1e-4


def test_an_embedding_is_compared_with_theorem_1_and_the_semidefinite_optimum(tmp_path: Path) -> None:
    np.save(tmp_path / "block.npy", theorem1_embedding(3, 2, MASKING, "block", 4).T)
    found = check(tmp_path / "block.npy", DATA, MASKING, kind="embedding")
    assert found.lemma_1 is None
    assert known(found.theorem_1).distance < 1e-14
    best = semidefinite_optimum(POPULATION, theorem1_bias(3, 2, MASKING))
    np.save(tmp_path / "best.npy", embedding_of(best.matrix))
    reached = check(tmp_path / "best.npy", DATA, MASKING, kind="embedding")
    assert found.finite is not None
    assert known(reached.finite).distance < 1e-10 < found.finite.distance


@pytest.mark.parametrize("ridge", [0.0, 1e-2])
def test_a_one_hot_run_is_compared_with_the_optimum_at_its_own_ridge(tmp_path: Path, ridge: float) -> None:
    weights = {"embedding": np.eye(7), "value": finite_optimum(POPULATION, ridge)[None]}
    folder = run_folder(tmp_path, Model(**ONE_HOT, **NO_BIAS), weights, Training(loss="squared", l2=ridge))
    found = check(folder)
    assert found.matrix == "W^V"
    assert found.notes == ()
    assert found.theorem_1 is None
    assert known(found.finite).distance < 1e-12
    run_folder(tmp_path, Model(**ONE_HOT, **NO_BIAS), weights, Training(loss="squared", l2=ridge + 1e-3))
    other = check(folder)
    assert other.finite is not None
    assert other.finite.distance > 1e-3


def test_the_newest_checkpoint_counts(tmp_path: Path) -> None:
    optimum = finite_optimum(POPULATION)[None]
    for step, value in ((900, optimum), (1000, optimum + 1)):
        run_folder(tmp_path, Model(**ONE_HOT, **NO_BIAS), {"embedding": np.eye(7), "value": value}, step=step)
    found = check(tmp_path)
    assert found.source.endswith("checkpoint-1000.safetensors")
    assert known(found.finite).distance == pytest.approx(7)


def test_trained_biases_are_moved_into_the_matrix(tmp_path: Path) -> None:
    best, bias = finite_optimum(POPULATION), np.arange(7.0)
    value = (best - bias[:, None])[None]
    weights = {"embedding": np.eye(7), "value": value, "prediction_bias": bias / 2, "value_bias": bias[None] / 2}
    found = check(run_folder(tmp_path, Model(**ONE_HOT), weights))
    assert found.matrix == "W^V + b1⊤"
    assert known(found.finite).distance < 1e-12
    weights["prediction_bias"] = bias
    moved = check(run_folder(tmp_path, Model(**ONE_HOT), weights))
    assert moved.finite is not None
    assert moved.finite.distance > 1e-3
    # With L2 beside a trained bias no optimum is computed.
    ridge = check(run_folder(tmp_path, Model(**ONE_HOT), weights, Training(loss="squared", l2=1e-2)))
    assert ridge.finite is None
    assert "no optimum is computed" in ridge.notes[0]


def test_an_embedding_trained_alone_is_compared_with_the_semidefinite_optimum(tmp_path: Path) -> None:
    bias = theorem1_bias(3, 2, MASKING)
    embedding = embedding_of(semidefinite_optimum(POPULATION, bias).matrix)
    parts: dict[str, Any] = {
        **UNIFORM,
        "value": Part(start="identity", train=False),
        "value_bias": FROZEN_ZERO,
        "prediction_bias": Part(start="theorem", train=False),
    }
    weights = {"embedding": embedding, "value": np.eye(7)[None], "prediction_bias": bias}
    found = check(run_folder(tmp_path, Model(**parts), weights))
    assert known(found.finite).distance < 1e-10
    assert found.theorem_1 is not None
    assert found.theorem_1.distance > 1e-2
    parts["prediction_bias"] = Part()
    trained = check(run_folder(tmp_path, Model(**parts), weights))
    assert trained.finite is not None
    assert trained.finite.optimum_loss < known(found.finite).optimum_loss
    assert trained.notes == ("W^V is not trained: the optimum is a lower bound that may not be reachable",)


def test_a_run_narrower_than_the_vocabulary_says_that_the_optimum_is_a_bound(tmp_path: Path) -> None:
    notes = {}
    for dimension in (3, 7, 9):
        weights = {"embedding": np.ones((7, dimension)), "value": np.zeros((1, dimension, dimension))}
        folder = run_folder(tmp_path / str(dimension), Model(**UNIFORM, dimension=dimension), weights)
        notes[dimension] = check(folder).notes
    assert notes == {3: ("d is smaller than V: the optimum is a lower bound that may not be reachable",), 7: (), 9: ()}


def test_an_embedding_of_the_wrong_size_is_refused_before_its_square_is_formed(tmp_path: Path) -> None:
    # A million tokens: W^E⊤W^E would have 8 · 10¹² bytes.
    rows = np.ones((10**6 + 1, 1))
    np.save(tmp_path / "e.npy", rows)
    with pytest.raises(InputError, match=r"1000001 × 1000001, but topics = 3 .* fits topics = 4 and words = 250000"):
        check(tmp_path / "e.npy", DATA, MASKING, kind="embedding")
    weights = {"embedding": rows, "value": np.ones((1, 1, 1))}
    with pytest.raises(InputError, match=r"1000001 tokens, but .* asks for 7: .* topics = 4 and words = 250000"):
        check(run_folder(tmp_path / "run", Model(**UNIFORM, dimension=1), weights))


def test_with_all_parts_trained_the_product_is_compared_with_the_best_of_all_matrices(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    embedding = random.normal(size=(7, 7))
    value = np.linalg.solve(embedding, np.linalg.solve(embedding, finite_optimum(POPULATION).T).T)
    weights = {"embedding": embedding, "value": value[None]}
    found = check(run_folder(tmp_path, Model(), weights, Training(loss="cross_entropy", l2=1e-3)))
    assert found.matrix == "W^E⊤W^V W^E"
    assert known(found.finite).distance < 1e-9
    assert [note.split(":")[0] for note in found.notes] == [
        "trained with cross-entropy",
        "attention is not frozen to uniform",
        "L2 acts on W^E and W^V, not on their product",
    ]


def test_a_run_says_what_is_not_known_of_it(tmp_path: Path) -> None:
    weights = {"embedding": np.eye(7), "value": np.zeros((1, 7, 7))}
    two_topics = Data(topics=2, words=3, length=(5, 9))
    outside = check(run_folder(tmp_path / "T = τ", Model(**ONE_HOT, **NO_BIAS), weights, data=two_topics))
    assert outside.lemma_1 is None
    assert "only one set of topics" in outside.notes[0]
    assert known(outside.finite).excess_loss > 1e-2
    hidden = check(run_folder(tmp_path / "hidden", Model(**ONE_HOT, **NO_BIAS, masked_keys="hidden"), weights))
    assert hidden.finite is None
    assert "hidden as keys" in hidden.notes[0]
    training = Training(loss="cross_entropy", steps=500)
    unfinished = run_folder(tmp_path / "at 300", Model(**ONE_HOT, **NO_BIAS), weights, training, step=300)
    assert check(unfinished).notes[0] == "the run is unfinished: step 300 of 500"
    finished = run_folder(tmp_path / "at 500", Model(**ONE_HOT, **NO_BIAS), weights, training)
    assert "unfinished" not in " ".join(check(finished).notes)


def test_a_run_with_its_own_topic_word_matrix_has_a_finite_optimum(tmp_path: Path) -> None:
    rows = np.array([[0.5, 0.3, 0.2, 0], [0, 0.1, 0.2, 0.7]])
    np.save(tmp_path / "topics.npy", rows)
    data = Data(topic_words=str(tmp_path / "topics.npy"), length=(5, 9))
    optimum = finite_optimum(moments(TopicModel.from_settings(data), MASKING))
    weights = {"embedding": np.eye(5), "value": optimum[None]}
    found = check(run_folder(tmp_path / "run", Model(**ONE_HOT, **NO_BIAS), weights, data=data))
    assert known(found.finite).distance < 1e-12
    assert found.lemma_1 is None
    assert found.theorem_2 is not None
    assert found.theorem_2.distance == pytest.approx(
        np.linalg.norm(optimum - theorem2_of(TopicModel.from_settings(data), MASKING))
    )
    assert "not disjoint" in found.notes[0]


def test_a_file_may_be_checked_against_topics_that_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.array([[0.5, 0.3, 0.2, 0, 0], [0, 0.1, 0.2, 0.7, 0], [0.2, 0, 0, 0.2, 0.6]])
    np.save(tmp_path / "topics.npy", rows)
    data = Data(topic_words=str(tmp_path / "topics.npy"), length=(5, 9))
    optimum = finite_optimum(moments(TopicModel.from_settings(data), Masking(mask=0.3)))
    for name, matrix in {
        "w": optimum,
        "t": theorem2_of(TopicModel.from_settings(data), MASKING),
        "small": np.eye(5),
        "e": np.eye(6),
    }.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    options = ["--topic-words", data.topic_words, "--length", "5", "9", "--mask", "0.3", "--json"]
    files = [str(tmp_path / f"{name}.npy") for name in "wt"]
    assert main(["check", *files, *options, "--out", str(tmp_path / "drawn")]) == 0
    best, limit = json.loads(capsys.readouterr().out)
    assert best["finite"]["distance"] < 1e-12 < 0.1 < best["theorem_2"]["distance"]
    assert limit["theorem_2"]["distance"] < 1e-12 < 0.1 < limit["finite"]["distance"]
    assert best["finite"]["share_of_gain"] == pytest.approx(1)
    assert best["lemma_1"] is None
    assert "not disjoint" in best["notes"][0]
    written = sorted(path.name for path in (tmp_path / "drawn").iterdir())
    assert written == ["check.json", *(f"matrix-{number}.{kind}" for number in (1, 2) for kind in ("png", "svg"))]
    assert main(["check", str(tmp_path / "e.npy"), *options, "--kind", "embedding"]) == 0
    (embedding,) = json.loads(capsys.readouterr().out)
    assert embedding["theorem_1"] is None
    assert embedding["finite"]["excess_loss"] > 0
    assert main(["check", str(tmp_path / "small.npy"), *options]) == 2
    assert "is 5 × 5, but topic_words has 5 words, which with [MASK] need 6 × 6" in capsys.readouterr().err


def test_the_verdict_is_one_sentence_made_of_the_numbers(tmp_path: Path) -> None:
    optimum, limit = finite_optimum(POPULATION), theorem2(3, 2, MASKING)
    verdicts = {}
    for name, matrix in {
        "optimum": optimum,
        "half": optimum / 2,
        "doubled": limit + np.diag([0, *np.diag(limit)[1:]]),
        "flat": np.full((7, 7), 0.1),
        "bad": -optimum,
        "diagonal": np.diag(np.arange(7.0)) + np.random.default_rng(0).normal(size=(7, 7)),
    }.items():
        np.save(tmp_path / f"{name}.npy", matrix)
        verdicts[name] = check(tmp_path / f"{name}.npy", DATA, MASKING).verdict
    times = np.diag(optimum)[1] / limit[1, 1]
    assert verdicts["optimum"] == (
        f"100 % of the optimum's gain; the block pattern survives; the diagonal is {times:.2g} times Theorem 2's "
        "and as large as the optimum's."
    )
    # L(W) = 1 − 2⟨W, R⟩ + ⟨WS, W⟩ is a parabola along a line through 0 and its minimum: half way, three quarters.
    assert verdicts["half"].startswith("75 % of the optimum's gain; the block pattern survives;")
    assert "; the diagonal is 2 times Theorem 2's and " in verdicts["doubled"]
    assert "; no pattern is seen, where the optimum has the block pattern; " in verdicts["flat"]
    assert verdicts["bad"].startswith("its loss is above that of predicting nothing; ")
    assert "a diagonal without blocks is seen" in verdicts["diagonal"]


def test_a_folder_that_is_no_whole_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no settings.toml"):
        check(tmp_path)
    (tmp_path / "settings.toml").write_text("")
    with pytest.raises(InputError, match=r"has no checkpoint-STEP.safetensors"):
        check(tmp_path)
    weights = {"embedding": np.eye(5)}
    for value, message in (
        (None, "no tensor weights/value: give a checkpoint"),
        (np.zeros((1, 5, 5)), "has 5 tokens, but its settings.toml asks for 7"),
        (np.zeros((1, 7, 7)), "they must be V × d and d × d"),
    ):
        whole = weights if value is None else weights | {"value": value}
        with pytest.raises(InputError, match=message):
            check(run_folder(tmp_path, Model(**ONE_HOT, **NO_BIAS), whole))


def test_files_that_hold_no_matrix_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    (tmp_path / "w.txt").write_text("1")
    np.save(tmp_path / "line.npy", np.zeros(4))
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "nan.npy", np.full((7, 7), np.nan))
    np.save(tmp_path / "layers.npy", np.zeros((2, 7, 7)))
    save_file({"a": np.eye(7), "b": np.eye(7)}, tmp_path / "two.safetensors")
    for name, message in {
        "bad.npy": "cannot be read",
        "bad.safetensors": "cannot be read",
        "none.npy": "cannot be read",
        "none.safetensors": "cannot be read",
        "none": "does not exist",
        "w.txt": "give a run folder, a .npy or a .safetensors file",
        "line.npy": r"has shape \(4,\)",
        "text.npy": "give real numbers",
        "nan.npy": "not finite",
        "layers.npy": "has 2 layers",
        "two.safetensors": "has 2 tensors .* --tensor",
    }.items():
        with pytest.raises(InputError, match=message):
            check(tmp_path / name, DATA, MASKING)
    with pytest.raises(InputError, match="layer = 2 is not allowed"):
        check(tmp_path / "layers.npy", DATA, MASKING, layer=2)
    assert check(tmp_path / "layers.npy", DATA, MASKING, layer=1).finite is not None
    assert check(tmp_path / "two.safetensors", DATA, MASKING, tensor="b").finite is not None


FROZEN_TABLE = {"start": "zero", "train": False}
UNIFORM_TABLES: dict[str, Any] = {"key": FROZEN_TABLE, "query": FROZEN_TABLE, "query_bias": FROZEN_TABLE}


def test_the_matrix_read_from_a_run_predicts_what_the_model_predicts(tmp_path: Path) -> None:
    settings = small_settings(
        model={**UNIFORM_TABLES, "dimension": 5, "value_bias": {"start": "normal"}}, training={"loss": "squared"}
    )
    folder = train(settings, tmp_path / "run").path
    run = check(folder)
    model = build_model(settings)
    tensors = load_file(run.source)
    with torch.no_grad():
        for name, parameter in model.state_dict().items():
            parameter.copy_(torch.from_numpy(tensors[f"weights/{name}"][0]))
        tokens = torch.tensor([[0, 3, 3, 6, 1]])
        predicted = model.predict(model.states(tokens)[-1])[0, 0].numpy()
    frequencies = np.bincount(tokens[0].numpy(), minlength=7) / 5
    np.testing.assert_allclose(run.matrices["matrix"] @ frequencies, predicted, atol=1e-6)
    assert abs(run.matrices["matrix"].T @ frequencies - predicted).max() > 1e-4
    assert run.matrix == "W^E⊤W^V W^E + b1⊤"


def test_a_run_that_starts_at_the_optimum_and_hardly_moves_is_at_the_optimum(tmp_path: Path) -> None:
    parts: dict[str, Any] = {**UNIFORM_TABLES, "embedding": {"start": "identity", "train": False}}
    parts |= {"value_bias": FROZEN_TABLE, "prediction_bias": FROZEN_TABLE}
    still: dict[str, Any] = {"loss": "squared", "learning_rate": 1e-9}
    for start, low, high in (("finite", 0, 1e-5), ("theorem", 1e-2, 10)):
        settings = small_settings(model={**parts, "value": {"start": start}}, training=still)
        found = check(train(settings, tmp_path / start).name)
        assert found.notes == ()
        assert low <= known(found.finite).distance <= high


@pytest.fixture
def matrix(tmp_path: Path) -> str:
    np.save(tmp_path / "w.npy", theorem2(10, 10, Masking()))
    return str(tmp_path / "w.npy")


def test_check_prints_json_alone_or_tables(matrix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", matrix, matrix, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["classes"]["same_topic"]["mean"] == pytest.approx(0.1080202, abs=5e-8)
    assert main(["check", matrix]) == 0
    printed = capsys.readouterr().out
    verdict = "w.npy: 99 % of the optimum's gain; the block pattern survives; the diagonal is as large"
    assert verdict in " ".join(printed.split())
    for number in ("0.10802", "-0.00758671", "0.0541908", "0.94562537", "0.94532184"):
        assert number in printed
    np.save(matrix, theorem1_embedding(10, 10, Masking(), "block", 12).T)
    assert main(["check", matrix, "--kind", "embedding"]) == 0
    assert "Theorem 1" in capsys.readouterr().out


def test_check_takes_the_setting_from_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    masking = Masking(mask=0.3, keep=0.2, random=0.05)
    np.save(tmp_path / "w.npy", theorem2(4, 3, masking))
    words = ["check", str(tmp_path / "w.npy"), "--topics", "4", "--words", "3", "--mask", "0.3", "--keep", "0.2"]
    words += ["--random", "0.05", "--per-document", "3", "--dirichlet", "0.2", "--length", "5", "9", "--json"]
    assert main(words) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["theorem_2"]["distance"] == 0
    assert found["data"]["length"] == [5, 9]
    assert found["data"]["dirichlet"] == [0.2]
    assert main([*words[:-1], "--sampler", "topics", "--json"]) == 0
    (other,) = json.loads(capsys.readouterr().out)
    assert other["finite"]["optimum_loss"] != found["finite"]["optimum_loss"]


def test_bad_input_is_one_line_and_exit_code_2(matrix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, message in (
        (
            "FILE --topics 6",
            "101 × 101, but topics = 6 and words = 10 need 61 × 61: it fits topics = 10 and words = 10",
        ),
        ("FILE --per-document 10", "only one set of topics"),
        ("FILE --keep 0.9", "topicscope: keep + random = 1.0 is not allowed: no position becomes [MASK]"),
        ("FILE --mask 2", "mask = 2.0 is not allowed"),
        ("FILE --wrods 3", "--words"),
        ("", "No file is given"),
        ("FOLDER --topics 3", "leave those of documents and masks out"),
    ):
        words = line.replace("FILE", matrix).replace("FOLDER", str(tmp_path)).split()
        assert main(["check", *words]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert message in printed.err
