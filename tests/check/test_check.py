"""The GPU check without a GPU: what it would run is valid, nothing that did not run is passed over, every file is written."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.analysis.answer import Derived, compare
from harness.check import conduct, grid
from harness.check.attention import CAPTURABLE, MASK, AttentionTime, ReadPlace, compare_ways, places, visible, way_of
from harness.check.cells import cells_table, energy_j_per_token, rows, unreached, widths
from harness.check.conduct import exactness
from harness.check.half_precision import HalfPrecisionPass
from harness.engine.captured_attention import OPTIONS
from harness.engine.kv_cache import ForwardKind
from harness.errors import CheckFailedError, UserError
from harness.meters.clock import HostClock
from harness.models import KNOWN_SHAPES
from harness.record.schema import CaseOutcome, Run
from harness.scenario.plan import make_plan
from harness.scenario.scenario import Scenario
from tests.helpers import synthetic_run as synthetic
from tests.helpers.command import Cli
from tests.helpers.fake_clock import FakeClock
from tests.helpers.pass_bytes import pass_bytes

WAYS = (MASK, "SDPA, no mask", "SDPA, heads packed", CAPTURABLE, "flex_attention")


@pytest.mark.parametrize(("dry", "count"), [(True, 6), (False, 12)])
def test_its_scenario_is_valid_and_its_cells_share_the_weights(dry: bool, count: int) -> None:
    """Contexts times batch sizes, NTP, three block sizes and two of Table 1's rates each; four arms of energy, and NTP beside
    generate() in one cell only; one engine.
    """
    plan = make_plan(Scenario.model_validate(grid.scenario(dry)))
    arms = [case for case in plan.cases if not case.is_check]
    energy = [case for case in arms if case.part.name.startswith("energy")]
    assert (len(arms) - len(energy), len(energy)) == (count * 6 + 1, 4)
    assert {case.cell for case in plan.cases if case.is_check} == {("baseline", "synthetic", 1)}
    assert len({str(case.part.engine) for case in arms}) == 1
    rates = {case.replay.to_dict()["mean_passes_per_block"] for case in arms if case.replay and case.arm.block_size == 16}
    assert sorted(rates) == pytest.approx([16 / 4.59, 16 / 2.20])  # LiveCodeBench and GSM8K, Table 1 of the paper
    heads = KNOWN_SHAPES["llama-3.1-8b"]
    assert grid.attention_heads(False) == (heads.heads, heads.kv_heads, heads.head_dim)
    assert grid.attention_heads(True) == (grid.TINY["heads"], grid.TINY["kv_heads"], grid.TINY["head_dim"])


def test_every_arm_is_listed_with_what_became_of_it() -> None:
    """One measured, one that did not fit, one that the deadline cut off; and all of them where there is no record."""
    part = synthetic.Part()
    fast, faster = (synthetic.case(part, arm, "word_problems").case_id for arm in synthetic.ARMS[1:])
    gone = CaseOutcome(case_id=fast, outcome="does_not_fit", reason="too big")
    held = synthetic.build(part, without=frozenset({fast, faster}), outcomes=(gone,))
    states = {row.arm: row.state for row in rows(Derived(held))}
    assert states == {
        "NTP": "measured, 8 samples",
        "SBD k=16 γ=0.1": "does_not_fit: too big",
        "SBD k=16 γ=0.6": "not run: the time was up",
    }
    assert {row.arm: row.state for row in rows(Derived(held), "it broke")}["SBD k=16 γ=0.6"] == "not run: it broke"
    plan = make_plan(Scenario.model_validate(grid.scenario(True)))
    nothing = unreached(plan, "the time was up")
    assert len(nothing) == 41 and {row.state for row in nothing} == {"not run: the time was up"}


def test_the_tasks_of_an_arm_are_one_line() -> None:
    """Two tasks of 8 samples each: one line of 16, with what became of a task that did not end well."""
    part = synthetic.Part(tasks=("word_problems", "record_to_json"))
    held = synthetic.build(part)
    assert [row.state for row in rows(Derived(held))] == ["measured, 16 samples"] * 3
    gone = CaseOutcome(case_id=held.header.cases[1].case_id, outcome="failed", reason="it broke")
    [_, first, _] = rows(Derived(synthetic.build(part, outcomes=(gone,), without=frozenset({gone.case_id}))))
    assert first.state == "failed: it broke; measured, 8 samples"


def test_the_pass_shown_is_a_deciding_pass_of_the_arms_own_width() -> None:
    """Put in: a 16-token pass costs 1.3 one-token passes, the 32-token pass that commits 1.6; both stand in t(q)/t(1)."""
    held = synthetic.build(synthetic.Part())
    [ntp, first, _] = rows(Derived(held))
    assert ntp.over_one_token == pytest.approx(1.0)
    assert first.over_one_token == pytest.approx(1.3)
    curve = {(one.method, one.query_tokens): one.over_one_token for one in widths(Derived(held))}
    assert curve == pytest.approx({("ntp", 1): 1.0, ("sbd", 16): 1.3, ("sbd", 32): 1.6})


def test_what_is_left_by_the_clock_and_how_wrong_the_prices_were_stand_in_the_table() -> None:
    """Put in: blocks of 16 in 4 passes against one pass a token, each of which costs 1.3 or 1.6 one-token passes."""
    held = synthetic.build(synthetic.Part(), calibration=synthetic.calibration(True))
    comparison = compare(held)
    [ntp, first, _] = rows(Derived(held))
    arm = comparison.cells[-1].arms[1]
    assert first.nfe_speedup and first.wall_speedup and first.wall_over_passes
    assert first.wall_over_passes == pytest.approx(first.wall_speedup / first.nfe_speedup) and first.wall_over_passes < 1
    told = {one.price: one.decode_s.value / arm.decode_s.value - 1 for one in arm.predictions if one.decode_s.value}
    assert "calibrated" in first.decode_errors and first.decode_errors == pytest.approx(told)
    words = f"{100 * first.decode_errors['calibrated']:+.1f} %"
    [line] = [line for line in cells_table([first], []).splitlines() if line.startswith(f"| {first.part}")]
    assert words in line and f"{first.wall_over_passes:.3f}" in line
    assert ntp.nfe_speedup == pytest.approx(1.0)


def test_a_run_that_could_only_load_its_model_is_not_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With 90 s kept back, 1.6 minutes leave 6 s and 2.5 leave a minute: only then is one asked for."""
    monkeypatch.setattr(conduct, "exactness", lambda device: {"ntp": True})
    monkeypatch.setattr(conduct, "compare_ways", lambda *where: [])
    asked: list[float] = []

    def take(file: Path, run: Path, seconds: float) -> str:
        asked.append(seconds)
        return "the time was up"

    monkeypatch.setattr(conduct, "take_run", take)
    for minutes in (1.6, 2.5):
        conduct.check(tmp_path, minutes, dry=True)
    assert len(asked) == 1 and 50 < asked[0] <= 60


def metered(held: Run, window_s: float, **meters: float) -> Run:
    """Every sample takes ``window_s`` over prefill and decode, and carries these readings; the decode keeps its time."""
    return synthetic.altered(held, lambda sample: {"meters": meters, "prefill_s": window_s - (sample.decode_s or 0.0)})


def of_part(held: Run, **event: Any) -> Run:
    """The run with what its session recorded of the part's meters."""
    session = {"event": "meters", "part": "reference", "figures": {}, "absent": []} | event
    return held.model_copy(update={"sessions": [*held.sessions, session]})


def test_energy_and_counted_bytes_stand_beside_the_modelled_ones() -> None:
    """By hand: 650 J for 65 tokens are 10 J each; 40 % of 10 GB/s each over 10 s, against the modelled bytes of every pass."""
    held = metered(synthetic.build(synthetic.Part()), 10.0, energy_j=650.0, dram_bandwidth_pct=40.0)
    copied = {"kernel": "copy", "bytes_": 5 * 10**11, "seconds": 1.0, "percent": 50.0}
    scale = {"taken_at": "2020-01-01T00:00:00+00:00", "counter": "GPM", "copied": copied}
    [ntp, *_] = rows(Derived(of_part(held, bandwidth_scale=scale)))
    assert ntp.energy_j_per_token == pytest.approx(10.0) and ntp.missing == ()
    one = next(sample for sample in held.samples if sample.case_id == held.header.cases[0].case_id)
    modelled = sum(pass_bytes(synthetic.SHAPE, "bfloat16", each) for each in one.passes.passes())
    assert one.passes.role[0] == "prefill"
    assert ntp.counted_bytes_per_s == pytest.approx(400e9)
    assert ntp.counted_over_modelled == pytest.approx(400e9 * 10 / modelled)


def test_missing_energy_says_why() -> None:
    """A short window and an absent meter are two reasons, each beneath the table."""
    held = synthetic.build(synthetic.Part())
    [short, *_] = rows(Derived(metered(held, 4.0, energy_j=1.0)))
    assert short.energy_j_per_token is None
    assert "energy: a window took 4.0 s on average, 5 s are needed" in short.missing
    absent = [{"figures": ["energy_j", "dram_bandwidth_pct"], "reason": "the work runs on no NVIDIA GPU", "remedy": "none"}]
    [none, *_] = found = rows(Derived(of_part(held, absent=absent)))
    whys = ("energy: the work runs on no NVIDIA GPU", "memory counter: the work runs on no NVIDIA GPU")
    assert none.missing == whys and none.counted_bytes_per_s is None
    assert all(f"- {why}" in cells_table(found, []) for why in whys)
    assert energy_j_per_token([], None) == (None, "energy: every sample was void")


def test_void_samples_are_counted_and_bring_no_energy() -> None:
    """One of NTP's eight was throttled: its energy is left out, and the row says so."""
    held = metered(synthetic.build(synthetic.Part()), 10.0, energy_j=650.0)
    place = next(i for i, sample in enumerate(held.samples) if not sample.warmup)
    throttled = held.samples[place].model_copy(update={"meters": {"energy_j": 9e9, "throttle_hw_thermal_s": 1.0}})
    samples = [*held.samples[:place], throttled, *held.samples[place + 1 :]]
    [ntp, *_] = rows(Derived(held.model_copy(update={"samples": samples})))
    assert ntp.state == "measured, 8 samples, 1 of them void"
    assert ntp.energy_j_per_token == pytest.approx(10.0)


def test_the_engine_writes_the_tokens_of_the_plain_session() -> None:
    """The check that a GPU will run, on this CPU."""
    found = exactness("cpu")
    assert len(found) == 12 and all(found.values())


def brute_force(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, place: ReadPlace) -> torch.Tensor:
    """Attention by loops over rows, heads and queries: which keys a query may look at is spelled out anew."""
    out = torch.empty_like(q)
    shared = q.shape[1] // k.shape[1]
    for row in range(q.shape[0]):
        for head in range(q.shape[1]):
            keys, values = k[row, head // shared], v[row, head // shared]
            for query in range(q.shape[2]):
                seen = place.context + (query + 1 if query < place.causal else place.queries)
                weights = torch.softmax(keys[:seen] @ q[row, head, query] / math.sqrt(q.shape[3]), dim=0)
                out[row, head, query] = weights @ values[:seen]
    return out


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [ReadPlace(2, 5, 1, 0), ReadPlace(2, 5, 4, 0), ReadPlace(2, 5, 8, 4)])
def test_every_way_attends_as_the_definition_says(way: str, place: ReadPlace) -> None:
    """Against loops in float64: what is timed is the same attention, whichever way it takes."""
    torch.manual_seed(3)
    q = torch.randn(place.batch, 6, place.queries, 8, dtype=torch.float64)
    k, v = (torch.randn(place.batch, 2, place.keys, 8, dtype=torch.float64) for _ in "kv")
    attend = way_of(way, place, "cpu")
    if attend is None:
        assert way == "SDPA, heads packed" and place.causal
        return
    assert torch.allclose(attend(q, k, v), brute_force(q, k, v, place), atol=1e-12)


def test_the_places_are_one_k_and_2k_queries() -> None:
    """Only the pass of 2k queries has causal ones, and its mask hides from the i-th what comes behind it."""
    assert places([(1, 3, 2)]) == [ReadPlace(1, 3, 1, 0), ReadPlace(1, 3, 2, 0), ReadPlace(1, 3, 4, 2)]
    hidden = (~visible(ReadPlace(1, 3, 4, 2), "cpu")).nonzero().tolist()
    assert hidden == [[0, 4], [0, 5], [0, 6], [1, 5], [1, 6]]


def test_attention_is_timed_by_the_clock_and_cut_off_by_the_deadline() -> None:
    """A span of 8 calls takes one tick of the fake clock, so each call 1/8 s; after the third look at the time it is up."""
    time_s = iter(range(100))
    found = compare_ways(
        "cpu", torch.float32, (4, 2, 8), [(1, 4, 2)], FakeClock(), deadline_s=2.5, now_s=lambda: float(next(time_s))
    )
    assert [one.queries for one in found] == [1] * 5 + [2] * 5 + [4] * 5
    assert [one.seconds for one in found[:3]] == [0.125] * 3 and [one.over_mask for one in found[:3]] == [1.0] * 3
    assert {one.reason for one in found[3:]} == {"not run: the time was up"}


def test_an_attention_that_is_missing_here_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build without flex_attention, or a device that refuses it, costs one line, not the check."""

    def refuse(fed: ForwardKind) -> None:
        raise RuntimeError("not on this device\nand more")

    monkeypatch.setitem(OPTIONS, "flex", refuse)
    found = compare_ways("cpu", torch.float32, (4, 2, 8), [(1, 4, 2)], HostClock(), deadline_s=math.inf)
    assert [one.reason for one in found if one.way == "flex_attention"] == ["RuntimeError: not on this device"] * 3
    assert all(one.difference is not None and one.difference < 1e-5 for one in found if one.seconds is not None)


FILES = {"scenario.yaml", "cells.json", "cells.md", "attention.json", "attention.md", "exactness.json", "doctor.json"}


def test_a_dry_run_without_time_writes_every_file_and_lists_everything_as_not_run(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command itself; no second is left for the run, nor for attention."""
    monkeypatch.setattr(conduct, "take_run", lambda file, run, seconds: "the time was up")
    assert cli("check", "--dry-run", "--minutes", "0", "--out", str(tmp_path / "out")) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES
    cells = json.loads((tmp_path / "out" / "cells.json").read_text())
    assert cells["version"] == 3 and cells["dry_run"] and cells["stopped"] == "the time was up"
    assert {cell["state"] for cell in cells["cells"]} == {"not run: the time was up"} and len(cells["cells"]) == 41
    times = json.loads((tmp_path / "out" / "attention.json").read_text())["times"]
    assert {(one["reason"], one["seconds"]) for one in times} == {("not run: the time was up", None)} and len(times) == 45
    assert json.loads((tmp_path / "out" / "doctor.json").read_text())["device"] == "cpu"
    assert "context_32768_batch_4" in cli.out


def test_a_run_that_breaks_is_not_called_late(tmp_path: Path) -> None:
    """A real process that cannot read its scenario ends with code 2, and that is what the table will say."""
    missing = tmp_path / "missing.yaml"
    assert conduct.take_run(missing, tmp_path / "run", 60.0) == "the run ended with exit code 2"


def test_a_run_whose_time_is_up_is_ended(tmp_path: Path) -> None:
    """A real run of the dry cells with no time left: it is interrupted, and that is what the table will say."""
    file = tmp_path / "scenario.yaml"
    conduct._write_scenario(file, tmp_path / "run", dry=True)
    assert conduct.take_run(file, tmp_path / "run", 0.0) == "the time was up"


RIGHT = HalfPrecisionPass(rows=1, capacity=200, tokens="1", run="captured", error=0.01)
NO_NUMBER = HalfPrecisionPass(rows=4, capacity=900, tokens="16", run="replayed", error=None)
FAULTS = {
    "wrong tokens": ({"ntp": True, "ragged": False}, [RIGHT], 0.0, r"plain session's tokens \(ragged\)"),
    "no number": ({"ntp": True}, [RIGHT, NO_NUMBER], 0.0, "1 of 2 .* .rows 4, capacity 900, tokens 16, replayed: no number."),
    "too far apart": ({"ntp": True}, [replace(RIGHT, error=0.07)], 0.0, "1 of 1 passes of graphs"),
    "no difference": ({"ntp": True}, [replace(RIGHT, error=0.0)], 0.0, "1 of 1 passes of graphs"),
    "attention": ({"ntp": True}, [RIGHT], math.nan, "attention over used lengths differs from the masked one by nan"),
    "attention unread": ({"ntp": True}, [RIGHT], -1.0, "attention over used lengths differs from the masked one by -1.0"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_device_computes_wrong_fails_the_check_after_the_files_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    """Exit code 1, and the fault is named; what was measured stays."""
    exact, half, difference, words = FAULTS[fault]
    monkeypatch.setattr(conduct, "exactness", lambda device: exact)
    monkeypatch.setattr(conduct, "half_precision", lambda device: half)
    time = AttentionTime(batch=1, context=1, queries=1, way=CAPTURABLE, seconds=1.0, difference=difference)
    monkeypatch.setattr(conduct, "compare_ways", lambda *arguments: [time])
    with pytest.raises(CheckFailedError, match=words) as failed:
        conduct.check(tmp_path, 0.0, dry=True)
    assert failed.value.exit_code == 1 and (tmp_path / "cells.md").exists()
    written = json.loads((tmp_path / "exactness.json").read_text())
    assert written["exact"] == exact and [one["right"] for one in written["half_precision"]] == [one.right for one in half]


def test_another_run_in_the_folder_is_not_mixed_in(tmp_path: Path) -> None:
    """A dry run must not go on where a real one stopped."""
    (tmp_path / "run").mkdir()
    (tmp_path / "scenario.yaml").write_text("name: other\n")
    with pytest.raises(UserError, match="it holds another run"):
        conduct.check(tmp_path, 0.0, dry=True)


def test_without_a_gpu_it_is_refused(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2 and what to do instead."""
    monkeypatch.setattr("harness.engine.loading.device_here", lambda: "cpu")
    assert cli("check") == 2
    assert "--dry-run" in cli.err


@pytest.mark.full
def test_the_whole_dry_run(cli: Cli, tmp_path: Path) -> None:
    """Everything for real, on the CPU: every arm of every cell is measured, every way of attending has a time or a reason."""
    assert cli("check", "--dry-run", "--out", str(tmp_path)) == 0
    cells = json.loads((tmp_path / "cells.json").read_text())
    assert all(cell["state"].startswith("measured") for cell in cells["cells"])
    times = json.loads((tmp_path / "attention.json").read_text())["times"]
    assert all((one["seconds"] is None) == (one["reason"] is not None) for one in times)
    assert (tmp_path / "run" / "report.html").exists()
