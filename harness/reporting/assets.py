"""Fills the template of a page, with its style and scripts and a Content-Security-Policy that lets a browser run only these.

The policy allows each element by the hash of its text, so an element that a record smuggles in does not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.analysis.judge.judgement import State
from harness.reporting.cells import machines
from harness.reporting.exports.wording import tally, verdict_words

STYLES = ("style.css", "explain.css", "more.css")
"""Style sheets, in order, in one element."""
SCRIPTS = ("tables.js", "planner.js", FIGURES := "figures.js")
"""Scripts of a run's page, in order, one element each; the page is complete without them."""
_NONE = "'none'"
GLYPHS: dict[State, str] = {"met": "✓", "missed": "✗", "inconclusive": "?", "void": "∅"}


@cache
def environment() -> Environment:
    """The package's templates; they escape every text, and an unknown name is an error."""
    made = Environment(
        loader=PackageLoader("harness.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(glyphs=GLYPHS, machines=machines, tally=tally, verdict_words=verdict_words)
    return made


def fill_template(name: str, scripts: Sequence[str] = (), styles: Sequence[str] = STYLES, **values: Any) -> str:
    """The page as one HTML document: no request, no script but its own, every text in ``values`` escaped.

    Only the package's own files and the drawings are not escaped.
    """
    folder = files("harness.reporting") / "templates"
    style = "\n".join((folder / one).read_text(encoding="utf-8") for one in styles)
    code = [(folder / one).read_text(encoding="utf-8") for one in scripts]
    # Drawings carry style attributes; these can load nothing, because no source is allowed.
    rules = (
        "default-src 'none'",
        f"style-src-elem {_hash(style)}",
        "style-src-attr 'unsafe-inline'",
        f"script-src {' '.join(map(_hash, code)) or _NONE}",
        "base-uri 'none'",
        "form-action 'none'",
    )
    own = {"style": Markup(style), "scripts": tuple(map(Markup, code)), "policy": "; ".join(rules)}
    return environment().get_template(name).render(own | values)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
