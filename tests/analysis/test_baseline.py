"""A baseline that is slower than generate() is found out, and the report stops speaking of a speedup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.analysis.answer import compare
from harness.analysis.figures.baseline import state_of, token_check
from harness.reporting.answers import answer_lines
from harness.reporting.page import render
from harness.scenario.servers import BESIDE
from harness.stats.quantity import Quantity, absent
from tests.helpers import synthetic_run as synthetic
from tests.helpers.environments import with_cases, with_header
from tests.helpers.judged_runs import judged
from tests.helpers.published import compared


def checked(dynamic: float, static: float, jitter: float = 0.1):
    """A run in which generate() takes so many times as long as NTP, and its comparison."""
    caches = tuple(
        synthetic.Arm(label=f"generate(), {cache} cache", cache=cache, slower=slower)
        for cache, slower in (("dynamic", dynamic), ("static", static))
    )
    run = synthetic.build(arms=(*synthetic.ARMS, *caches), jitter=jitter)
    return run, compare(run)


def test_the_fastest_mode_is_what_counts():
    """Put in: 1.5 and 1.2 times as slow; NTP is held beside the second, and neither becomes an arm."""
    run, comparison = checked(1.5, 1.2)
    check = comparison.cells[0].baseline_check
    assert [mode.ntp_speed.value for mode in check.modes] == [pytest.approx(1.5, rel=0.01), pytest.approx(1.2, rel=0.01)]
    assert check.best == "generate(), static cache"
    assert check.modes[1].ntp_speed.low < 1.2 < check.modes[1].ntp_speed.high
    assert (
        check.state == "kept_up" and check.tokens.words == "NTP wrote the tokens of generate() in 16 of 16 outputs (bfloat16)"
    )
    assert "at 1.20x the speed of transformers" in render(run, comparison)
    assert [arm.label for arm in comparison.cells[0].arms] == [arm.label for arm in synthetic.ARMS]


def test_a_part_is_held_against_generate_by_another_part_of_its_engine():
    """A slow NTP is found out where the scenario checks it elsewhere; not at another batch size or in another execution."""
    slow = synthetic.Arm(label="generate(), static cache", cache="static", slower=0.6)
    parts = [
        synthetic.Part(name="checked", arms=(*synthetic.ARMS, slow)),
        synthetic.Part(name="same"),
        synthetic.Part(name="batched", batch_size=2),
        synthetic.Part(name="graphs"),
    ]
    run = with_cases(synthetic.build(*parts), lambda case: {"execution": "graphs"} if case.part == "graphs" else {})
    cells = compare(run).cells
    checks = {cell.part: (cell.baseline_check.state, cell.baseline_check.part) for cell in cells if cell.is_summary}
    assert checks == {
        "checked": ("slow", None),
        "same": ("slow", "checked"),
        "batched": ("unchecked", None),
        "graphs": ("unchecked", None),
    }
    assert "generate(), static cache, part checked" in render(run, compare(run))


@pytest.mark.parametrize(
    ("value", "low", "high", "state"),
    [
        (1.2, 1.1, 1.3, "kept_up"),
        (0.99, 0.97, 1.01, "kept_up"),
        (0.99, 0.96, 1.02, "not_shown"),
        (0.96, 0.91, 1.01, "not_shown"),
        (0.96, 0.93, 0.99, "slow"),
        (0.5, 0.4, 0.6, "slow"),
        (0.5, None, None, "slow"),
        (1.2, None, None, "not_shown"),
    ],
)
def test_what_an_interval_shows(value, low, high, state):
    """Hand-drawn intervals around 1 and around 1 less the tolerance of 3 %."""
    assert state_of([(Quantity(value=value, low=low, high=high, n=8), 0.03)]) == state


def test_every_mode_counts():
    """A mode with a wide interval, or without a time, shows nothing; a faster one makes the baseline slow."""
    good, wide = Quantity(value=1.0, low=0.99, high=1.01, n=8), Quantity(value=1.01, low=0.8, high=1.27, n=8)
    slower = Quantity(value=0.92, low=0.91, high=0.93, n=8)
    assert state_of([(good, 0.03), (good, 0.03)]) == "kept_up"
    assert state_of([(good, 0.03), (wide, 0.03)]) == state_of([(good, 0.03), (absent("void"), 0.1)]) == "not_shown"
    assert state_of([(good, 0.03), (slower, 0.03)]) == "slow"
    assert state_of([(good, 0.03), (slower, 0.1)]) == "kept_up", "an engine of others has a tolerance of its own"


def test_a_slow_baseline_takes_the_word_speedup_from_the_answer():
    """generate() in two thirds of the time: the card says so in large type and claims nothing."""
    run, comparison = checked(0.66, 1.2)
    assert comparison.cells[0].baseline_check.state == "slow"
    page = render(run, comparison)
    assert "against a slow baseline, and no speedup is claimed" in page
    (large,) = re.findall(r'<p class="big">.*?</p>', page)
    assert "the speed of a slow baseline" in large and "faster" not in large
    assert re.search(r"∅</span> void</span> 3-5x faster by the clock", page)


def against(*engines: tuple[str, float], **part: object):
    """A run in which generate() is 1.2 times as slow as NTP and each engine takes so many times as long, and its comparison."""
    modes = [
        synthetic.Arm(label="generate(), dynamic cache", cache="dynamic", slower=1.2),
        *(synthetic.Arm(label=BESIDE[name], server=name, slower=slower) for name, slower in engines),
    ]
    run = synthetic.build(arms=(*synthetic.ARMS, *modes), jitter=0.1, **part)
    return run, compare(run)


@pytest.mark.parametrize(
    ("engines", "state", "best"),
    [
        ([("llama_cpp", 1 / 1.5)], "slow", "llama.cpp"),
        ([("llama_cpp", 1 / 1.05)], "kept_up", "llama.cpp"),
        ([("llama_cpp", 1.1), ("vllm", 1 / 1.5)], "slow", "vLLM"),
        ([("llama_cpp", 1.08), ("vllm", 4.0)], "kept_up", "llama.cpp"),
        ([("vllm", 1.5)], "kept_up", "generate(), dynamic cache"),
    ],
)
def test_a_stranger_that_is_faster_by_a_tenth_makes_a_part_void(engines, state, best):
    """Put in: NTP's time over the engine's. Its tokens are no other work, whatever they are."""
    run, comparison = against(*engines)
    check = comparison.cells[0].baseline_check
    assert (check.state, check.best, check.has_engines) == (state, best, True)
    speed = min(1.2, *(slower for _, slower in engines))
    page = render(run, comparison)
    assert f"NTP is {speed:.2f}x the best engine here" in page and best in page
    (large,) = re.findall(r'<p class="big">.*?</p>', page)
    assert ("the speed of a slow baseline" in large) == (state == "slow")
    assert [arm.label for arm in comparison.cells[0].arms] == [arm.label for arm in synthetic.ARMS]
    met, missed = judged(run, "wall_speedup >= 1.1", "wall_speedup >= 30").judgements
    assert (met.word, missed.word) == ("void" if state == "slow" else "confirmed", "refuted")
    assert state != "slow" or f"NTP ran at 0.67x the speed of {best}" in met.reason


def test_every_arm_stands_beside_the_best_ntp_of_any_engine():
    """NTP makes 91 tokens/s in eight prompts that differ; an engine that is 1.25 times as fast makes so many more."""
    run, comparison = against(("llama_cpp", 0.8))
    cell = comparison.cells[0]
    own = cell.arms[0].tokens_per_s.value
    assert cell.best_ntp_tokens_per_s == pytest.approx(1.25 * own, rel=0.01)
    assert compare(synthetic.build()).cells[0].best_ntp_tokens_per_s is None
    faster = against(("llama_cpp", 1.25))[1].cells[0]
    assert faster.best_ntp_tokens_per_s == own, "ours is the best"
    [line] = [one for one in answer_lines(Path("r"), comparison, run.header).splitlines() if one.startswith("base ")]
    assert "NTP is 0.80x the best engine here (" in line and "llama.cpp): " in line and "no speedup is claimed" in line
    assert f"tokens/s beside {cell.best_ntp_tokens_per_s:.1f} of the best NTP" in line
    assert f"best NTP {cell.best_ntp_tokens_per_s:.1f}" in render(run, comparison)


def test_a_stranger_that_writes_other_tokens_voids_nothing_and_says_how_far_it_agrees():
    """Half of its answers are NTP's, the others part at once."""
    run, _ = against(("llama_cpp", 1.1))
    run = synthetic.with_rows(
        run,
        lambda one, row: (
            {"output_ids": [8] * row.output_tokens} if one.case_id.endswith("engine-llama_cpp") and one.group % 2 else {}
        ),
    )
    comparison = compare(run)
    check = comparison.cells[0].baseline_check
    assert (check.state, check.tokens.same, check.tokens.rows) == ("kept_up", 8, 8)
    assert [mode.agreed for mode in check.modes] == [None, 0.5]
    assert re.search(r"50.0.% of an answer as NTP", render(run, comparison))


ROW = ("task", 0, 0, 0)


def written(*outputs):
    """What one arm wrote, by prompt."""
    return {(ROW, ("task", f"p{i}")): list(output) for i, output in enumerate(outputs)}


A, LATE, EARLY = [5] * 8, [5] * 6 + [1, 1], [1] * 8


@pytest.mark.parametrize(
    ("dtype", "ntp", "modes", "different"),
    [
        ("float32", [A] * 6, [[A] * 6, [A] * 6], False),
        ("float32", [LATE, *[A] * 5], [[A] * 6, [A] * 6], True),
        ("float64", [LATE, *[A] * 5], [[A] * 6], True),
        ("float32", [LATE, *[A] * 5], [[A] * 6, [LATE] * 6], False),
        ("bfloat16", [LATE, LATE, LATE, *[A] * 3], [[A] * 6], False),
        ("bfloat16", [LATE] * 4 + [A] * 2, [[A] * 6], True),
        ("bfloat16", [LATE] * 6, [[A] * 6, [A] * 6], True),
        ("bfloat16", [LATE] * 6, [[A] * 6, [[5] * 7 + [2]] * 6], False),
        ("bfloat16", [EARLY] * 6, [[A] * 6, [[5] * 7 + [2]] * 6], True),
        ("bfloat16", [A[:4]] * 6, [[A] * 6, [A] * 6], True),
    ],
)
def test_what_rounding_excuses(dtype, ntp, modes, different):
    """Exact types: some mode wrote it. Shorter ones: where the modes part late in all prompts NTP may too, not at once."""
    found = token_check(written(*ntp), [written(*mode) for mode in modes], dtype)
    assert found.different == different


def test_the_token_check_counts_by_hand():
    """Two modes, three prompts: equal in all, in the second mode alone, in none; a prompt that NTP lacks is left out."""
    ntp = written(A, A, A)
    one, other = written(A, LATE, EARLY, A), written(A, A, [5, 1] * 4, A)
    found = token_check(ntp, [one, other], "bfloat16")
    assert (found.rows, found.same, found.mode_rows, found.mode_same) == (6, 3, 4, 2)
    assert found.agreed == pytest.approx((1 + 6 / 8 + 0 + 1 + 1 + 1 / 8) / 6)
    assert found.mode_agreed == pytest.approx((1 + 6 / 8 + 0 + 1) / 4)
    assert (
        found.words
        == "NTP wrote the tokens of generate() in 3 of 6 outputs (bfloat16), its modes those of one another in 2 of 4"
    )
    assert token_check({}, [one], "float32") is None


@pytest.mark.parametrize("name", ["quickstart", "verified_250m"])
def test_recorded_baselines_wrote_what_generate_wrote(name):
    """Published runs: equal in float32; in bfloat16 NTP parts from the modes of generate() as they part from one another."""
    comparison = compared(name)
    found = [cell.baseline_check.tokens for cell in comparison.cells if cell.baseline_check.tokens]
    assert found and not any(one.different for one in found)
    assert all(one.same == one.rows for one in found if "float32" in one.words)


def calibrated(own, large, dram_bound=None, batch_size=1):
    """NTP's ceiling check where the model's own size reads ``own`` and 4 GiB ``large`` times as fast as NTP does."""
    part = synthetic.Part(jitter=0.05, batch_size=batch_size)
    run = synthetic.build(part, calibration=synthetic.calibration(dram_bound))
    reached = compare(run).cells[0].arms[0].modelled_bandwidth_bytes_per_s.value
    recorded = run.header.calibration
    points = [
        point | {"bytes_per_s": reached * factor}
        for point, factor in zip(recorded["read_bandwidth"], (own, large), strict=True)
    ]
    run = with_header(run, calibration=recorded | {"read_bandwidth": points})
    return compare(run).cells[0].baseline_check.ceiling


@pytest.mark.parametrize(
    ("own", "large", "dram_bound", "state", "share"),
    [
        (2.0, 2.0, True, "far", 0.5),
        (1.2, 1.2, True, "near", 1 / 1.2),
        (4.0, 5.0, None, "far", 0.25),
        (1.2, 4.0, None, "near", 1 / 1.2),
        (9.0, 2.0, False, "in_cache", None),
    ],
)
def test_ntp_is_held_against_the_rate_of_memory(own, large, dram_bound, state, share):
    """Rates put in as multiples of NTP's own; a rate out of a cache is no ceiling, of two others the slower one counts."""
    found = calibrated(own, large, dram_bound)
    assert found.state == state and found.share.value == (None if share is None else pytest.approx(share))
    assert bool(found.words) == (state != "near")
    assert state != "in_cache" or "launches, arithmetic and the cache" in found.words


@pytest.mark.parametrize(("share", "marked"), [(0.5, True), (0.7, False), (0.9, False)])
def test_far_below_the_read_ceiling_the_speedup_is_marked_where_it_stands_first(share, marked):
    """Unless an engine of others was timed, which says more than a rate."""
    for engines in ([], [("llama_cpp", 1.1)]):
        run, comparison = against(*engines)
        ceiling = replace(calibrated(2.0, 2.0, True), share=Quantity(value=share), state="near" if share > 0.8 else "far")
        told = replace(
            comparison,
            cells=tuple(replace(one, baseline_check=replace(one.baseline_check, ceiling=ceiling)) for one in comparison.cells),
        )
        first = answer_lines(Path("r"), told, run.header).splitlines()[0]
        assert ("faster by the clock, NTP reaches 50 % of the measured read ceiling" in first) == (marked and not engines)
        (large,) = re.findall(r'<p class="big">.*?</p>', render(run, told))
        assert ("50 % of the measured read ceiling" in large.replace("\N{NO-BREAK SPACE}", " ")) == (marked and not engines)


def test_without_a_read_rate_nothing_is_said_of_it():
    """Not calibrated; and at batch 4, where reads need not be the bound."""
    found = compare(synthetic.build()).cells[0].baseline_check.ceiling
    assert (found.state, found.words) == ("unknown", "") and found.share.reason
    assert calibrated(2.0, 2.0, True, batch_size=4) is None
