"""One self-contained HTML file from claims, run folders, landscapes, probes and sweeps.

The file holds the plotting library once, every array packed and gzipped, and a content-security policy that forbids all
network. Text that came from outside is escaped where it is written, by Jinja2 in HTML and by the script in figures.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from topicscope.files import Row, write_atomically
from topicscope.reporting.page.claims import claims_section
from topicscope.reporting.page.folders import Found, find
from topicscope.reporting.page.landscapes import landscape_sections
from topicscope.reporting.page.probes import probe_section
from topicscope.reporting.page.runs import FRAME_BYTES, run_sections, run_views
from topicscope.reporting.page.store import Store, packed, script_json
from topicscope.reporting.page.sweeps import four_digits, sweep_section
from topicscope.reporting.page.texts import text_section
from topicscope.scale.versions import package_versions

ASSETS = Path(__file__).parent / "assets"


# A page is at most 10 MB. So many are kept for its text and for what an estimate may be wrong by.
MOST_BYTES, MARGIN = 10_000_000, 800_000


# The end of a page's title tells that it is ours; it is well within so many bytes.
MARK, HEAD_BYTES = " · topicscope</title>".encode(), 65_536


SCRIPTS = (
    "core.js", "figures.js", "probes.js", "sweeps.js", "claims.js", "maps.js",
    "curves.js", "training.js", "landscapes.js", "start.js",
)  # fmt: skip


@dataclass(frozen=True)
class Page:
    """A page as text, and the notices on it: what is missing, damaged or not finished."""

    html: str
    notes: tuple[str, ...]


def write_report(folders: Sequence[Path], file: Path) -> Path:
    """Write the page of these folders; each is recognised by the files in it."""
    return write_page(page_of(folders), file)


def write_page(page: Page, file: Path) -> Path:
    """Write a page, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, page.html)
    return file


def is_page(file: Path) -> bool:
    """Whether a file is a page of ours, which may be written anew."""
    with file.open("rb") as opened:
        return MARK in opened.read(HEAD_BYTES)


def page_html(folders: Sequence[Path]) -> str:
    """The page as text."""
    return page_of(folders).html


def page_of(folders: Sequence[Path]) -> Page:
    """The page of these folders; without the points of drawings where it would be too large with them."""
    page = _page(folders, points=True)
    return page if len(page.html.encode()) <= MOST_BYTES else _page(folders, points=False)


def _page(folders: Sequence[Path], *, points: bool) -> Page:
    store, found = Store(points=points), find([Path(folder) for folder in folders])
    if not points:
        found.notes.append("The page would be too large with the points of all drawings: they are in figures/*.csv.")
    contents = _contents(store, found)
    drawn = [figure["image"] for section in contents["claims"] for figure in section["figures"] if figure["image"]]
    drawn += [image for section in [*contents["probes"], *contents["sweeps"]] for image in section["images"]]
    data = {
        "runs": contents["runs"],
        "landscapes": contents["landscapes"],
        "figures": [
            figure for kind in ("texts", "probes") for section in contents[kind] for figure in section["figures"]
        ],
        "images": {image["anchor"]: {name: image[name] for name in ("drawing", "numbers")} for image in drawn},
        "sweeps": [section["columns"] for section in contents["sweeps"]],
        "arrays": store.index,
    }
    script = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
    environment = Environment(
        loader=PackageLoader("topicscope.reporting.page", "assets"), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["four_digits"] = four_digits
    html = environment.get_template("page.html").render(
        title=_title(folders),
        folders=[str(folder) for folder in folders],
        version=package_versions(("topicscope",))["topicscope"],
        contents=contents,
        notes=found.notes,
        policy=_policy(get_plotlyjs(), script),
        style=(ASSETS / "page.css").read_text(encoding="utf-8"),
        script=script,
        data=script_json(data),
        arrays=store.packed(),
        library=_library(),
    )
    return Page(html, tuple(found.notes))


@cache
def _library() -> str:
    return packed(get_plotlyjs().encode())


def _contents(store: Store, found: Found) -> dict[str, list[Row]]:
    """Everything on the page, by kind: what the template needs of each section."""
    claims = [claims_section(folder, number, store, found) for number, folder in enumerate(found.claims)]
    views = run_views(found.runs, found)
    texts = [text_section(folder, number, found) for number, folder in enumerate(found.texts)]
    probes = [probe_section(folder, number, store, found) for number, folder in enumerate(found.probes)]
    sweeps = [sweep_section(folder, number, store, found) for number, folder in enumerate(found.sweeps)]
    landscapes = landscape_sections(found.landscapes, store, found)
    # Matrices over training take what room the rest leaves.
    room = MOST_BYTES - MARGIN - len(_library()) - store.estimate()
    runs = run_sections(views, store, min(FRAME_BYTES, 3 * room // 4))
    found_or_not = {"claims": claims, "texts": texts, "probes": probes, "sweeps": sweeps}
    sections = {kind: [section for section in each if section] for kind, each in found_or_not.items()}
    return {**sections, "runs": runs, "landscapes": landscapes}


def _title(folders: Sequence[Path]) -> str:
    names = [Path(folder).resolve().name for folder in folders]
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _policy(*scripts: str) -> str:
    """No network at all; only these scripts; styles of the plotting library; pictures made in the page."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
