"""Which characters make words: a table over all of Unicode, so that whole texts are looked up at once."""

import unicodedata
from functools import cache

import numpy as np
from jaxtyping import Bool, Int, UInt32

UNICODE = 0x110000


def code_points(text: str) -> UInt32[np.ndarray, " character"]:
    """The text's characters as numbers."""
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")


def whole_words(text: str, spans: Int[np.ndarray, "token two"]) -> Bool[np.ndarray, " token"]:
    """Which spans of the text are a word and all of it: letters only, with no letter or digit next to them.

    Spans count characters. Spaces at their beginning, which some tokenizers make part of a token, are looked over.
    """
    characters = code_points(text)
    # A space at both ends: so that every span has a character before and after it.
    kinds = np.concatenate([[0], _kinds()[characters], [0]]).astype(np.int8)
    spaces = np.concatenate([[True], _spaces()[characters], [True]])
    start, end = spans[:, 0] + 1, spans[:, 1] + 1
    for _ in range(2):
        start = start + (spaces[start] & (start < end))
    # How many letters come before each place: a difference counts those within a span.
    letters = np.concatenate([[0], np.cumsum(kinds == 2)])
    only_letters = letters[end] - letters[start] == end - start
    return only_letters & (end > start) & (kinds[start - 1] == 0) & (kinds[end] == 0)


@cache
def _kinds() -> np.ndarray:
    """2 for letters and the marks on them, 1 for digits, 0 for all else."""
    first = {"L": 2, "M": 2, "N": 1}
    return np.array([first.get(unicodedata.category(chr(point))[0], 0) for point in range(UNICODE)], dtype=np.int8)


@cache
def _spaces() -> np.ndarray:
    return np.array([chr(point).isspace() for point in range(UNICODE)])
