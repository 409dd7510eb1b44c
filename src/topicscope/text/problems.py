"""What went wrong while reading, counted: text from the world is never clean, and one bad line ends no study."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

# Of an archive that gave nothing.
FROM_THE_BEGINNING = "from its beginning"
# Fields that are named of a line, and files of a kind.
MOST_FIELDS, MOST_FILES = 8, 8
# By which a user says where the text is.
FIELD_OPTION = "--field (of `topicscope train`: --data.field)"


@dataclass
class Problems:
    """Counts that grow while a corpus is read."""

    bad_encodings: int = 0
    """Documents with bytes that are not UTF-8; each such byte became U+FFFD."""

    broken_lines: int = 0
    """Lines that are no JSON object, or in which the text's field holds no text, and such rows; left out."""

    lines_without_field: int = 0
    """JSON lines that have other fields than the text's; left out."""

    first_without_field: str = ""
    """What the first of them lacks, and what it has instead, in words."""

    long_documents: int = 0
    """Documents cut into several since they exceed what is held in memory."""

    broken_markup: list[str] = field(default_factory=list)
    """Where a Wikipedia dump stops being XML."""

    archives: list[str] = field(default_factory=list)
    """Compressed files that could be read in part only, and how far."""

    not_text: list[str] = field(default_factory=list)
    """Files of a folder that are not text, or not in UTF-8; left out."""

    redirects: int = 0
    """Pages of a dump that only point to another one; left out, as they should be."""

    stubs: int = 0
    """Pages of a dump with too few words; left out, as they should be."""

    def add_line_without(self, field: str, there: Iterable[str]) -> None:
        """Count a line that lacks ``field``; of the first, note some of the fields that it has."""
        self.lines_without_field += 1
        if not self.first_without_field:
            names = ", ".join(islice(there, MOST_FIELDS))
            self.first_without_field = f'the field "{field}"; the first of them has {names or "none"}'

    def clear(self) -> None:
        """Count from zero again."""
        vars(self).update(vars(Problems()))

    def sentences(self) -> list[str]:
        """One for each kind that occurred, for people. Redirects and stubs are no problem and have none."""
        counted = {
            "documents had bytes that are not UTF-8, shown as U+FFFD": self.bad_encodings,
            "broken lines were left out": self.broken_lines,
            f"lines were left out, for they lack {self.first_without_field}": self.lines_without_field,
            "very long documents were cut into several": self.long_documents,
        }
        found = [f"{count:,} {phrase}" for phrase, count in counted.items() if count]
        if self.not_text:
            found.append(_files_left_out(self.not_text))
        return found + [
            place if place.endswith(FROM_THE_BEGINNING) else f"{place}: what comes before is used"
            for place in self.archives + self.broken_markup
        ]

    def table(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)


def corpus_notes(description: Mapping[str, Any]) -> list[str]:
    """Sentences on what could not be read of a corpus, from the description that is kept with its passages."""
    return [f"{description['source']}: {sentence}." for sentence in Problems(**description["problems"]).sentences()]


def _files_left_out(names: list[str]) -> str:
    listed = ", ".join(names[:MOST_FILES])
    more = f" and {len(names) - MOST_FILES:,} more" if len(names) > MOST_FILES else ""
    said = (
        "1 file is not text in UTF-8 and was"
        if len(names) == 1
        else f"{len(names):,} files are not text in UTF-8 and were"
    )
    return f"{said} left out: {listed}{more}"
