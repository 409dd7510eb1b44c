"""Claims on a page: what came out, findings, the article in the paper's order, and the table of all claims.

Everything comes from the folder: claims.json has the claims, article.json the words. The template gets claims as their
records, each with its ``anchor`` (where links lead), its ``place`` in the paper and the ``command`` that measures it
again.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from topicscope.records import (
    ArticlePart,
    ArticleRecord,
    ClaimRecord,
    ReproduceSettings,
    read_articles,
    read_claims,
    read_reproduce_settings,
)
from topicscope.reporting.page.store import Found
from topicscope.reporting.symbols import typeset
from topicscope.reporting.verdicts import KINDS, counts, headline, source_table
from topicscope.store import Row

# Three things to copy.
YOURS = (
    (
        "Your topics",
        "Exact optima and a trained model for a topic-word matrix of your own, overlapping or not: a row per topic, a "
        "column per word, rows that sum to one.",
        "topicscope train --data.topic-words my-topics.csv --training.loss squared --out runs/mine\n"
        "topicscope check runs/mine",
    ),
    (
        "Your model",
        "Topic structure of any model that Hugging Face can load, on your own corpus, beside the same network "
        "untrained.",
        "topicscope probe ./my-model random:./my-model --corpus texts.jsonl --field body --out probe",
    ),
    (
        "Your class",
        "A two-stage run to play on the wall: train it in seconds, open the page, and press Present.",
        "topicscope demo --out demo",
    ),
)


def claims_section(folder: Path, number: int, found: Found) -> Row | None:
    """The claims of a folder; without claims its words alone; None, with a note, if there is neither."""
    claims = found.read(read_claims, folder / "claims.json")
    words = found.read(read_articles, folder / "article.json") or []
    if claims == []:
        found.notes.append(f"{folder}: no claim is measured yet; run topicscope reproduce --out {folder} to resume.")
    if not claims and not words:
        return None
    claims = claims or []
    settings = found.read(read_reproduce_settings, folder / "settings.json") if claims else None
    groups = [(own.html, each) for own in words for each in own.groups]
    places = {source: section_of(html, at) for html, each in groups for source, at in each.sources.items()}
    captions = {name: caption for own in words for name, caption in own.captions.items()}
    shown = [
        {
            "record": claim,
            "anchor": f"claim-{number}-{at}",
            "place": places.get(claim.source, ("", "")),
            "command": _command(claim, folder, settings),
        }
        for at, claim in enumerate(claims)
    ]
    figures: list[Row] = []
    # No claim is about some figures.
    others = [name for name in captions if (folder / "figures" / f"{name}.svg").exists()]
    for name in dict.fromkeys([*(claim.figure for claim in claims if claim.figure), *others]):
        anchor = f"figure-{number}-{len(figures)}"
        image = found.image(folder / "figures" / f"{name}.svg", anchor)
        title = typeset(captions.get(name) or name.replace("-", " "))
        of = sum(claim.figure == name for claim in claims)
        figures.append({"anchor": anchor, "name": name, "title": title, "image": image, "claims": of})
    by_kind = {kind: [claim for claim in claims if claim.kind == kind] for kind in KINDS}
    return {
        "folder": str(folder),
        "ran": _ran(settings),
        "words": words,
        "headline": [typeset(line) for line in headline(claims)],
        "table": source_table(claims, [group for _, group in groups]),
        "claims": shown,
        "counts": counts(claims),
        "kinds": [(kind, KINDS[kind], counts(some)) for kind, some in by_kind.items() if some],
        "sources": list(dict.fromkeys(claim.source for claim in claims)),
        "figures": figures,
    }


def section_of(html: str, section: str) -> tuple[str, str]:
    """The paper's section and its address, from its number ("5.2", "A.1"); nothing if either is not known."""
    if not html or not re.fullmatch(r"[0-9A-E](\.\d+)*", section):
        return "", ""
    first, *rest = section.split(".")
    head = f"S{first}" if first.isdigit() else f"A{'ABCDE'.index(first) + 1}"
    return f"§{section}", f"{html}#" + ".".join([head, *(f"SS{part}" for part in rest[:1])])


def _ran(settings: ReproduceSettings | None) -> str:
    """What the claims were measured with."""
    if settings is None:
        return ""
    models = f", models {' '.join(settings.models)}" if settings.models else ""
    return f"preset {settings.preset}, seeds {settings.seeds}, seed {settings.seed}{models}"


def _command(claim: ClaimRecord, folder: Path, settings: ReproduceSettings | None) -> str:
    """The command that measures this claim again, in a separate folder."""
    words = ["topicscope", "reproduce", "--only", claim.id]
    if settings:
        words += ["--preset", settings.preset, "--seeds", str(settings.seeds), "--seed", str(settings.seed)]
        words += ["--models", *settings.models] if settings.models else []
    return shlex.join([*words, "--out", f"{folder}-again"])


# The article.


def article(section: Row | None, movable: Mapping[str, bool]) -> Row | None:
    """The words of a folder's first paper with its claims and drawings; None if there is nothing to tell.

    movable: "player" and "landscape", and whether they are there. A section is left out of which nothing was run.
    """
    if section is None or not section["words"]:
        return None
    words: ArticleRecord = section["words"][0]
    claims = {claim["record"].id: claim for claim in section["claims"] if claim["record"].paper == words.paper}
    figures = {figure["name"]: figure for figure in section["figures"] if figure["image"]}
    made: list[Row] = [
        {"anchor": each.anchor, "title": typeset(each.title), "parts": _parts(each.part, claims, figures, movable)}
        for each in words.sections
    ]
    told = [any(part["kind"] in ("claims", "figure", "player") for part in each["parts"]) for each in made]
    if not any(told):
        return None
    return {
        "cite": words.cite,
        "url": words.url,
        "opening": [typeset(sentence) for sentence in words.opening],
        "findings": [
            {
                "title": typeset(finding.title),
                "text": typeset(finding.sentence),
                "claims": [claims[name] for name in finding.claims if name in claims],
                "figure": figures.get(finding.figure),
            }
            for finding in words.findings
        ],
        # All the rest needs the section on documents, which is the first.
        "sections": [each for place, each in enumerate(made) if told[place] or place == 0],
    }


def _parts(
    parts: Sequence[ArticlePart], claims: Mapping[str, Row], figures: Mapping[str, Row], movable: Mapping[str, bool]
) -> list[Row]:
    """The parts for which there is something to show."""
    shown: list[Row] = []
    for part in parts:
        own = [claims[name] for name in part.claims if name in claims]
        if part.text:
            shown.append({"kind": "text", "text": typeset(part.text)})
        elif own:
            shown.append({"kind": "claims", "claims": own})
        elif part.figure in figures:
            shown.append({"kind": "figure", "figure": figures[part.figure]})
        elif part.show and movable.get(part.show, part.show == "document"):
            shown.append({"kind": part.show})
    return shown


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
