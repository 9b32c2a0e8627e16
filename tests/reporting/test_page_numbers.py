"""A number on the page = the number in the record's comparison: every data attribute is walked, and every number has one."""

from __future__ import annotations

import json
import math
import re
from functools import cache
from html import unescape
from typing import Any

import pytest

from harness.analysis.answer import compare, to_json
from harness.analysis.frames import RunFrames
from harness.record.schema import Run
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic
from tests.helpers.page_numbers import Shown, Walk, resolve
from tests.helpers.pages import FULL

QUICKSTART = ROOT / "reports" / "quickstart"
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?"
SCALES = {"x": (1.0,), "%": (100.0,), "points": (100.0, 1.0), "s": (1.0,), "ms": (1e3,), "µs": (1e6,), "": (1.0, 1e-9)}
"""By the unit on the page: what the comparison's value is multiplied with. Column heads say GB; claims are held in points."""
WITHOUT_A_NUMBER = {"none"}


def walk(text: str) -> list[Shown]:
    """What the page shows of the comparison."""
    walker = Walk()
    walker.feed(text)
    return walker.found


def says(text: str, value: float) -> bool:
    """Whether the first number of ``text`` is ``value``, in its unit and to the digits that are shown."""
    match = re.search(rf"({NUMBER})\s*(x|%|points|ms|µs|s)?(?![\w])", text)
    if match is None:
        return False
    number, scales = match.group(1).replace(",", ""), SCALES[match.group(2) or ""]
    digits = len(number.partition(".")[2])
    near = 0.5000001 * 10.0**-digits
    if digits == 0:  # three significant digits may have cut a long number: 1,234 is shown as 1,230
        near = max(near, 0.5000001 * 10.0 ** (len(number.lstrip("-+")) - 3))
    return any(math.isclose(float(number), value * scale, rel_tol=1e-12, abs_tol=near) for scale in scales)


def number_of(found: Any, end: str = "value") -> Any:
    """A quantity's value or end; a plain number as it is."""
    return found[end] if isinstance(found, dict) else found


MISSING = frozenset(case.case_id for case in synthetic.build().header.cases if "g0.6" in case.case_id)
RUNS = {
    "full": FULL,
    "untimed": synthetic.build(timed=False),
    "ungraded": synthetic.build(graded=False, baseline="reference"),
    "batched": synthetic.build(batch_size=4, repeats=2, jitter=0.1, calibration=synthetic.calibration()),
    "unfinished": synthetic.build(without=MISSING),
    "generate": synthetic.build(jitter=0.05, arms=(*synthetic.ARMS, synthetic.Arm(label="g", cache="static"))),
    "quickstart": read_run(QUICKSTART),
}


@cache
def page(name: str) -> str:
    """The page of a run, made once for all that is asked of it."""
    return render(RUNS[name], compare(RUNS[name]))


@pytest.mark.parametrize("name", RUNS)
def test_every_number_is_the_comparisons(name: str) -> None:
    """Each value is found under its key with the very same digits, and the text beside it says that value and its interval."""
    data = json.loads(json.dumps(to_json(compare(RUNS[name])), allow_nan=False))
    keyed = [one for one in walk(page(name)) if "data-key" in one.attrs]
    assert len(keyed) > 20
    for one in keyed:
        found = resolve(data, one.attrs["data-key"])
        for end in ("value", "low", "high"):
            if (shown := one.attrs.get(f"data-{end}")) is not None:
                assert float(shown) == number_of(found, end), (one, end)
        value, small = float(one.attrs["data-value"]), one.small
        assert says(small if one.tag == "th" else one.text, value), one
        if "–" in small:
            low, high = small.split("–")
            assert says(low, float(one.attrs["data-low"])) and says(high, float(one.attrs["data-high"])), one
        if small.startswith("at least"):
            assert says(small, float(one.attrs["data-low"])), one


@pytest.mark.parametrize("name", RUNS)
def test_every_number_of_a_table_has_its_place_in_the_comparison(name: str) -> None:
    """No cell shows a number without saying where it comes from; what is absent is the word none."""
    cells = [one for one in walk(page(name)) if one.tag == "td"]
    assert cells
    for cell in cells:
        assert ("data-key" in cell.attrs) != (cell.text.strip() in WITHOUT_A_NUMBER), cell


@pytest.mark.parametrize("name", RUNS)
def test_every_column_of_numbers_says_on_what_it_rests(name: str) -> None:
    """A mark in words, so that it is read without colour: measured, counted, modelled or predicted."""
    tables = re.findall(r"<table>\s*<thead>(.*?)</thead>", page(name), flags=re.DOTALL)
    assert tables
    for head in tables:
        for column in re.findall(r"<th\b.*?</th>", head)[1:]:
            assert re.search(r'class="mark (measured|counted|modelled|predicted)"', column), column


def test_quantities_of_a_card_are_keyed() -> None:
    """The figure in large type and every claim's figure can be looked up too."""
    text = page("full")
    big = re.findall(r'<p class="big">(.*?)</p>', text, flags=re.DOTALL)
    claims = re.findall(r'<p class="found"><span(.*?)</span>', text, flags=re.DOTALL)
    assert len(big) == 2 and all("data-key" in one for one in big)
    assert len(claims) == 8 and sum("data-key" in one for one in claims) == 7  # accuracy of a replayed arm: there is none


@pytest.mark.parametrize("name", ["full", "batched", "quickstart"])
def test_raw_rows_are_the_samples(name: str) -> None:
    """Row by row in the order taken; times to six digits, counts whole, warm-ups and void samples named as such."""
    run: Run = RUNS[name]
    frame = RunFrames(run).samples
    (table,) = re.findall(r'<table data-sorts="samples">(.*?)</table>', page(name), flags=re.DOTALL)
    rows = [re.findall(r"<td>([^<\n]*)", row) for row in table.partition("<tbody>")[2].split("<tr>")[1:]]
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", table)
    assert len(rows) == len(frame) == len(run.samples)
    for row, sample in zip(rows, frame.to_dict("records"), strict=True):
        shown = dict(zip(heads, row, strict=True))
        assert (shown["Part"], shown["Task"], unescape(shown["Arm"])) == (sample["part"], sample["task"], sample["arm"])
        for head, column in (("Passes", "passes"), ("Output tokens", "output_tokens"), ("Group", "group")):
            assert int(shown[head]) == sample[column]
        for head, column in (("Decode (s)", "decode_s"), ("Forwards (s)", "forward_s"), ("Prefill (s)", "prefill_s")):
            told = math.nan if shown[head] == "none" else float(shown[head])
            assert told == pytest.approx(sample[column], rel=5e-6, nan_ok=True)
        assert shown["State"].startswith("warm-up") == sample["warmup"]
        assert ("void" in shown["State"]) == isinstance(sample["void"], str)
