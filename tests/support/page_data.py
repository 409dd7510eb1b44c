"""What a page without a browser holds, for tests: its data, its arrays, and how well its colours differ."""

import base64
import gzip
import json
import re
from typing import Any

import numpy as np


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return dict(json.loads(found[1]))


def arrays_of(page: str) -> bytes:
    found = re.search(r'<script type="text/plain" id="arrays">(.*?)</script>', page, re.DOTALL)
    assert found
    return gzip.decompress(base64.b64decode(found[1]))


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2: relative luminances, 0.05 added for stray light."""

    def luminance(colour: str) -> float:
        channels = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)
