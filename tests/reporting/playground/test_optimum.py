"""The playground's sampled optimum under uniform attention against the library's, on other documents."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from support.wasm import Core, Setting
from topicscope.papers.topic_structure.experiments import overlapping_topics
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.cross_entropy import CrossEntropyOptimum, cross_entropy_optimum
from topicscope.theory.finite_documents import finite_optimum, moments

DOCUMENTS = 4_000
SMALL = Setting(topics=4, words=3, shortest=20, longest=30, loss=0, l2=1e-4)
SETTINGS = {
    "small": SMALL,
    "topic sets": replace(SMALL, sampler=1, per_document=2, topics=5, l2=1e-3),
    "overlapping": replace(SMALL, overlap=0.4, dirichlet=0.3),
    "much masked": replace(SMALL, mask=0.5, keep=0.2, random=0.3, l2=1e-5),
    "squared": replace(SMALL, loss=1),
}


def found_by(core: Core) -> np.ndarray:
    """The six entries that the core has found."""
    core.call("optimum_begin", 1.0)
    for _ in range(100):
        if core.call("optimum_step"):
            break
    else:
        pytest.fail("Newton's method did not come to an end")
    return core.array(core.call("optimum_entries"), "<f8", 6)


def loss_of(core: Core) -> tuple[float, float]:
    """Its mean loss on fresh documents, and the standard error."""
    count, total, squares = core.numbers("optimum_add", 3, DOCUMENTS)
    mean = total / count
    return mean, float(np.sqrt(max(squares / count - mean**2, 0.0) / count))


def sample(setting: Setting, seed: int) -> Bags:
    topics = overlapping_topics(setting.topics, setting.words, setting.overlap) if setting.overlap else None
    model, draw = TopicModel.from_settings(setting.data, topics), np.random.default_rng(seed)
    documents = sample_documents(model, DOCUMENTS, generator=draw)
    return Bags.of(mask_documents(documents, setting.masking, model.vocabulary, generator=draw), model.vocabulary)


def losses(matrix: np.ndarray, bags: Bags, loss: int) -> np.ndarray:
    """Each document's, without L2."""
    scores = bags.frequencies @ matrix.T
    hit = (scores * bags.targets).sum(axis=1)
    return 1 - 2 * hit + (scores**2).sum(axis=1) if loss else logsumexp(scores, axis=1) - hit


def assert_is_as_good(entries: np.ndarray, best: np.ndarray, setting: Setting) -> None:
    """Two optima, each found on documents of its own, are equally good on others, within five standard errors."""
    bags = sample(setting, 1)
    *classes, row, mask = entries.tolist()
    found = CrossEntropyOptimum(*classes, mask_row=row, mask_mask=mask, objective=0.0)
    mine = found.matrix(setting.topics, setting.words)
    excess = losses(mine, bags, setting.loss) - losses(best, bags, setting.loss)
    ridge = setting.l2 * (np.vdot(mine, mine) - np.vdot(best, best))
    assert abs(excess.mean() + ridge) <= 5 * excess.std() / np.sqrt(DOCUMENTS)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_sampled_optimum_is_the_librarys(name: str) -> None:
    setting = SETTINGS[name]
    core = Core(setting)
    entries = found_by(core).copy()
    if setting.loss:
        # Squared: in closed form.
        model = TopicModel.from_settings(setting.data)
        best = finite_optimum(moments(model, setting.masking), setting.l2)
    else:
        best = cross_entropy_optimum(sample(setting, 0), setting.topics, setting.words, setting.l2).matrix(
            setting.topics, setting.words
        )
    assert_is_as_good(entries, best, setting)
    with pytest.raises(AssertionError):
        assert_is_as_good(0.7 * entries, best, setting)
    mean, error = loss_of(core)
    expected = losses(best, sample(setting, 2), setting.loss)
    assert abs(mean - expected.mean()) <= 5 * np.hypot(error, expected.std() / np.sqrt(DOCUMENTS))
    # Before the first step all entries are zero, and the loss says so.
    core.call("optimum_begin", 1.0)
    nothing, _ = loss_of(core)
    assert nothing == pytest.approx(1.0 if setting.loss else np.log(setting.vocabulary), rel=1e-12)
    assert nothing > mean + 5 * error


def test_topics_of_one_word_have_no_other_word_of_the_same_topic() -> None:
    core = Core(replace(SMALL, topics=9, words=1))
    entries = found_by(core)
    assert entries[2] == 0.0
    mean, error = loss_of(core)
    assert mean + 5 * error < np.log(10)


def test_with_masked_keys_hidden_the_mask_has_no_column() -> None:
    core = Core(replace(SMALL, hidden=1))
    entries = found_by(core)
    assert entries[0] == pytest.approx(0.0, abs=1e-9)
    assert entries[5] == pytest.approx(0.0, abs=1e-9)
    # Training W^V alone comes near it and not below.
    mean, error = loss_of(core)
    core.change(parts=1, optimizer=0, rate=1.0, batch=40)
    core.call("start", 0.0)
    core.call("train", 3_000)
    core.change(rate=1e-30)
    trained = [core.call("train", 1) for _ in range(100)]
    assert abs(float(np.mean(trained)) - mean) <= 5 * np.hypot(error, np.std(trained) / 10)
