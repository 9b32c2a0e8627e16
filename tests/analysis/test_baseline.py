"""A baseline that is slower than generate() is found out, and the report stops speaking of a speedup."""

from __future__ import annotations

import re

import pytest

from harness.analysis.baseline import state_of, token_check
from harness.analysis.comparison import compare
from harness.analysis.stats.quantity import Quantity, absent
from harness.record.store import read_run
from harness.reporting.page import render
from tests.helpers import ROOT
from tests.helpers import synthetic_run as synthetic


def checked(dynamic: float, static: float, jitter: float = 0.1):
    """A run in which generate() takes so many times as long as NTP, and its comparison."""
    caches = tuple(
        synthetic.Arm(label=f"generate(), {cache} cache", cache=cache, slower=slower)
        for cache, slower in (("dynamic", dynamic), ("static", static))
    )
    run = synthetic.build(synthetic.Part(arms=(*synthetic.ARMS, *caches), jitter=jitter))
    return run, compare(run)


def test_the_fastest_mode_is_what_counts():
    """Put in: 1.5 and 1.2 times as slow; NTP is held beside the second, and neither becomes an arm."""
    run, comparison = checked(1.5, 1.2)
    check = comparison.cells[0].baseline_check
    assert [mode.ntp_speed.value for mode in check.modes] == [pytest.approx(1.5, rel=0.01), pytest.approx(1.2, rel=0.01)]
    assert check.best == "generate(), static cache"
    assert check.modes[1].ntp_speed.low < 1.2 < check.modes[1].ntp_speed.high
    assert check.state == "kept_up"
    assert "at 1.20x the speed of transformers" in render(run, comparison)
    assert [arm.label for arm in comparison.cells[0].arms] == [arm.label for arm in synthetic.ARMS]


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
    assert state_of([Quantity(value=value, low=low, high=high, n=8)]) == state


def test_every_mode_counts():
    """A mode with a wide interval, or without a time, shows nothing; a faster one makes the baseline slow."""
    good, wide = Quantity(value=1.0, low=0.99, high=1.01, n=8), Quantity(value=1.01, low=0.8, high=1.27, n=8)
    assert state_of([good, good]) == "kept_up"
    assert state_of([good, wide]) == state_of([good, absent("void")]) == "not_shown"
    assert state_of([good, Quantity(value=0.9, low=0.85, high=0.95, n=8)]) == "slow"


def test_a_slow_baseline_takes_the_word_speedup_from_the_answer():
    """generate() in two thirds of the time: the card says so in large type and claims nothing."""
    run, comparison = checked(0.66, 1.2)
    assert comparison.cells[0].baseline_check.state == "slow"
    page = render(run, comparison)
    assert "against a slow baseline, and no speedup is claimed" in page
    (large,) = re.findall(r'<p class="big">.*?</p>', page)
    assert "the speed of a slow baseline" in large and "faster" not in large
    assert re.search(r"∅</span> void</span> 3-5x faster by the clock", page)


def test_an_unchecked_baseline_is_said():
    """An old run, or a scenario without the check."""
    run = synthetic.build(synthetic.Part())
    assert compare(run).cells[0].baseline_check.state == "unchecked"
    assert "was not held against" in render(run, compare(run))


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


def test_a_run_whose_outputs_all_differ_has_no_baseline():
    """Times as good as those of the first test; NTP's tokens are other ones."""
    run, _ = checked(1.5, 1.2)
    assert (
        compare(run).cells[0].baseline_check.tokens.words == "NTP wrote the tokens of generate() in 16 of 16 outputs (bfloat16)"
    )
    samples = [
        one.model_copy(update={"rows": [row.model_copy(update={"output_ids": [8] * row.output_tokens}) for row in one.rows]})
        if one.case_id.endswith("/ntp") else one
        for one in run.samples
    ]  # fmt: skip
    check = compare(run.model_copy(update={"samples": samples})).cells[0].baseline_check
    assert (check.state, check.tokens.same, check.tokens.rows) == ("different_tokens", 0, 16) and check.best is not None


@pytest.mark.parametrize("name", [pytest.param("every_arm", marks=pytest.mark.full), "quickstart", "verified_250m"])
def test_recorded_baselines_wrote_what_generate_wrote(name):
    """Published runs: equal in float32; in bfloat16 NTP parts from the modes of generate() as they part from one another."""
    comparison = compare(read_run(ROOT / "reports" / name))
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
    header = run.header.model_copy(update={"calibration": recorded | {"read_bandwidth": points}})
    return compare(run.model_copy(update={"header": header})).cells[0].baseline_check.ceiling


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


def test_without_a_read_rate_nothing_is_said_of_it():
    """Not calibrated; and at batch 4, where reads need not be the bound."""
    found = compare(synthetic.build()).cells[0].baseline_check.ceiling
    assert (found.state, found.words) == ("unknown", "") and found.share.reason
    assert calibrated(2.0, 2.0, True, batch_size=4) is None
