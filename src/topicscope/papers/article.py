"""The words of a paper's page: its article as written, and its findings with the numbers of one run."""

import re
from collections.abc import Mapping, Sequence

from topicscope.papers.registry import Finding, Paper
from topicscope.records import ArticleRecord, ClaimRecord, ClaimRowRecord, FindingRecord
from topicscope.reporting.rounding import NOTHING, number_text

# A number in a sentence: a claim, perhaps one of its rows, perhaps a detail; with % after it as a share.
PLACE = re.compile(r"\{(?P<id>[^}|@]+)(?:@(?P<row>[^}|]+))?(?:\|(?P<detail>[^}|]+))?\}(?P<share>%?)")


def article(paper: Paper, records: Sequence[ClaimRecord]) -> ArticleRecord:
    """What the page of a run says beside its claims; findings of whose claims one was not run are left out."""
    by_id = {record.id: record for record in records if record.paper == paper.name and record.verdict != "not run"}
    return ArticleRecord(
        paper=paper.name,
        title=paper.content.title,
        cite=paper.content.cite,
        url=paper.content.url,
        html=paper.content.html,
        opening=paper.article.opening,
        sections=paper.article.section,
        findings=[
            finding_record(finding, by_id) for finding in paper.content.finding if finding.claims.keys() <= by_id.keys()
        ],
        groups=list(paper.content.group),
        captions={figure.name: figure.caption for figure in paper.figures},
    )


def finding_record(finding: Finding, records: Mapping[str, ClaimRecord]) -> FindingRecord:
    """The finding with this run's numbers; without its sentence if a claim's verdict is not what it needs."""
    other = [name for name, needed in finding.claims.items() if records[name].verdict != needed]
    sentence = f"Not confirmed by this run: {', '.join(f'{name} {records[name].verdict}' for name in other)}."
    return FindingRecord(
        title=finding.title,
        sentence=sentence if other else PLACE.sub(lambda match: _number(match, records), finding.sentence),
        confirmed=not other,
        claims=list(finding.claims),
        figure=finding.figure,
    )


def _number(match: re.Match[str], records: Mapping[str, ClaimRecord]) -> str:
    record: ClaimRecord | ClaimRowRecord | None = records.get(match["id"])
    if isinstance(record, ClaimRecord) and match["row"]:
        record = next((row for row in record.rows if row.name == match["row"]), None)
    if record is None:
        return NOTHING
    percent = bool(match["share"])
    if match["detail"]:
        value = record.details.get(match["detail"])
        return value if isinstance(value, str) else number_text(value, percent=percent)
    return number_text(record.measured, record.low, record.high, percent=percent)
