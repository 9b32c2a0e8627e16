"""The shipped systems against a table typed on its own; every recipe builds; a file with a mistake is refused with its line."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import mean

import pytest

from harness.errors import UserError
from harness.hardware.figures import SourcedFigure
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.roofline.ceilings import ceilings_from_profile
from harness.roofline.methods.calls import PricedAt, price_method
from harness.roofline.methods.set_block import next_token, verified_set_block, whole_sequence
from harness.roofline.methods.speculative import speculative
from harness.roofline.methods.systems import RECIPES, System, known_systems, read_systems
from harness.scenario.replay import TABLE1, TABLE1_TASKS
from tests.helpers import DATA, ROOT

TABLE = DATA / "methods_figures.csv"
SYSTEMS = {system.name: system for system in known_systems()}
AT = PricedAt(target=KNOWN_SHAPES["llama-3.1-8b"], context_tokens=1000)
NAMED = (
    "SpecFormer",
    "Jakiro",
    "Hidden Transfer",
    "HSD",
    "AdaDecode",
    "CALM (early exit)",
    "CALM (continuous)",
    "FREE",
    "OverFill",
    "APD",
    "FreeDave",
    "SDLM",
)
# Where the sources hold too little; these have no trace of their own, but one over a range that is stated.
UNPRICED = {
    "HSD",
    "CALM (early exit)",
    "FREE",
    "AdaDecode",
    "Hidden Transfer",
    "Next block, video",
    "Next block, long documents",
    "Split computing, NTP",
    "Split computing, SBD",
}
# A value that makes sense for each figure, to build what no publication lets us build.
PLAUSIBLE = {
    "acceptance": 0.7,
    "tokens": 4,
    "share_of_layers": 0.25,
    "mean_exit_share_of_layers": 0.4,
    "early_share": 0.6,
    "early_share_1": 0.3,
    "early_share_2": 0.2,
    "early_share_3": 0.1,
    "tree_tokens": 20,
    "tokens_per_pass": 2.5,
    "block_size": 64,
    "megabits_per_s": 100,
}


OURS = "Self-speculation"


def typed_rows() -> list[dict[str, str]]:
    """The table typed from the sources; ``a/b`` is arithmetic on two figures of the source."""
    with TABLE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float:
    """A typed figure; derived ones are written as the division they come from."""
    above, _, below = text.partition("/")
    return float(above) / float(below or 1)


def figures_of(system: System) -> dict[str, SourcedFigure]:
    """Every figure with a value, the published speedup among them."""
    every = {**system.figures, "speedup": system.speedup}
    return {name: figure for name, figure in every.items() if figure.value is not None}


def test_our_own_figures_are_those_of_our_records() -> None:
    """To two digits, with the intervals that the sources name; blocks of 5 are k (k + 1) query tokens, as our decoder feeds."""
    passes, timed, epyc = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))["figures"]
        for name in ("real_model_passes", "real_model", "real_model_epyc")
    )
    found = figures_of(SYSTEMS[OURS])
    assert found["tree_tokens"].value == 5 * 6
    assert found["tokens_per_pass"].value == round(passes["nfe_speedup"], 2)
    interval = f"{passes['nfe_speedup_low']:.2f} to {passes['nfe_speedup_high']:.2f}"
    assert interval in found["tokens_per_pass"].source
    assert found["speedup"].value == round(timed["verified_wall_speedup"], 2)
    assert f"{timed['verified_wall_speedup_low']:.2f} to" in found["speedup"].source
    assert f"{epyc['verified_wall_speedup']:.2f} on two EPYC cores" in found["speedup"].source


def test_every_figure_is_that_of_the_typed_table() -> None:
    """No figure of the file is missing in the table and none of the table in the file; values to the digit, and grades."""
    # Held against Table 1 and our own records below.
    derived = {(name, "nfe_speedup") for name in ("SBD, low gamma", "SBD, high gamma", "Split computing, SBD")}
    derived |= {(OURS, name) for name in figures_of(SYSTEMS[OURS])}
    found = {(s.name, name): figure for s in known_systems() for name, figure in figures_of(s).items()}
    typed = {(row["system"], row["figure"]): row for row in typed_rows()}
    assert set(found) - derived == set(typed)
    for key, row in typed.items():
        tolerance = 0.005 if "/" in row["value"] else 0
        assert found[key].value == pytest.approx(number(row["value"]), abs=tolerance, rel=1e-12), key
        assert found[key].grade == row["grade"], key
        also = [number(text) for text in row["also"].split("|") if text]
        assert [other.value for other in found[key].also] == pytest.approx(also, abs=0.005), key


@pytest.mark.parametrize("gamma", ["low", "high"])
def test_speedups_of_sbd_are_the_means_of_table_1(gamma: str) -> None:
    """Mean NFE speedup over the six tasks, Llama-3.1 8B."""
    published = mean(TABLE1["llama-3.1-8b", task, f"sbd_gamma_{gamma}"] for task in TABLE1_TASKS)
    assert SYSTEMS[f"SBD, {gamma} gamma"].figures["nfe_speedup"].value == pytest.approx(published, abs=5e-4)
    over_a_link = SYSTEMS["Split computing, SBD"].figures["nfe_speedup"].value
    assert gamma == "high" or over_a_link == pytest.approx(published, abs=5e-4)


def test_every_named_system_is_there_and_says_why_where_it_is_not_priced() -> None:
    """The twelve systems, each priced or with a reason for every figure it lacks; nothing is guessed."""
    assert set(NAMED) <= set(SYSTEMS)
    assert {name for name, system in SYSTEMS.items() if system.trace(AT) is None} == UNPRICED
    for name in UNPRICED:
        assert SYSTEMS[name].missing
        assert all(re.search(r"\w+ \w+", reason) for reason in SYSTEMS[name].missing.values())
    assert all("arXiv" in SYSTEMS[name].reference for name in NAMED)


@pytest.mark.parametrize("name", sorted(UNPRICED))
def test_an_assumed_range_is_a_band_from_slow_to_fast(name: str) -> None:
    """Every figure that is missing has a range, one of them moves, and the best end is the faster one."""
    system, roof = SYSTEMS[name], ceilings_from_profile(load_profile("h100-sxm"), "bfloat16")
    assert {figure for figure, one in system.figures.items() if one.value is None} == set(system.assumed)
    assert any(one.worst != one.best for one in system.assumed.values())
    worst, best = (price_method(system.assumed_trace(AT, share), "bfloat16", roof) for share in (0.0, 1.0))
    assert best.expected_s < worst.expected_s
    other = SYSTEMS[system.against]
    if other.assumed:  # both at one share are at the same figures
        shared = set(other.assumed) & set(system.assumed)
        assert shared and all(other.assumed[figure] == system.assumed[figure] for figure in shared)


def test_split_computing_is_no_slower_than_a_bound_below_the_published_speed() -> None:
    """Mistral 7B over 80 ms makes 8.7 to 9.3 tokens/s with 1.2 to 1.3 tokens a pass (abstract of arXiv 2602.16760).

    Round trip and model passes alone allow more, but not twice as much.
    """
    roof = ceilings_from_profile(load_profile("a100-80-sxm"), "bfloat16")
    price = price_method(SYSTEMS["Split computing, NTP"].assumed_trace(AT, 0.5), "bfloat16", roof)
    assert 9.3 < 1.25 / price.expected_s < 2 * 8.7


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_every_recipe_builds_once_its_figures_are_known(name: str) -> None:
    """With plausible figures in place of the missing ones each system has a trace and a price, also on another model."""
    system = SYSTEMS[name]
    filled = {
        figure: value if value.value is not None else SourcedFigure(value=plausible(figure), grade="U", source="for the test")
        for figure, value in system.figures.items()
    }
    system = system.model_copy(update={"figures": filled})
    for shape in KNOWN_SHAPES.values():
        at = PricedAt(target=shape, batch=2, context_tokens=500)
        trace = system.trace(at)
        assert trace is not None
        assert all(call.count_per_token >= 0 for call in trace.calls)
        price = price_method(trace, "bfloat16", ceilings_from_profile(load_profile("h100-sxm"), "bfloat16"))
        assert 0 < price.low_s <= price.expected_s <= price.high_s


def plausible(figure: str) -> float:
    """The entry of PLAUSIBLE whose name ends the figure's most closely."""
    return PLAUSIBLE[max((key for key in PLAUSIBLE if figure.endswith(key)), key=len)]


def test_tokens_per_pass_of_the_traces_are_the_published_ones() -> None:
    """Where a system publishes tokens per pass, its trace emits as many per target pass."""
    for system in known_systems():
        published = system.figures.get("tokens_per_pass") or system.figures.get("nfe_speedup")
        trace = system.trace(AT)
        if published is not None and published.value is not None and trace is not None:
            assert trace.tokens_per_target_pass == pytest.approx(published.value), system.name
    trace = SYSTEMS["FreeDave"].trace(AT)
    assert trace is not None
    assert trace.tokens_per_target_pass == pytest.approx(4 / 3.02)
    trace = SYSTEMS["NTP"].trace(AT)
    assert trace == next_token(AT)


def test_priced_speedups_stay_above_those_measured_on_the_same_part() -> None:
    """EAGLE-2 on an A100 as published (2.36x, Vicuna-7B): a roofline without launch cost is optimistic, by less than a half.

    The models differ (8B with a vocabulary of 128k instead of 7B with 32k), so this is a check of the order of magnitude.
    """
    roof = ceilings_from_profile(load_profile("a100-80-sxm"), "float16")
    at = PricedAt(target=KNOWN_SHAPES["llama-3.1-8b"], context_tokens=300)
    trace = SYSTEMS["EAGLE-2"].trace(at)
    assert trace is not None
    ntp = price_method(next_token(at), "float16", roof)
    _, expected, _ = ntp.speedup_of(price_method(trace, "float16", roof))
    published = SYSTEMS["EAGLE-2"].speedup.value
    assert published is not None and published < expected < 1.5 * published


def test_the_grade_is_the_weakest() -> None:
    """One unverified figure makes the row unverified; a system that rests on none has no grade."""
    assert SYSTEMS["EAGLE-2"].grade == "U"
    assert SYSTEMS["Jakiro"].grade == "V"
    assert SYSTEMS["NTP"].grade is None


ENTRY = """\
systems:
  - name: mine
    reference: "me"
    lossless: "yes"
    recipe: chunks
    figures:
      tokens_per_pass: {value: 4, grade: R, source: "my run"}
    speedup: {value: null, over: NTP, source: "not timed"}
"""


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("recipe: chunks", "recipe: chunk", r"systems.yaml:2: .*unknown recipe 'chunk'; allowed: next_token"),
        ("tokens_per_pass:", "tokens_a_pass:", r"missing are \[tokens_per_pass\], unknown are \[tokens_a_pass\]"),
        ("value: 4, grade: R", "value: 4", r"systems.yaml:7: .*needs a grade"),
        ("value: 4", "value: four", r"systems.yaml:7: .*valid number"),
        ('lossless: "yes"', 'losless: "yes"', r"did you mean 'lossless'"),
        ("    speedup", "    assumed: {x: {worst: 1, best: 2, why: 'assumption: x'}}\n    speedup", r"assumed are \[x\]"),
        ("recipe: chunks", "auxiliary_source: me\n    recipe: chunks", "takes no auxiliary model"),
        (ENTRY, "", "list systems as in the shipped systems.yaml"),
    ],
)
def test_a_mistake_is_refused_with_file_and_line(tmp_path: Path, old: str, new: str, words: str) -> None:
    """What is wrong, where, and what is allowed."""
    path = tmp_path / "systems.yaml"
    path.write_text(ENTRY.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        read_systems(path)


def test_a_list_of_ones_own_is_read(tmp_path: Path) -> None:
    """The untouched entry is accepted, so that the refusals above are about their mistakes; listed twice it is not."""
    path = tmp_path / "systems.yaml"
    path.write_text(ENTRY, encoding="utf-8")
    (mine,) = read_systems(path)
    assert (mine.name, mine.grade, mine.missing) == ("mine", "R", {})
    path.write_text(ENTRY + ENTRY.partition("\n")[2], encoding="utf-8")
    with pytest.raises(UserError, match="listed twice: mine"):
        read_systems(path)


DRAFT_MODEL = """\
systems:
  - name: draft model
    reference: "me"
    lossless: "the target's own distribution"
    recipe: draft_model
    figures:
      drafted_tokens: {value: 3, grade: R, source: "my run"}
      acceptance: {value: 0.8, grade: R, source: "my run"}
    auxiliary: {name: small, layers: 2, hidden: 64, intermediate: 128, heads: 4, kv_heads: 2, head_dim: 16, vocab: 128256}
    auxiliary_source: "my config.json"
    speedup: {value: null, over: NTP, source: "not timed"}
  - name: verified
    reference: "me"
    lossless: "greedy NTP, same weights"
    recipe: verified_set_block
    figures:
      block_size: {value: 16, grade: R, source: "my run"}
      draft_passes: {value: 2.5, grade: R, source: "my run"}
      acceptance: {value: 0.9, grade: R, source: "my run"}
    speedup: {value: null, over: NTP, source: "not timed"}
  - name: no cache
    reference: "me"
    lossless: "no"
    recipe: whole_sequence
    figures:
      new_tokens: {value: 64, grade: R, source: "my run"}
      passes: {value: 16, grade: R, source: "my run"}
    speedup: {value: null, over: NTP, source: "not timed"}
"""


def test_the_three_recipes_of_no_shipped_system(tmp_path: Path) -> None:
    """A draft model of its own shape, verified SBD and whole sequences, from a user's file; every other recipe has a shipped
    system.
    """
    path = tmp_path / "systems.yaml"
    path.write_text(DRAFT_MODEL, encoding="utf-8")
    read = read_systems(path)
    draft_model, verified, no_cache = (system.trace(AT) for system in read)
    assert draft_model == speculative(AT, auxiliary=read[0].auxiliary, drafted_tokens=3, acceptance=0.8)
    assert verified == verified_set_block(AT, block_size=16, draft_passes=2.5, acceptance=0.9)
    assert no_cache == whole_sequence(AT, new_tokens=64, passes=16)
    assert {system.recipe for system in (*known_systems(), *read)} == set(RECIPES)
