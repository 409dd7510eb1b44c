"""The playground: the paper's transformer trained live in a page, by C compiled to WebAssembly, with theory beside it.

``core/`` has the C, ``playground.wasm`` is built from it (``make playground``), ``assets/`` has what runs around it: a
worker that trains, the settings and their forms, scenes, and what every page of ours draws with.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from topicscope.reporting.palette import palette_script

OWN = "topicscope.reporting.playground"


@dataclass(frozen=True)
class Playground:
    """What a page's section is made of: markup, scripts, a style sheet, and the compiled core as base64."""

    html: Markup
    kit: str
    """Elements, colours and pictures, which ``script`` needs before it."""

    script: str
    style: str
    wasm: str


def playground(settings: Mapping[str, Any] | None = None) -> Playground:
    """The playground that opens with these settings, by the names of ``assets/settings.js``."""
    html = template(OWN, "section.html", settings=dict(settings or {}), worker=asset(OWN, "worker.js"))
    return Playground(
        # It consists of our own files, except for the settings, which are JSON.
        html=Markup(html),  # noqa: S704
        kit=palette_script() + asset(OWN, "draw.js"),
        script=asset(OWN, "settings.js") + asset(OWN, "playground.js"),
        style=asset(OWN, "playground.css"),
        wasm=base64.b64encode((files(OWN) / "playground.wasm").read_bytes()).decode(),
    )


def playground_html(settings: Mapping[str, Any] | None = None) -> str:
    """A page of the playground alone."""
    part = playground(settings)
    script, version = part.kit + part.script, metadata.version("topicscope")
    policy = content_policy(script, workers=True)
    return template(OWN, "playground.html", playground=part, script=script, policy=policy, version=version)


def content_policy(script: str, *, workers: bool = False) -> str:
    """The content-security policy of a page, without any network.

    It allows only this script, the page's styles and pictures made in it; with ``workers`` also WebAssembly in workers
    made in it.
    """
    compiled, worker = (" 'wasm-unsafe-eval'", "worker-src blob:; ") if workers else ("", "")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'{compiled}; {worker}style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


@cache
def asset(package: str, name: str) -> str:
    """A file of a package's assets, as text."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def template(package: str, name: str, filters: Mapping[str, Callable[..., Any]] | None = None, **values: Any) -> str:
    """A template of a package's assets, filled in; what comes from outside is escaped."""
    environment = _environment(package)
    environment.filters |= dict(filters or {})
    return environment.get_template(name).render(**values)


@cache
def _environment(package: str) -> Environment:
    made = Environment(loader=PackageLoader(package, "assets"), autoescape=True, undefined=StrictUndefined)
    # A browser can read neither NaN nor infinity in JSON.
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made
