"""The panel: what it carries is what `sbd capacity` answers, choice by choice, and its table shows the same without scripts."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.answer import compare
from harness.capacity.grid import Figures, Place
from harness.capacity.question import DEGREES
from harness.capacity.wording import pays_from
from harness.formatting import rate, ratio
from harness.models import KNOWN_SHAPES
from harness.reporting.planner.panel import BATCHES, DEVICES, Panel, panel_of
from harness.reporting.planner.view import HEADS, SPEEDS, Setting, carried, embedded, pareto_front, planner_view, ratio_carried
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.planner_page import FIGURES, Chosen, asked, choices, quickstart, rendered, with_verified
from tests.helpers.published import compared, published


def column_of(panel: Panel, data: dict[str, Any], one: Chosen, arm: int) -> tuple[int, Any]:
    """(TP, column as the page carries it) of the smallest TP that holds the batch, else of the last one tried."""
    degrees = range(len(DEGREES)) if not one.degree else [one.degree - 1]
    places = list(panel.columns)
    for degree in degrees:
        found = data["columns"][places.index((one.model, one.weights, one.kv, one.request, one.device, arm, degree))]
        if isinstance(found, list) and len(found[1]) > one.batch:
            break
    return DEGREES[degree], found


@pytest.mark.parametrize("source", [quickstart, with_verified])
def test_choices_are_what_capacity_answers(cli: Cli, source: Callable[[], Panel]) -> None:
    """TP, speeds, money, energy, GPUs, decode speed and rows that fit, for 60 random choices, to the digits carried."""
    panel = source()
    data, planned = embedded(panel), 0
    for one in choices(panel, 60):
        device = asked(cli, one.arguments(panel))
        for arm, said in ((0, device["ntp"]), (1 + one.arm, device["sbd"])):
            degree, found = column_of(panel, data, one, arm)
            if said["reason"] is not None:
                assert not isinstance(found, list) or len(found[1]) <= one.batch
                continue
            rows, every = found
            *figures, gpus, speedup = every[one.batch]
            assert (degree, gpus, rows) == (said["tensor_parallel"], said["gpus"], said["memory"]["largest_batch"])
            assert figures == [carried(said[figure]["expected"]) for figure in FIGURES]
            assert speedup == (ratio_carried(device["wall_speedup"]["expected"]) if arm else 1)
            planned += 1
    assert planned >= 50


def test_the_data_fits_and_names_every_choice() -> None:
    """At most 450 kB, a column per place, Llama 70B, four TPs, three weight and two KV formats, and what is unpacked is what
    was packed.
    """
    panel = quickstart()
    view, data = planner_view(panel), embedded(panel)
    assert len(view["data"]) <= 450_000
    assert json.loads(gzip.decompress(base64.b64decode(view["data"]))) == data and data["version"] == 3
    axes = {axis.name: len(axis.options) for axis in view["axes"]}
    assert axes == {
        "model": 2,
        "weights": 3,
        "kv": 2,
        "request": 3,
        "device": 1 + len(DEVICES),
        "degree": 5,
        "batch": 1 + len(SPEEDS) + len(BATCHES),
        "arm": len(panel.choices),
    }
    assert len(data["columns"]) == 2 * 3 * 2 * 3 * len(DEVICES) * 4 * (1 + len(panel.choices))
    assert tuple(data["axes"]) == Place._fields and prod(data["axes"].values()) == len(data["columns"])
    assert "llama-3.1-70b" in view["axes"][0].options[1]


def test_the_run_s_own_acceptance_comes_first_and_says_whose_it_is() -> None:
    """The highlighted arm, with its measured tokens per pass, its model and what it did to the accuracy; then its others."""
    comparison, panel = compared("quickstart"), quickstart()
    highlight = comparison.highlights[0]
    arm = next(arm for arm in comparison.summary("reference", 1).arms if arm.label == highlight.label)
    [first] = [one for one in panel.choices if "the arm that answers this run" in one.remark]
    assert first.acceptance.nfe_speedup == pytest.approx(arm.nfe_speedup.value)
    assert (first.basis, first.model) == ("measured", "reference-sbd")
    assert first.label.startswith(highlight.label) and "accuracy against NTP" in first.remark
    assert [one.basis for one in panel.choices] == ["measured"] * 3 + ["published"] * 2


def test_the_verified_arm_of_a_run_is_offered_by_what_its_checks_made_final() -> None:
    """Tokens and passes a check, counted here from the recorded passes one by one."""
    run = published("verified_250m")
    (choice,) = [one for one in with_verified().choices if one.arm == "SBD verified"]
    label = choice.label.rpartition(":")[0]
    cases = {case.case_id for case in run.header.cases if case.label == label}
    checks = drafts = tokens = 0
    for sample in run.samples:
        if sample.case_id in cases and not sample.warmup and sample.passes is not None:
            for role, (final,) in zip(sample.passes.role, sample.passes.final_tokens, strict=True):
                if role != "prefill":
                    checks, drafts, tokens = checks + (final > 0), drafts + (final == 0), tokens + final
    assert choice.acceptance.tokens_per_check == pytest.approx(tokens / checks)
    assert choice.acceptance.passes_per_block == pytest.approx((checks + drafts) / checks, rel=1e-6)


def test_models_too_small_to_plan_for_are_left_out() -> None:
    """Below a billion parameters; a large one of the run comes first."""
    assert [shape.name for shape in quickstart().models] == ["llama-3.1-8b", "llama-3.1-70b"]
    large = synthetic.build(model=KNOWN_SHAPES["qwen3-14b"])
    assert [shape.name for shape in panel_of(large, compare(large)).models] == ["qwen3-14b", "llama-3.1-8b", "llama-3.1-70b"]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=20))
def test_a_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    """Against every pair: a point is kept once where no other is as good in both and better in one; fastest user first."""
    found = pareto_front(
        Setting(device="d", arm="NTP", reason="", figures=Figures(user, gpu, None, None, 1, 1)) for user, gpu in points
    )
    kept = [tuple(one.figures[:2]) for one in found if one.figures]
    beaten = {one for one in points for other in points if other != one and other[0] >= one[0] and other[1] >= one[1]}
    assert kept == sorted(set(points) - beaten, reverse=True)


def test_where_only_replayed_arms_are_they_are_called_so() -> None:
    """A replayed acceptance is an input of the run: offered where there is no other, and named."""
    replayed = synthetic.Arm(label="SBD replayed 4x", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0})
    run = synthetic.build(arms=(synthetic.NTP, replayed), graded=False)
    first = panel_of(run, compare(run)).choices[0]
    assert first.basis == "replayed" and "says nothing about accuracy" in first.remark
    assert first.acceptance.nfe_speedup == pytest.approx(4)


def test_a_run_without_an_acceptance_has_table_1() -> None:
    """NTP alone, or arms slower than one token per pass: what the paper published is left."""
    run = synthetic.build(arms=(synthetic.NTP,))
    assert {one.basis for one in panel_of(run, compare(run)).choices} == {"published"}


def test_the_first_answer_stands_without_scripts() -> None:
    """Two rows a device; the cheaper arm in words is the cheaper one in the rows; a command that can be typed."""
    view = planner_view(quickstart())
    page = rendered(view)
    assert page.count("<tr data-device=") == 2 * len(DEVICES)
    ntp, sbd = (min(one.figures[2] for one, _ in view["rows"] if one.arm == arm and one.figures) for arm in ("NTP", "SBD"))
    told = f"SBD pays: {ratio(ntp / sbd)} cheaper than NTP; " if sbd < ntp else f"SBD costs {ratio(sbd / ntp)} as much as NTP; "
    since = r"it pays (at every speed|from no speed on.*|where users want more than \S+ tokens/s)\.$"
    assert told in view["answer"] and re.search(since, view["answer"])
    assert "--model llama-3.1-8b --hardware h100-sxm" in view["command"]


def test_each_arm_stands_at_its_own_best_batch() -> None:
    """First shown: of every arm on every device the batch and TP with most tokens/s per GPU, found here column by column; not
    one batch for both, and no worse than batch 8 for either.
    """
    panel = quickstart()
    rows = planner_view(panel)["rows"]
    for one, cells in rows:
        place = (DEVICES.index(one.device), one.arm != "NTP")
        every = [figures for degree in range(len(DEGREES)) for figures in panel.columns[0, 0, 0, 0, *place, degree].figures]
        assert one.figures.tokens_per_s_per_gpu == carried(max(found.tokens_per_s_per_gpu for found in every))
        assert [cells[at].raw for at in (0, 1)] == [one.tensor_parallel, one.batch]
    assert len({one.batch for one, _ in rows}) > 1


@given(*[st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=8)] * 2)
def test_from_where_on_sbd_pays(ntp: list[tuple[int, int]], sbd: list[tuple[int, int]]) -> None:
    """Against every least speed in halves: the cheapest offer of either method that is as fast, or none."""

    def pays(least: float) -> bool:
        mine, theirs = (min((usd for speed, usd in offers if speed >= least), default=99) for offers in (sbd, ntp))
        return mine < theirs

    speeds = [half / 2 for half in range(1, 2 * max(speed for speed, _ in ntp + sbd) + 1)]
    lost = [least for least in speeds if not pays(least)]
    told = pays_from(ntp, sbd)
    if not lost:
        assert told == "it pays at every speed"
    elif lost[-1] == speeds[-1]:
        assert told == "it pays from no speed on: NTP serves the fastest users"
    else:
        assert told == f"it pays where users want more than {rate(lost[-1])} tokens/s"


def test_every_column_of_figures_says_that_it_is_predicted() -> None:
    """In both tables; device, arm and batch are what was asked."""
    found = re.findall(r'<table class="plans">\s*<thead>(.*?)</thead>', rendered(planner_view(quickstart())), flags=re.DOTALL)
    heads = [re.findall(r'<th scope="col">([^<]*)(.*?)</th>', one) for one in found]
    said = [[name for name, rest in one if 'class="mark predicted"' in rest] for one in heads]
    assert said == [list(HEADS), list(HEADS[2:5])]
    assert [[name for name, rest in one if not rest] for one in heads] == [["Device", "Arm"], ["Arm", "Device", "TP", "Batch"]]


def test_hostile_names_are_inert() -> None:
    """A model's name and an arm's label cannot end the data's element, nor open one of their own."""
    evil = '</pre></script><script>alert(1)</script>"><img src=x onerror=alert(2)>'
    shape = KNOWN_SHAPES["qwen3-14b"].model_copy(update={"name": evil})
    arms = (synthetic.NTP, synthetic.Arm(label=f"SBD {evil}", gamma=0.1, passes_per_block=4))
    run = synthetic.build(model=shape, arms=arms)
    view = planner_view(panel_of(run, compare(run)))
    page = rendered(view)
    assert "<script" not in page and "<img" not in page and page.count("</pre>") == 1
    assert evil in json.loads(gzip.decompress(base64.b64decode(view["data"])))["models"][0]["where"]
