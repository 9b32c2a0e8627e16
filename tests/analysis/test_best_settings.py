"""Each way of decoding at its best setting: who is chosen, by what, in which order, and what the drawing says of it."""

from __future__ import annotations

import html
import re
from dataclasses import replace

import pytest

from harness import formatting
from harness.analysis.answer import compare
from harness.analysis.evidence.best_settings import name_of, telling_arms, ways
from harness.analysis.results import ArmResult, Cell
from harness.reporting.explain import explain_drawings
from harness.reporting.figures_arms import MOST_WAYS, ways_compared
from harness.reporting.svg import MOST_ARMS
from harness.stats.quantity import absent, exact
from tests.helpers import synthetic_run as synthetic

CELL = compare(synthetic.build()).cells[0]


def arm(label: str, speed: float | None, lost_points: float | None = 0.0, lossless: str | None = None) -> ArmResult:
    """An arm that is so many times faster by the clock, half of that by passes, and right in 90 % less what is lost."""
    lost = absent("not checked") if lost_points is None else exact(-lost_points / 100)
    right = absent("not checked") if lost_points is None else exact(0.9 - lost_points / 100)
    fast = absent("no time") if speed is None else exact(speed)
    fewer = exact((speed or 0) / 2)  # in every prompt, so that the mean over prompts is the ratio of totals
    return replace(
        CELL.arms[1],
        label=label,
        wall_speedup=fast,
        nfe_speedup=fewer,
        accuracy=right,
        figures=CELL.arms[1].figures | {"nfe_speedup": fewer},
        accuracy_difference=lost,
        lossless=lossless,
        query_tokens_per_pass=exact(32.0),
        passes=10,
        decode_tokens=64,
    )


def cell(*arms: ArmResult, timed: bool = True) -> Cell:
    """NTP and these."""
    return replace(CELL, arms=(CELL.arms[0], *arms), timed=timed)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("SBD k=16 γ=0.1", "SBD"),
        ("SBD k=16 longest prefix by entropy τ=0.9", "SBD longest prefix by entropy"),
        ("SBD verified k=16 γ=99 c>0.3", "SBD verified"),
        ("SBD k=16 dynamic τ=0.95 steps=8", "SBD dynamic"),
        ("quadratic self-speculation k=16", "quadratic self-speculation"),
        ("SBD k=16 γ=0.1 T=0.7", "SBD T=0.7"),
        ("early exit layer 2 n=3", "early exit layer 2"),
        ("draft model (reference draft) n=8 on prompt lookup n=4", "draft model (reference draft) on prompt lookup"),
    ],
)
def test_a_way_is_its_label_without_settings(label: str, name: str) -> None:
    """Labels as arms write them."""
    assert name_of(label) == name


def test_the_fastest_setting_that_keeps_the_accuracy_is_chosen() -> None:
    """A faster one that loses more than a point is not; at exactly a point it is. The fastest way first, NTP never."""
    found = ways(
        cell(
            arm("SBD γ=1", 3.0),
            arm("SBD γ=2", 4.0, 1.0),
            arm("SBD γ=3", 9.0, 1.01),
            arm("APD R=1", 5.0, -2.0),
            arm("APD R=2", 4.0),
        )
    )
    assert [(way.name, way.arm.label, way.keeps) for way in found] == [("APD", "APD R=1", True), ("SBD", "SBD γ=2", True)]


def test_where_none_keeps_it_the_most_accurate_and_where_none_was_checked_the_fastest() -> None:
    """And an arm without a speed is none."""
    found = ways(
        cell(
            arm("a x=1", 3.0, 20),
            arm("a x=2", 2.0, 3),
            arm("a x=3", 9.0, 40),
            arm("b x=1", 5.0, None),
            arm("b x=2", 6.0, None),
            arm("c x=1", None),
        )
    )
    assert [(way.arm.label, way.keeps) for way in found] == [("b x=2", None), ("a x=2", False)]


def test_by_passes_where_nothing_was_timed() -> None:
    """Half as much here."""
    assert [way.speed.value for way in ways(cell(arm("a", 3.0), arm("b", 8.0), timed=False))] == [4, 1.5]
    passes = {"a": 3.0, "b": 2.0}  # means over prompts, whose order is not that of the ratios of totals
    arms = [replace(one, figures={"nfe_speedup": exact(passes[one.label])}) for one in (arm("a", 3.0), arm("b", 8.0))]
    assert [(way.name, way.speed.value) for way in ways(cell(*arms, timed=False))] == [("a", 3.0), ("b", 2.0)]


def test_query_tokens_are_all_that_was_fed_for_each_token() -> None:
    """10 passes of 32 for 64 tokens; unknown without tokens."""
    one = arm("a", 3.0)
    assert one.query_tokens_per_token == 5
    assert replace(one, decode_tokens=0).query_tokens_per_token is None


def test_lossless_is_against_ntp_only() -> None:
    """A masked chain is not NTP."""
    chain = "greedy decoding of the masked head"
    found = ways(cell(arm("a", 3.0, lossless="greedy NTP, same weights"), arm("b", 2.0, lossless=chain)))
    assert [way.lossless for way in found] == [True, False]


def test_the_drawing_says_who_leads_and_every_bar() -> None:
    """The leader with loss is not one that loses the accuracy; what is not drawn is counted."""
    found = ways(
        cell(
            arm("safe n=2", 3.0, lossless="greedy NTP, same weights"),
            arm("wild n=1", 9.0, 30),
            arm("mild n=1", 4.0, 0.5),
            *(arm(f"slow {'abcdefghijklmnopqrstuvwxyzABCD'[i]}", 1.0) for i in range(30)),
        )
    )
    drawing = ways_compared(found, timed=True)
    assert drawing.marks == ("measured",)
    leaders = (
        "without loss in exact arithmetic: safe n=2, 3.00x by the clock; of the others that keep NTP's accuracy: mild n=1, "
    )
    assert drawing.caption.startswith(f"Fastest {leaders}") and "of 33 arms, chosen" in drawing.caption
    assert f"{33 - MOST_WAYS} slower ways are in the table." in drawing.caption
    words = html.unescape(" ".join(re.findall(r"<text[^>]*>(.*?)</text>", drawing.image, flags=re.DOTALL)))
    for way in found[:MOST_WAYS]:
        assert way.arm.label in words and f"{formatting.ratio(way.speed.value)}, " in words
    assert ways_compared([], timed=True) is None


@pytest.mark.parametrize(
    ("arms", "begins"),
    [
        ([arm("a n=1", 3.0, 30), arm("a n=2", 2.0, 9)], "No way keeps NTP's accuracy; fastest: a n=2, 1.00x fewer passes."),
        ([arm("a n=1", 3.0, None), arm("b n=2", 2.0, None)], "No accuracy is known; fastest: a n=1, 1.50x fewer passes."),
        ([arm("a n=1", 3.0), arm("b n=2", 9.0, 2)], "Fastest that keeps NTP's accuracy: a n=1, 1.50x fewer passes."),
        ([arm("a n=1", 3.0, None, "greedy NTP")], "Fastest without loss in exact arithmetic: a n=1, 1.50x fewer"),
    ],
)
def test_the_caption_claims_no_accuracy_that_was_not_seen(arms: list[ArmResult], begins: str) -> None:
    """Lost by all, checked by nobody, kept by one, and lossless by construction though nobody checked."""
    drawing = ways_compared(ways(cell(*arms, timed=False)), timed=False)
    assert drawing.caption.startswith(begins) and drawing.marks == ("counted",)


def test_replayed_bars_are_marked_beside_measured_ones() -> None:
    """Both kinds are there."""
    replayed = replace(arm("b replayed", 2.0, None), replayed={"nfe_speedup": 4})
    drawing = ways_compared(ways(cell(arm("a n=1", 3.0), replayed)), timed=True)
    assert drawing.marks == ("measured", "replayed")


def test_of_very_many_arms_the_ways_are_drawn() -> None:
    """A drawing of the ways joins the points, and what draws arms one by one draws the ways, not whoever was named first."""
    slow = [synthetic.Arm(label=f"SBD k=16 γ=0.{i}", gamma=i / 100, passes_per_block=8) for i in range(10, 10 + MOST_ARMS)]
    fast = synthetic.Arm(label="SBD k=16 top-k tokens=8", gamma=0.9, passes_per_block=2)
    for others, points, has_ways in ((slow[:2], 4, False), (slow, 3, True)):
        run = synthetic.build(arms=(synthetic.NTP, *others, fast))
        comparison = compare(run)
        drawings, _ = explain_drawings(comparison, run, comparison.cells[0].part, "p")
        found = {one.heading: one for one in drawings}
        assert ("Every way at its best setting" in found) is has_ways
        assert found["Speed against accuracy"].image.count('class="told"') == points
        for drawn in ("Speed against accuracy", "Tokens per pass", "Bandwidth"):
            assert fast.label in found[drawn].image, drawn


def test_telling_arms_are_all_or_ntp_and_the_fastest_ways() -> None:
    """Three of four arms: NTP first, then a way's best setting each, the fastest first."""
    one = cell(arm("a n=1", 2.0), arm("b n=1", 3.0), arm("a n=2", 4.0))
    assert telling_arms(one, 4) == one.arms
    assert [arm.label for arm in telling_arms(one, 3)] == [CELL.arms[0].label, "a n=2", "b n=1"]
    assert [arm.label for arm in telling_arms(one, 2)] == [CELL.arms[0].label, "a n=2"]
