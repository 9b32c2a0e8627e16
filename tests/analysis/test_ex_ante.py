"""What was known before the first sample: hand-made records with visits before, among and after, and how sure few are."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.answer import compare
from harness.analysis.figures.predictions import LEAST_ERROR, bands
from harness.analysis.results import ArmResult
from harness.analysis.tally.pass_values import DURING_RUN, EX_ANTE_SHAPE, one_a_rung, reasons_in_words
from harness.analysis.tally.prices import UNTOLD, ladder, measured_passes
from harness.analysis.tally.pricing import Pricer
from harness.record.schema import Run
from harness.record.store import read_run
from harness.reporting.sentences import paragraphs
from harness.roofline.operation import describe_pass
from harness.roofline.shape_calibration import UNSEEN_MOVEMENT, MeasuredPass, shape_calibrated
from harness.scenario.metrics import PRICES
from tests.helpers import DATA
from tests.helpers import synthetic_run as synthetic
from tests.helpers.measured_passes import BASE, MEASURED, SHAPE, TRUTH, seen

RECORDS = DATA / "records"
BEFORE, AMONG, AFTER = "2026-11-20T09:59:59.500+00:00", "2026-11-20T10:00:30.000+00:00", "2026-11-20T10:05:00.000+00:00"
"""Every sample of a synthetic run begins at 10:00:00."""


def visit(slow: float, ended_at: str | None) -> dict[str, Any]:
    """One NTP and one SBD decode, so many times slower than the samples' passes are."""
    decodes = []
    for arm in synthetic.ARMS[:2]:
        columns = synthetic.columns(arm, blocks=2, rows=1, slowdown=slow, timed=True)
        behind = slice(1, None)
        decode_s = sum(columns.forward_s[behind]) + sum(columns.sampler_s[behind])
        decodes.append({"passes": columns.model_dump(), "decode_s": decode_s})
    found = {"event": "measured_passes", "part": "reference", "decodes": decodes}
    return found | ({"ended_at": ended_at} if ended_at else {})


def entry(name: str) -> dict[str, Any]:
    """An entry of a session about the part."""
    return {"event": name, "part": "reference"}


def run_of(*sessions: dict[str, Any]) -> Run:
    """A run with these entries."""
    return synthetic.build(calibration=synthetic.calibration(True)).model_copy(update={"sessions": list(sessions)})


def sbd(run: Run) -> ArmResult:
    """Its first SBD arm."""
    return compare(run).cells[0].arms[1]


def by_price(run: Run) -> dict[str, Any]:
    """Its predictions of the first SBD arm."""
    return {one.price: one for one in sbd(run).predictions}


def test_ex_ante_ignores_what_was_measured_later() -> None:
    """Passes were twice as slow before the samples: ex-ante says so whatever is measured later, the other price moves."""
    alone = run_of(visit(2.0, BEFORE))
    runs = [run_of(visit(2.0, BEFORE), visit(slow, AMONG), visit(slow, AFTER)) for slow in (1.0, 4.0)]
    expected, *found = (by_price(run) for run in (alone, *runs))
    for one in found:
        assert one[EX_ANTE_SHAPE] == expected[EX_ANTE_SHAPE]
    times = [one[DURING_RUN].decode_s.value for one in (expected, *found)]
    assert times[1] < times[0] < times[2]
    assert found[0][EX_ANTE_SHAPE].decode_error.value == pytest.approx(1.0, rel=0.05), "twice the time, the loop apart"
    assert list(expected) == [price for price in PRICES if price != "datasheet"], "ex-ante ones first"
    assert [one.ex_ante for one in expected.values()] == [True, True, False]


def test_arms_with_masks_are_priced_by_passes_with_masks() -> None:
    """Checks of drafts, measured apart where an adapter makes masks dearer, are quick here; NTP comes first in the part and SBD
    is told by its own passes nevertheless.
    """
    slow, quick = visit(2.0, BEFORE), visit(0.5, BEFORE)["decodes"][1]
    quick["passes"]["role"] = ["prefill", *["verify"] * (len(quick["passes"]["role"]) - 1)]
    expected, found = (by_price(run_of(one)) for one in (slow, slow | {"decodes": [*slow["decodes"], quick]}))
    assert found[EX_ANTE_SHAPE].decode_s == expected[EX_ANTE_SHAPE].decode_s


@pytest.mark.parametrize(
    ("sessions", "visits"),
    [
        ([visit(1.0, "2026-11-20T08:00:00"), visit(1.2, BEFORE), visit(3.0, AMONG)], {0, 1}),
        ([entry("engine"), entry("meters"), visit(2.0, None), entry("token_texts"), visit(1.0, None)], {0}),
        ([entry("start"), entry("engine"), visit(2.0, None), visit(1.0, None), entry("engine"), visit(1.0, None)], {0}),
        ([visit(2.0, None), visit(1.0, None)], UNTOLD),
        ([entry("engine"), entry("token_texts"), visit(1.0, None)], UNTOLD),
        ([entry("engine"), entry("engine"), visit(1.0, None)], UNTOLD),
        ([visit(1.0, AMONG), visit(1.0, AFTER)], "no pass of this model was measured before the first sample of the part"),
        ([visit(1.0, "yesterday")], "cannot be read"),
        ([visit(1.0, BEFORE) | {"ended_at": 3}], "cannot be read"),
        ([], "older than version 3"),
    ],
)
def test_which_visits_were_before_the_first_sample(sessions: list[dict[str, Any]], visits: set[int] | str) -> None:
    """Those of a stopped session too; a time without a zone is in UTC. No time, no order that tells: no price, with the reason;
    the lower rungs stay, and so does the price of the run.
    """
    run = run_of(*sessions)
    passes = measured_passes(run, "reference", ex_ante=True)
    cell = compare(run).cells[0]
    if isinstance(visits, str):
        assert visits in passes and visits in cell.rung_reasons[EX_ANTE_SHAPE]
        assert cell.arms[1].predictions[0].rung == "calibrated"
    else:
        assert not isinstance(passes, str) and {one.visit for one in passes} == visits
        assert EX_ANTE_SHAPE not in cell.rung_reasons


@pytest.mark.parametrize("version", [6, 7, 8])
def test_records_of_every_version_with_measured_passes_can_be_priced_ex_ante(version: int) -> None:
    """Their sessions measured twice: before the samples and behind them."""
    run = read_run(RECORDS / f"v{version}")
    passes, every = (measured_passes(run, "reference", ex_ante=ex_ante) for ex_ante in (True, False))
    assert passes == [one for one in every if one.visit == 0] and len(passes) < len(every)


LOG_BAND = 0.49 * np.log(UNSEEN_MOVEMENT[1])
moves = st.lists(st.tuples(*[st.floats(-LOG_BAND, LOG_BAND)] * len(MEASURED)), min_size=2, max_size=5)


@given(moves=moves, decodes=st.sampled_from([1, 8, 64]), kernel=st.floats(0, float(np.log(UNSEEN_MOVEMENT[1]))))
@settings(max_examples=60, deadline=None)
def test_fewer_visits_never_narrow_an_interval(moves: list[tuple[float, ...]], decodes: int, kernel: float) -> None:
    """Visits that moved by no more than machines do, from width to width too: of every choice of them, ex-ante, the interval is
    at least as wide as that of all, and as that of all with the run's own figures for what moved beside the samples.
    """
    visits = [
        [p for one, move in zip(MEASURED, moved, strict=True) for p in at_visit(number, one, move)]
        for number, moved in enumerate(moves)
    ]

    def width(chosen: tuple[int, ...], ex_ante: bool) -> float:
        spread = UNSEEN_MOVEMENT if ex_ante else (float(np.exp(-kernel)), float(np.exp(kernel)))
        least = UNSEEN_MOVEMENT if ex_ante or len(chosen) < 3 else (1.0, 1.0)
        passes = [one for number in chosen for one in visits[number]]
        found = shape_calibrated(BASE, SHAPE, "bfloat16", passes, spread, decodes, least).factors
        return float(np.log(found.spread[1] / found.spread[0]))

    every = tuple(range(len(visits)))
    chosen = [some for size in range(1, len(visits)) for some in combinations(every, size)]
    for some in chosen:
        assert width(some, ex_ante=True) >= width(every, ex_ante=True) - 1e-12
        assert width(some, ex_ante=True) >= width(every, ex_ante=False) - 1e-12
    assert width((0,), ex_ante=False) >= width(every, ex_ante=False) - 1e-12, "one visit during the run is no surer"


def at_visit(number: int, one: Any, move: float) -> list[MeasuredPass]:
    """The pass, moved by the exponential, as one decode of that visit."""
    [found] = seen(TRUTH, one, factor=float(np.exp(move)))
    return [MeasuredPass(counts=one, forward_s=found.forward_s, after_s=found.after_s, decode=number, visit=number)]


def test_an_interval_is_the_measured_reach_times_what_the_passes_spread() -> None:
    """All visits agree to the last digit. Ex-ante one visit alone is known: each arm moves by itself, by UNSEEN_MOVEMENT.
    During the run nothing but LEAST_ERROR is left.
    """
    found = by_price(run_of(visit(1.0, BEFORE), *[visit(1.0, AMONG)] * 3, visit(1.0, AFTER)))
    ex_ante, during = (found[price].wall_speedup for price in (EX_ANTE_SHAPE, DURING_RUN))
    assert ex_ante.value == pytest.approx(during.value)
    half = {
        price: np.log(found[price].wall_speedup.high / found[price].wall_speedup.value)
        for price in found
        if price in bands().reach
    }
    assert half[DURING_RUN] == pytest.approx(bands().reach[DURING_RUN] * LEAST_ERROR, rel=0.2)
    least = bands().reach[EX_ANTE_SHAPE] * np.hypot(LEAST_ERROR, np.sqrt(2) * np.log(UNSEEN_MOVEMENT[1]))
    assert least <= half[EX_ANTE_SHAPE] <= 1.2 * least
    assert found["calibrated"].wall_speedup.low is None and found[DURING_RUN].decode_s.low is None


def test_drafts_and_checks_have_more_work_behind_the_forward() -> None:
    """By hand: 3 times what follows a pass that decides where masks draft, 1.3 times for a check or a draft model's pass. The
    forward and the calibrated rung, which prices a sampler by its logits, know no role.
    """
    run = run_of(visit(1.0, BEFORE), visit(1.0, AMONG))
    case = run.header.cases[1]
    pricer = Pricer(case.model_copy(update={"draft_models": {"small": case.shape}}), ladder(run, case).ceilings)
    kinds = [
        ("decide", None),
        ("commit+decide", None),
        ("draft", None),
        ("verify+draft", None),
        ("verify", None),
        ("draft", "small"),
    ]
    plain = describe_pass("decide", 1, 16, 128, logits=16)
    places = pricer.places_of([plain._replace(role=role, model=model) for role, model in kinds])
    behind = pricer.decode_s(places) - pricer.forward_s(places)
    for rung, of_rung in zip(pricer.rungs, behind[:, :, 1].T.tolist(), strict=True):
        alike = [1.0] * 6 if rung in ("calibrated", "datasheet") else [1.0, 1.0, 3.0, 3.0, 1.3, 1.3]
        assert [one / of_rung[0] for one in of_rung] == pytest.approx(alike)
    assert {EX_ANTE_SHAPE, "calibrated", DURING_RUN} <= {*pricer.rungs}


def test_what_is_claimed_of_a_prediction_is_ex_ante() -> None:
    """The error without further words is that of the ex-ante price; the other is named so."""
    run = run_of(visit(2.0, BEFORE), visit(1.0, AMONG), visit(1.0, AFTER))
    arm = sbd(run)
    ex_ante = (("prediction_error", EX_ANTE_SHAPE), ("prediction_error_totals", EX_ANTE_SHAPE))
    for name, price in (*ex_ante, ("prediction_error_during_run_totals", DURING_RUN)):
        assert arm.figures[name].value == pytest.approx(by_price(run)[price].wall_speedup_error.value, rel=1e-9)
    assert arm.figures["prediction_error"].method.startswith("shape-calibrated, ex-ante roofline")
    untold = sbd(run_of(visit(2.0, None), visit(1.0, None)))
    assert untold.figures["prediction_error"].method.startswith("calibrated roofline"), "not what the run told"


def test_the_page_says_the_ex_ante_prediction_first() -> None:
    """And the one calibrated during the run behind it."""
    comparison = compare(run_of(visit(1.5, BEFORE), visit(1.0, AMONG), visit(1.0, AFTER)))
    cell = comparison.summary("reference", 1)
    said = dict(paragraphs(cell, cell.arms[1], comparison.highlights[0]))["Predicted"]
    first, later = (
        f"{one.wall_speedup.value:.2f}x ({one.wall_speedup.low:.2f}–{one.wall_speedup.high:.2f})"
        for one in cell.arms[1].predictions
        if one.rung == "shape-calibrated"
    )
    assert said.startswith("Ex-ante") and said.index(first) < said.index(f"calibrated during the run, {later}")


def test_a_reason_that_both_prices_share_is_said_once() -> None:
    """By the rung's own word; two reasons are told apart."""
    shared = {EX_ANTE_SHAPE: "a", DURING_RUN: "a", "datasheet": "b"}
    assert reasons_in_words(shared) == {"shape-calibrated": "a", "datasheet": "b"}
    assert reasons_in_words({EX_ANTE_SHAPE: "a"}) == {"shape-calibrated, ex-ante": "a"}
    assert reasons_in_words({"datasheet": "b"}) == {"datasheet": "b"}


def test_a_figure_draws_each_rung_once() -> None:
    """Ex-ante where the top rung has both."""
    assert one_a_rung(PRICES) == [EX_ANTE_SHAPE, "calibrated", "datasheet"]
    assert one_a_rung(["calibrated", DURING_RUN]) == ["calibrated", DURING_RUN]
    rungs = ladder(run_of(visit(1.0, BEFORE)), synthetic.build().header.cases[0])
    assert [one.rung for one in rungs.ceilings.values()] == ["shape-calibrated", "calibrated", "shape-calibrated"]
