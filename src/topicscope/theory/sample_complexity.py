r"""How many documents single entries of W^V need: uniform attention, squared loss.

On n documents, each masked once, the least-squares W^V scatters around the population's optimum W = R S⁻¹. With
residual ε = W x̃ − y, y a document's mean target, the variance of an entry is E[ε_i² (S⁻¹x̃)_j²]/n; were ε
independent of x̃ it would be

.. math:: \frac{c}{Tv}\,\frac{(S^{-1})_{jj}}{n}, \qquad c = E\|W\tilde x - y\|^2
    = E\tfrac{1}{|M|} + \Big(1 - E\tfrac{1}{|M|}\Big)\frac{E\sum\theta_t^2}{v} - \langle W, R\rangle.

(S⁻¹)_jj is the mean of 1/λ over S's modes, weighted by their dimensions; nearly all of it comes from the same-word
mode, which has dimension T(v − 1) and the smallest λ. Residuals do depend on the document: they are larger for words of
its topics, which are the words that it has. So entries within topics scatter several times more, all others less.
"""

from dataclasses import dataclass

import numpy as np

from topicscope.errors import check_positive
from topicscope.settings.data import Data, Masking
from topicscope.synthetic.documents import Bags
from topicscope.synthetic.masking import mask_documents
from topicscope.synthetic.topics import TopicModel, sample_documents
from topicscope.theory.classes import Vocabulary
from topicscope.theory.finite_documents import class_moments, class_optimum, topic_moments

# The number of documents that an entry's variance is estimated from.
DOCUMENTS = 4_000


@dataclass(frozen=True)
class EntryVariance:
    """n × the variance of one entry of the least-squares W^V on n documents."""

    closed_form: float
    """The value from c and S's spectrum, as if residuals did not depend on the document."""
    same_word: float
    """The value with that dependence, by class of entry."""
    same_topic: float
    different_topic: float


def residual(data: Data, masking: Masking) -> float:
    """E‖W x̃ − y‖² at the best W, which is c, exactly; all documents have the same weight."""
    exact, n = class_moments(data, masking), data.topics * data.words
    best = class_optimum(exact)
    within = best.same_word - best.same_topic
    between = within + data.words * (best.same_topic - best.different_topic)
    mask, mean = np.sqrt(n) * best.mask_column, between + n * best.different_topic
    explained = (
        data.topics * (data.words - 1) * within * exact.cross.same_word
        + (data.topics - 1) * between * exact.cross.topic
        + mask * exact.cross.plane[1, 0]
        + mean * exact.cross.plane[1, 1]
    )
    alone = _mean_inverse_masked(data.length, masking.mask)
    squares = float(np.trace(topic_moments(TopicModel.from_settings(data))[1])) / data.words
    return float(alone + (1 - alone) * squares - explained)


def _mean_inverse_masked(length: tuple[int, int], mask: float) -> float:
    """E[1/|M|] given that |M| ≥ 1, N uniform on ``length``."""
    found = []
    for n in range(length[0], length[1] + 1):
        m = np.arange(1, n + 1)
        # Binomial probabilities by their ratios, from the likeliest on.
        logs = np.concatenate([[0.0], np.cumsum(np.log((n - m[:-1]) / (m[:-1] + 1)))])
        logs = logs + m * np.log(mask) + (n - m) * np.log1p(-mask) if mask < 1 else np.where(m == n, 0.0, -np.inf)
        chances = np.exp(logs - logs.max())
        found.append(float((chances / m).sum() / chances.sum()))
    return float(np.mean(found))


def entry_variance(
    data: Data, masking: Masking, documents: int = DOCUMENTS, *, generator: np.random.Generator
) -> EntryVariance:
    """The variance of an entry between words, times the number of documents; the one by class is from a sample."""
    exact, size = class_moments(data, masking), Vocabulary(data.topics, data.words)
    spectrum = (
        (data.topics - 1) / exact.second.topic
        + data.topics * (data.words - 1) / exact.second.same_word
        + float(np.linalg.inv(exact.second.plane)[1, 1])
    )
    model = TopicModel.from_settings(data)
    drawn = sample_documents(model, documents, shuffled=False, generator=generator)
    bags = Bags.of(mask_documents(drawn, masking, model.vocabulary, generator=generator), model.vocabulary)
    x = bags.frequencies
    wrong = x @ class_optimum(exact).matrix(data.topics, data.words).T - bags.targets
    # S⁻¹x̃ word by word: within its topic, between topics, and on the plane of [MASK] and the mean word.
    topic = np.repeat(x[:, 1:].reshape(len(x), data.topics, -1).mean(axis=2), data.words, axis=1)
    mean = x[:, 1:].mean(axis=1, keepdims=True)
    plane = np.column_stack([x[:, 0], np.sqrt(size.count) * mean[:, 0]]) @ np.linalg.inv(exact.second.plane)
    lifted = (
        (x[:, 1:] - topic) / exact.second.same_word
        + (topic - mean) / exact.second.topic
        + plane[:, 1:] / np.sqrt(size.count)
    )
    squares = np.zeros((size.count + 1, size.count + 1))
    squares[1:, 1:] = (wrong[:, 1:] ** 2).T @ lifted**2 / len(x)
    _, _, _, same_word, same_topic, different = (float(each) for each in size.means(squares))
    alike = residual(data, masking) / size.count * spectrum / size.count
    return EntryVariance(float(alike), same_word, same_topic, different)


def documents_needed(data: Data, masking: Masking, precision: float, *, generator: np.random.Generator) -> int:
    """How many documents make the standard error of a same-topic entry ``precision`` times W^V's topic contrast."""
    check_positive("precision", precision)
    best = class_optimum(class_moments(data, masking))
    contrast = best.same_topic - best.different_topic
    variance = entry_variance(data, masking, generator=generator).same_topic
    return int(np.ceil(variance / (precision * contrast) ** 2))
