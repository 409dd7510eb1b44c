"""A paper's folder as one object: claims, figures, findings (claims.toml), words (article.toml), experiments.

Functions that measure and draw are looked up when they are called, so that claims can be listed without torch.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from topicscope.errors import InputError, check_one_of
from topicscope.papers.claim import Claim, Results
from topicscope.papers.needs import PRESETS, Need, Preset
from topicscope.records import (
    ArticleRecord,
    ArticleSection,
    ClaimRecord,
    ClaimRowRecord,
    FindingRecord,
    SourceGroup,
    Verdict,
)
from topicscope.reporting.rounding import NOTHING, number_text

# The paper that this package began with.
TOPIC_STRUCTURE = "topic_structure"
# A number in a finding's sentence: a claim, perhaps one of its rows, perhaps a detail; with % after it as a share.
PLACE = re.compile(r"\{(?P<id>[^}|@]+)(?:@(?P<row>[^}|]+))?(?:\|(?P<detail>[^}|]+))?\}(?P<share>%?)")


class FigureEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure of claims.toml, drawn once what it needs is done."""

    name: str
    needs: tuple[str, ...] = ()
    caption: str
    """Its title, also in the drawing."""

    draw: str = ""
    """The drawing function, as module.function of the paper's folder; by default drawings.NAME."""

    arguments: dict[str, Any] = msgspec.field(default_factory=dict)


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a reader takes home, and the claims that carry it."""

    title: str
    sentence: str
    """It may contain what claims measured: {id}, {id@row}, {id|detail}, {id@row|detail}; before a % it is a share."""

    claims: dict[str, Verdict]
    """The verdicts that it needs; with others it is shown as not confirmed."""

    figure: str = ""


class ClaimsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """claims.toml."""

    title: str
    cite: str
    url: str
    html: str = ""
    """The address of a copy in HTML, whose sections have the anchors S1, S1.SS1 and A1."""

    files: str = ""
    """A function, as module.function, that writes more files for the page into a folder."""

    finding: tuple[Finding, ...] = ()
    group: tuple[SourceGroup, ...] = ()
    figure: tuple[FigureEntry, ...] = ()
    claim: tuple[Claim, ...]


class ArticleFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """article.toml."""

    opening: list[str]
    section: list[ArticleSection]


@dataclass(frozen=True)
class Paper:
    """A paper's claims, figures, findings and article, and the experiments of a preset by name."""

    name: str
    content: ClaimsFile
    experiments: Mapping[str, Need]
    article: ArticleFile
    package: str = "topicscope.papers"
    """The package that the paper's folder is in."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """In the order in which they are shown."""
        return self.content.claim

    @property
    def figures(self) -> tuple[FigureEntry, ...]:
        """In the order in which they are shown."""
        return self.content.figure

    def needs_of(self, entry: Claim | FigureEntry) -> dict[str, Need]:
        """The experiments that its patterns name, in the patterns' order."""
        return {name: self.experiments[name] for name in _named(entry.needs, tuple(self.experiments))}

    def missing(self, entry: Claim | FigureEntry) -> str:
        """Why it cannot be measured or drawn here, in one sentence; empty if it can."""
        needs = self.needs_of(entry)
        for pattern in entry.needs:
            if not any(fnmatchcase(name, pattern) for name in needs):
                return f"No experiment of this preset and these models is called {pattern}."
        return next((need.unavailable for need in needs.values() if need.unavailable), "")

    def measuring(self, claim: Claim) -> Callable[[Results], Any]:
        """The function that a claim's quantity names, with its arguments."""
        return self._function(claim.quantity, claim.arguments)

    def drawing(self, figure: FigureEntry) -> Callable[[Results], Any]:
        """The function that draws a figure, with its caption as the title."""
        path = figure.draw or f"drawings.{figure.name.replace('-', '_')}"
        return self._function(path, {"title": figure.caption, **figure.arguments})

    def write_files(self, folder: Path) -> None:
        """Write what the page shows beside claims and figures."""
        if self.content.files:
            self._function(self.content.files, {})(folder)

    def _function(self, path: str, arguments: Mapping[str, Any]) -> Callable[[Any], Any]:
        module, _, name = path.rpartition(".")
        function = getattr(import_module(f"{self.package}.{self.name}.{module}"), name)
        return lambda given: function(given, **arguments)


@cache
def _named(patterns: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    return [name for pattern in patterns for name in names if fnmatchcase(name, pattern)]


def paper_names() -> list[str]:
    """The papers that there are: the folders with a claims.toml."""
    folders = files("topicscope.papers").iterdir()
    return sorted(folder.name for folder in folders if folder.joinpath("claims.toml").is_file())


def paper(name: str = TOPIC_STRUCTURE, preset: Preset = PRESETS["quick"]) -> Paper:
    """A paper with the experiments of a preset."""
    check_one_of("--paper", name, paper_names())
    folder = files(f"topicscope.papers.{name}")
    content = msgspec.toml.decode(folder.joinpath("claims.toml").read_bytes(), type=ClaimsFile)
    article = msgspec.toml.decode(folder.joinpath("article.toml").read_bytes(), type=ArticleFile)
    needs = import_module(f"topicscope.papers.{name}.experiments").needs(preset)
    return Paper(name, content, {need.name: need for need in needs}, article)


# Claims by what is given to --only.


def selected(papers: Sequence[Paper], only: Sequence[str]) -> list[tuple[Paper, tuple[Claim, ...]]]:
    """Each paper's claims whose id is one of ``only`` or begins with it, or whose source it is; all without ``only``.

    A word that means no claim is refused.
    """
    claims = [claim for own in papers for claim in own.claims]
    for word in only:
        if not any(matches(claim, word) for claim in claims):
            beginnings = [claim.id[: at.start()] for claim in claims for at in re.finditer("/", claim.id)]
            known = dict.fromkeys([*beginnings, *(claim.id for claim in claims)])
            near = " or ".join(get_close_matches(word.lower().replace(" ", "").rstrip("/"), known, n=3))
            remedy = f"did you mean {near}?" if near else "give an id, its beginning or a source; see --list."
            raise InputError(f'--only "{word}" is no claim: {remedy}')
    return [
        (own, tuple(claim for claim in own.claims if not only or any(matches(claim, word) for word in only)))
        for own in papers
    ]


def matches(claim: Claim, word: str) -> bool:
    """Whether a word given to ``--only`` means this claim."""
    source, plain = (text.lower().replace(" ", "") for text in (claim.source, word))
    return plain == source or claim.id == word or claim.id.startswith(word.rstrip("/") + "/")


# The words of the page.


def article(own: Paper, records: Sequence[ClaimRecord]) -> ArticleRecord:
    """What the page of a run shows beside its claims; findings of whose claims one was not run are left out."""
    by_id = {record.id: record for record in records if record.paper == own.name and record.verdict != "not run"}
    return ArticleRecord(
        paper=own.name,
        **{name: getattr(own.content, name) for name in ("title", "cite", "url", "html")},
        opening=own.article.opening,
        sections=own.article.section,
        findings=[_finding(finding, by_id) for finding in own.content.finding if finding.claims.keys() <= by_id.keys()],
        groups=list(own.content.group),
        captions={figure.name: figure.caption for figure in own.figures},
    )


def _finding(finding: Finding, records: Mapping[str, ClaimRecord]) -> FindingRecord:
    """The finding with this run's numbers; if claims have other verdicts than it needs, which these are instead."""
    other = [f"{name} {records[name].verdict}" for name, verdict in finding.claims.items()
             if records[name].verdict != verdict]  # fmt: skip
    sentence = PLACE.sub(lambda place: _number(place, records), finding.sentence)
    return FindingRecord(
        title=finding.title,
        sentence=f"Not confirmed by this run: {', '.join(other)}." if other else sentence,
        confirmed=not other,
        claims=list(finding.claims),
        figure=finding.figure,
    )


def _number(place: re.Match[str], records: Mapping[str, ClaimRecord]) -> str:
    claim, percent = records.get(place["id"]), bool(place["share"])
    rows: list[ClaimRecord | ClaimRowRecord] = [] if claim is None else [claim]
    if claim is not None and place["row"]:
        rows = [row for row in claim.rows if row.name == place["row"]]
    if not rows:
        return NOTHING
    if place["detail"]:
        value = rows[0].details.get(place["detail"])
        return value if isinstance(value, str) else number_text(value, percent=percent)
    return number_text(rows[0].measured, rows[0].low, rows[0].high, percent=percent)
