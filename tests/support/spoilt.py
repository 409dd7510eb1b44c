"""Files with something in them that should not be there: of each format, how it is spoilt, and a run on it."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from support.fuzzing import Counts, fuzzed, in_a_copy

# Values that have no business in a file.
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
STRANGE = PLAIN | st.sampled_from([10**30, -1, 0, 2**63, 1e308, "../../x", "\ud800", "=1+1", "<script>", [], {}, [[]]])
NESTED = st.recursive(STRANGE, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))

# What the whole of a file may be.
WHOLE = [
    b"", b"NaN", b"[]", b"{}", b"null", b"3", b"[[]]", b"\xff\xfe", b'["\\ud800"]', b"\x00" * 64, b"[" * 100_000,
    b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b"a = " + b"[" * 5_000 + b"]" * 5_000, b'{"step": ' + b"9" * 5_000 + b"}",
    b"seed,loss\n" + b"a" * 200_000 + b",1\n", b"\x93NUMPY\x01\x00", b"PK\x05\x06" + bytes(18),
    struct.pack("<Q", 2**62), struct.pack("<Q", 2) + b"{}",
]  # fmt: skip


def spoilt(kind: str, content: bytes) -> st.SearchStrategy[bytes]:
    """The content with something in it that should not be there."""
    by_format: dict[str, Callable[[bytes], st.SearchStrategy[bytes]]] = {
        "json": spoilt_json,
        "toml": spoilt_lines,
        "safetensors": spoilt_tensors,
        "npz": spoilt_bytes,
        "csv": spoilt_lines,
    }
    return by_format[kind](content) | spoilt_bytes(content) | st.sampled_from(WHOLE)


@st.composite
def spoilt_json(draw: st.DrawFn, content: bytes) -> bytes:
    """With another value, or none, at any place; of lines, in one of them."""
    lines = content.decode().splitlines() if content.count(b"\n") > 1 else [content.decode()]
    try:
        place = draw(st.integers(0, len(lines) - 1))
        value = json.loads(lines[place])
    except ValueError:
        lines, place, value = [content.decode()], 0, json.loads(content)
    inside, key = value, None
    for _ in range(draw(st.integers(1, 5))):
        keys = (
            list(inside) if isinstance(inside, dict) else list(range(len(inside))) if isinstance(inside, list) else []
        )
        if not keys:
            break
        holder, key = inside, draw(st.sampled_from(keys))
        inside = holder[key]
    if key is None:
        value = draw(NESTED)
    elif draw(st.booleans()):
        holder[key] = draw(NESTED)
    else:
        del holder[key]
    lines[place] = json.dumps(value)
    return "\n".join(lines).encode(errors="replace")


@st.composite
def spoilt_lines(draw: st.DrawFn, content: bytes) -> bytes:
    """With a line twice, without it, or with another value or cell in it."""
    lines = content.decode().splitlines()
    place = draw(st.integers(0, len(lines) - 1))
    value = draw(st.sampled_from(["1e400", "-1", "nan", "[]", '"x"', "99999999999999999999", "=1", "{}", "1e-320", ""]))
    choice = draw(st.integers(0, 3))
    name, equals, _ = lines[place].partition("=")
    if choice == 0:
        del lines[place]
    elif choice == 1:
        lines.insert(place, lines[place])
    elif equals:
        lines[place] = f"{name}={value}"
    else:
        cells = lines[place].split(",")
        cells[draw(st.integers(0, len(cells) - 1))] = value
        lines[place] = ",".join(cells)
    return "\n".join(lines).encode()


@st.composite
def spoilt_tensors(draw: st.DrawFn, content: bytes) -> bytes:
    """With a tensor of another name, kind, shape or number."""
    tensors = load(content)
    name = draw(st.sampled_from(sorted(tensors)))
    choice = draw(st.integers(0, 4))
    if choice == 0:
        tensors[draw(st.sampled_from(["x", "0/value/x", "-1/value", "9" * 30 + "/value", "a/b"]))] = tensors.pop(name)
    elif choice == 1:
        tensors[name] = tensors[name].astype(draw(st.sampled_from(["int64", "uint8", "float16", "bool"])))
    elif choice == 2:
        tensors[name] = np.full(tensors[name].shape, draw(st.sampled_from([np.nan, np.inf, 1e300, 0.0])))
    elif choice == 3:
        tensors[name] = np.zeros(draw(st.sampled_from([(), (0,), (3,), (1, 2), (2, 3, 3), (7, 7, 7, 7)])))
    else:
        header_size = struct.unpack("<Q", content[:8])[0]
        kind = draw(st.sampled_from([b"BF16", b"F8_E4M3", b"C64", b"XX"]))
        header = (
            content[8 : 8 + header_size].replace(b'"F64"', b'"' + kind + b'"').replace(b'"F32"', b'"' + kind + b'"')
        )
        return struct.pack("<Q", len(header)) + header + content[8 + header_size :]
    return save(tensors)


@st.composite
def spoilt_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """With some bytes changed, most of them near the beginning or the end, and perhaps cut."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(-80, 300) | st.integers(0, len(content) - 1)) % len(changed)
        changed[place] = draw(st.integers(0, 255))
    return bytes(changed[: draw(st.integers(0, len(changed)))] if draw(st.integers(0, 3)) == 0 else changed)


@dataclass(frozen=True)
class Spoilt:
    """Files of a format, each with command lines that read it, and how many cases there are at length."""

    kind: str
    files: Mapping[str, Sequence[Sequence[str]]]
    cases: int


def check_files(spoiling: Spoilt, cases: int, material: Path, folder: Path) -> Counts:
    """Spoil a file, run a command on it, and put it back; FOLDER and FILE in the command's words are its own."""
    counts = Counts()
    contents = {name: (material / name).read_bytes() for name in spoiling.files}

    @fuzzed(cases)
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(contents)))
        command = data.draw(st.sampled_from(spoiling.files[name]))
        content = data.draw(spoilt(spoiling.kind, contents[name]))
        words = [word.replace("FOLDER", str(Path(name).parent)).replace("FILE", name) for word in command]
        counts.add(in_a_copy(words, material, folder, {name: content}))

    each()
    return counts
