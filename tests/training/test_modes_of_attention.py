"""Which modes of attention grow in training, and how fast, where theory says that the topic mode does not.

With p_c = 0 a word query says nothing about its target, and with τ = 1 all words of a document are of one topic. At
infinite length the topic mode then stays where it is; in finite documents [MASK] and the same word still grow.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import topicscope as ts
from support.full_training import descend, full_rows
from topicscope.settings import Data, Masking, Model, Part, Settings, Training
from topicscope.theory.classes import TOPIC, Vocabulary
from topicscope.theory.dynamics import Stage2Rates, logit_gradient, stage2_rates
from topicscope.theory.finite_documents import class_moments, class_optimum

STILL = Part(start="zero", train=False)
SMALL = Part(scale=1e-4)
MODEL = Model(
    embedding=Part(start="identity", train=False),
    value=Part(start="finite", train=False),
    key=SMALL,
    query=SMALL,
    key_bias=STILL,
    query_bias=STILL,
    value_bias=STILL,
    prediction_bias=STILL,
)
NO_KEPT = Masking(keep=0.0)


def projections(size: Vocabulary, gradient: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """For each mode what to multiply W^K and W^Q by, so that their sum grows at the mode's rate."""
    count = size.count
    blocks = np.kron(np.eye(size.topics), np.full((size.words, size.words), 1 / size.words))
    topic, word = np.zeros((2, count + 1, count + 1))
    topic[1:, 1:], word[1:, 1:] = blocks - 1 / count, np.eye(count) - blocks
    plane = np.zeros((count + 1, 2))
    plane[0, 0], plane[1:, 1] = 1.0, 1 / np.sqrt(count)
    left, _, right = np.linalg.svd(-plane.T @ gradient @ plane)
    return {"topic": (topic, topic), "same_word": (word, word), "mask": (plane @ left[:, :1], plane @ right[:1].T)}


def measured_rates(folder: Path, data: Data, masking: Masking, rate: float, steps: int, batch: int) -> dict[str, float]:
    """Growth over the second half of a run with W^V frozen at its optimum, along what is there after the first.

    Batches scatter W^K and W^Q as well, but not along where they are, on average.
    """
    settings = Settings(
        data=replace(data, fresh=True),
        masking=masking,
        model=MODEL,
        training=Training(
            loss="squared",
            optimizer="sgd",
            learning_rate=rate,
            steps=steps,
            batch=batch,
            log_every=steps,
            validate_every=0,
            snapshots=0,
            checkpoint_every=steps // 2,
            precision="float64",
            threads=1,
        ),
    )
    ts.train(settings, out=folder)
    weights = [load_file(folder / f"checkpoint-{step}.safetensors") for step in (steps // 2, steps)]
    size = Vocabulary(data.topics, data.words)
    value = class_optimum(class_moments(data, masking)).numbers
    found = {}
    for name, (left, right) in projections(size, size.matrix(logit_gradient(data, masking)(value))).items():
        before, after = (
            np.squeeze(each["weights/key"]) @ left + np.squeeze(each["weights/query"]) @ right for each in weights
        )
        growth = np.log((before * after).sum() / (before**2).sum())
        found[name] = float(growth / (rate * steps / 2) * np.sqrt(size.count + 1))
    return found


def predicted(data: Data, masking: Masking) -> Stage2Rates:
    return stage2_rates(class_optimum(class_moments(data, masking)).numbers, data, masking)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "masking"), [(Data(), NO_KEPT), (Data(sampler="topics", per_document=1), Masking())], ids=["p_c=0", "τ=1"]
)
def test_at_the_paper_s_setting_mask_and_same_word_grow_as_predicted(
    data: Data, masking: Masking, tmp_path: Path
) -> None:
    measured, theory = measured_rates(tmp_path / "run", data, masking, 1_000.0, 400, 100), predicted(data, masking)
    assert measured["mask"] == pytest.approx(abs(theory.mask), rel=0.1)
    assert measured["same_word"] == pytest.approx(theory.same_word, abs=0.02 * abs(theory.mask))
    # The topic mode's rate is below what these batches can measure, and far below all others.
    assert abs(measured["topic"]) < 0.15 * abs(theory.mask)
    assert abs(theory.topic) < 0.01 * abs(theory.mask)
    if masking.keep:
        assert theory.same_word > 0.1 * abs(theory.mask)


@pytest.mark.parametrize(
    ("data", "masking"),
    [
        pytest.param(
            Data(topics=4, words=3, length=(12, 16)), Masking(mask=0.3, keep=0.0, random=0.1), marks=pytest.mark.slow
        ),
        (Data(sampler="topics", topics=4, words=3, per_document=1, length=(12, 16)), Masking(mask=0.3, keep=0.3)),
    ],
    ids=["p_c=0", "τ=1"],
)
def test_mask_and_same_word_grow_as_predicted(data: Data, masking: Masking, tmp_path: Path) -> None:
    theory = predicted(data, masking)
    rate = 0.02 / abs(theory.mask)
    measured = measured_rates(tmp_path / "run", data, masking, rate, 200, 100)
    assert measured["mask"] == pytest.approx(abs(theory.mask), rel=0.1)
    assert measured["same_word"] == pytest.approx(theory.same_word, abs=0.1 * abs(theory.mask))
    if masking.keep:
        assert theory.same_word > 0.3 * abs(theory.mask)


@cache
def topic_mode(per_document: int, masking: Masking) -> tuple[float, float]:
    """M's topic mode at the start and after long training of all of W^V, W^K and W^Q on infinite documents."""
    size = Vocabulary(3, 2)
    draw = np.random.default_rng(0)
    start = (np.zeros((7, 7)), *(0.1 * draw.normal(size=(2, 7, 7))))
    trained = descend(start, full_rows(3, 2, per_document, masking), "squared", 4.0, 1_000, 1_000)
    first, last = (size.modes(size.means(logits))[TOPIC] for _, logits in trained)
    return first, last


@pytest.mark.parametrize(("per_document", "keep"), [(2, 0.0), (1, 0.4)], ids=["p_c=0", "τ=1"])
def test_at_infinite_length_the_topic_mode_does_not_take_off(per_document: int, keep: float) -> None:
    before, after = topic_mode(per_document, Masking(mask=0.3, keep=keep, random=0.1))
    control = topic_mode(2, Masking(mask=0.3, keep=0.4, random=0.1))[1]
    assert control > 1
    assert abs(after - before) < 0.05 * control


def test_documents_of_two_topics_and_120_words_have_a_mask_rate_of_7_9e_5() -> None:
    """The rate goes as 1/N: 8.7 for the paper's LDA documents, 7.7 for two topics, and 7.9 at N = 120."""
    rates = {
        "lda": predicted(Data(), NO_KEPT).mask,
        "two": predicted(Data(sampler="topics"), NO_KEPT).mask,
        "two, N = 120": predicted(Data(sampler="topics", length=(120, 120)), NO_KEPT).mask,
    }
    assert {name: round(-1e5 * rate, 1) for name, rate in rates.items()} == {
        "lda": 8.7,
        "two": 7.7,
        "two, N = 120": 7.9,
    }
