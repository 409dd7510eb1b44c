"""The playground's WebAssembly outside a browser, through wasmtime: settings in, arrays out."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from topicscope.settings import Data, Masking
from topicscope.synthetic.documents import MaskedDocuments

FILE = Path(__file__).parents[2] / "src/topicscope/reporting/playground/playground.wasm"
LONGEST, SHOWN = 400, 8
DOCUMENT = np.dtype(
    [
        ("length", "<i4"),
        ("masked_count", "<i4"),
        ("token", "<i2", LONGEST),
        ("word", "<i2", LONGEST),
        ("masked", "u1", LONGEST),
    ]
)
MEASURES = (
    "norm_value", "norm_key", "norm_query", "same_word", "same_topic", "different_topic", "mask_column", "mask_row",
    "attention_same_word", "attention_same_topic", "attention_different_topic", "from_uniform", "mask_from_uniform",
    "uniform_loss",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The numbers that the core reads, in its order."""

    topics: int = 10
    words: int = 10
    sampler: int = 0
    """0 Dirichlet, 1 τ topics."""
    per_document: int = 2
    dirichlet: float = 0.1
    overlap: float = 0.0
    shortest: int = 100
    longest: int = 150
    mask: float = 0.15
    keep: float = 0.1
    random: float = 0.1
    hidden: int = 0
    loss: int = 1
    """0 cross-entropy, 1 squared."""
    optimizer: int = 2
    """0 SGD, 1 momentum, 2 Adam."""
    rate: float = 0.01
    epsilon: float = 1e-8
    batch: int = 40
    l2: float = 0.0
    scale: float = 0.001
    parts: int = 0
    """0 all, 1 uniform attention, 2 W^V alone, 3 W^V frozen at Theorem 2's."""

    @property
    def vocabulary(self) -> int:
        return self.topics * self.words + 1

    @property
    def data(self) -> Data:
        """The same documents for the Python functions (disjoint topics)."""
        return Data(
            sampler="topics" if self.sampler else "dirichlet",
            topics=self.topics,
            words=self.words,
            per_document=self.per_document,
            dirichlet=(self.dirichlet,),
            length=(self.shortest, self.longest),
            fresh=True,
        )

    @property
    def masking(self) -> Masking:
        return Masking(mask=self.mask, keep=self.keep, random=self.random)


def random_setting(number: int, *, topics: int = 9, shortest: int = 40, **changes: Any) -> Setting:
    """Anything that the page lets one choose, with fewer than so many topics and words in the shortest document."""
    draw = np.random.default_rng(number)
    keep, random = draw.dirichlet([1, 1, 2])[:2]
    count, least = int(draw.integers(3, topics)), int(draw.integers(5, shortest))
    setting = Setting(
        topics=count,
        words=int(draw.integers(2, 9)),
        sampler=int(draw.integers(2)),
        per_document=int(draw.integers(1, count)),
        dirichlet=float(draw.choice([0.1, 1.0])),
        overlap=float(draw.choice([0.0, 0.3])),
        shortest=least,
        longest=least + int(draw.integers(40)),
        mask=float(draw.uniform(0.1, 0.6)),
        keep=float(keep),
        random=float(random),
        hidden=int(draw.integers(2)),
        loss=int(draw.integers(2)),
        rate=float(draw.choice([0.01, 0.3, 3.0])),
        l2=float(draw.choice([0.0, 1e-5, 1e-3])),
        scale=float(draw.choice([0.001, 0.3, 1.0])),
        parts=int(draw.integers(4)),
    )
    return replace(setting, **changes)


@cache
def _module() -> tuple[Any, Any]:
    wasmtime = pytest.importorskip("wasmtime", reason="wasmtime is not installed (pip install wasmtime)")
    engine = wasmtime.Engine()
    return engine, wasmtime.Module(engine, FILE.read_bytes())


class Core:
    """One instance of the module."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        import wasmtime

        engine, module = _module()
        self._store = wasmtime.Store(engine)
        self._exports: Any = wasmtime.Instance(self._store, module, []).exports(self._store)
        self.set(setting)
        self.call("start", float(seed))

    def call(self, name: str, *arguments: float) -> Any:
        return self._exports[name](self._store, *arguments)

    def array(self, address: int, kind: Any, *shape: int) -> np.ndarray:
        """What lies at an address, to be read and written."""
        memory = self._exports["memory"]
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        whole = np.ctypeslib.as_array(memory.data_ptr(self._store), shape=(memory.data_len(self._store),))
        return whole[address : address + size].view(kind).reshape(shape)

    def set(self, setting: Setting) -> None:
        self.setting = setting
        numbers = [float(value) for value in vars(setting).values()]
        self.array(self.call("settings"), "<f8", len(numbers))[:] = numbers

    def change(self, **changes: Any) -> None:
        self.set(replace(self.setting, **changes))

    def matrix(self, kind: str, number: int) -> np.ndarray:
        """W^V (0), W^K (1), W^Q (2) or a gradient, as in the paper: to be read and written."""
        width, vocabulary = self.call("padded_width"), self.setting.vocabulary
        found = self.array(self.call(kind, number), "<f4", width, width)[:vocabulary, :vocabulary]
        # W^V is kept transposed.
        return found.T if number == 0 else found

    @property
    def documents(self) -> np.ndarray:
        """The documents shown."""
        assert self.call("document_bytes") == DOCUMENT.itemsize
        return self.array(self.call("shown_documents"), DOCUMENT, SHOWN)

    def masked_documents(self) -> MaskedDocuments:
        """The documents shown, as the library has them."""
        return self._read(self.documents)

    def held_out(self) -> MaskedDocuments:
        """The documents that attention is measured on."""
        return self._read(self.array(self.call("held_out_shown"), DOCUMENT, SHOWN))

    def _read(self, found: np.ndarray) -> MaskedDocuments:
        lengths = found["length"].astype(np.int32)
        token, word, masked = (
            np.concatenate([row[:row_length] for row, row_length in zip(found[name], lengths, strict=True)])
            for name in ("token", "word", "masked")
        )
        return MaskedDocuments(lengths, token.astype(np.int32), word.astype(np.int32), masked.astype(bool))

    def measure(self) -> dict[str, float]:
        return dict(zip(MEASURES, self.array(self.call("measure"), "<f8", len(MEASURES)).tolist(), strict=True))

    def numbers(self, name: str, count: int, *arguments: float) -> list[float]:
        """What a function that returns an address has there."""
        return self.array(self.call(name, *arguments), "<f8", count).tolist()
