"""Stop words, by the language of a corpus, which is guessed from the stop words that it has.

English has the list in gensim's package; other languages have theirs in the package ``stopwordsiso``.
"""

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from topicscope.errors import InputError, import_for_language

ENGLISH = "en"
# A language is guessed from this many running words; at least this share of them must be its stop words, and at least
# so many different ones.
LOOKED_AT, FEWEST, DISTINCT = 50_000, 0.1, 5
WORD = re.compile(r"[^\W\d_]+")


def stop_word_list(name: str, language: str | None = None) -> frozenset[str]:
    """The stop words that ``name`` stands for.

    ``auto`` means those of the corpus's language, ``gensim`` its English list; else it is ``none``, a language's code,
    or a file with one word per line.
    """
    if name == "none":
        return frozenset()
    if name == "auto":
        name = language or ENGLISH
    if name in ("gensim", ENGLISH):
        lists = import_for_language("gensim.parsing.preprocessing", "The English list of stop words is in gensim")
        return frozenset(lists.STOPWORDS)
    if name in stop_words_by_language():
        return stop_words_by_language()[name]
    try:
        content = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        raise InputError(
            f'--stop-words "{name}" cannot be read: give auto, gensim, none, the code of a language such as de, or a '
            "UTF-8 file with one word per line."
        ) from None
    return frozenset(line.strip().lower() for line in content.splitlines() if line.strip())


@cache
def stop_words_by_language() -> Mapping[str, frozenset[str]]:
    """The lists of ``stopwordsiso`` by the codes of ISO 639-1."""
    package = import_for_language("stopwordsiso", "Stop words of other languages are in stopwordsiso")
    return {code: frozenset(package.stopwords(code)) for code in sorted(package.langs())}


class LanguageGuess:
    """Guesses a corpus's language from its beginning; None if no language's stop words are frequent in it."""

    def __init__(self) -> None:
        self._words: Counter[str] = Counter()
        self._seen = 0

    def see(self, text: str) -> None:
        """Look at a text, unless enough has been seen."""
        if self._seen < LOOKED_AT:
            words = WORD.findall(text[: 20 * LOOKED_AT].lower())
            self._words.update(words)
            self._seen += len(words)

    def language(self) -> str | None:
        """The language whose stop words are the largest share of the words; a word of many languages counts less."""
        lists, present = stop_words_by_language(), self._words.keys()
        shared = Counter(word for words in lists.values() for word in words)
        best = max(lists, key=lambda code: sum(self._words[word] / shared[word] for word in lists[code] & present))
        there = lists[best] & present
        share = sum(self._words[word] for word in there) / max(self._seen, 1)
        return best if share >= FEWEST and len(there) >= DISTINCT else None
