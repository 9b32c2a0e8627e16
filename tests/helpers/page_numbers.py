"""Every number of a page, with the place in the JSON that it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any


@dataclass
class Shown:
    """One element with a value behind it, or one cell of a table."""

    tag: str
    attrs: dict[str, str]
    text: str = ""
    small: str = ""
    column: int = 0


@dataclass
class Walk(HTMLParser):
    """Every table cell, and everything with a data-key; text and small text apart, notes and marks left out."""

    found: list[Shown] = field(default_factory=list)
    heads: list[tuple[str, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.open: Shown | None = None
        self.inside: list[str] = []
        self.raw = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "table":
            # raw numbers; a picture; plans, which have their own tests
            self.raw = "data-sorts" in named or named.get("class", "").partition(" ")[0] in ("timeline", "plans")
        if (tag in ("td", "th") and not self.raw) or "data-key" in named:
            self.open, self.inside = Shown(tag=tag, attrs=named), []
            self.found.append(self.open)
        elif self.open is not None and (tag in ("small", "sup") or named.get("class", "").startswith("mark")):
            self.inside.append("" if tag == "small" else "left out")

    def handle_endtag(self, tag: str) -> None:
        if tag == "table":
            self.raw = False
        if self.open is not None and tag == self.open.tag and not self.inside:
            self.open = None
        elif self.inside and tag in ("small", "sup", "span"):
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if self.open is not None and "left out" not in self.inside:
            if self.inside:
                self.open.small += data
            else:
                self.open.text += data


def resolve(data: Any, pointer: str) -> Any:
    """RFC 6901, read from its own text."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        data = data[int(name)] if isinstance(data, list) else data[name]
    return data
