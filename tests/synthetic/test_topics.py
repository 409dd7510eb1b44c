"""Sampled documents against exact probabilities: topics, words, groups of Pólya's urn, guided draws."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from topicscope.errors import InputError
from topicscope.settings import Data
from topicscope.settings.data import Sampler
from topicscope.synthetic.documents import Documents, MaskedDocuments
from topicscope.synthetic.topics import (
    Outcomes,
    TopicModel,
    check_topic_words,
    equal_topics,
    groups_of_equal_topic,
    sample_documents,
)
from topicscope.theory.finite_documents import moments

COUNT = 4000


def frequencies(documents: Documents, vocabulary: int) -> np.ndarray:
    """Each document's word frequencies, [MASK]'s column included."""
    nothing = np.zeros(len(documents.tokens), dtype=bool)
    return MaskedDocuments(documents.lengths, documents.tokens, documents.tokens, nothing).frequencies(vocabulary)


def assert_means(samples: np.ndarray, expected: np.ndarray, *wrong: np.ndarray) -> None:
    """The means are as expected, within five standard errors, and the controls are further away."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    assert (abs(samples.mean(axis=0) - expected) <= 5 * error + 1e-12).all()
    for other in wrong:
        assert (abs(samples.mean(axis=0) - other) > 5 * error + 1e-12).any()


def test_word_i_belongs_to_topic_i_over_v_rounded_up() -> None:
    model = TopicModel.from_settings(Data(topics=4, words=3))
    assert model.word_topics.tolist() == [0] + [-(-i // 3) for i in range(1, 13)]


OVERLAPPING = np.array([[0.5, 0.3, 0.2, 0.0], [0.0, 0.1, 0.2, 0.7]])


@pytest.mark.parametrize(
    "model",
    [
        TopicModel.from_settings(Data(topics=3, words=4, dirichlet=(0.1,), length=(20, 40))),
        TopicModel.from_settings(Data(topics=3, words=4, dirichlet=(0.2, 1.0, 3.0), length=(20, 40))),
        TopicModel.from_settings(Data(sampler="topics", topics=4, words=3, per_document=2, length=(30, 30))),
        TopicModel(OVERLAPPING, "dirichlet", 1, np.array([1.0, 2.0]), (30, 50)),
    ],
    ids=["Dirichlet", "unequal topics", "two topics", "overlapping topics"],
)
def test_words_are_as_likely_as_their_topics_make_them(model: TopicModel) -> None:
    documents = sample_documents(model, COUNT, generator=np.random.default_rng(1))
    topics = model.dirichlet if model.sampler == "dirichlet" else np.ones(model.topics)
    expected = np.concatenate([[0], topics / topics.sum() @ model.topic_words])
    assert_means(frequencies(documents, model.vocabulary), expected, np.roll(expected, 1), expected * 1.1)
    assert (model.equal_words is None) == (model.topic_words is OVERLAPPING)


@pytest.mark.parametrize(
    ("data", "same", "wrong"),
    [
        # α(α+1)/((Tα)(Tα+1)) for each topic, which plain multinomials do not have.
        (Data(topics=5, words=2, dirichlet=(0.3,), length=(2, 2)), (0.3 + 1) / (5 * 0.3 + 1), 1 / 5),
        # 1/τ; with three in the set, not with another τ's.
        (Data(sampler="topics", topics=6, per_document=3, length=(2, 2)), 1 / 3, 1 / 2),
    ],
)
def test_two_positions_are_of_one_topic_as_often_as_the_samplers_second_moments_say(
    data: Data, same: float, wrong: float
) -> None:
    model = TopicModel.from_settings(data)
    pairs = model.word_topics[sample_documents(model, 40_000, generator=np.random.default_rng(2)).tokens].reshape(-1, 2)
    assert_means((pairs[:, :1] == pairs[:, 1:]).astype(float), np.array([same]), np.array([wrong]))


def test_topic_sampler_draws_every_set_of_distinct_topics_equally_often() -> None:
    model = TopicModel.from_settings(Data(sampler="topics", topics=4, words=2, per_document=2, length=(200, 200)))
    documents = sample_documents(model, COUNT, generator=np.random.default_rng(3))
    present = np.zeros((COUNT, 5))
    present[documents.document, model.word_topics[documents.tokens]] = 1
    assert (present.sum(axis=1) == 2).all()
    sets = np.stack([present[:, list(pair)].all(axis=1) for pair in combinations(range(1, 5), 2)], axis=1)
    wrong = np.array([0.25, 0.25, 0.125, 0.125, 0.125, 0.125])
    assert_means(sets.astype(float), np.full(6, 1 / 6), wrong)


@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_the_order_of_words_is_random_unless_documents_are_not_shuffled(sampler: Sampler) -> None:
    """Of neighbours as of the first and the last word, the same share is of one topic."""
    model = TopicModel.from_settings(Data(sampler=sampler, topics=4, words=3, per_document=3, length=(12, 12)))
    gap = {}
    for shuffled in (True, False):
        documents = sample_documents(model, COUNT, shuffled=shuffled, generator=np.random.default_rng(11))
        topics = model.word_topics[documents.tokens].reshape(COUNT, 12)
        neighbours = (topics[:, 1:] == topics[:, :-1]).mean(axis=1)
        gap[shuffled] = (neighbours - (topics[:, 0] == topics[:, -1]))[:, None]
    assert_means(gap[True], np.zeros(1), gap[False].mean(axis=0))


@pytest.mark.parametrize("sampler", ["dirichlet", "topics"])
def test_counts_have_the_same_moments_whether_documents_are_shuffled_or_not(sampler: Sampler) -> None:
    model = TopicModel.from_settings(Data(sampler=sampler, topics=3, words=2, per_document=2, length=(5, 15)))
    other = TopicModel.from_settings(
        Data(sampler=sampler, topics=3, words=2, per_document=3, dirichlet=(1.0,), length=(5, 15))
    )

    def moments(model: TopicModel, shuffled: bool, seed: int) -> np.ndarray:
        documents = sample_documents(model, COUNT, shuffled=shuffled, generator=np.random.default_rng(seed))
        found = frequencies(documents, model.vocabulary)
        return np.concatenate([found, (found[:, :, None] * found[:, None]).reshape(COUNT, -1)], axis=1)

    expected = moments(model, True, 12)
    nothing = np.zeros(expected.shape[1])
    assert_means(expected - moments(model, False, 13), nothing)
    with pytest.raises(AssertionError):
        assert_means(expected - moments(other, False, 13), nothing)


def test_a_word_of_probability_zero_is_never_drawn() -> None:
    matrix = np.array([[0.0, 0.5, 0.0, 0.5, 0.0]])
    model = TopicModel(matrix, "dirichlet", 1, np.array([1.0]), (50, 50))
    tokens = sample_documents(model, 500, generator=np.random.default_rng(6)).tokens
    assert set(tokens.tolist()) == {2, 4}


def test_lengths_are_uniform_and_include_both_ends() -> None:
    model = TopicModel.from_settings(Data(length=(3, 6)))
    lengths = sample_documents(model, COUNT, generator=np.random.default_rng(7)).lengths
    found = (lengths[:, None] == np.arange(3, 7)).astype(float)
    assert_means(found, np.full(4, 0.25), np.array([1 / 3, 1 / 3, 1 / 3, 0]))


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_topic_words_are_read_from_text(tmp_path: Path, suffix: str, delimiter: str) -> None:
    path = tmp_path / f"matrix{suffix}"
    np.savetxt(path, equal_topics(2, 3), delimiter=delimiter)
    assert TopicModel.from_settings(Data(topic_words=str(path))).equal_words == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"frog,toad\n0.5,0.5\n", "give numbers alone, without a header line"),
        (b"0.5,0.5\n\nsecond,1\n", "could not convert string 'second'"),
        (b"0.5,0.5\n1\n", "number of columns changed from 2 to 1"),
        (b"\xff\xfe", "codec can't decode"),
    ],
)
def test_text_that_is_no_matrix_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "matrix.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        TopicModel.from_settings(Data(topic_words=str(tmp_path / "matrix.csv")))


def test_equal_topics_of_a_file_are_known_in_spite_of_rounding(tmp_path: Path) -> None:
    # Ten times 0.1, added up, is not quite one, so that dividing by the sum moves each entry.
    path = tmp_path / "matrix.npy"
    np.save(path, np.kron(np.eye(10), np.full((1, 10), 0.1)))
    assert TopicModel.from_settings(Data(topic_words=str(path))).equal_words == 10
    unequal = np.kron(np.eye(2), np.array([[0.5 + 1e-9, 0.5 - 1e-9]]))
    np.save(path, unequal)
    assert TopicModel.from_settings(Data(topic_words=str(path))).equal_words is None


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.6]], "sums to 1.1"),
        ([[0.5, 0.0], [0.5, 0.25], [0.0, 0.75]], "columns that sum to one, not rows: transpose it"),
        ([[1.5, -0.5]], "-0.5 in row 1, column 2"),
        ([[np.nan, 1.0]], "nan in row 1, column 1"),
        ([], "shape"),
    ],
)
def test_matrices_that_are_no_distributions_are_refused(matrix: list[list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_topic_words(np.array(matrix), "matrix")
    np.testing.assert_array_equal(check_topic_words(OVERLAPPING, "matrix"), OVERLAPPING)


URNS = 40_000


def assert_shares_are(found: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Within five standard errors, and nothing else occurs."""
    total = found.total()
    assert sum(expected.values()) == pytest.approx(1)
    assert set(found) <= set(expected)
    for outcome, probability in expected.items():
        error = math.sqrt(probability * (1 - probability) / total)
        assert abs(found[outcome] / total - probability) <= 5 * error


def rising(start: float, steps: int) -> float:
    """start (start + 1) … (start + steps − 1)."""
    return math.prod(start + step for step in range(steps))


def count_vectors(length: int, topics: int) -> list[tuple[int, ...]]:
    if topics == 1:
        return [(length,)]
    return [(first, *rest) for first in range(length + 1) for rest in count_vectors(length - first, topics - 1)]


def dirichlet_multinomial(length: int, alpha: tuple[float, ...]) -> dict[tuple[int, ...], float]:
    """Multinomial counts with proportions integrated out: N! / A^(N) · Π α_t^(n_t) / n_t!, rising powers."""
    return {
        counts: math.factorial(length)
        / rising(sum(alpha), length)
        * math.prod(rising(a, n) / math.factorial(n) for a, n in zip(alpha, counts, strict=True))
        for counts in count_vectors(length, len(alpha))
    }


def ewens(concentration: float) -> dict[tuple[int, ...], float]:
    """Ewens' formula for the groups of four words, largest first: N! / A^(N) · Π_j (A/j)^(c_j) / c_j!."""
    partitions = [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    return {
        sizes: 24
        / rising(concentration, 4)
        * math.prod((concentration / size) ** times / math.factorial(times) for size, times in Counter(sizes).items())
        for sizes in partitions
    }


@pytest.mark.parametrize("concentration", [0.3, 1.0, 7.0])
def test_group_sizes_are_those_of_ewens_formula(concentration: float) -> None:
    """Documents of four words, among others of other lengths."""
    lengths = np.tile(np.array([4, 1, 9], dtype=np.int32), URNS)
    sizes = groups_of_equal_topic(lengths, concentration, generator=np.random.default_rng(1))
    ends = np.cumsum(sizes)
    # Groups never reach over the end of a document.
    assert np.isin(np.cumsum(lengths), ends).all()
    document = np.searchsorted(np.cumsum(lengths), ends)
    parts = np.split(sizes, np.flatnonzero(np.diff(document)) + 1)
    found = Counter(tuple(sorted(part.tolist(), reverse=True)) for part in parts[::3])
    assert_shares_are(found, ewens(concentration))
    with pytest.raises(AssertionError):
        assert_shares_are(found, ewens(concentration * 1.1))


@pytest.mark.parametrize("alpha", [(0.1, 0.1, 0.1), (0.2, 1.0, 3.0)])
def test_topic_counts_of_documents_are_dirichlet_multinomial(alpha: tuple[float, ...]) -> None:
    """The whole distribution of counts, with equal parameters and with others."""
    model = TopicModel(equal_topics(3, 2), "dirichlet", 1, np.array(alpha), (5, 5))
    documents = sample_documents(model, URNS, generator=np.random.default_rng(2))
    topics = model.word_topics[documents.tokens].reshape(URNS, 5)
    found = Counter(map(tuple, np.stack([(topics == topic).sum(axis=1) for topic in (1, 2, 3)], axis=1).tolist()))
    assert_shares_are(found, dirichlet_multinomial(5, alpha))
    # The controls: a flatter Dirichlet of the same mean, and the topics in another order.
    with pytest.raises(AssertionError):
        assert_shares_are(found, dirichlet_multinomial(5, tuple(1.2 * a for a in alpha)))
    with pytest.raises(AssertionError):
        assert_shares_are(found, dirichlet_multinomial(5, (alpha[1], alpha[0] * 1.3, alpha[2])))


def test_extreme_concentrations_give_one_group_or_one_a_word() -> None:
    lengths = np.array([3, 700, 1], dtype=np.int32)
    one = groups_of_equal_topic(lengths, 1e-300, generator=np.random.default_rng(3))
    each = groups_of_equal_topic(lengths, 1e300, generator=np.random.default_rng(3))
    assert one.tolist() == [3, 700, 1]
    assert each.tolist() == [1] * 704


ROWS = np.array([[0.2, 0.0, 0.5, 0.3], [1.0, 0.0, 0.0, 0.0], [0.0, 1e-9, 0.0, 1.0 - 1e-9], [0.25, 0.25, 0.25, 0.25]])


@pytest.mark.parametrize("probabilities", [ROWS, np.random.default_rng(3).dirichlet([0.1] * 130, size=3)])
def test_outcomes_have_their_probabilities(probabilities: np.ndarray) -> None:
    """Few outcomes, with cells told by a byte; and many, with a boundary in most cells."""
    count = 200_000
    outcomes = Outcomes(probabilities)
    found = []
    for number, expected in enumerate(probabilities):
        row = np.full(count, number, dtype=np.int32)
        drawn = outcomes.draw(row, generator=np.random.default_rng(number))
        shares = np.bincount(drawn, minlength=len(expected)) / count
        assert (abs(shares - expected) <= 5 * np.sqrt(expected * (1 - expected) / count) + 1e-12).all()
        assert not shares[expected == 0].any()
        found.append(shares)
    # The control: rows are not each other.
    assert abs(found[0] - found[1]).max() > 0.05


def test_documents_between_start_and_end_are_the_same_documents_in_between() -> None:
    data = Data(topics=3, words=4, length=(1, 6))
    plain, ended = (TopicModel.from_settings(replace(data, ends=ends)) for ends in (False, True))
    without, found = (sample_documents(model, 50, generator=np.random.default_rng(5)) for model in (plain, ended))
    assert ended.vocabulary == plain.vocabulary + 2
    assert ended.word_topics.tolist() == [*plain.word_topics.tolist(), 0, 0]
    for document in range(50):
        inside = without.tokens[without.offsets[document] : without.offsets[document + 1]].tolist()
        here = found.tokens[found.offsets[document] : found.offsets[document + 1]].tolist()
        assert here == [13, *inside, 14]
    with pytest.raises(InputError, match=re.escape("set data.ends = false.")):
        moments(ended)
    moments(plain)
