"""The panel in a browser: what it shows for a choice is what a plan of that choice says; without scripts the table stands."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from harness.formatting import rate, ratio
from harness.reporting.assets import STYLES
from harness.reporting.planner.panel import BATCHES, DEVICES
from harness.reporting.planner.view import SPEEDS, carried, planner_view
from tests.helpers import ROOT
from tests.helpers.browser import CHROMIUM, IN_BROWSER, THEMES, WIDTHS, axe, unfold
from tests.helpers.command import Cli
from tests.helpers.planner_page import AXES, FIGURES, Chosen, asked, choices, rendered, with_verified

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install '.[browser]')")
pytestmark = IN_BROWSER
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
    body = rendered(planner_view(with_verified()))
    page = tmp_path_factory.mktemp("panel") / "panel.html"
    style = "".join((TEMPLATES / one).read_text(encoding="utf-8") for one in STYLES)
    page.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>panel</title><style>{style}</style>'
        f"<main><h1>panel</h1>{body}</main><script>{script}</script>",
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
    if options.get("java_script_enabled", True):
        page.locator("svg.pareto").wait_for()
    return page, seen


def choose(page: Any, one: Chosen) -> None:
    """Set every choice as a user does."""
    for axis in AXES:
        first = {"device": 1, "batch": 1 + len(SPEEDS)}.get(axis, 0)  # behind "all", and behind the best of each
        page.select_option(f"#plan-{axis}", index=getattr(one, axis) + first)


def shown(page: Any, device: str, arm: str) -> list[dict[str, Any]]:
    """Text, and the value behind it, of every cell of one row of the answer."""
    cells: list[dict[str, Any]] = page.evaluate(
        """([device, arm]) => [...document.querySelector(`#plan-rows tr[data-device="${device}"][data-arm="${arm}"]`).cells]
        .map((cell) => ({ text: cell.textContent, ...cell.dataset }))""",
        [device, arm],
    )
    return cells


def test_the_panel_shows_what_capacity_answers(cli: Cli, chromium: Any, file: Path) -> None:
    """For 40 random choices of model, formats, request, device, TP, arm and batch: both rows, and the command that is named."""
    panel = with_verified()
    page, seen = opened(chromium, file)
    arms = set()
    for one in choices(panel, 40):
        choose(page, one)
        assert page.locator("#plan-rows tr").count() == 2
        device, arm = asked(cli, one.arguments(panel)), panel.choices[one.arm].arm
        typed = page.locator("#plan-command").inner_text().split()
        assert typed[0] == "sbd" and sorted(typed[1:]) == sorted(part for part in one.arguments(panel) if part != "--json")
        for name, said in (("NTP", device["ntp"]), (arm, device["sbd"])):
            cells = shown(page, DEVICES[one.device], name)
            if said["reason"] is not None:
                assert len(cells) == 3 and ("rows fit" in cells[2]["text"] or "heads" in cells[2]["text"])
                continue
            arms.add(name)
            figures = [carried(said[figure]["expected"]) for figure in FIGURES]
            assert [float(cell["value"]) for cell in cells[4:8]] == figures
            assert [cell["text"] for cell in cells[4:8]] == [rate(value) for value in figures]
            assert [int(cells[i]["value"]) for i in (2, 3, 8, 10)] == [
                said["tensor_parallel"],
                said["batch"],
                said["gpus"],
                said["memory"]["largest_batch"],
            ]
        if device["sbd"]["reason"] is None:
            assert cells[9]["text"] == ratio(device["wall_speedup"]["expected"])
    assert arms == {"NTP", "SBD", "SBD verified"} and seen == []


def test_the_chart_draws_what_no_other_setting_beats(cli: Cli, chromium: Any, file: Path) -> None:
    """Every batch at every TP asked of `sbd capacity`: the points are those that none beats, to the digits shown, and they lie
    right and high as their values are; the table beneath has the same.
    """
    panel, one = with_verified(), Chosen(model=1, weights=1, kv=1, request=0, device=0, degree=0, arm=1, batch=2)
    page, seen = opened(chromium, file)
    choose(page, one)
    assert panel.choices[1].arm == "SBD verified"
    expected: dict[str, set[tuple[str, str]]] = {}
    for arm, name in (("ntp", "NTP"), ("sbd", "SBD verified")):
        every = set()
        for degree, batch in product(range(1, 5), range(len(BATCHES))):
            said = asked(cli, replace(one, degree=degree, batch=batch).arguments(panel))[arm]
            if said["reason"] is None:
                every.add((carried(said[FIGURES[0]]["expected"]), carried(said[FIGURES[1]]["expected"])))
        beaten = {low for low in every for high in every - {low} if high[0] >= low[0] and high[1] >= low[1]}
        expected[name] = {(rate(user), rate(gpu)) for user, gpu in every - beaten}
    table = [row.split("\t") for row in page.locator("#plan-front tr").all_inner_texts()]
    table = (
        table
        if len(table[0]) > 1
        else page.evaluate(
            "[...document.querySelectorAll('#plan-front tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
        )
    )
    for name, points in expected.items():
        assert {(row[4], row[5]) for row in table if row[0] == name} == points and len(points) >= 4
    assert page.locator(".pareto .ntp circle").count() == len(expected["NTP"])
    assert page.locator(".pareto .sbd rect").count() == len(expected["SBD verified"])
    for kind, shape, left, top in (("ntp", "circle", "cx", "cy"), ("sbd", "rect", "x", "y")):
        places = page.evaluate(
            "([q, ...at]) => [...document.querySelectorAll(q)].map((one) => at.map((name) => Number(one.getAttribute(name))))",
            [f".pareto .{kind} {shape}", left, top],
        )
        assert places == sorted(places, reverse=True) and [y for _, y in places] == sorted((y for _, y in places), reverse=True)
    assert seen == []


def test_the_best_of_each_keeps_the_asked_speed(chromium: Any, file: Path) -> None:
    """Of every arm on every device the batch and TP with most tokens/s per GPU among those that are as fast: found here from
    the panel's own columns. Where none is, the row says so. The command is each row's own.
    """
    panel = with_verified()
    page, seen = opened(chromium, file)
    assert page.locator("#plan-batch").input_value() == "0"
    for place, least in enumerate((0, *SPEEDS)):
        page.select_option("#plan-batch", index=place)
        assert "--batch BATCH --tensor-parallel TP" in page.locator("#plan-command").inner_text()
        for device, arm in product(range(len(DEVICES)), (0, 1)):
            fast = [
                (carried(figures.tokens_per_s_per_gpu), -degree, -at)
                for degree in range(4)
                for at, figures in enumerate(panel.columns[0, 0, 0, 0, device, arm, degree].figures)
                if carried(figures.tokens_per_s_per_user) >= least
            ]
            cells = shown(page, DEVICES[device], "SBD" if arm else "NTP")
            if not fast:
                assert cells[2]["text"] == f"no batch gives a user {least} tokens/s"
                continue
            most, degree, at = max(fast)
            assert [cell["value"] for cell in (*cells[2:4], cells[5])] == [str(2**-degree), str(BATCHES[-at]), f"{most:g}"]
    assert seen == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_panel_by_keyboard_and_on_a_phone(chromium: Any, file: Path, width: int, theme: str) -> None:
    """Points say their values by focus, arrows move between them; nothing is cut; axe finds nothing serious."""
    page, seen = opened(chromium, file, viewport={"width": width, "height": 844}, color_scheme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg.pareto").bounding_box()["width"] <= width
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "plan-model"
    before = page.locator("#plan-rows").inner_text()
    page.keyboard.press("ArrowDown")
    assert page.locator("#plan-rows").inner_text() != before
    page.locator(".pareto .point").first.focus()
    told = page.locator("#plan-point").inner_text()
    assert told.startswith("NTP, ") and "tokens/s per user" in told
    page.keyboard.press("ArrowRight")
    assert page.locator("#plan-point").inner_text() not in ("", told)
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == page.locator("#plan-point").inner_text()
    unfold(page)
    response = axe.Axe().run(page).response
    assert [found["id"] for found in response["violations"] if found["impact"] in ("serious", "critical")] == []
    assert seen == []


def test_without_scripts_the_first_answer_stands_and_no_dead_control_is_shown(chromium: Any, file: Path) -> None:
    """What the script writes before anything is chosen is what the page says without it, word for word."""
    told = []
    for scripts in (True, False):
        page, _ = opened(chromium, file, java_script_enabled=scripts)
        assert page.locator("#plan-form").is_visible() == page.locator("#plan-picture").is_visible() == scripts
        named = ("rows th", "rows td", "answer", "said", "question", "caption", "command", "front th", "front td")
        every = [page.locator(f"#plan-{name}").all_text_contents() for name in named]
        told.append([[" ".join(text.split()) for text in texts] for texts in every])
    assert told[0] == told[1] and len(told[0][1]) == 2 * 10 * len(DEVICES)
