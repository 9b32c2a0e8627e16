"""The panel in a browser: what it shows for a choice is what a plan of that choice says; without scripts the table stands."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.formatting import rate, ratio
from harness.reporting.planner.panel import BATCHES, CONTEXTS, DEVICES, LOADS, OUTPUT_TOKENS
from harness.reporting.planner.view import planner_view, rate_carried, ratio_carried
from tests.helpers import ROOT
from tests.helpers.browser import browser as browser
from tests.helpers.planner_page import FIGURES, asked, choices, quickstart, rendered

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install '.[browser]')")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")
TEMPLATES = ROOT / "harness" / "reporting" / "templates"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic"]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser without a network."""
    with playwright.sync_playwright() as session:
        browser = session.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The panel alone, under the policy that the report has: its own script by hash, and nothing else."""
    script = (TEMPLATES / "planner.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = rendered(planner_view(quickstart()))
    page = tmp_path_factory.mktemp("panel") / "panel.html"
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>panel</title><main>{body}</main><script>{script}</script>",
        encoding="utf-8",
    )
    return page


def opened(chromium: Any, file: Path, **options: Any) -> tuple[Any, list[str]]:
    """The page, and what the console and the network saw besides the file itself."""
    page, seen = chromium.new_context(offline=True, **options).new_page(), list[str]()
    page.on("console", lambda message: seen.append(message.text))
    page.on("pageerror", lambda error: seen.append(str(error)))
    page.on("request", lambda request: None if request.url == file.as_uri() else seen.append(request.url))
    page.goto(file.as_uri())
    return page, seen


def shown(page: Any, device: str, arm: str) -> list[dict[str, Any]]:
    """Text, and the values behind it, of every cell of one row of the answer."""
    cells: list[dict[str, Any]] = page.evaluate(
        """([device, arm]) => [...document.querySelector(`#plan-rows tr[data-device="${device}"][data-arm="${arm}"]`).cells]
        .map((cell) => ({
            text: cell.firstChild ? cell.firstChild.textContent : "",
            small: cell.querySelector("small")?.textContent, ...cell.dataset,
        }))""",
        [device, arm],
    )
    return cells


def test_the_panel_shows_what_capacity_answers(
    chromium: Any, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For 50 random choices: the values behind both rows, and their text as every other figure is written."""
    panel = quickstart()
    page, seen = opened(chromium, file)
    for one in choices(panel, 50):
        for axis in ("model", "context", "batch", "choice", "load"):
            page.select_option(f"#plan-{axis}", index=getattr(one, axis))
        page.select_option("#plan-device", index=one.device + 1)
        assert page.locator("#plan-rows tr").count() == 2
        device = asked(monkeypatch, capsys, one.arguments(panel))
        for name in ("ntp", "sbd"):
            said, cells = device[name], shown(page, DEVICES[one.device], name.upper())
            if said["reason"] is not None:
                assert [cell["text"] for cell in cells[2:7]] == ["none"] * 5
                assert said["reason"] in page.locator("#plan-reasons").inner_text()
                continue
            assert int(cells[2]["value"]) == said["gpus"] and cells[2]["text"] == f"{said['gpus']:,}"
            for cell, figure in zip(cells[3:7], FIGURES, strict=True):
                expected, low, high = (rate_carried(said[figure][end]) for end in ("expected", "low", "high"))
                assert float(cell["value"]) == expected and cell["text"] == rate(expected), figure
                if low != high:
                    assert (float(cell["low"]), float(cell["high"])) == (low, high)
                    assert cell["small"] == f"{rate(low)} – {rate(high)}"
        if device["wall_speedup"] is not None:
            speedup = ratio_carried(device["wall_speedup"]["expected"])
            assert float(cells[7]["value"]) == speedup and cells[7]["text"] == ratio(speedup)
    assert seen == []


def test_the_command_that_is_named_asks_the_same(chromium: Any, file: Path) -> None:
    """What the page says to type names every choice."""
    panel = quickstart()
    page, _ = opened(chromium, file)
    for one in choices(panel, 10):
        for axis in ("model", "context", "batch", "choice", "load"):
            page.select_option(f"#plan-{axis}", index=getattr(one, axis))
        page.select_option("#plan-device", index=one.device + 1)
        said = page.locator("#plan-command").inner_text().split()
        name = panel.models[one.model].name
        expected = ["sbd", "capacity", "--model", "FOLDER" if name == "reference-sbd" else name, "--hardware",
                    DEVICES[one.device], *panel.choices[one.choice].arguments, "--context", str(CONTEXTS[one.context]),
                    "--batch", str(BATCHES[one.batch])]  # fmt: skip
        load = LOADS[one.load]
        expected += [] if load is None else ["--output-tokens", str(OUTPUT_TOKENS), "--requests-per-s", f"{load:g}"]
        assert said[: len(expected)] == expected


def test_all_devices_are_shown_at_first_and_a_key_changes_the_answer(chromium: Any, file: Path) -> None:
    """Two rows per device; the choices are reached and changed by keyboard, and the change is announced."""
    page, _ = opened(chromium, file)
    assert page.locator("#plan-rows tr").count() == 2 * len(DEVICES)
    before = page.locator("#plan-rows").inner_text()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "plan-model"
    page.keyboard.press("ArrowDown")
    assert page.locator("#plan-rows").inner_text() != before
    assert "Taken over to llama-250m" in page.locator("#plan-said").inner_text()
    assert page.locator("#plan-said").get_attribute("aria-live") == "polite"


def test_without_scripts_the_first_answer_stands_and_no_dead_control_is_shown(chromium: Any, file: Path) -> None:
    """What the script writes before anything is chosen is what the page says without it, word for word."""
    told = []
    for scripts in (True, False):
        page, _ = opened(chromium, file, java_script_enabled=scripts)
        assert page.locator("#plan-form").is_visible() == scripts
        named = ("rows th", "rows td", "said", "question", "command", "notes li", "reasons li")
        every = [page.locator(f"#plan-{name}").all_text_contents() for name in named]
        told.append([[" ".join(text.split()) for text in texts] for texts in every])
    assert told[0] == told[1] and len(told[0][1]) == 2 * 8 * len(DEVICES)
    page.locator("summary", has_text="as a table").click()
    assert page.locator("table.every td").first.is_visible()
