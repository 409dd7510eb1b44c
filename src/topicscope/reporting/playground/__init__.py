"""The playground: the paper's transformer trained live in a page, by C compiled to WebAssembly, with theory beside it.

``core/`` has the C, ``playground.wasm`` is built from it (``make playground``), ``assets/`` has what runs around it:
a worker that trains, the settings and their forms, pictures, scenes, and the page's own script.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from topicscope.scale import package_versions

FOLDER = Path(__file__).parent
ASSETS = FOLDER / "assets"
SCRIPTS = ("settings.js", "draw.js", "playground.js")


@dataclass(frozen=True)
class Playground:
    """What a page's section is made of: markup, a script, a style sheet, and the compiled core as base64."""

    html: Markup
    script: str
    style: str
    wasm: str


def playground(settings: Mapping[str, Any] | None = None) -> Playground:
    """The playground that opens with these settings, by the names of ``assets/settings.js``."""
    # A "<" could end the element that contains the JSON.
    given = json.dumps(dict(settings or {})).replace("<", "\\u003c")
    html = _template("section.html", settings=given, worker=_asset("worker.js"))
    # It consists of our own files, except for the settings, which are JSON.
    return Playground(Markup(html), _script(), _asset("playground.css"), _wasm())  # noqa: S704


def playground_html(settings: Mapping[str, Any] | None = None) -> str:
    """A page of the playground alone."""
    part = playground(settings)
    version = package_versions(("topicscope",))["topicscope"]
    return _template(
        "playground.html", playground=part, policy=content_policy(part.script, workers=True), version=version
    )


def content_policy(*scripts: str, workers: bool = False) -> str:
    """The content-security policy of a page, without any network.

    It allows only these scripts, the page's styles and pictures made in it; with ``workers`` also WebAssembly in
    workers made in it.
    """
    compiled, worker = (" 'wasm-unsafe-eval'", "worker-src blob:; ") if workers else ("", "")
    return (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}{compiled}; {worker}style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=8)
def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _script() -> str:
    """All of the page's script, in a scope of its own."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


@cache
def _wasm() -> str:
    return base64.b64encode((FOLDER / "playground.wasm").read_bytes()).decode()


def _template(name: str, **values: Any) -> str:
    loader = PackageLoader("topicscope.reporting.playground", "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template(name).render(**values)
