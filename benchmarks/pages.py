"""docs/performance.md has one part per benchmark; each benchmark writes its own part and leaves the others alone."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def write_part(name: str, text: str) -> None:
    page = DOCS / "performance.md"
    before = page.read_text(encoding="utf-8")
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not marked.search(before):
        raise SystemExit(
            f"docs/performance.md has no part <!-- {name} --> … <!-- end of {name} -->: add the two marks."
        )
    page.write_text(marked.sub(lambda match: f"{match[1]}{text.strip()}\n{match[2]}", before), encoding="utf-8")
