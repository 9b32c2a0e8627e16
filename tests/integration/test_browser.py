"""The page in a real browser, from disk and offline: no request, no error, keyboard, no scripts, hostile text, print."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.answer import compare, to_json
from harness.cli.report import print_pdf
from harness.record.schema import CaseOutcome, Run
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.browser import IN_BROWSER, opened, unfold
from tests.helpers.browser import browser as browser
from tests.helpers.pages import FULL

pytestmark = IN_BROWSER

QUICKSTART = ROOT / "reports" / "quickstart"
EVIL = "<script>window.planted = 1</script>\"><img src=x onerror='window.planted = 2'></title></style></script>{{ 7 * 7 }}"
EVIL_LABEL = "\"><img src=x onerror='window.planted = 3'>"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports on disk."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, run in {"full": FULL, "hostile": hostile(), "quickstart": read_run(QUICKSTART)}.items():
        found[name] = folder / f"{name}.html"
        found[name].write_text(render(run, compare(run)), encoding="utf-8")
    return found


def hostile() -> Run:
    """Markup wherever a record holds text: question, part, task, label, model, outcome, environment, command."""
    run = synthetic.build(
        synthetic.Part(
            name=f"part {EVIL}",
            tasks=(f"task {EVIL}",),
            arms=(synthetic.NTP, synthetic.Arm(label=f"SBD {EVIL_LABEL}", gamma=0.1, passes_per_block=4)),
            model=synthetic.SHAPE.model_copy(update={"name": f"model {EVIL}"}),
        ),
        question=f"question {EVIL}",
        outcomes=(CaseOutcome(case_id=f"case {EVIL}", outcome="failed", reason=f"reason {EVIL}"),),
        calibration=synthetic.calibration(),
    )
    named = {"command": f"sbd run {EVIL}", "run_id": f"run {EVIL}", "environment": {"cpu_model": EVIL, EVIL: EVIL}}
    return run.model_copy(update={"header": run.header.model_copy(update=named)})


@pytest.mark.parametrize("name", ["full", "hostile"])
def test_opens_from_disk_offline_without_a_request_or_a_complaint(browser: Any, files: dict[str, Path], name: str) -> None:
    """The file itself is all that is ever asked for, and its policy refuses nothing that the page needs."""
    found = opened(browser, files[name])
    unfold(found.page)
    found.page.wait_for_timeout(300)
    assert found.requests == [files[name].as_uri()]
    assert found.complaints == []
    assert found.page.locator("table[data-sorts] button").count() > 0, "the page's own script ran"


def test_text_from_a_record_is_inert(browser: Any, files: dict[str, Path]) -> None:
    """No element comes of it, no script of it runs, no template in it is evaluated, and a reader sees it as it was written."""
    page, plain = opened(browser, files["hostile"]).page, opened(browser, files["full"]).page
    assert page.evaluate("window.planted") is None
    assert page.locator("img, iframe, object, link").count() == 0
    assert page.locator("script").count() == plain.locator("script").count()
    assert page.locator("h1").inner_text() == f"question {EVIL}"
    assert page.title().startswith(f"question {EVIL}")
    assert "49" not in page.locator("h1").inner_text()


def test_a_script_that_slipped_in_would_not_run(browser: Any, files: dict[str, Path], tmp_path: Path) -> None:
    """The policy is the second line: with escaping broken on purpose, the browser refuses script, handler and picture."""
    broken = tmp_path / "broken.html"
    text = files["full"].read_text(encoding="utf-8")
    slipped = "<script>window.planted = 1</script><img src='https://example.org/x.png' onerror='window.planted = 2'>"
    broken.write_text(text.replace("</h1>", f"</h1>{slipped}"), encoding="utf-8")
    found = opened(browser, broken)
    found.page.wait_for_timeout(300)
    assert found.page.evaluate("window.planted") is None
    assert len(found.complaints) >= 2 and all("Content Security Policy" in one for one in found.complaints)


def column(page: Any, head: str) -> list[str]:
    """The texts of one column of the raw table, top to bottom, of the rows that are shown."""
    read = """(head) => {
      const table = document.querySelector("table[data-sorts]");
      const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent.trim() === head);
      return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[at].textContent.trim());
    }"""
    found: list[str] = page.evaluate(read, head)
    return found


def by_keyboard(page: Any, name: str) -> None:
    """Open the raw table and walk to the button of a column with the Tab key alone."""
    page.locator("summary", has_text="samples").last.focus()
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == name:
            return
    raise AssertionError(f"{name} cannot be reached with the Tab key")


def test_sorts_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    """Enter sorts upwards, Enter again downwards, numbers as numbers; aria-sort says which; one column at a time."""
    page = opened(browser, files["full"]).page
    before = column(page, "Decode (s)")
    by_keyboard(page, "Decode (s)")
    page.keyboard.press("Enter")
    assert column(page, "Decode (s)") == sorted(before, key=float) != before
    assert page.locator("th[aria-sort=ascending]").inner_text().startswith("Decode (s)")
    page.keyboard.press("Enter")
    assert column(page, "Decode (s)") == sorted(before, key=float, reverse=True)
    assert page.locator("th[aria-sort=descending]").count() == 1
    by_keyboard_again = page.locator("th button", has_text="Arm")
    by_keyboard_again.focus()
    page.keyboard.press("Space")
    assert column(page, "Arm") == sorted(column(page, "Arm")) and page.locator("th[aria-sort=descending]").count() == 0


def test_filters_by_keyboard(browser: Any, files: dict[str, Path]) -> None:
    """All words must be in a row; the count is told as it changes; an empty filter shows every row again."""
    page = opened(browser, files["full"]).page
    page.locator("summary", has_text="samples").last.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    every = len(FULL.samples)
    assert page.get_by_label("Show samples with all of these words").evaluate("(one) => one === document.activeElement")
    page.keyboard.type("bandwidth REPLAYED")
    wanted = [
        case
        for sample in FULL.samples
        for case in FULL.header.cases
        if case.case_id == sample.case_id and case.part == "bandwidth_bound" and case.replayed
    ]
    assert len(column(page, "Part")) == len(wanted) and set(column(page, "Part")) == {"bandwidth_bound"}
    assert page.get_by_role("status").inner_text() == f"{len(wanted)} of {every} samples shown"
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    assert page.get_by_role("status").inner_text() == f"{every} of {every} samples shown"


def test_without_scripts_every_number_is_on_the_page(browser: Any, files: dict[str, Path]) -> None:
    """The same keyed values, the same cells in the same order, all of it visible once unfolded; no dead control is left."""
    read = "(all) => all.map((one) => one.innerText.replaceAll(/\\s+/g, ' ').trim())"
    told = []
    for scripts in (True, False):
        page = opened(browser, files["full"], java_script_enabled=scripts).page
        for summary in page.locator("summary").all():
            summary.click()
        told.append([page.locator(what).evaluate_all(read) for what in ("[data-value]", "td")])
        assert all(page.locator("[data-value]").nth(i).is_visible() for i in range(0, len(told[-1][0]), 40))
    assert told[0] == told[1]
    assert len(told[1][1]) > 15 * len(FULL.samples)
    assert all(all(texts) for texts in told[1])
    assert page.locator("button, input").count() == 0


def test_data_can_be_taken_away_without_scripts(browser: Any, files: dict[str, Path]) -> None:
    """The link gives the comparison, number for number, and the CSV a line per sample; nothing is asked of a network."""
    found = opened(browser, files["full"], java_script_enabled=False)
    got = {}
    for link in found.page.locator("a[download]").all():
        with found.page.expect_download() as waiting:
            link.click()
        name, data = waiting.value.suggested_filename.split(".", 1)[1], Path(waiting.value.path()).read_bytes()
        got[name.removesuffix(".gz")] = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    assert json.loads(got["comparison.json"]) == json.loads(json.dumps(to_json(compare(FULL))))
    assert len(got["samples.csv"].splitlines()) == 1 + len(FULL.samples)
    assert got["arms.csv"].startswith("part,task,batch_size")
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []


def test_the_first_tab_skips_to_the_verdict_and_focus_is_seen(browser: Any, files: dict[str, Path]) -> None:
    """A keyboard reader need not walk through the head of the page."""
    page = opened(browser, files["full"]).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    box = page.locator(".skip").bounding_box()
    assert box is not None and box["x"] >= 0
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_no_table_is_cut_on_paper(browser: Any, files: dict[str, Path]) -> None:
    """On A4 less its margins every table is as wide as the page at most, and what is folded on screen is on paper."""
    page = opened(browser, files["full"], viewport={"width": 703, "height": 1000}).page  # 186 mm at 96 to the inch
    page.emulate_media(media="print")
    wide = "(all) => all.filter((one) => one.getBoundingClientRect().right > 704).map((one) => one.innerText)"
    assert page.locator("table").evaluate_all(wide) == []
    assert page.get_by_text("Arms, task by task", exact=True).is_visible()
    folded = page.locator("details:not(.long) td").first
    assert folded.bounding_box()["height"] > 5
    assert not page.locator("details.raw").is_visible()


def test_prints_to_pdf(files: dict[str, Path], tmp_path: Path) -> None:
    """A PDF of several pages beside the page."""
    page = tmp_path / "report.html"
    shutil.copy(files["full"], page)
    written = print_pdf(page)
    data = written.read_bytes()
    assert written == tmp_path / "report.pdf" and data.startswith(b"%PDF-")
    assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") >= 3
