"""Archives of a few kilobytes that unpack to much are read in little memory, whatever they are packed with."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from support.fuzzing import MEGABYTE, little_memory
from topicscope.errors import InputError
from topicscope.text.corpora import open_corpus

pytest.importorskip("zstandard")


def zst(path: Path, parts: Iterable[bytes]) -> None:
    import zstandard

    with path.open("wb") as file, zstandard.ZstdCompressor(level=19).stream_writer(file) as packed:
        for part in parts:
            packed.write(part)


def zipped(path: Path, parts: Iterable[bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.txt", "w") as packed:
        for part in parts:
            packed.write(part)


def streamed(opener: Callable[..., object]) -> Callable[[Path, Iterable[bytes]], None]:
    def write(path: Path, parts: Iterable[bytes]) -> None:
        with opener(path, "wb") as packed:  # type: ignore[attr-defined]
            for part in parts:
                packed.write(part)

    return write


WRITERS: dict[str, Callable[[Path, Iterable[bytes]], None]] = {
    "bz2": streamed(bz2.open),
    "xz": streamed(lzma.open),
    "gz": streamed(gzip.open),
    "zst": zst,
    "zip": zipped,
}


def check_bomb(method: str, megabytes: int, most: int, folder: Path) -> None:
    """Documents of one letter without a line break: each is cut, and counted as such."""
    path = folder / f"bomb.{method}"
    WRITERS[method](path, (b"a" * MEGABYTE for _ in range(megabytes)))
    assert path.stat().st_size < megabytes * MEGABYTE / 500
    corpus = open_corpus(str(path), layout="lines")
    with little_memory() as grown:
        letters = sum(len(document.text) for document in corpus.documents())
    assert letters == megabytes * MEGABYTE
    assert corpus.problems.long_documents > 0
    assert grown() < most * MEGABYTE, f"{grown() / MEGABYTE:.0f} MB"


@pytest.mark.parametrize("method", ["bz2", "zst"])
def test_a_small_bomb_is_read_piece_by_piece(method: str, tmp_path: Path) -> None:
    check_bomb(method, megabytes=120, most=90, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("method", WRITERS)
def test_a_bomb_is_read_in_less_than_it_unpacks_to(method: str, tmp_path: Path) -> None:
    check_bomb(method, megabytes=700, most=300, folder=tmp_path)


@pytest.mark.parametrize(
    ("head", "sign", "because"), [(b"", b"\n", ""), (b"<mediawiki>", b"<a/>", "has a page of more than")]
)
def test_a_file_of_empty_lines_and_a_dump_without_pages_have_no_document_and_take_little_memory(
    head: bytes, sign: bytes, because: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topicscope.text.formats.LONGEST_PAGE", MEGABYTE)
    path = tmp_path / "bomb.txt.bz2"
    WRITERS["bz2"](path, [head, sign * (2 * MEGABYTE // len(sign))])
    corpus = open_corpus(str(path), layout="files")
    with little_memory() as grown, pytest.raises(InputError, match=f"has no document.*{because}"):
        list(corpus.documents())
    assert grown() < 200 * MEGABYTE
