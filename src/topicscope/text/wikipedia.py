"""Articles of a Wikipedia dump, by gensim's markup filter.

Pages are walked here and not by gensim's ``extract_pages``: that one stops at pages without an ``<ns>`` element (dumps
before 2008), keeps an element of every page in memory, and gives nothing at all of a dump that breaks off.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from topicscope.errors import InputError
from topicscope.text.problems import Problems

# Shorter articles are stubs; gensim's reader has the same limit.
SHORTEST = 50
REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
DUMP = re.compile(rb"^\s*(<\?xml[^>]*>)?\s*<mediawiki\b")
# What gensim's filter leaves: headings' signs and quotes for bold and italics.
SIGNS = re.compile(r"={2,}|'{2,}")


class Page(NamedTuple):
    """A page as the dump has it."""

    title: str
    namespace: str | None
    redirect: bool
    markup: str


def is_dump(start: bytes) -> bool:
    """Whether a file that begins like this is a Wikipedia dump."""
    return DUMP.match(start) is not None


def articles(chunks: Iterable[bytes], problems: Problems, name: str) -> Iterator[tuple[str, str]]:
    """(Title, text) of the dump's articles: no talk, no redirects, no stubs, no markup."""
    reader = _gensim()
    for page in pages(chunks, problems, name):
        if not _is_article(page, reader.IGNORED_NAMESPACES):
            continue
        if page.redirect or REDIRECT.match(page.markup):
            problems.redirects += 1
            continue
        text = SIGNS.sub("", reader.filter_wiki(page.markup))
        if len(text.split(maxsplit=SHORTEST)) < SHORTEST:
            problems.stubs += 1
        else:
            yield page.title, text


def pages(chunks: Iterable[bytes], problems: Problems, name: str) -> Iterator[Page]:
    """Pages one at a time; where the XML breaks or ends too early, what came before has been given."""
    root: Element | None = None
    archives = len(problems.archives)
    try:
        for event, element in _events(chunks):
            if event == "start":
                root = element if root is None else root
            elif _tag(element) == "page":
                yield _page(element)
                # Children of the root would be kept to the end of the dump.
                assert root is not None
                root.clear()
    except ParseError as error:
        # Of an archive that broke off, that is said already.
        if len(problems.archives) == archives:
            problems.broken_markup.append(f"{name} is not XML from line {error.position[0]:,} on")


def _events(chunks: Iterable[bytes]) -> Iterator[tuple[str, Element]]:
    """Beginnings and ends of elements."""
    parser: XMLPullParser[Any] = XMLPullParser(("start", "end"))
    for chunk in chunks:
        parser.feed(chunk)
        yield from cast("Iterator[tuple[str, Element]]", parser.read_events())
    try:
        # Raises where the root has no end.
        parser.close()
    finally:
        # What the parser had put off, waiting for more.
        yield from cast("Iterator[tuple[str, Element]]", parser.read_events())


def _page(element: Element) -> Page:
    children = {_tag(child): child for child in element}
    revision = {_tag(child): child for child in children.get("revision", ())}
    return Page(
        title=_text(children.get("title")) or "",
        namespace=_text(children.get("ns")),
        redirect="redirect" in children,
        markup=_text(revision.get("text")) or "",
    )


def _is_article(page: Page, other_namespaces: Iterable[str]) -> bool:
    if page.namespace is not None:
        return page.namespace.strip() == "0"
    # Before <ns>, the title's prefix alone tells talk, templates and users apart from articles.
    prefix, colon, _ = page.title.partition(":")
    return not colon or (prefix not in other_namespaces and not prefix.lower().endswith("talk"))


def _tag(element: Element) -> str:
    """Without the XML namespace, which changes with every version of the dumps' format."""
    return element.tag.rpartition("}")[2]


def _text(element: Element | None) -> str | None:
    return None if element is None else element.text


def _gensim() -> Any:
    try:
        from gensim.corpora import wikicorpus
    except ImportError:
        raise InputError('Reading Wikipedia needs gensim: pip install "topicscope[language]".') from None
    return wikicorpus
