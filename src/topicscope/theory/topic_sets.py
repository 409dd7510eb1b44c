"""The Bayes-optimal predictions for any topics, shared words included, by listing every set of τ topics.

The prior is a sum over C(T, τ) sets, each with its own word distribution, and the likelihood a product over tokens;
z stands for 1/|M| as in ``posterior``. Exact, for few sets; Dirichlet proportions have no such list.
"""

from itertools import combinations

import numpy as np
from jaxtyping import Float

from topicscope.settings.data import Masking
from topicscope.settings.training import Average
from topicscope.synthetic.documents import MaskedDocuments
from topicscope.synthetic.topics import TopicModel
from topicscope.theory.bayes_losses import DocumentLosses, expected_losses
from topicscope.theory.posterior import mask_nodes

# Above this many sets a list is no longer a plain thing to do.
MOST_SETS = 5_000


def listed_losses(
    model: TopicModel, masking: Masking, masked: MaskedDocuments, average: Average = "document"
) -> DocumentLosses:
    """Losses of every document, from the joint masses of its distinct tokens and the words they may stand for."""
    vocabulary, count = model.vocabulary, len(masked)
    flat = masked.document * vocabulary + masked.tokens
    pair, inverse = np.unique(flat, return_inverse=True)
    document, token = pair // vocabulary, pair % vocabulary
    seen = np.bincount(inverse)
    joint = _joint_masses(model, masking, masked, pair, seen, average)

    total = joint.sum(axis=1, keepdims=True)
    losses = expected_losses(joint / np.where(total > 0, total, 1.0))
    share = seen * total[:, 0]
    share = share / np.bincount(document, weights=share)[document]
    masked_mean = np.zeros((count, 2))
    np.add.at(masked_mean, document, share[:, None] * losses)
    at_mask = np.zeros((count, 2))
    at_mask[document[token == 0]] = losses[token == 0]
    blind = np.zeros((count, vocabulary - 1))
    np.add.at(blind, document, seen[:, None] * joint)
    return DocumentLosses(
        masked=masked_mean,
        mask_queries=at_mask,
        query_blind=expected_losses(blind / blind.sum(axis=1, keepdims=True)),
        mask_share=np.bincount(document, weights=share * (token == 0), minlength=count),
        size=np.add.reduceat(masked.masked, masked.offsets[:-1], dtype=float),
    )


def _joint_masses(
    model: TopicModel,
    masking: Masking,
    masked: MaskedDocuments,
    pair: np.ndarray,
    seen: np.ndarray,
    average: Average,
) -> Float[np.ndarray, "pair word"]:
    """P(other tokens, this token at a masked position, its word), up to a factor a document has in common."""
    vocabulary, count = model.vocabulary, len(masked)
    document, token = pair // vocabulary, pair % vocabulary
    sets = np.array(list(combinations(range(model.topics), model.per_document)))
    words = model.topic_words[sets].mean(axis=1)
    z, log_share = mask_nodes(int(masked.lengths.max()), average)
    genuine, noise = 1 - masking.mask + z * masking.mask * masking.keep, z * masking.mask * masking.random
    # P(token | set, z) at a position that is not the query.
    other = np.empty((len(sets), len(z), vocabulary))
    other[:, :, 0] = z * masking.mask * masking.replaced
    other[:, :, 1:] = words[:, None] * genuine[:, None] + (noise / (vocabulary - 1))[:, None]
    table = np.zeros((count, vocabulary))
    table[document, token] = seen
    # Of the document without one token of this kind; xlogy so that what never occurs may be impossible.
    impossible = other == 0
    log_other = np.where(impossible, 0.0, np.log(np.where(impossible, 1.0, other)))
    log_all = np.einsum("dt,szt->dsz", table, log_other) + log_share
    blocked = np.einsum("dt,szt->dsz", table, impossible.astype(float))
    log_rest = log_all[document] - np.moveaxis(log_other[:, :, token], 2, 0)
    still = blocked[document] - np.moveaxis(impossible[:, :, token], 2, 0) > 0
    log_rest = np.where(still, -np.inf, log_rest)
    offset = np.full(count, -np.inf)
    np.maximum.at(offset, document, log_rest.max(axis=(1, 2)))
    by_set = np.exp(log_rest - offset[document][:, None, None]).sum(axis=2)
    # P(token | word, masked): [MASK], a random word, or the word itself.
    likelihood = np.where(token == 0, masking.replaced, masking.random / (vocabulary - 1))
    likelihood = np.repeat(likelihood[:, None], vocabulary - 1, axis=1)
    is_word = np.flatnonzero(token > 0)
    likelihood[is_word, token[is_word] - 1] += masking.keep
    return np.asarray(by_set @ words * likelihood)
