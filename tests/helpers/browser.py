"""A real Chromium, and what a page does in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install '.[browser]')")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IN_BROWSER = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]
"""The marks of a module that opens pages."""
WIDTHS, THEMES = (390, 1440), ("light", "dark")


@dataclass
class Opened:
    """A page with everything that it asked for and complained of since it was opened."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with playwright.sync_playwright() as started:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
        found = started.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield found
        found.close()


def opened(browser: Any, file: Path, **options: Any) -> Opened:
    """``file`` opened in a context of its own, without a network; options as Playwright's new_context takes them."""
    context = browser.new_context(offline=True, **options)
    found = Opened(page=context.new_page())
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.goto(file.as_uri())
    return found


def unfold(page: Any, what: str = "details") -> None:
    """Open everything that is folded."""
    page.evaluate("(what) => document.querySelectorAll(what).forEach((one) => { one.open = true })", what)


# Alike: the same elements with the same classes in the same order, whatever they say.
THREE_ROWS_ALIKE = """() => {
  for (const body of document.querySelectorAll("tbody")) {
    const seen = new Map();
    for (const row of [...body.rows]) {
      const built = [row, ...row.querySelectorAll("*")].map((one) => `${one.tagName}.${one.getAttribute("class")}`).join(" ");
      seen.set(built, (seen.get(built) ?? 0) + 1);
      if (seen.get(built) > 3) row.remove();
    }
  }
}"""


def violations(page: Any) -> list[tuple[str, str, list[str]]]:
    """What axe-core finds on the whole page: rule, impact and the first elements; of rows built alike it looks at three.

    The contrast of rows, element by element, was most of the work. The other rows are gone afterwards.
    """
    page.evaluate(THREE_ROWS_ALIKE)
    found = axe.Axe().run(page).response
    assert len(found["passes"]) > 20, "the rules were applied"
    return [(one["id"], one["impact"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found["violations"]]
