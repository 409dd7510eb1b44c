"""The page as an article: an argument in the paper's order, whose sentences are chosen by the verdicts of claims.

The words are in ``assets/article.toml``, and the numbers in sentences come from claims.json. A sentence is left out if
its claim was not run, and a section if none of its claims was.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from topicscope.files import Row
from topicscope.reporting.rounding import NOTHING, decimals, readable
from topicscope.reporting.symbols import prose

# A number of the claim, in a sentence.
NUMBER = re.compile(r"\{([a-z_]+)\}")

MILLION = 1_000_000

PAPER = "https://arxiv.org/abs/2303.04245"


@cache
def words() -> Row:
    """The article's words: sections, findings, titles of drawings."""
    return tomllib.loads((Path(__file__).parent / "assets" / "article.toml").read_text(encoding="utf-8"))


def opening() -> list[Markup]:
    """What the paper says."""
    return [prose(sentence) for sentence in words()["opening"]]


def yours() -> list[Row]:
    """Three things to copy."""
    return [each | {"text": prose(each["text"])} for each in words()["yours"]]


def article(rows: Sequence[Row], figures: Mapping[str, Row], movable: Mapping[str, bool]) -> list[Row]:
    """Sections of which something was run, in the paper's order.

    rows: claims as ``page.claims`` has them. figures: drawings by name. movable: players and other interactive things,
    and whether they are there.
    """
    by_id = {row["id"]: row for row in rows}
    sections = [
        {
            "anchor": section["anchor"],
            "title": prose(section["title"]),
            "parts": [found for part in section["part"] if (found := _part(part, by_id, figures, movable))],
        }
        for section in words()["section"]
    ]
    shown = [
        any(part.get("measured") or part["kind"] in ("figure", "player") for part in section["parts"])
        for section in sections
    ]
    # All the rest needs the section on documents.
    return [each for place, each in enumerate(sections) if shown[place] or (place == 0 and any(shown))]


def findings(rows: Sequence[Row], figures: Mapping[str, Row]) -> list[Row]:
    """The most important results that were measured: sentences, figure, and claims to follow."""
    by_id = {row["id"]: row for row in rows}
    found = []
    for each in words()["finding"]:
        sentences = [said for sentence in each["sentence"] if (said := _said(sentence, by_id))]
        more = [by_id[name] for name in each["more"] if name in by_id]
        if sentences:
            figure = figures.get(each["figure"])
            found.append({"title": prose(each["title"]), "sentences": sentences, "figure": figure, "more": more})
    return found


def title_of(name: str, claims: Sequence[Row]) -> Markup:
    """A drawing's title; if we have none, one from the claims that it shows."""
    sources = dict.fromkeys(row["source"] for row in claims)
    return prose(words()["titles"].get(name) or f"{', '.join(sources)}: {name.replace('-', ' ')}")


def _part(part: Row, by_id: Mapping[str, Row], figures: Mapping[str, Row], movable: Mapping[str, bool]) -> Row | None:
    """A paragraph, a drawing or something interactive; None if there is nothing to show."""
    if "figure" in part:
        image = figures.get(part["figure"])
        return {"kind": "figure", "figure": image, "caption": prose(part["caption"])} if image else None
    if name := part.get("player") or part.get("widget"):
        return {"kind": "player" if "player" in part else name, "name": name} if movable.get(name) else None
    sentences = [said for sentence in part["sentence"] if (said := _said(sentence, by_id))]
    measured = any(each["claim"] for each in sentences)
    return {"kind": "text", "sentences": sentences, "measured": measured} if sentences else None


def _said(sentence: Row, by_id: Mapping[str, Row]) -> Row | None:
    if "text" in sentence:
        return {"text": prose(sentence["text"]), "claim": None}
    row = by_id.get(sentence["claim"])
    if not row or row["order"] is None:
        return None
    text = sentence.get(row["verdict"])
    return {"text": prose(_with_numbers(text, row)), "claim": row} if text else None


def _with_numbers(text: str, row: Row) -> str:
    """The sentence with its claim's numbers; LaTeX, which has braces of its own, stays as it is."""
    value, low, high = row["order"], row.get("low"), row.get("high")
    known = {name: _brief(each) for name, each in row["numbers"].items()}
    known |= {"value": _interval(value, low, high), "percent": _interval(value, low, high, scale=100.0, unit=" %")}
    return NUMBER.sub(lambda found: known.get(found[1], NOTHING), text)


def _interval(value: float, low: float | None, high: float | None, *, scale: float = 1.0, unit: str = "") -> str:
    """A number with its interval, to at most four digits: nobody would read more."""
    if low is None or high is None or math.isclose(low, high, rel_tol=1e-9):
        return f"{_brief(scale * value)}{unit}"
    if abs(scale * value) >= MILLION:
        return _interval(value, low, high, scale=scale / MILLION) + f" million{unit}"
    number, start, end = (scale * each for each in (value, low, high))
    largest = max(abs(number), abs(start), abs(end))
    digits = max(min(decimals(end - start), 3 - math.floor(math.log10(largest))), 0)
    said, first, last = (f"{round(each, digits) + 0.0:.{digits}f}".replace("-", "−") for each in (number, start, end))
    return f"{said}{unit}" if first == last else f"{said}{unit} [{first}, {last}{unit}]"


def _brief(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 or float(value).is_integer() else readable(value, 3)
    return text.replace("-", "−")


# An example document of the paper's sandbox.


def example_document(topics: int = 10, words: int = 10, length: int = 48) -> list[Row]:
    """Words with their topics, masked as the paper does: an illustration, always the same."""
    draw = np.random.default_rng(18)
    shares = draw.dirichlet(np.full(topics, 0.1))
    topic = draw.choice(topics, size=length, p=shares)
    word = topic * words + draw.integers(words, size=length)
    fate = np.where(draw.random(length) < 0.15, draw.choice(3, size=length, p=[0.1, 0.1, 0.8]), -1)
    other = draw.integers(topics * words, size=length)
    order = {each: place for place, each in enumerate(dict.fromkeys(topic.tolist()))}
    return [
        {
            "word": f"w{word[place]}",
            "topic": order[int(topic[place])],
            "kind": {-1: "", 0: "kept", 1: "random", 2: "mask"}[int(fate[place])],
            "shown": {1: f"w{other[place]}", 2: "[MASK]"}.get(int(fate[place]), f"w{word[place]}"),
        }
        for place in range(length)
    ]
