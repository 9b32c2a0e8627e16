"""Runs with pieces missing, and runs of every record version there has been, give a page that says what is missing and why."""

from __future__ import annotations

import html
import json
import re

import pytest

from harness.analysis.answer import compare
from harness.record.schema import CaseOutcome, Run, Sample
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers import DATA
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_claims, with_environment
from tests.helpers.pages import REPLAYED, headlines, words
from tests.helpers.synthetic_run import KERNEL

RECORDS = DATA / "records"
QUIET = {"kernel_before_s": 0.010, "kernel_after_s": 0.010}


def disturbed(sample: Sample) -> Sample:
    """Metered; the second prompt's samples had a slow kernel."""
    meters = QUIET | ({"kernel_after_s": 0.02} if sample.group == 1 and not sample.warmup else {})
    return sample.model_copy(update={"meters": meters})


def patchy() -> Run:
    """Failed, too large, void, replayed, untimed, not started: each in its own place."""
    parts = (
        synthetic.Part(jitter=0.05),
        synthetic.Part(name="given", arms=(synthetic.NTP, REPLAYED), graded=False),
        synthetic.Part(name="not_timed", timed=False),
        synthetic.Part(name="too_large"),
        synthetic.Part(name="to_come"),
    )
    cases = [case.case_id for case in synthetic.build(*parts).header.cases]
    gone = frozenset(one for one in cases if one.startswith(("too_large/", "to_come/")))
    run = synthetic.build(
        *parts,
        without=gone,
        outcomes=tuple(
            CaseOutcome(case_id=one, outcome="failed" if one.endswith("ntp") else "does_not_fit", reason="needs 90 GB of 16 GB")
            for one in sorted(gone)
            if one.startswith("too_large/")
        ),
    )
    return synthetic.with_samples(run, (disturbed(sample) for sample in run.samples))


def test_a_patchy_run_says_what_became_of_every_piece() -> None:
    """Where a reader would look for the figure, the reason stands; and no number is made of nothing."""
    run = patchy()
    text = render(run, compare(run))
    said, top = words(text), words(text.partition('id="explanation"')[0])
    assert len(headlines(text)) == 5 and headlines(text).count(" No answer ") == 2
    assert f"3 of 24 timed samples are void and left out of every time: {KERNEL} (3)" in top
    assert "The acceptance was replayed" in top and "replayed: given, not found" in top
    assert "It was not timed: this says nothing about the clock." in top
    assert "did not fit into memory: needs 90 GB of 16 GB" in top and "ntp failed: needs 90 GB" in top
    assert top.count("3 of 3 cases have no sample yet: the run is not finished.") == 1, "not of the cases that failed"
    assert "The NTP arm was not held against transformers' generate()" in top
    assert f"void: {KERNEL}" in said and "warm-up, kept" in said
    assert not re.search(r"\b(nan|None|inf)\b", said.split("Scenario as resolved")[0])


def test_an_unreadable_claim_of_a_record_is_said_and_the_rest_is_shown() -> None:
    """The page of a run whose claims a later version wrote: its figures are still there."""
    run = with_claims(synthetic.build(), {"metric": "no_such_metric", "min": 3})
    text = render(run, compare(run))
    assert "the claims of the record cannot be read" in words(text)
    assert len(headlines(text)) == 1 and "3-5x faster by the clock" in text


def test_a_scenario_s_own_claims_take_the_place_of_the_papers() -> None:
    """And this program's question is not asked beside them."""
    run = with_claims(synthetic.build(), {"name": "twice as fast", "metric": "wall_speedup", "min": 2})
    text = render(run, compare(run))
    assert "twice as fast" in text and "this scenario's own: 1 " in html.unescape(text)
    of_the_paper = ("3-5x", "wall-clock close to the pass reduction", "abstract and Table 1")  # the plan names Table 1 too
    assert not any(words in text for words in of_the_paper)


@pytest.mark.parametrize(
    ("flags", "emulated"), [(["avx2"], True), (["avx2", "avx512f"], True), (["avx512f", "avx512_bf16"], False), (None, False)]
)
def test_a_cpu_without_bfloat16_is_told(flags: list[str] | None, emulated: bool) -> None:
    """Its passes of several tokens are slow for a reason outside the decoding; unknown flags say nothing."""
    run = with_environment(synthetic.build(), isa_flags=flags)
    assert ("no instructions for bfloat16 products" in words(render(run, compare(run)))) == emulated


def test_an_empty_run_has_a_page() -> None:
    """No case, no sample: every section is there and says so."""
    run = synthetic.build()
    empty = Run(header=run.header.model_copy(update={"cases": []}), samples=[], outcomes=[], sessions=[])
    said = words(render(empty, compare(empty)))
    assert "This run holds no case, so it answers nothing." in said and "The run has no sample yet." in said


@pytest.mark.parametrize("version", sorted(path.name for path in RECORDS.iterdir() if path.is_dir()))
def test_a_run_of_every_record_version_renders(version: str) -> None:
    """From the files as that version wrote them: the version is named, every case's arm and every sample is on the page."""
    run = read_run(RECORDS / version)
    text = render(run, compare(run))
    header = json.loads((RECORDS / version / "run.json").read_text(encoding="utf-8"))
    written = int(version.removeprefix("v"))
    assert f"record version {written} ·" in text and header["record_version"] == written
    assert all(html.escape(case["label"]) in text for case in header["cases"])
    samples = (RECORDS / version / "samples.jsonl").read_text(encoding="utf-8").count("\n")
    assert text.partition('<table data-sorts="samples">')[2].count("<tr>") == samples + 1 > 1
