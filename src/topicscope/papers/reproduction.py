"""Measuring the claims of papers and drawing their figures, as soon as what they need is done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from topicscope.measure.run import Run, write_run
from topicscope.papers.article import article
from topicscope.papers.claim import Claim, not_run, record
from topicscope.papers.needs import Engine, Need, Seeds, computed, is_there
from topicscope.papers.registry import FigureEntry, Paper
from topicscope.records import ArticleRecord, ClaimRecord, read_claims
from topicscope.reporting.verdicts import latex, table
from topicscope.store import struct_text, table_text, write_atomically


@dataclass(frozen=True)
class Progress:
    """A claim was measured, or a piece of work was finished."""

    claims: int
    all_claims: int
    work: int
    all_work: int
    last: ClaimRecord | None
    """The claim, if it was one."""


class PaperState:
    """What is measured and drawn of one paper so far."""

    def __init__(self, own: Paper, claims: Sequence[Claim], out: Path, seeds: Seeds) -> None:
        """Figures are drawn for the claims asked for, if that takes no more work than the claims do."""
        self.paper, self.claims, self.out = own, claims, out
        self.records = {
            claim.id: not_run(claim, own.name, reason) for claim in claims if (reason := own.missing(claim))
        }
        self.waiting = [claim for claim in claims if claim.id not in self.records]
        self.results: dict[str, Any] = {}
        self.drawn: list[Path] = []
        self.told: Callable[[ClaimRecord | None], None] = lambda last: None
        coming = {name for claim in self.waiting for name in own.needs_of(claim)}
        shown = {claim.figure for claim in claims}
        if len(claims) == len(own.claims):
            # No claim is about some figures, such as that of another setting.
            shown |= {figure.name for figure in own.figures}
        partly = {claim.figure for claim in own.claims if claim not in claims}
        self.figures = [
            figure
            for figure in own.figures
            if figure.name in shown and not own.missing(figure)
            if figure.name not in partly
            or all(name in coming or is_there(need, seeds, out / "work") for name, need in own.needs_of(figure).items())
        ]

    def needs(self) -> list[Need]:
        """The work that is still wanted."""
        entries: list[Claim | FigureEntry] = [*self.waiting, *self.figures]
        wanted = {name: need for entry in entries for name, need in self.paper.needs_of(entry).items()}
        return list(wanted.values())

    def take(self, needs: Sequence[Need], result: Any) -> None:
        """Take a result, under the names of all needs that it meets, and measure and draw what it completes."""
        for need in needs:
            own = replace(result, name=need.name) if isinstance(result, Run) else result
            self.results[need.name] = own
            if isinstance(own, Run) and len(own.frame_steps):
                # The page plays these.
                write_run(own, self.out / "runs" / need.name)
        self.told(None)
        self.advance()

    def advance(self) -> None:
        """Measure and draw everything whose needs are met; claims come first, because users wait for them."""
        from topicscope.reporting.figures import save_figure

        for claim in [claim for claim in self.waiting if self._ready(claim)]:
            results, began = self._results(claim), time.perf_counter()
            measured = self.paper.measuring(claim)(results)
            seconds = sum(getattr(result, "seconds", 0.0) for result in results.values())
            self.records[claim.id] = record(claim, self.paper.name, measured, time.perf_counter() - began + seconds)
            self.waiting.remove(claim)
            self.told(self.records[claim.id])
        for figure in [figure for figure in self.figures if self._ready(figure)]:
            drawing = self.paper.drawing(figure)(self._results(figure))
            self.drawn += save_figure(drawing, self.out / "figures" / figure.name)
            self.figures.remove(figure)
        # Twenty seeds of all experiments would fill the memory: what nothing needs any more is dropped.
        wanted = {need.name for need in self.needs()}
        self.results = {name: result for name, result in self.results.items() if name in wanted}

    def _ready(self, entry: Claim | FigureEntry) -> bool:
        return all(name in self.results for name in self.paper.needs_of(entry))

    def _results(self, entry: Claim | FigureEntry) -> dict[str, Any]:
        return {name: self.results[name] for name in self.paper.needs_of(entry)}


@dataclass
class State:
    """All papers of one call."""

    out: Path
    chosen: Sequence[tuple[Paper, Sequence[Claim]]]
    seeds: Seeds
    report: Callable[[Progress], None]
    papers: list[PaperState] = field(init=False)

    def __post_init__(self) -> None:
        self.papers = [PaperState(own, claims, self.out, self.seeds) for own, claims in self.chosen]
        pieces = [len(own.needs()) for own in self.papers]

        def told(last: ClaimRecord | None) -> None:
            claims = sum(len(own.records) for own in self.papers), sum(len(own.claims) for own in self.papers)
            left = sum(len(own.needs()) for own in self.papers)
            self.report(Progress(*claims, sum(pieces) - left, sum(pieces), last))

        for own in self.papers:
            own.told = told

    def measure(self, engine: Engine) -> None:
        """Do the work, and measure and draw on the way; then write what the page shows beside claims."""
        for own in self.papers:
            own.advance()
        for own in self.papers:
            for needs, result in computed(own.needs(), self.seeds, self.out / "work", engine):
                own.take(needs, result)
            own.paper.write_files(self.out)

    @property
    def drawn(self) -> list[Path]:
        """The files of figures."""
        return [path for own in self.papers for path in own.drawn]

    def records(self) -> list[ClaimRecord]:
        """The claims that were asked for, as far as they are measured, in their papers' order."""
        return [own.records[claim.id] for own in self.papers for claim in own.claims if claim.id in own.records]

    def write(self) -> list[ArticleRecord]:
        """Write what is measured, with what the folder knew of other claims, and return the papers' words."""
        known = {(claim.paper, claim.id): claim for claim in self._before()}
        known |= {(claim.paper, claim.id): claim for claim in self.records()}
        records = [
            known[place]
            for own in self.papers
            for claim in own.paper.claims
            if (place := (own.paper.name, claim.id)) in known
        ]
        names = {own.paper.name for own in self.papers}
        records += [claim for claim in known.values() if claim.paper not in names]
        articles = [article(own.paper, records) for own in self.papers]
        write_atomically(self.out / "claims.json", struct_text(records, indent=2))
        write_atomically(self.out / "claims.csv", table_text(table(records)))
        write_atomically(self.out / "claims.tex", latex(records))
        write_atomically(self.out / "article.json", struct_text(articles, indent=2))
        return articles

    def _before(self) -> list[ClaimRecord]:
        path = self.out / "claims.json"
        return read_claims(path) if path.exists() else []
