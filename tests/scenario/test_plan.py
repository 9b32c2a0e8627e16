"""The plan: its cases, ids, seeds and order; memory and expected time against hand-worked figures."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.errors import UnknownModelError, UserError
from harness.models import KNOWN_SHAPES
from harness.models.deployment import Deployment
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from harness.roofline.storage import kv_cache_bytes
from harness.runner.estimates import estimate_memory, estimate_time, process_bytes, prompt_tokens_at_most
from harness.scenario.plan import Slot, make_plan
from harness.scenario.replay import TABLE1
from harness.scenario.rounds import balanced_order
from harness.scenario.scenario import Scenario
from harness.workloads.tasks import TASKS, problems
from tests.helpers import ROOT
from tests.helpers.plans import CEILINGS, case_of, plan_of
from tests.helpers.published import published


def test_the_baseline_is_checked_on_the_first_batches() -> None:
    """Two ways of generate() beside a timed greedy NTP arm, on so many batches; interleaved with the arms they share."""
    cases = [case for case in plan_of(baseline_check=2, batch_sizes=[1, 2]).cases if case.arm.method == "generate"]
    assert [case.case_id.rpartition("/")[2] for case in cases] == ["generate-dynamic", "generate-static"] * 2
    slots = [slot for slot in plan_of(baseline_check=2, warmup=0).slots() if slot.case.arm.method == "generate"]
    assert sorted({slot.group for slot in slots}) == [0, 1]
    every = list(plan_of(baseline_check=2, warmup=0).slots())
    assert {slot.case.arm.method for slot in every[:4]} == {"ntp", "sbd", "generate"}


CHECKPOINT = {"model": {"reference": "sbd"}, "arms": [{"method": "ntp"}, {"method": "sbd", "gamma": 0.1}]}


@pytest.mark.parametrize(
    ("asked", "engines"),
    [
        ({}, []),
        ({"baseline_engines": "installed"}, ["engine-llama_cpp", "engine-vllm"]),
        ({"baseline_engines": ["vllm"]}, ["engine-vllm"]),
        ({"baseline_engines": ["vllm", "installed"]}, ["engine-llama_cpp", "engine-vllm"]),
        ({"baseline_engines": "installed", "baseline_check": 0}, []),
    ],
)
def test_engines_of_others_are_checks_as_generate_is(asked: dict[str, object], engines: list[str]) -> None:
    """On the same batches, in turn with the arms; and none are arms of the part."""
    plan = plan_of(**CHECKPOINT, **{"baseline_check": 2} | asked)
    found = [case for case in plan.cases if case.arm.server]
    assert [case.case_id.rpartition("/")[2] for case in found] == engines
    assert all(case.is_check and case.groups == 2 for case in found)
    assert {case.label for case in found} <= {"llama.cpp", "vLLM"}


@pytest.mark.parametrize(
    "changes", [{"model": {"random": "llama-250m"}}, {"tensor_parallel": 2}, {"baseline_engines": ["sglang"]}]
)
def test_engines_that_could_never_decode_the_part_are_refused(changes: dict[str, object]) -> None:
    """A model without files, one that is split, and an engine that nobody holds NTP against."""
    with pytest.raises(ValidationError, match="baseline_engines"):
        plan_of(**CHECKPOINT | {"baseline_engines": "installed"} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline_check": 0},
        {"timed": False},
        {"arms": [{"method": "ntp", "temperature": 0.7}, {"method": "sbd", "gamma": 0.1}]},
    ],
)
def test_where_there_is_nothing_to_check_the_baseline_is_left_alone(changes: dict[str, object]) -> None:
    """Left out, not timed, or not greedy."""
    assert all(case.arm.method != "generate" for case in plan_of(**changes).cases)


def test_ids_are_the_product_of_the_axes() -> None:
    """Ids are readable, unique, and those of the agreed form."""
    arms = [{"method": "ntp", "temperature": [0, 0.7]}, {"method": "sbd", "block_size": [8, 16], "gamma": [0, 0.35]}]
    workload = {"tasks": ["word_problems", "record_to_json"], "prompts": 4, "max_new_tokens": 8}
    plan = plan_of(
        name="reference", model={"reference": "sbd"}, arms=arms, batch_sizes=[1, 2], workload=workload, baseline_check=0
    )
    ids = [case.case_id for case in plan.cases]
    assert len(ids) == len(set(ids)) == 2 * 2 * (2 + 4)
    assert "reference/word_problems/b1/ntp" in ids and "reference/word_problems/b1/ntp-t0.7" in ids
    assert "reference/record_to_json/b2/sbd-k16-g0.35-t0-entropy_bounded" in ids
    assert {case.label for case in plan.cases} >= {"NTP", "NTP T=0.7", "SBD k=16 γ=0.35", "SBD k=8 γ=0"}


def test_replay_comes_from_the_published_table() -> None:
    """Mean passes per block = k / the NFE speedup of the cell, 3.03 in the paper."""
    cell = {"base_model": "qwen-3-8b", "task": "MBPP", "sampling": "sbd_gamma_high"}
    case = case_of("sbd", arms=[{"method": "ntp"}, {"method": "sbd", "acceptance": {"replay": {"table1": cell}}}])
    assert case.replay.assumed
    assert case.replay.nfe_speedup == TABLE1["qwen-3-8b", "MBPP", "sbd_gamma_high"] == 3.03
    assert case.replay.mean_passes_per_block == pytest.approx(16 / 3.03)
    assert case.part.replayed
    assert case.case_id.endswith("sbd-k16-replay-qwen-3-8b-MBPP-gamma_high-t0-entropy_bounded")
    header = case.header(KNOWN_SHAPES["llama-250m"], "eager")
    assert header.replayed == case.replay.to_dict() and header.case_id == case.case_id


def test_slots_cover_every_sample_once_and_interleave() -> None:
    """Per cell: warm-ups first; then for each repeat and group every arm once, not always in the same order."""
    plan = plan_of(repeats=6, warmup=2, batch_sizes=[1, 2], baseline_check=0)
    slots = list(plan.slots())
    assert len({slot.key for slot in slots}) == len(slots) == 2 * (2 * 2) + 6 * 2 * (4 + 2)
    first_cell = [slot for slot in slots if slot.case.batch_size == 1]
    assert slots[: len(first_cell)] == first_cell and [s.warmup for s in first_cell[:4]] == [True] * 4
    orders = set()
    for pair in zip(first_cell[4::2], first_cell[5::2], strict=True):
        assert len({(slot.group, slot.repeat) for slot in pair}) == 1
        orders.add(tuple(slot.case.label for slot in pair))
    assert len(orders) == 2


def rounds_of(slots: Iterable[Slot]) -> list[tuple[str, ...]]:
    """The case ids of each round, in the order taken, round by round."""
    rounds: dict[tuple[int, int, int], list[str]] = {}
    for slot in slots:
        if not slot.warmup:
            rounds.setdefault((slot.process, slot.repeat, slot.group), []).append(slot.case.case_id)
    return [tuple(order) for order in rounds.values()]


def uneven(rounds: Sequence[Sequence[object]]) -> int:
    """By how many turns two arms differ most in how often they stood in one position."""
    positions = list(zip(*rounds, strict=True))
    return max(max(counts) - min(counts) for place in positions for counts in [[place.count(arm) for arm in rounds[0]]])


@given(arms=st.integers(1, 13), rounds=st.integers(1, 60), seed=st.integers())
def test_every_arm_takes_every_position_equally_often(arms: int, rounds: int, seed: int) -> None:
    """After any number of rounds the counts differ by one at most, and between any two rounds by two."""
    orders = [balanced_order(range(arms), turn, lambda *of: hash((seed, of))) for turn in range(rounds)]
    assert all(sorted(order) == list(range(arms)) for order in orders)
    assert uneven(orders) <= 1 and uneven(orders[rounds // 2 :]) <= 2


@given(arms=st.integers(2, 9), seed=st.integers())
def test_every_arm_follows_every_other_equally_often(arms: int, seed: int) -> None:
    """Counted over all that a cycle has: n rounds, 2n for an odd number of arms; the next cycle likewise."""
    cycle = arms * (1 + arms % 2)
    orders = [balanced_order(range(arms), turn, lambda *of: hash((seed, of))) for turn in range(2 * cycle)]
    for half in (orders[:cycle], orders[cycle:]):
        followers = Counter(pair for order in half for pair in pairwise(order))
        assert set(followers.values()) == {cycle // arms} and len(followers) == arms * (arms - 1)


def test_no_rhythm_of_the_machine_meets_one_arm_alone() -> None:
    """Two arms that take turns as in a fixed rotation stand the same every second round: one arm is every fourth sample."""
    taken = [case_id for order in rounds_of(plan_of(repeats=100, baseline_check=0).slots()) for case_id in order]
    assert all(abs(Counter(taken[start::4]).most_common(1)[0][1] - 100) < 40 for start in range(4))  # of 200; 4 sd are 28


def test_positions_are_balanced_over_the_processes_of_a_run_and_beside_generate() -> None:
    """Three rounds a process balance nothing for five arms; the five processes together do. Rounds with generate() likewise."""
    arms = [{"method": "ntp"}, {"method": "sbd", "gamma": [0.1, 0.2, 0.3, 0.4]}]
    rounds = rounds_of(plan_of(arms=arms, processes=5, repeats=2, baseline_check=1).slots())
    plain = [order for order in rounds if len(order) == 5]
    checked = [order for order in rounds if len(order) == 7]
    assert (len(plain), len(checked)) == (5 * 7, 5) and uneven(plain) == 0 and uneven(checked) == 1
    again = rounds_of(plan_of(arms=arms, processes=5, repeats=2, baseline_check=1, seed=7).slots())
    assert again != rounds


def test_seeds_are_shared_by_arms_and_differ_between_samples() -> None:
    """NTP and SBD of a cell draw from the same seed; another group, repeat, batch size or scenario seed gives another."""
    plan = plan_of(batch_sizes=[1, 2], repeats=2)
    seeds: dict[tuple[object, ...], set[int]] = {}
    for slot in plan.slots():
        place = (slot.case.batch_size, slot.group, slot.repeat)
        seeds.setdefault(place, set()).add(slot.case.sample_seed(slot.group, slot.repeat))
    assert all(len(of_cell) == 1 for of_cell in seeds.values())
    assert len({next(iter(of_cell)) for of_cell in seeds.values()}) == len(seeds)
    assert case_of("ntp", seed=2).sample_seed(0, 0) != case_of("ntp").sample_seed(0, 0)


def test_the_plan_is_the_same_in_another_process() -> None:
    """Ids, seeds and order do not depend on the interpreter's hash seed."""
    program = (
        "from harness.scenario.plan import make_plan; from harness.scenario.loading import load_scenario\n"
        "for s in make_plan(load_scenario('quickstart')).slots(): print(s.key, s.case.sample_seed(s.group, s.repeat))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != ""


def test_the_last_batch_of_an_untimed_part_may_be_smaller() -> None:
    """Prompts are dealt out in order, each exactly once."""
    case = case_of("ntp", batch_sizes=[3], timed=False)
    assert [list(case.prompt_range(group)) for group in range(case.groups)] == [[0, 1, 2], [3]]


def test_memory_is_weights_kv_and_logits() -> None:
    """By hand for the 8B shape in bf16: 8,030,261,248 parameters; 128 KiB of KV per token; 128,256 logits."""
    case = case_of("ntp", model={"random": "llama-3.1-8b"}, batch_sizes=[2])
    memory, reason = estimate_memory(case)
    assert reason is None
    assert memory.weight_bytes == 2 * 8_030_261_248
    assert memory.kv_bytes == 2 * (64 + 33) * 128 * 1024
    assert memory.logit_bytes == 2 * 128_256 * (2 + 4)
    sbd, _ = estimate_memory(case_of("sbd", model={"random": "llama-3.1-8b"}, batch_sizes=[2]))
    assert sbd.kv_bytes == 2 * (64 + 33 + 32) * 128 * 1024 and sbd.logit_bytes == 16 * memory.logit_bytes


def test_a_captured_session_allocates_slots_by_the_piece_and_has_a_margin() -> None:
    """By hand for 64 rows of 8,192 tokens of the 8B shape, block 16: 8192 + 128 + 32 + 1 slots are 8,448 where they are
    captured, a power of two would be 16,384. Margin: 32 fed tokens of (2 x 4096 + 3 x 14336) x 2 bytes twice, 16 logits in
    bf16 and twice in float32, and 256 slots of one row for measured passes.
    """
    synthetic = {"synthetic": {"prompt_tokens": 8192}, "max_new_tokens": 128, "prompts": 64}
    shape = {"model": {"random": "llama-3.1-8b"}, "batch_sizes": [64], "workload": synthetic, "device": "cuda"}
    kv = 64 * 128 * 1024
    eager, _ = estimate_memory(case_of("sbd", **shape))
    assert (eager.kv_bytes, eager.margin_bytes) == (kv * (8192 + 128 + 32), 0)
    for execution in ("graphs", "auto", "compiled"):
        graphed, _ = estimate_memory(case_of("sbd", **shape, execution=execution))
        assert graphed.kv_bytes == kv * 8448
        assert 87e9 < graphed.total_bytes < 89e9
        pools, copies = 2 * 64 * 32 * (2 * 4096 + 3 * 14336) * 2, 64 * 16 * 128_256 * (2 + 8)
        assert graphed.margin_bytes == pools + copies + 256 * 128 * 1024
    host, _ = estimate_memory(case_of("sbd", **(shape | {"device": "cpu"}), execution="auto"))
    assert host == eager


def test_layers_that_slide_keep_their_window() -> None:
    """Gemma 3 4B by hand: 29 of 34 layers keep 1023 tokens at most, of 2 x 4 heads x 256 x 2 bytes in each layer."""
    gemma = KNOWN_SHAPES["gemma-3-4b"]
    assert kv_cache_bytes(gemma, Deployment(dtype="bfloat16"), 2048) == (5 * 2048 + 29 * 1023) * 4096


def test_time_is_the_sum_of_its_passes() -> None:
    """33 tokens: NTP 32 steps after prefill; SBD blocks of 16, 16 and 1 slots, 4 passes a block (1 in the last)."""
    shape = KNOWN_SHAPES["llama-250m"]

    def seconds(query: int, context: int, logits: int, kept: int = 0) -> float:
        described = describe_pass("decide", 1, query, context, logits=logits, kept=kept)
        return price_pass(shape, "bfloat16", described, CEILINGS).expected_s

    samples = 4 + 3
    prefill_s = seconds(64, 0, 1, 64)
    ntp, _ = estimate_time(case_of("ntp", warmup=3), CEILINGS)
    assert ntp.bound == "expected" and ntp.rung == "datasheet"
    by_hand_s = sum(seconds(1, 64 + i, 1, 1) for i in range(32))
    assert ntp.total_s == pytest.approx(samples * (prefill_s + by_hand_s), rel=1e-3)
    sbd, _ = estimate_time(case_of("sbd", warmup=3), CEILINGS)
    blocks_s = seconds(16, 64, 16) + 3 * seconds(16, 64, 16)
    blocks_s += seconds(32, 64, 16, 16) + 3 * seconds(16, 80, 16)
    blocks_s += seconds(32, 80, 16, 16)
    assert sbd.total_s == pytest.approx(samples * (prefill_s + blocks_s))


def test_real_acceptance_has_an_upper_bound_only() -> None:
    """How many tokens a pass decides is the model's to say: every token its own pass is the most it can take."""
    arms = [{"method": "ntp"}, {"method": "sbd", "gamma": 0.1}]
    estimate, _ = estimate_time(case_of("sbd", arms=arms), CEILINGS)
    replay = [{"method": "ntp"}, {"method": "sbd", "acceptance": {"replay": {"nfe_speedup": 1.0}}}]
    slowest, _ = estimate_time(case_of("sbd", arms=replay), CEILINGS)
    assert estimate.bound == "at_most"
    assert estimate.total_s == pytest.approx(slowest.total_s)


def test_prompt_bytes_bound_prompt_tokens() -> None:
    """For a built-in task the bound is the longest prompt in bytes, plus one for a start token."""
    workload = {"tasks": ["word_problems"], "prompts": 5, "max_new_tokens": 8}
    case = case_of("ntp", model={"reference": "sbd"}, arms=[{"method": "ntp"}], workload=workload, seed=3)
    assert prompt_tokens_at_most(case) == 1 + max(len(p.prompt) for p in problems(TASKS["word_problems"], "test", 5, 3))


def test_an_unknown_shape_is_a_reason_not_a_guess(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub model that is not cached has neither memory nor time; cached, its config.json is enough."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    model = {"huggingface": "org/some-model"}
    case = case_of("ntp", model=model)
    assert case.shape is None and "downloads nothing" in str(case.shape_reason)
    assert estimate_memory(case) == (None, case.shape_reason) and estimate_time(case, CEILINGS) == (None, case.shape_reason)
    folder = tmp_path / "models--org--some-model"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc\n")
    (folder / "snapshots" / "abc").mkdir(parents=True)
    config = folder / "snapshots" / "abc" / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, '
        '"intermediate_size": 128, "vocab_size": 100}'
    )
    shape = case_of("ntp", model=model).shape
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (2, 4, 16)
    config.write_text('{"model_type": "whisper"}')
    with pytest.raises(UnknownModelError, match=r"config.json.*whisper.*known are llama, mistral"):
        plan_of(model=model)


def test_a_prompt_that_is_too_long_is_refused() -> None:
    """llama-250m has 4,096 positions."""
    workload = {"synthetic": {"prompt_tokens": 4090}, "prompts": 4, "max_new_tokens": 33}
    with pytest.raises(UserError, match="4123; random llama-250m has 4096"):
        plan_of(workload=workload)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"batch_sizes": list(range(1, 20_001)), "timed": False}, "20,000 cases in one part"),
        ({"arms": [{"method": "ntp", "temperature": [n / 1e5 for n in range(30_000)]}]}, "30,000 settings"),
        ({"arms": [{"method": "sbd", "block_size": list(range(1, 2001)), "gamma": [n / 9 for n in range(2000)]}]}, "4,000,000"),
        (
            {
                "arms": [
                    {
                        "method": "sbd",
                        "solver": "low_confidence_dynamic",
                        "tau": [n / 1e4 for n in range(9000)],
                        "steps": list(range(1, 9001)),
                    }
                ]
            },
            "81,000,000 settings",
        ),
        ({"workload": {"synthetic": {"prompt_tokens": 8}, "prompts": 10**30, "max_new_tokens": 8}}, "samples"),
        ({"repeats": 10**9}, "samples"),
        ({"processes": 10**9}, "samples"),
    ],
)
def test_a_plan_that_no_run_would_finish_is_refused_by_its_number(changes: dict[str, Any], words: str) -> None:
    """Before any list of it is made, with what to do."""
    with pytest.raises(ValidationError, match=words) as refusal:
        plan_of(**{"arms": [{"method": "ntp"}]} | changes)
    assert "split the file" in str(refusal.value)


@pytest.mark.parametrize("name", ["quickstart", "verified_250m", "real_model"])
def test_the_memory_of_a_process_is_what_published_runs_took_at_their_peak(name: str) -> None:
    """The highest VmHWM of every part's process against the largest estimate among its cases, within 25 %. Theirs
    packed no weights for native forwards.
    """
    run = published(name)
    plan = make_plan(Scenario.model_validate(run.header.scenario))
    peaks: dict[str, float] = {}
    for sample in run.samples:
        part = sample.case_id.partition("/")[0]
        peaks[part] = max(peaks.get(part, 0.0), sample.meters.get("peak_memory_bytes"))
    for part, peak in peaks.items():
        told = [(case, estimate_memory(case)[0]) for case in plan.cases if case.part.name == part]
        needed = [process_bytes(case, memory) - memory.weight_bytes for case, memory in told if memory is not None]
        assert max(needed) == pytest.approx(peak, rel=0.25)
