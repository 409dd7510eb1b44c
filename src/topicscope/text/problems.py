"""What went wrong while reading, counted: text from the world is never clean, and one bad line ends no study."""

from dataclasses import asdict, dataclass, field

# Of an archive that gave nothing.
FROM_THE_BEGINNING = "from its beginning"


@dataclass
class Problems:
    """Counts that grow while a corpus is read."""

    bad_encodings: int = 0
    """Documents with bytes that are not UTF-8; each such byte became U+FFFD."""

    broken_lines: int = 0
    """Lines that are no JSON object with the text's field, or rows without it; left out."""

    long_documents: int = 0
    """Documents cut into several since they exceed what is held in memory."""

    broken_markup: list[str] = field(default_factory=list)
    """Where a Wikipedia dump stops being XML."""

    archives: list[str] = field(default_factory=list)
    """Compressed files that could be read in part only, and how far."""

    redirects: int = 0
    """Pages of a dump that only point to another one; left out, as they should be."""

    stubs: int = 0
    """Pages of a dump with too few words; left out, as they should be."""

    def clear(self) -> None:
        """Count from zero again."""
        vars(self).update(vars(Problems()))

    def sentences(self) -> list[str]:
        """One for each kind that occurred, for people. Redirects and stubs are no problem and have none."""
        counted = {
            "{} documents had bytes that are not UTF-8, shown as U+FFFD": self.bad_encodings,
            "{} broken lines were left out": self.broken_lines,
            "{} very long documents were cut into several": self.long_documents,
        }
        found = [sentence.format(f"{count:,}") for sentence, count in counted.items() if count]
        return found + [
            place if place.endswith(FROM_THE_BEGINNING) else f"{place}: what comes before is used"
            for place in self.archives + self.broken_markup
        ]

    def table(self) -> dict[str, object]:
        """Plain values for JSON."""
        return asdict(self)
