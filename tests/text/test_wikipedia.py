import bz2
import tracemalloc
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from gensim.corpora import wikicorpus

from topicscope.text import formats
from topicscope.text.corpora import open_corpus
from topicscope.text.formats import Problems, read_chunks

WORDS = "The '''frog''' is an [[amphibian|animal]] of ponds. " * 20
HEAD = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.3/"><siteinfo><sitename>W</sitename></siteinfo>'


def page(title: str, text: str, extra: str = "") -> str:
    body = f"<revision><id>2</id><text>{text}</text></revision>"
    return f"<page><title>{title}</title>{extra}<id>1</id>{body}</page>"


def dump(*pages: str) -> bytes:
    return (HEAD + "".join(pages) + "</mediawiki>").encode()


def titles(content: bytes, problems: Problems | None = None) -> list[str]:
    chunks = (content[start : start + 97] for start in range(0, len(content), 97))
    return [title for title, _ in formats.articles(chunks, problems or Problems(), "dump.xml")]


def test_redirects_stubs_and_pages_that_are_no_articles_are_skipped() -> None:
    namespace = "<ns>{}</ns>".format
    content = dump(
        page("Frog", WORDS, namespace(0)),
        page("Frogs", "#REDIRECT [[Frog]]", namespace(0)),
        page("Froggy", WORDS, namespace(0) + '<redirect title="Frog" />'),
        page("Short", "A stub.", namespace(0)),
        page("Talk:Frog", WORDS, namespace(1)),
        page("Alien: a film", WORDS, namespace(0)),
        page("Frog in a namespace", WORDS, namespace(10)),
    )
    problems = Problems()
    assert titles(content, problems) == ["Frog", "Alien: a film"]
    assert (problems.redirects, problems.stubs) == (2, 1)


def test_old_dumps_without_namespace_elements_are_read_by_their_titles() -> None:
    content = dump(
        page("Frog", WORDS),
        page("Talk:Frog", WORDS),
        page("User talk:Somebody", WORDS),
        page("Template:Frog", WORDS),
        page("Wikipedia:Frogs", WORDS),
        page("Alien: a film", WORDS),
    )
    assert titles(content) == ["Frog", "Alien: a film"]


def test_markup_is_gone_and_words_stay() -> None:
    [(_, text)] = formats.articles([dump(page("Frog", "== Head ==\n" + WORDS))], Problems(), "dump.xml")
    assert text.split()[:9] == ["Head", "The", "frog", "is", "an", "animal", "of", "ponds.", "The"]


def test_a_dump_that_breaks_off_gives_the_pages_before() -> None:
    content = dump(page("Frog", WORDS), page("Toad", WORDS), page("Lizard", WORDS))
    broken = content[: content.index(b"Lizard") + 40]
    for end in (b"", b"<<>"):
        problems = Problems()
        assert titles(broken + end, problems) == ["Frog", "Toad"]
        assert problems.sentences() == ["dump.xml is not XML from line 1 on: what comes before is used"]
    # The control: nothing is said of a whole dump.
    problems = Problems()
    assert titles(content, problems) == ["Frog", "Toad", "Lizard"]
    assert problems == Problems()


def test_of_a_dump_in_an_archive_that_breaks_off_it_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "dump.xml.bz2"
    first, second = (bz2.compress(part) for part in (dump(page("Frog", WORDS))[:-12], b"</mediawiki>"))
    path.write_bytes(first + second[:-5])
    problems = Problems()
    assert len(list(formats.articles(read_chunks(path, problems), problems, path.name))) == 1
    [said] = problems.sentences()
    assert "dump.xml.bz2 ends in the middle of its data" in said


def pages_equal_gensims(count: int | None) -> int:
    path = open_corpus("wiki-sample").files[0]
    found = formats.pages(read_chunks(path, Problems()), Problems(), path.name)
    ours = [(page.title, page.markup) for page in islice(found, count)]
    with bz2.open(path) as file:
        theirs = [(title, text) for title, text, _ in islice(wikicorpus.extract_pages(file), count)]
    assert ours == theirs
    return len(ours)


def test_the_first_pages_equal_those_of_gensims_reader() -> None:
    assert pages_equal_gensims(20) == 20


@pytest.mark.slow
def test_all_pages_equal_those_of_gensims_reader() -> None:
    assert pages_equal_gensims(None) == 206


def test_only_the_page_at_hand_is_kept() -> None:
    def chunks() -> Iterator[bytes]:
        yield HEAD.encode()
        yield from (page(f"Frog {number}", WORDS).encode() for number in range(1_000))

    reader = formats.pages(chunks(), Problems(), "dump.xml")
    deque(islice(reader, 50), maxlen=0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    deque(islice(reader, 800), maxlen=0)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Elements of all pages, emptied as gensim's reader leaves them, would be over a hundred bytes a page.
    assert grown < 20_000
