"""Cross-entropy's optimum under uniform attention, against a search that does not know its structure."""

import numpy as np
import pytest
from scipy.optimize import minimize

from topicscope.errors import InputError
from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import Bags, MaskedDocuments
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.cross_entropy import cross_entropy_optimum, infinite_bag, uniform_cross_entropy
from topicscope.theory.finite_documents import infinite_topic_moments

TOPICS, WORDS, RIDGE = 2, 2, 1e-3
VOCABULARY = TOPICS * WORDS + 1


def _documents(count: int) -> MaskedDocuments:
    generator = np.random.default_rng(0)
    model = TopicModel.from_settings(Data(topics=TOPICS, words=WORDS, length=(10, 15)))
    documents = sample_documents(model, count, generator=generator)
    return mask_documents(documents, Masking(mask=0.3), VOCABULARY, generator=generator)


def _symmetric(documents: MaskedDocuments) -> MaskedDocuments:
    """The documents under all renamings of topics and of words within topics: as symmetric as the population."""
    within = ((1, 2, 3, 4), (2, 1, 3, 4), (1, 2, 4, 3), (2, 1, 4, 3))
    renamings = within + tuple((a, b, c, d) for c, d, a, b in within)
    tables = [np.array([0, *renaming], dtype=np.int32) for renaming in renamings]
    return MaskedDocuments(
        np.tile(documents.lengths, len(tables)),
        np.concatenate([table[documents.tokens] for table in tables]),
        np.concatenate([table[documents.words] for table in tables]),
        np.tile(documents.masked, len(tables)),
    )


def test_six_entries_are_the_optimum_over_all_matrices() -> None:
    bags = Bags.of(_symmetric(_documents(40)), VOCABULARY)

    def objective(flat: np.ndarray) -> float:
        return uniform_cross_entropy(flat.reshape(VOCABULARY, VOCABULARY), bags) + RIDGE * float(flat @ flat)

    found = minimize(objective, np.zeros(VOCABULARY**2), method="BFGS", options={"gtol": 1e-7})
    optimum = cross_entropy_optimum(bags, TOPICS, WORDS, RIDGE)
    matrix = optimum.matrix(TOPICS, WORDS)
    assert optimum.objective == pytest.approx(found.fun, abs=1e-9)
    assert objective(matrix.ravel()) == pytest.approx(optimum.objective, abs=1e-12)
    np.testing.assert_allclose(matrix.ravel(), found.x, atol=1e-4)
    nudge = np.zeros_like(matrix)
    nudge[1, 2] = 0.05
    assert objective((matrix + nudge).ravel()) > optimum.objective + 1e-7


def test_the_loss_is_the_mean_over_masked_positions_of_log_softmax() -> None:
    documents = _documents(5)
    matrix = np.random.default_rng(1).normal(size=(VOCABULARY, VOCABULARY))
    total = 0.0
    for number in range(len(documents)):
        one = documents.span(number, number + 1)
        scores = matrix @ (np.bincount(one.tokens, minlength=VOCABULARY) / len(one.tokens))
        each = [np.log(np.exp(scores).sum()) - scores[word] for word in one.words[one.masked]]
        total += float(np.mean(each))
    bags = Bags.of(documents, VOCABULARY)
    assert uniform_cross_entropy(matrix, bags) == pytest.approx(total / len(documents))
    assert uniform_cross_entropy(matrix.T, bags) != pytest.approx(total / len(documents), abs=1e-3)


def test_without_l2_the_optimum_is_at_infinity_and_is_refused() -> None:
    with pytest.raises(InputError, match="ridge"):
        cross_entropy_optimum(Bags.of(_documents(5), VOCABULARY), TOPICS, WORDS, 0.0)


def test_an_infinite_document_has_the_moments_of_all_of_them() -> None:
    """Averaged over renamed topics, one document's frequencies and targets give S, R, s and r."""
    masking = Masking(mask=0.3, keep=0.2, random=0.1)
    bag, moments = infinite_bag(3, 2, 2, masking), infinite_topic_moments(3, 2, 2, masking)
    renamings = [[0, 1, 2, 3, 4, 5, 6], [0, 3, 4, 5, 6, 1, 2], [0, 5, 6, 1, 2, 3, 4]]
    seen = np.stack([bag.frequencies[0][each] for each in renamings])
    words = np.stack([bag.targets[0][each] for each in renamings])
    np.testing.assert_allclose(seen.T @ seen / 3, moments.second, atol=1e-14)
    np.testing.assert_allclose(words.T @ seen / 3, moments.cross, atol=1e-14)
    np.testing.assert_allclose(seen.mean(axis=0), moments.mean, atol=1e-14)
    np.testing.assert_allclose(words.mean(axis=0), moments.label, atol=1e-14)
    other = infinite_topic_moments(3, 2, 2, Masking(mask=0.3, keep=0.1, random=0.2))
    assert abs(seen.T @ seen / 3 - other.second).max() > 1e-4
