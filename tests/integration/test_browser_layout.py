"""The pages of published runs in a browser: length, no text on another, nothing cut off, marks by pointer and key, axe."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.answer import compare
from harness.reporting.page import render
from tests.helpers import ROOT
from tests.helpers.browser import IN_BROWSER, THEMES, browser, opened, unfold, violations
from tests.helpers.pages import FULL
from tests.helpers.published import compared, published

__all__ = ["browser"]
pytestmark = IN_BROWSER

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
  for (const figure of document.querySelectorAll("figure, figure *:not(svg *)")) { // a drawing's parts have no widths
    if (figure.checkVisibility() && figure.clientWidth && figure.scrollWidth > figure.clientWidth + 1) {
      found.push(`scrolls: ${figure.textContent.trim().slice(0, 40)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
}"""


QUICK = {"quickstart", "served_load"}  # besides the page with everything: a run of ours and one of a server
NAMES = sorted(folder.name for folder in PUBLISHED.iterdir() if (folder / "run.json").exists())
PAGES = ["full", *(name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in NAMES)]
MOST_WORDS = {"quickstart": 2000}


@pytest.fixture(scope="module")
def file_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A page of every kind of figure, and those of the published runs, as they are rendered now; each once."""
    folder = tmp_path_factory.mktemp("layout")

    @cache
    def rendered(name: str) -> Path:
        run, comparison = (FULL, compare(FULL)) if name == "full" else (published(name), compared(name))
        (folder / f"{name}.html").write_text(render(run, comparison), encoding="utf-8")
        return folder / f"{name}.html"

    return rendered


def wide(browser: Any, file: Path, width: int = 1440, **options: Any) -> Any:
    """The page in a window of this width."""
    return opened(browser, file, viewport={"width": width, "height": 900}, **options).page


@pytest.mark.parametrize("name", PAGES)
def test_no_two_labels_overlap_and_nothing_is_cut_off(browser: Any, file_of: Callable[[str], Path], name: str) -> None:
    """On a phone and in one and two columns, in the folded parts too; nothing scrolls sideways but tables."""
    found = {}
    for width in (390, 1024, 1440):
        page = wide(browser, file_of(name), width)
        unfold(page)
        assert page.locator("figure svg text").count() > 3
        found[width] = page.evaluate(FAULTS)
        page.context.close()
    assert found == {390: [], 1024: [], 1440: []}


def test_the_check_of_labels_can_fail(browser: Any, file_of: Callable[[str], Path]) -> None:
    """A label on another one, one that is pushed out of its drawing, and a figure wider than its column are found."""
    page = wide(browser, file_of("full"))
    page.evaluate("""() => {
      const texts = [...document.querySelectorAll("figure svg text")];
      texts[0].after(texts[0].cloneNode(true));
      texts[1].setAttribute("transform", "translate(-400 20)");
      document.querySelectorAll("figure svg")[1].style = "width: 120%; max-width: none";
    }""")
    found = page.evaluate(FAULTS)
    assert {one.split(":")[0] for one in found} == {"on one another", "cut", "scrolls"}


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_in_light_and_dark(browser: Any, file_of: Callable[[str], Path], name: str) -> None:
    """On the whole page, unfolded, on a phone; the page with everything on a wide screen too."""
    found = {}
    for width in (390, 1440) if name == "full" else (390,):
        for theme in THEMES:
            page = wide(browser, file_of(name), width, color_scheme=theme)
            unfold(page)
            found[width, theme] = violations(page)
            page.context.close()
    assert not any(found.values()), found


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_before_its_tables(browser: Any, file_of: Callable[[str], Path], name: str) -> None:
    """Words that a reader sees when it opens: quickstart at most 2,000, the others 3,500."""
    words = wide(browser, file_of(name)).evaluate(WORDS)
    assert 300 < words <= MOST_WORDS.get(name, 3500)


@pytest.mark.parametrize("name", sorted({*NAMES} - QUICK))
def test_the_committed_page_is_as_short(browser: Any, name: str) -> None:
    """Those that are rendered only where the full counts are asked for."""
    assert 300 < wide(browser, PUBLISHED / name / "report.html").evaluate(WORDS) <= MOST_WORDS.get(name, 3500)


def test_figures_stand_in_two_columns_where_there_is_room(browser: Any, file_of: Callable[[str], Path]) -> None:
    """Side by side at 1024 and 1440 pixels, below each other at 390."""
    columns = "(all) => new Set(all.map((one) => Math.round(one.getBoundingClientRect().left))).size"
    found = {}
    for width in (390, 1024, 1440):
        page = wide(browser, file_of("full"), width)
        found[width] = page.locator(".figures figure:visible").evaluate_all(columns)
    assert found == {390: 1, 1024: 2, 1440: 2}


def test_marks_tell_their_values_by_pointer_and_by_keyboard(browser: Any, file_of: Callable[[str], Path]) -> None:
    """Hover and focus show the mark's label, an arrow goes on to the next mark, Escape hides it."""
    page = wide(browser, file_of("full"))
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


# Every mark of every drawing: what the bubble says when the pointer comes, and when the mark has the focus.
TOLD = """() => {
  const bubble = document.querySelector(".bubble"), wrong = [];
  let marks = 0;
  for (const drawing of document.querySelectorAll("figure svg")) {
    const own = [...drawing.querySelectorAll(".told")];
    if (own.filter((mark) => mark.tabIndex === 0).length !== 1) wrong.push(`stops: ${drawing.getAttribute("aria-label")}`);
    for (const mark of own) {
      const says = mark.getAttribute("aria-label");
      const said = () => !bubble.hidden && bubble.textContent === says && /\\d/.test(says);
      mark.dispatchEvent(new PointerEvent("pointerenter"));
      if (!said()) wrong.push(`pointer: ${says}`);
      mark.dispatchEvent(new PointerEvent("pointerleave"));
      if (!bubble.hidden) wrong.push(`stays: ${says}`);
      mark.focus();
      if (!said()) wrong.push(`focus: ${says}`);
      const box = bubble.getBoundingClientRect();
      if (box.left < 0 || box.right > innerWidth) wrong.push(`cut: ${says}`);
      mark.blur();
      marks++;
    }
  }
  return [marks, wrong];
}"""


@pytest.mark.parametrize("name", PAGES)
def test_every_mark_of_every_drawing_tells_its_value(browser: Any, file_of: Callable[[str], Path], name: str) -> None:
    """By pointer and by focus, inside the screen of a phone; each drawing is one stop of the Tab key."""
    page = wide(browser, file_of(name), 390)
    unfold(page)
    marks, wrong = page.evaluate(TOLD)
    assert wrong == [] and marks > 2
