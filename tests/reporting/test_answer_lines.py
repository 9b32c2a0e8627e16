"""The end of a run, from a published one: its figures are those of the published report, in at most eight lines."""

from __future__ import annotations

import pytest

from harness.analysis.answer import compare, to_json
from harness.record.store import read_run
from harness.reporting.answers import answer_lines
from tests.helpers import ROOT


@pytest.mark.parametrize("name", ["quickstart", "real_model"])
def test_the_answer_has_the_figures_of_the_page(name: str) -> None:
    """Label, speedup with interval and passes as the report's JSON has them; then what to type."""
    folder = ROOT / "reports" / name
    run = read_run(folder)
    comparison = compare(run)
    lines = answer_lines(folder, comparison, run.header).splitlines()
    assert 4 <= len(lines) <= 8 and [line.split()[0] for line in lines][:3] == ["answer", "passes", "base"]
    published = to_json(comparison)
    highlight = published["answers"][0]
    cell = next(one for one in published["cells"] if one["is_summary"] and one["part"] == highlight["part"])
    arm = next(one for one in cell["arms"] if one["label"] == highlight["label"])
    assert highlight["label"] in lines[0] and f"{arm['wall_speedup']['value']:.2f}x" in lines[0]
    fewer = f"{arm['figures']['nfe_speedup']['value']:.2f}x"
    assert f" {fewer} fewer" in lines[1] and fewer in (folder / "report.html").read_text(encoding="utf-8")
    if highlight["basis"] != "none":
        assert f"{arm['wall_speedup']['low']:.2f}–{arm['wall_speedup']['high']:.2f}" in lines[0]
    same = arm["identical_to_ntp"]["value"]
    assert ("lossless" in lines[0], "in exact arithmetic" in lines[0]) == (True, same < 1)
    assert lines[-1].startswith(f"next    sbd verify {folder}")
