import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from topicscope.errors import InputError
from topicscope.text.formats import Problems, beginning, compression, read_chunks

# Random bytes do not compress, so an archive cut in half holds about half of them.
CONTENT = np.random.default_rng(0).bytes(400_000)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bz2": lambda content: bz2.compress(content, compresslevel=1),
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("method", COMPRESS)
def test_archives_of_several_members_give_all_their_content(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    members = [COMPRESS[method](CONTENT[:150_000]), COMPRESS[method](CONTENT[150_000:])]
    path.write_bytes(b"".join(members) + b"\0" * 16)
    problems = Problems()
    seen: list[int] = []
    assert b"".join(read_chunks(path, problems, seen.append)) == CONTENT
    assert problems == Problems()
    assert sum(seen) == path.stat().st_size
    assert compression(path.read_bytes()) == method
    assert beginning(path, 100) == CONTENT[:100]


@pytest.mark.parametrize("method", COMPRESS)
def test_a_truncated_archive_gives_what_can_be_read_and_says_so(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    whole = COMPRESS[method](CONTENT)
    path.write_bytes(whole[: len(whole) * 3 // 4])
    problems = Problems()
    read = b"".join(read_chunks(path, problems))
    assert CONTENT.startswith(read)
    assert len(CONTENT) / 4 < len(read) < len(CONTENT)
    assert len(problems.archives) == 1
    assert "file ends in the middle of its data" in problems.archives[0]


@pytest.mark.parametrize("method", COMPRESS)
def test_an_archive_with_rubbish_behind_it_gives_what_comes_before(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESS[method](CONTENT) + b"rubbish, and nothing that any of the libraries knows")
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == CONTENT
    assert "file is corrupt after" in problems.archives[0]
    assert problems.sentences()[0].endswith("what comes before is used")


@pytest.mark.parametrize("method", COMPRESS)
def test_of_a_small_archive_it_is_said_how_much_was_used(tmp_path: Path, method: str) -> None:
    path = tmp_path / "file"
    good, rubbish = COMPRESS[method](CONTENT[:5_000]), b"rubbish, and nothing that any of the libraries knows"
    path.write_bytes(good + rubbish)
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == CONTENT[:5_000]
    assert problems.archives == [f"file is corrupt after {len(good):,} of {len(good) + len(rubbish):,} bytes"]


def test_of_an_archive_that_gave_nothing_nothing_is_said_to_be_used(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(COMPRESS["gzip"](CONTENT)[:2] + b"rubbish" * 20)
    problems = Problems()
    assert b"".join(read_chunks(path, problems)) == b""
    assert problems.sentences() == ["file is corrupt from its beginning"]


def test_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("frog", encoding="utf-16")
    with pytest.raises(InputError, match="iconv"):
        beginning(path)
