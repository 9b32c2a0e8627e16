"""The page's own style and scripts, and the policy that lets a browser run these and nothing else.

Every element is allowed by the hash of its text, so text from a record that came to be an element after all would be dead.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

STYLES = ("style.css", "explain.css", "more.css")
"""Style sheets, in order; one element holds them all."""
SCRIPTS = ("tables.js", "planner.js")
"""Scripts of the page, in order; each is its own element, plain, and adds to a page that is whole without it."""

_NONE = "'none'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """The style sheet and the scripts as they stand in the page, and the Content-Security-Policy that names their hashes."""

    style: Markup
    scripts: tuple[Markup, ...]
    policy: str


def assets(environment: Environment, scripts: Sequence[str] = SCRIPTS) -> Assets:
    """Read from the package's templates; our own files, the one text besides the drawings that is not escaped."""
    style = "\n".join(_text(environment, name) for name in STYLES)
    code = [_text(environment, name) for name in scripts]
    # Drawings carry style attributes; with no source of any kind allowed these cannot ask for anything.
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
