"""Bytes of files, compressed or not: in constant memory, and as far as they can be read."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from topicscope.errors import InputError
from topicscope.text.problems import FROM_THE_BEGINNING, Problems

CHUNK = 1 << 16
# The first bytes of a compressed file say how it is compressed; names of files often lie.
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
# Told how many more bytes were read from disk: compressed ones, so that they add up to the file's size.
Progress = Callable[[int], None]


class NotTextError(InputError):
    """A file holds no text, or none in UTF-8."""


@runtime_checkable
class Decompressor(Protocol):
    """What all four libraries offer."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes, /) -> bytes: ...  # noqa: D102


def read_chunks(path: Path, problems: Problems, progress: Progress | None = None) -> Iterator[bytes]:
    """The file's content, decompressed; ends early, and says so in ``problems``, where an archive is corrupt."""
    with path.open("rb") as file:
        method = compression(file.peek(8))
        raw = _counted(iter(lambda: file.read(CHUNK), b""), progress)
        if method is None:
            yield from raw
        else:
            yield from _decompressed(raw, method, path, problems)


def beginning(path: Path, size: int = CHUNK) -> bytes:
    """The first bytes of the content, to see what it is."""
    found = b""
    for chunk in read_chunks(path, Problems()):
        found += chunk
        if len(found) >= size:
            break
    if found.startswith(UTF16):
        raise NotTextError(f"{path} is in UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8).")
    return found[:size]


def compression(start: bytes) -> str | None:
    """How a file that begins like this is compressed; None if it is not."""
    return next((method for magic, method in MAGIC.items() if start.startswith(magic)), None)


def _counted(chunks: Iterator[bytes], progress: Progress | None) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        if progress:
            progress(len(chunk))


def _decompressed(chunks: Iterator[bytes], method: str, path: Path, problems: Problems) -> Iterator[bytes]:
    """Members of an archive one after the other (dumps of Wikipedia have thousands)."""
    engine, read, given, size = _decompressor(method), 0, 0, path.stat().st_size
    try:
        for chunk in chunks:
            left = chunk
            while left:
                if engine.eof:
                    engine = _decompressor(method)
                content = engine.decompress(left)
                # Some writers fill up the last block with zeros.
                rest = engine.unused_data.lstrip(b"\0") if engine.eof else b""
                read, given, left = read + len(left) - len(rest), given + len(content), rest
                yield content
    except _errors(method):
        where = f"after {read:,} of {size:,} bytes" if given else FROM_THE_BEGINNING
        problems.archives.append(f"{path.name} is corrupt {where}")
        return
    if not engine.eof:
        problems.archives.append(f"{path.name} ends in the middle of its data after {read:,} bytes")


def _decompressor(method: str) -> Decompressor:
    if method == "zstd":
        return _zstandard().ZstdDecompressor().decompressobj()
    makers: dict[str, Callable[[], Any]] = {
        "gzip": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
        "bz2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
    }
    return makers[method]()


def _errors(method: str) -> tuple[type[Exception], ...]:
    """What decompressing bad data raises."""
    return (_zstandard().ZstdError,) if method == "zstd" else (OSError, EOFError, zlib.error, lzma.LZMAError)


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise InputError('Reading .zst files needs zstandard: pip install "topicscope[language]".') from None
    return zstandard
