"""The Bayes-optimal predictions in masked documents of disjoint, equal topics, and their expected losses."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlogy

from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.posterior import TopicMasses, topic_masses

# Order of the last axis wherever it is named "loss".
LOSSES = ("cross_entropy", "squared")


@dataclass(frozen=True, eq=False)
class DocumentLosses:
    """The least expected losses of each document, given the tokens that are seen but not where M is."""

    masked: Float[np.ndarray, "document loss"]
    """Mean over the masked positions, over all that M may be: each token's loss by how likely the query holds it."""
    mask_queries: Float[np.ndarray, "document loss"]
    """At a [MASK] query; 0 where a document has none."""
    query_blind: Float[np.ndarray, "document loss"]
    """At any masked position, for the one prediction that does not know which token it is for."""
    mask_share: Float[np.ndarray, " document"]
    """How likely the query holds [MASK]."""
    size: Float[np.ndarray, " document"]
    """|M|."""

    @classmethod
    def joined(cls, parts: list["DocumentLosses"]) -> "DocumentLosses":
        """All documents of all parts."""
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def expected_losses(
    prediction: Float[np.ndarray, "*rest outcome"], number: Float[np.ndarray, "..."] | float = 1.0
) -> Float[np.ndarray, "*rest loss"]:
    """Cross-entropy and squared loss that a distribution expects of itself: −Σ p log p and 1 − Σ p².

    ``number`` says how many words share each entry.
    """
    entropy = -(number * xlogy(prediction, prediction)).sum(axis=-1)
    return np.stack([entropy, 1 - (number * prediction**2).sum(axis=-1)], axis=-1)


def disjoint_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """Losses of every document of a model of disjoint topics of equally likely words."""
    counts, masks = _token_counts(model, masked)
    topics = counts.sum(axis=2)
    masses = topic_masses(model, masking, topics, masks, average)
    at_mask = _mask_losses(model, masses)
    at_word = _word_losses(model, masking, masses)

    mask_share, word_share = _query_shares(model, masking, masses, topics, masks)
    blind = expected_losses(query_blind_predictions(model, masking, masses, counts, masks))
    return DocumentLosses(
        masked=mask_share[:, None] * at_mask + np.einsum("dr,drl->dl", word_share, at_word),
        mask_queries=at_mask,
        query_blind=blind,
        mask_share=mask_share,
        size=np.add.reduceat(masked.masked, masked.offsets[:-1], dtype=float),
    )


def _query_shares(
    model: TopicModel,
    masking: Masking,
    masses: TopicMasses,
    topics: Int[np.ndarray, "document topic"],
    masks: Int[np.ndarray, " document"],
) -> tuple[Float[np.ndarray, " document"], Float[np.ndarray, "document rank"]]:
    """How likely a query holds [MASK], and a word of each ranked topic, given the tokens that are seen."""
    random, kept = masking.mask * masking.random / model.topics, masking.mask * masking.keep
    one_word = random * masses.word.sum(axis=2) + kept * _own_topic(masses)
    word = np.take_along_axis(topics, masses.ranked, axis=1) * one_word
    mask = masks * masses.mask.sum(axis=1)
    total = mask + word.sum(axis=1)
    return mask / total, word / total[:, None]


def query_predictions(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> Float[np.ndarray, "query word"]:
    """The Bayes-optimal distribution of the word at every masked position, in the documents' order."""
    counts, masks = _token_counts(model, masked)
    masses = topic_masses(model, masking, counts.sum(axis=2), masks, average)
    v = counts.shape[2]
    document, token = masked.document[masked.masked], masked.tokens[masked.masked]
    topic = np.maximum(token - 1, 0) // v
    rank = (masses.ranked[document] == topic[:, None]).argmax(axis=1)
    mass = np.where(token[:, None] == 0, masses.mask[document], masses.word[document, rank])
    # P(token | word): for [MASK] it is the same for every word.
    likelihood = np.where(token == 0, 1.0, masking.random / (model.vocabulary - 1))[:, None]
    likelihood = np.repeat(likelihood, model.vocabulary - 1, axis=1)
    words = np.flatnonzero(token > 0)
    likelihood[words, token[words] - 1] += masking.keep
    joint = np.repeat(mass, v, axis=1) * likelihood
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


def query_blind_predictions(
    model: TopicModel,
    masking: Masking,
    masses: TopicMasses,
    counts: Int[np.ndarray, "document topic within"],
    masks: Int[np.ndarray, " document"],
) -> Float[np.ndarray, "document word"]:
    """The best prediction from a document's bag of tokens: each token's, weighted by how likely it is the query."""
    documents, topics, v = counts.shape
    ranked_counts = np.take_along_axis(counts.sum(axis=2), masses.ranked, axis=1)
    random = masking.mask * masking.random / topics
    # A word of topic s, whatever the query; then what kept words of its own kind add.
    base = masks[:, None] * masses.mask + random * np.einsum("dr,drs->ds", ranked_counts, masses.word)
    own = np.zeros((documents, topics))
    np.put_along_axis(own, masses.ranked, _own_topic(masses), axis=1)
    joint = base[:, :, None] + v * masking.mask * masking.keep * counts * own[:, :, None]
    prediction = joint / joint.sum(axis=(1, 2), keepdims=True)
    return np.asarray(prediction.reshape(documents, topics * v))


def _mask_losses(model: TopicModel, masses: TopicMasses) -> Float[np.ndarray, "document loss"]:
    """At a [MASK] query: every word of topic s has probability E[θ_s]/v."""
    v = (model.vocabulary - 1) // model.topics
    total = masses.mask.sum(axis=1, keepdims=True)
    losses = expected_losses(masses.mask / np.where(total > 0, total, 1.0) / v, float(v))
    return np.where(total > 0, losses, 0.0)


def _word_losses(model: TopicModel, masking: Masking, masses: TopicMasses) -> Float[np.ndarray, "document rank loss"]:
    """At a word query of each ranked topic: the word itself, and each topic's other words, which share one value."""
    v = (model.vocabulary - 1) // model.topics
    random = masking.random / (model.vocabulary - 1)
    own = _own_topic(masses)
    joint = np.concatenate([masses.word * random, (own * (masking.keep + random))[:, :, None]], axis=2)
    number = np.full(joint.shape, float(v))
    number[:, :, -1] = 1.0
    np.put_along_axis(number, masses.ranked[:, :, None], v - 1.0, axis=2)
    total = (number * joint).sum(axis=2, keepdims=True)
    return expected_losses(joint / np.where(total > 0, total, 1.0), number)


def _own_topic(masses: TopicMasses) -> Float[np.ndarray, "document rank"]:
    """The mass that the word under a word query is of the query's own topic."""
    return np.take_along_axis(masses.word, masses.ranked[:, :, None], axis=2)[:, :, 0]


def _token_counts(
    model: TopicModel, masked: MaskedDocuments
) -> tuple[Int[np.ndarray, "document topic within"], Int[np.ndarray, " document"]]:
    """How often each word is seen in each document, by topic, and how many [MASK] tokens there are."""
    vocabulary = model.vocabulary
    flat = np.bincount(masked.document * vocabulary + masked.tokens, minlength=len(masked) * vocabulary)
    table = flat.reshape(len(masked), vocabulary)
    return table[:, 1:].reshape(len(masked), model.topics, -1), table[:, 0]
