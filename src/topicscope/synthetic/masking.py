"""The masking scheme of §3.2, and the token frequencies that it leads to (eq. D.17)."""

import numpy as np
from jaxtyping import Bool, Float, Int

from topicscope.randomness import chances
from topicscope.settings.data import Masking
from topicscope.synthetic.documents import Documents, MaskedDocuments


def mask_documents(
    documents: Documents,
    masking: Masking,
    vocabulary: int,
    *,
    needs_visible_key: bool = False,
    mask_token: int = 0,
    words: Int[np.ndarray, " word"] | None = None,
    maskable: Bool[np.ndarray, " position"] | None = None,
    generator: np.random.Generator,
) -> MaskedDocuments:
    """Choose positions M with probability p_m; there keep the word (p_c), draw any word (p_r), or put [MASK].

    [MASK] is 0 and the words are 1 … ``vocabulary`` − 1, unless ``mask_token`` and ``words`` of a tokenizer are given.
    Only ``maskable`` positions are chosen, by default all; each document needs at least one.

    If nothing in a document is masked, its mask is drawn again. With ``needs_visible_key`` (masked positions are hidden
    as keys) this also happens if everything is masked.
    """
    masked = _draw_masks(documents, masking.mask, needs_visible_key, maskable, generator)
    tokens = documents.tokens.copy()
    result = MaskedDocuments(documents.lengths, tokens, documents.tokens, masked)
    # Most become [MASK]; of those that do not, some get a random word, never [MASK], perhaps the word itself.
    tokens[result.where] = mask_token
    shown = result.where[chances(1.0 - masking.replaced, len(result.where), generator=generator)]
    tokens[shown] = documents.tokens.take(shown)
    if masking.random:
        random = shown[chances(masking.random / (masking.keep + masking.random), len(shown), generator=generator)]
        if words is None:
            tokens[random] = generator.integers(1, vocabulary, size=len(random), dtype=tokens.dtype)
        else:
            tokens[random] = words[generator.integers(len(words), size=len(random))]
    return result


def _draw_masks(
    documents: Documents,
    probability: float,
    needs_visible_key: bool,
    maskable: Bool[np.ndarray, " position"] | None,
    generator: np.random.Generator,
) -> Bool[np.ndarray, " position"]:
    masked = chances(probability, len(documents.tokens), generator=generator)
    if maskable is not None:
        masked &= maskable
    while True:
        unusable = ~np.logical_or.reduceat(masked, documents.offsets[:-1])
        if needs_visible_key:
            unusable |= np.logical_and.reduceat(masked, documents.offsets[:-1])
        if not unusable.any():
            return masked
        again = unusable[documents.document]
        masked[again] = chances(probability, int(np.count_nonzero(again)), generator=generator)
        if maskable is not None:
            masked &= maskable


def expected_frequencies(words: Float[np.ndarray, " word"], masking: Masking) -> Float[np.ndarray, " token"]:
    r"""Expected token frequencies of a masked document whose words have the given probabilities (eq. D.17).

    .. math::
        \tilde P(0) = p_m (1 - p_c - p_r), \qquad
        \tilde P(i) = P(i) (1 - (1 - p_c) p_m) + p_m p_r / (V - 1)

    It is for p_m as it is: a mask of a document of finite length is conditioned on not being empty.
    """
    seen = words * (1 - (1 - masking.keep) * masking.mask) + masking.mask * masking.random / len(words)
    return np.concatenate([[masking.mask * masking.replaced], seen])
