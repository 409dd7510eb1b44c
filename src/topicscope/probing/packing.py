"""Finished work as one safetensors file: structs, dataclasses and named tuples with arrays in them, to the bit."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

T = TypeVar("T")

# A table whose share of nonzero numbers is below this is stored as these numbers and their places.
SPARSE = 0.5


def packed(value: Any) -> bytes:
    """A value as JSON in the file's metadata, where a number stands for each array; an array is stored once.

    Numbers of the JSON that are not finite become null.
    """
    arrays: dict[str, np.ndarray] = {}
    numbers: dict[int, str] = {}

    def stored(array: np.ndarray) -> str:
        if id(array) not in numbers:
            name = numbers[id(array)] = str(len(numbers))
            flat = np.ascontiguousarray(array)
            if array.ndim > 1 and array.dtype == np.float64 and np.count_nonzero(array) < SPARSE * array.size:
                places = np.flatnonzero(flat)
                arrays[f"{name} places"], arrays[f"{name} shape"] = places, np.array(array.shape)
                flat = flat.ravel()[places]
            arrays[name] = flat
        return numbers[id(array)]

    plain = msgspec.to_builtins(value, enc_hook=stored)
    return save(arrays, metadata={"value": msgspec.json.encode(plain).decode()})


def unpacked(path: Path, kind: type[T]) -> T:
    """What ``packed`` made, a value of this type."""
    with safe_open(path, framework="np") as file:
        names = set(file.keys())

        def array(_: type, name: str) -> np.ndarray:
            content: np.ndarray = file.get_tensor(name)
            if f"{name} places" not in names:
                return content
            whole = np.zeros(file.get_tensor(f"{name} shape"))
            whole.ravel()[file.get_tensor(f"{name} places")] = content
            return whole

        plain = msgspec.json.decode(file.metadata()["value"])
        # In a thread of its own: where shapes are checked, as in tests, one thread's axes of one name must all agree.
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(msgspec.convert, plain, kind, dec_hook=array).result()
