"""Measuring the claims of a paper and drawing its figures, as soon as what they need is done."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from topicscope.measure.run import Run, write_run
from topicscope.papers.claim import Claim, not_run, record
from topicscope.papers.needs import Need, Seeds, computed, is_there
from topicscope.papers.paper import FigureEntry, Paper, article
from topicscope.records import ARTICLES, CLAIMS, ArticleRecord, ClaimRecord
from topicscope.reporting.verdicts import latex, table
from topicscope.store import table_text, write_atomically


@dataclass(frozen=True)
class Progress:
    """A claim was measured, or a piece of work was finished; in all papers so far."""

    claims: int
    all_claims: int
    work: int
    all_work: int
    last: ClaimRecord | None = None
    """The claim, if it was one."""


class Reproducing:
    """What is measured and drawn of one paper so far."""

    def __init__(
        self, own: Paper, claims: Sequence[Claim], out: Path, seeds: Seeds, report: Callable[[Progress], None]
    ) -> None:
        """Figures are drawn for the claims asked for, if that takes no more work than the claims do."""
        self.paper, self.claims, self.out, self.seeds, self._report = own, claims, out, seeds, report
        self.known = {claim.id: not_run(claim, own.name, why) for claim in claims if (why := own.missing(claim))}
        self.waiting = [claim for claim in claims if claim.id not in self.known]
        self.results: dict[str, Any] = {}
        self.drawn: list[Path] = []
        coming = {name for claim in self.waiting for name in own.needs_of(claim)}
        # No claim is about some figures, such as that of another setting: they are drawn if all claims are measured.
        shown = {claim.figure for claim in claims} if len(claims) < len(own.claims) else None
        partly = {claim.figure for claim in own.claims if claim not in claims}
        self.figures = [
            figure
            for figure in own.figures
            if (shown is None or figure.name in shown) and not own.missing(figure)
            if figure.name not in partly
            or all(name in coming or is_there(need, seeds, out / "work") for name, need in own.needs_of(figure).items())
        ]
        self._all_work = len(self.needs())

    def needs(self) -> list[Need]:
        """The work that is still wanted."""
        entries: list[Claim | FigureEntry] = [*self.waiting, *self.figures]
        return list({name: need for entry in entries for name, need in self.paper.needs_of(entry).items()}.values())

    def measure(self, **where: Any) -> None:
        """Do the work, and measure and draw on the way; then write what the page shows beside claims."""
        self._advance()
        for needs, result in computed(self.needs(), self.seeds, self.out / "work", **where):
            for need in needs:
                self.results[need.name] = replace(result, name=need.name) if isinstance(result, Run) else result
                if isinstance(result, Run) and len(result.frame_steps):
                    # The page plays these.
                    write_run(self.results[need.name], self.out / "runs" / need.name)
            self._tell(None)
            self._advance()
        self.paper.write_files(self.out)

    def records(self) -> list[ClaimRecord]:
        """The claims that were asked for, as far as they are measured, in the paper's order."""
        return [self.known[claim.id] for claim in self.claims if claim.id in self.known]

    def _advance(self) -> None:
        """Measure and draw everything whose needs are met; claims come first, because users wait for them."""
        for claim in [claim for claim in self.waiting if self._ready(claim)]:
            results, began = self._results(claim), time.perf_counter()
            measured = self.paper.measuring(claim)(results)
            seconds = sum(getattr(result, "seconds", 0.0) for result in results.values())
            self.known[claim.id] = record(claim, self.paper.name, measured, time.perf_counter() - began + seconds)
            self.waiting.remove(claim)
            self._tell(self.known[claim.id])
        for figure in [figure for figure in self.figures if self._ready(figure)]:
            from topicscope.reporting.figures import save_figure

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

    def _tell(self, last: ClaimRecord | None) -> None:
        done = self._all_work - len(self.needs())
        self._report(Progress(len(self.known), len(self.claims), done, self._all_work, last))


def write_claims(out: Path, papers: Sequence[Reproducing]) -> list[ArticleRecord]:
    """Write what is measured, with what the folder knew of other claims, and return the papers' words."""
    before = CLAIMS.read(out) if (out / CLAIMS.name).exists() else []
    known = {(claim.paper, claim.id): claim for claim in before}
    known |= {(claim.paper, claim.id): claim for own in papers for claim in own.records()}
    places = [(own.paper.name, claim.id) for own in papers for claim in own.paper.claims]
    names = {own.paper.name for own in papers}
    records = [known[place] for place in places if place in known]
    records += [claim for claim in known.values() if claim.paper not in names]
    articles = [article(own.paper, records) for own in papers]
    CLAIMS.write(out, records)
    write_atomically(out / "claims.csv", table_text(table(records)))
    write_atomically(out / "claims.tex", latex(records))
    ARTICLES.write(out, articles)
    return articles
