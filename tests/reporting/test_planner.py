"""The panel: what it carries is what `sbd capacity` answers, choice by choice, and its table shows the same without scripts."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import TypeAdapter

from harness.analysis.comparison import compare
from harness.capacity.results import BreakEven
from harness.capacity.wording import pays_words
from harness.formatting import rate
from harness.models import KNOWN_SHAPES
from harness.reporting.planner.panel import BATCHES, CONTEXTS, DEVICES, LOADS, panel_of
from harness.reporting.planner.view import HEADS, embedded, planner_view, rate_carried, ratio_carried
from tests.helpers import synthetic_run as synthetic
from tests.helpers.planner_page import FIGURES, asked, choices, compared, quickstart, rendered


def ends(band: dict[str, float], carried: Callable[[float], float] = rate_carried) -> set[float]:
    """A band in the digits that the page carries."""
    return {carried(band[name]) for name in ("expected", "low", "high")}


def test_fifty_choices_are_what_capacity_answers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Speed, GPUs, money, energy, speedup and the batches at which SBD pays, for 50 random choices, to the digits carried."""
    panel = quickstart()
    data = embedded(panel)
    planned = 0
    for one in choices(panel, 50):
        device = asked(monkeypatch, capsys, one.arguments(panel))
        place = ((one.model * len(DEVICES) + one.device) * len(CONTEXTS) + one.context) * len(BATCHES) + one.batch
        sbd_arm, speedup, pays, _ = data["sbd"][place * len(panel.choices) + one.choice]
        for name, arm in (("ntp", data["ntp"][place]), ("sbd", sbd_arm)):
            said = device[name]
            if said["reason"] is not None:
                assert data["texts"][arm] == said["reason"]
                continue
            devices, *bands, gpus = arm
            assert devices == said["tensor_parallel"]
            for figure, band in zip(FIGURES, bands, strict=True):
                assert band[0] == rate_carried(said[figure]["expected"]) and set(band) == ends(said[figure]), figure
            assert gpus[one.load] == list(dict.fromkeys((said["gpus"], said["gpus_serial"])))
            planned += 1
        if device["wall_speedup"] is not None:
            assert speedup[0] == ratio_carried(device["wall_speedup"]["expected"])
            assert set(speedup) == ends(device["wall_speedup"], ratio_carried)
            (even,) = device["break_even"]
            assert data["texts"][pays] == pays_words(TypeAdapter(BreakEven).validate_python(even))
    assert planned >= 80


def test_the_data_fits_and_names_every_choice() -> None:
    """At most 300 kB, one entry per place of the grid, and figures only where a plan is."""
    panel = quickstart()
    view, data = planner_view(panel), embedded(panel)
    assert len(view["data"].encode()) <= 300_000
    assert json.loads(view["data"]) == data and data["version"] == 1
    places = len(panel.models) * len(DEVICES) * len(CONTEXTS) * len(BATCHES)
    assert len(data["ntp"]) == places and len(data["sbd"]) == places * len(panel.choices) == len(panel.points)
    assert [axis.name for axis in view["axes"]] == ["model", "device", "context", "batch", "choice", "load"]
    assert [len(axis.options) for axis in view["axes"]] == [3, 1 + len(DEVICES), 3, 4, len(panel.choices), len(LOADS)]


def test_the_run_s_own_acceptance_comes_first_and_says_whose_it_is() -> None:
    """The highlighted arm, with its measured tokens per pass, its model and what it did to the accuracy; then its others."""
    comparison, panel = compared()[1], quickstart()
    highlight = comparison.highlights[0]
    arm = next(arm for arm in comparison.summary("reference", 1).arms if arm.label == highlight.label)
    first = panel.choices[0]
    assert first.acceptance.nfe_speedup == pytest.approx(arm.nfe_speedup.value)
    assert (first.basis, first.model) == ("measured", "reference-sbd") and "the arm that answers this run" in first.remark
    assert first.label.startswith(highlight.label or "") and "accuracy against NTP" in first.remark
    bases = [one.basis for one in panel.choices]
    assert bases == sorted(bases, key=["measured", "published"].index) and bases.count("published") == 3
    assert not any("replayed" in one.label for one in panel.choices), "what was given is no acceptance where one was measured"


def test_small_models_do_not_come_first() -> None:
    """Of models below a billion parameters launch cost is most; the paper's model stands before them, a large own one first."""
    assert [shape.name for shape in quickstart().models] == ["llama-3.1-8b", "llama-250m", "reference-sbd"]
    large = synthetic.build(synthetic.Part(model=KNOWN_SHAPES["qwen3-14b"]))
    assert [shape.name for shape in panel_of(large, compare(large)).models] == ["qwen3-14b", "llama-3.1-8b"]


def test_where_only_replayed_arms_are_they_are_called_so() -> None:
    """A replayed acceptance is an input of the run: offered where there is no other, and named."""
    replayed = synthetic.Arm(label="SBD replayed 4x", gamma=0.1, passes_per_block=4, replayed={"nfe_speedup": 4.0})
    run = synthetic.build(synthetic.Part(arms=(synthetic.NTP, replayed), graded=False))
    first = panel_of(run, compare(run)).choices[0]
    assert first.basis == "replayed" and "says nothing about accuracy" in first.remark
    assert first.acceptance.nfe_speedup == pytest.approx(4)


def test_a_run_without_an_acceptance_has_table_1() -> None:
    """NTP alone, or arms slower than one token per pass: what the paper published is left."""
    run = synthetic.build(synthetic.Part(arms=(synthetic.NTP,)))
    assert {one.basis for one in panel_of(run, compare(run)).choices} == {"published"}


class _Table(HTMLParser):
    """(text, data-value, data-low, data-high) of every cell of the table without scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[dict[str, Any]]] = []
        self.inside = self.small = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "table":
            self.inside = found.get("class") == "plans every"
        elif self.inside and tag == "tr":
            self.rows.append([])
        elif self.inside and (tag == "td" or found.get("scope") == "row"):
            self.rows[-1].append({"text": "", "value": found.get("data-value"), "low": found.get("data-low")})
        self.small = tag in ("small", "sup")

    def handle_data(self, data: str) -> None:
        if self.inside and self.rows and self.rows[-1] and not self.small:
            self.rows[-1][-1]["text"] += data.strip()


def test_the_table_has_every_place_at_the_first_acceptance() -> None:
    """Without scripts: a line per model, device, context, batch and arm, its numbers those of the plan."""
    panel = quickstart()
    table = _Table()
    table.feed(rendered(planner_view(panel)))
    rows = [row for row in table.rows if row]
    shown = [point for point in panel.points if point.choice == 0]
    arms = [(point, name, getattr(point.plan, name)) for point in shown for name in ("ntp", "sbd")]
    assert len(rows) == len(arms) == 2 * len(panel.models) * len(DEVICES) * len(CONTEXTS) * len(BATCHES)
    for row, (point, name, arm) in zip(rows, arms, strict=True):
        assert [cell["text"] for cell in row[:4]] == [
            DEVICES[point.device], f"{CONTEXTS[point.context]:,}", str(BATCHES[point.batch]), name.upper()
        ]  # fmt: skip
        if arm.gpus is None:
            assert {cell["text"] for cell in row[4:9]} == {"none"}
            continue
        values = [arm.gpus, *(getattr(arm, figure).expected for figure in FIGURES)]
        assert [float(cell["value"]) for cell in row[4:9]] == values
        assert row[5]["text"] == rate(arm.tokens_per_s_per_user.expected)
        if name == "sbd":
            assert float(row[9]["value"]) == point.plan.wall_speedup.expected
    assert len(rows[0]) == 4 + len(HEADS)


def test_hostile_names_are_inert() -> None:
    """A model's name and an arm's label cannot end the data's element, nor open one of their own."""
    evil = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>'
    shape = synthetic.SHAPE.model_copy(update={"name": evil})
    arms = (synthetic.NTP, synthetic.Arm(label=f"SBD {evil}", gamma=0.1, passes_per_block=4))
    run = synthetic.build(synthetic.Part(model=shape, arms=arms))
    page = rendered(planner_view(panel_of(run, compare(run))))
    assert "<script" not in page and "<img" not in page
    inside = page[page.index('id="plan-data" hidden>') + 22 : page.index("</pre>")]
    assert evil in json.loads(html.unescape(inside))["models"][1]["where"]
