"""The page's own style and scripts, and the Content-Security-Policy that lets a browser run only these.

The policy allows each element by the hash of its text, so an element that a record smuggles in does not run.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

STYLES = ("style.css", "explain.css", "more.css")
"""Style sheets, in order, in one element."""
SCRIPTS = ("tables.js", "planner.js")
"""Scripts of the page, in order, one element each; the page is complete without them."""

_NONE = "'none'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """The style sheet and scripts as embedded in the page, and the Content-Security-Policy with their hashes."""

    style: Markup
    scripts: tuple[Markup, ...]
    policy: str


def assets(environment: Environment, scripts: Sequence[str] = SCRIPTS) -> Assets:
    """Read the package's own files; only they and the drawings are not escaped."""
    style = "\n".join(_text(environment, name) for name in STYLES)
    code = [_text(environment, name) for name in scripts]
    # Drawings carry style attributes; these can load nothing, because no source is allowed.
    rules = (
        "default-src 'none'", f"style-src-elem {_hash(style)}", "style-src-attr 'unsafe-inline'",
        f"script-src {' '.join(map(_hash, code)) or _NONE}", "base-uri 'none'", "form-action 'none'",
    )  # fmt: skip
    return Assets(style=Markup(style), scripts=tuple(map(Markup, code)), policy="; ".join(rules))


def _text(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
