"""The page's layout in a browser: its length, no text on another, nothing cut off, values of marks by pointer and keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis.comparison import compare
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers import ROOT
from tests.helpers.browser import CHROMIUM, browser, opened
from tests.helpers.pages import FULL

__all__ = ["browser"]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

PUBLISHED = ROOT / "reports"
# Visible words: texts that are rendered before the section of tables, those in drawings too; what is folded is not rendered.
WORDS = r"""() => {
  const end = document.querySelector("#tables");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let words = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (end.contains(node)) break;
    const inside = node.parentElement;
    if (inside.closest("script, style, title, option, details:not([open]) > :not(summary)")) continue;
    if (inside.checkVisibility()) words += (node.textContent.match(/[\p{L}\p{N}]\S*/gu) ?? []).length;
  }
  return words;
}"""
# In pixels; letters stand free in their boxes, so that boxes of two lines may touch.
FAULTS = """() => {
  const found = [];
  for (const drawing of document.querySelectorAll("svg")) {
    if (!drawing.checkVisibility()) continue;
    const frame = drawing.getBoundingClientRect();
    const texts = [...drawing.querySelectorAll("text")].filter((text) => text.textContent.trim());
    const boxes = texts.map((text) => text.getBoundingClientRect());
    boxes.forEach((a, i) => {
      const out = Math.max(frame.left - a.left, a.right - frame.right, frame.top - a.top, a.bottom - frame.bottom);
      if (out > 1) found.push(`cut: ${texts[i].textContent.trim()}`);
      for (let j = i + 1; j < boxes.length; j++) {
        const b = boxes[j];
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 2) found.push(`on one another: ${texts[i].textContent.trim()}, ${texts[j].textContent.trim()}`);
      }
    });
  }
  for (const figure of document.querySelectorAll("figure, figure *")) {
    if (figure.checkVisibility() && figure.clientWidth && figure.scrollWidth > figure.clientWidth + 1) {
      found.push(`scrolls: ${figure.textContent.trim().slice(0, 40)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of every kind of figure, and that of the published quickstart as it is rendered now."""
    folder = tmp_path_factory.mktemp("layout")
    for name, run in {"full": FULL, "quickstart": read_run(PUBLISHED / "quickstart")}.items():
        (folder / f"{name}.html").write_text(render(run, compare(run)), encoding="utf-8")
    return {"full": folder / "full.html", "quickstart": folder / "quickstart.html"}


@pytest.mark.parametrize("name", ["full", "quickstart"])
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_no_two_labels_overlap_and_nothing_is_cut_off(browser: Any, files: dict[str, Path], name: str, width: int) -> None:
    """At every width, in the folded parts too; no figure scrolls sideways."""
    page = opened(browser, files[name], viewport={"width": width, "height": 900}).page
    page.evaluate("document.querySelectorAll('#explanation details').forEach((one) => { one.open = true })")
    assert page.locator("figure svg text").count() > 50
    assert page.evaluate(FAULTS) == []


def test_the_check_of_labels_can_fail(browser: Any, files: dict[str, Path]) -> None:
    """A label that is laid on another one and one that is pushed out of its drawing are found."""
    page = opened(browser, files["full"], viewport={"width": 1440, "height": 900}).page
    page.evaluate("""() => {
      const texts = [...document.querySelectorAll("figure svg text")];
      texts[0].after(texts[0].cloneNode(true));
      texts[1].setAttribute("transform", "translate(-400 20)");
    }""")
    found = page.evaluate(FAULTS)
    assert any(one.startswith("on one another") for one in found) and any(one.startswith("cut") for one in found)


def test_a_page_is_short_before_its_tables(browser: Any, files: dict[str, Path]) -> None:
    """Words that a reader sees when it opens: quickstart at most 2,000, the published page of every arm 3,500."""
    assert 300 < opened(browser, files["quickstart"]).page.evaluate(WORDS) <= 2000
    assert 300 < opened(browser, PUBLISHED / "every_arm" / "report.html").page.evaluate(WORDS) <= 3500


def test_figures_stand_in_two_columns_where_there_is_room(browser: Any, files: dict[str, Path]) -> None:
    """Side by side at 1024 and 1440 pixels, below each other at 390."""
    columns = "(all) => new Set(all.map((one) => Math.round(one.getBoundingClientRect().left))).size"
    found = {}
    for width in (390, 1024, 1440):
        page = opened(browser, files["full"], viewport={"width": width, "height": 900}).page
        found[width] = page.locator(".figures figure:visible").evaluate_all(columns)
    assert found == {390: 1, 1024: 2, 1440: 2}


def test_marks_tell_their_values_by_pointer_and_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    """Hover and focus show the mark's label, an arrow goes on to the next mark, Escape hides it."""
    page = opened(browser, files["full"], viewport={"width": 1440, "height": 900}).page
    marks, bubble = page.locator("figure svg").first.locator(".told"), page.locator(".bubble")
    marks.nth(1).hover()
    assert bubble.inner_text() == marks.nth(1).get_attribute("aria-label") and bubble.is_visible()
    page.mouse.move(2, 2)
    assert not bubble.is_visible()
    marks.first.focus()
    assert bubble.inner_text() == marks.first.get_attribute("aria-label")
    page.keyboard.press("ArrowRight")
    assert bubble.inner_text() == marks.nth(1).get_attribute("aria-label") != marks.first.get_attribute("aria-label")
    assert marks.nth(1).get_attribute("tabindex") == "0" and marks.first.get_attribute("tabindex") == "-1"
    page.keyboard.press("Escape")
    assert not bubble.is_visible()
