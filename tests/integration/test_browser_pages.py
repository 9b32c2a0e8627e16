"""The page of several runs and the gallery in a browser: offline and silent, and nothing serious for axe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.reporting.gallery import write_gallery
from harness.reporting.side_by_side import write_side_by_side
from tests.helpers.browser import IN_BROWSER, THEMES, WIDTHS, axe, browser, opened, unfold
from tests.helpers.two_pages import BASE, FOUND
from tests.helpers.two_runs import stored

__all__ = ["browser"]
pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both pages on disk."""
    folder = tmp_path_factory.mktemp("more")
    stored(BASE, folder / "run")
    return {"side by side": write_side_by_side(FOUND, folder / "both.html"), "gallery": write_gallery(folder)}


@pytest.mark.parametrize("name", ["side by side", "gallery"])
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_offline_silent_and_readable_for_all(browser: Any, pages: dict[str, Path], name: str, width: int, theme: str) -> None:
    """Nothing but the file is asked for, the policy refuses nothing, axe finds nothing serious, nothing is cut at the side."""
    found = opened(browser, pages[name], viewport={"width": width, "height": 900}, color_scheme=theme)
    unfold(found.page)
    assert found.requests == [pages[name].as_uri()] and found.complaints == []
    response = axe.Axe().run(found.page).response
    assert [one["id"] for one in response["violations"] if one["impact"] in ("serious", "critical")] == []
    assert found.page.evaluate("document.documentElement.scrollWidth") <= width
