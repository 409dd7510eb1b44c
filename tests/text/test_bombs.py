"""Archives of a few kilobytes that unpack to much are read in little memory, whatever they are packed with."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from support.fuzzing import MEGABYTE, little_memory
from support.helpers import start_python
from topicscope.errors import InputError
from topicscope.text.corpora import open_corpus
from topicscope.text.formats import largest_page

pytest.importorskip("zstandard")
pytest.importorskip("pyarrow")


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


# Prints how many letters it read, and the most memory that it had, libraries and all.
READ = """
import sys
from support.fuzzing import status
from topicscope.text.corpora import open_corpus
letters = sum(len(document.text) for document in open_corpus(sys.argv[1]).documents())
print(letters, status("VmHWM"))
"""


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


def parquet(path: Path, megabytes: int, *, pages: bool) -> None:
    """Values of 4 MB, each once or all of them the same; or one value of everything."""
    import pyarrow
    from pyarrow.parquet import write_table

    size = 4 if pages else megabytes
    values = ["a" * size * MEGABYTE]
    column = pyarrow.array(values).take(pyarrow.array([0] * (megabytes // size)))
    if pages:
        column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * (megabytes // size)), values)
    write_table(pyarrow.table({"text": column}), path, compression="zstd")


@pytest.mark.parametrize("megabytes", [120, pytest.param(1200, marks=pytest.mark.slow)])
def test_a_parquet_file_of_one_text_many_times_is_read_a_few_rows_at_a_time(megabytes: int, tmp_path: Path) -> None:
    parquet(tmp_path / "bomb.parquet", megabytes, pages=True)
    assert (tmp_path / "bomb.parquet").stat().st_size < MEGABYTE
    corpus = open_corpus(str(tmp_path / "bomb.parquet"))
    with little_memory() as grown:
        letters = sum(len(document.text) for document in corpus.documents())
    assert letters == megabytes * MEGABYTE
    assert grown() < 300 * MEGABYTE, f"{grown() / MEGABYTE:.0f} MB"


@pytest.mark.slow
def test_a_program_that_reads_a_parquet_bomb_has_less_than_500_megabytes_in_all(tmp_path: Path) -> None:
    parquet(tmp_path / "bomb.parquet", 1200, pages=True)
    assert (tmp_path / "bomb.parquet").stat().st_size < MEGABYTE
    program = start_python("-c", READ, str(tmp_path / "bomb.parquet"))
    output, errors = program.communicate()
    assert program.returncode == 0, errors
    letters, memory = map(int, output.split())
    assert letters == 1200 * MEGABYTE
    assert memory < 500 * MEGABYTE, f"{memory / MEGABYTE:.0f} MB"


def test_a_parquet_file_whose_page_is_larger_than_a_page_may_be_is_not_unpacked(tmp_path: Path) -> None:
    parquet(tmp_path / "bomb.parquet", 70, pages=False)
    assert (tmp_path / "bomb.parquet").stat().st_size < MEGABYTE
    corpus = open_corpus(str(tmp_path / "bomb.parquet"))
    with little_memory() as grown, pytest.raises(InputError, match=r"has no document.*has a part that unpacks to 73,4"):
        list(corpus.documents())
    assert grown() < 60 * MEGABYTE, f"{grown() / MEGABYTE:.0f} MB"


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_the_headers_of_a_parquet_files_pages_name_their_sizes(version: str, dictionary: bool, tmp_path: Path) -> None:
    """As pyarrow counts them: pages with their headers are all of a column."""
    import pyarrow
    from pyarrow.parquet import ParquetFile, write_table

    texts = [f"{place} " * 40 for place in range(3000)]
    table = pyarrow.table({"number": list(range(3000)), "text": texts})
    options = {"use_dictionary": dictionary, "data_page_version": version}
    small = {"data_page_size": 4096, "write_batch_size": 16}
    write_table(table, tmp_path / "a.parquet", **options, **small, compression="none")
    group = ParquetFile(tmp_path / "a.parquet").metadata.row_group(0)
    with (tmp_path / "a.parquet").open("rb") as file:
        largest = largest_page(file, group, ["text"])
        # Pages are about as large as was asked for; a dictionary has all that is different.
        assert 4096 <= largest <= group.column(1).total_uncompressed_size
        assert largest < group.column(1).total_uncompressed_size / 4 or dictionary
        assert largest_page(file, group, []) == 0
