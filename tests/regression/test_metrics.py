"""The figures that runs are gated by, held against arithmetic on what the synthetic run was made of."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest

from harness.errors import UserError
from harness.record.schema import CaseOutcome, Run
from harness.regression.changes import compare_runs
from harness.regression.counted import counted
from harness.regression.metrics import CellMetric, primary_metrics, timed_metrics
from harness.regression.timed import log_ratios, numbers, observed, processes_of
from tests.helpers.pass_bytes import pass_bytes
from tests.helpers.synthetic_run import ARMS, SHAPE, Part, altered, build, with_samples
from tests.helpers.two_runs import in_processes, two_arms

NTP_S_PER_TOKEN = 0.011
SBD_S_PER_TOKEN = (4 * 0.013 + 3 * (0.016 + 3 * 0.013) + 16 * 0.001) / 64
"""Four blocks of 16 tokens in four passes each: the first pass of a block but the first feeds 32 tokens, the others 16."""


def by_key(run: Run) -> dict[str, Any]:
    """Counts by metric key."""
    return {metric.key: count for metric, count in counted(run).items()}


def timed(name: str, arm: str, run: Run) -> CellMetric:
    """The one metric that this is."""
    return next(one for one in timed_metrics(run) if one.name == name and one.arm.startswith(arm))


def test_counts_are_those_put_in() -> None:
    """Passes, tokens, tokens per pass and modelled bytes of four prompts of 64 decode tokens, by hand; warm-ups left out."""
    run = two_arms()
    found = {key: count.value for key, count in by_key(run).items()}
    ntp, sbd = "reference/word_problems/b1/ntp", "reference/word_problems/b1/sbd-k16-g0.1-t0-entropy_bounded"
    assert found[f"passes:{ntp}"] == 4 * 64 and found[f"passes:{sbd}"] == 4 * 16
    assert found[f"decode_tokens:{ntp}"] == found[f"decode_tokens:{sbd}"] == 4 * 64
    assert found[f"final_tokens_per_pass:{ntp}"] == 1 and found[f"final_tokens_per_pass:{sbd}"] == 4
    passes = [one for s in run.samples if s.case_id == sbd and not s.warmup for one in s.passes.passes()]
    assert found[f"modelled_bytes:{sbd}"] == sum(pass_bytes(SHAPE, "bfloat16", p) for p in passes if p.role != "prefill")
    assert not any("peak" in key for key in found)  # no meter read it


def test_the_output_hash_is_that_of_all_ids_in_the_order_of_the_prompts() -> None:
    """By a digest written down here; the order in which the samples were taken does not matter, one token does."""
    run = two_arms(prompts=2)
    ids = ",".join(["7"] * 65)
    expected = hashlib.sha256(f'[["p0",[{ids}]],["p1",[{ids}]]]'.encode()).hexdigest()
    backwards = with_samples(run, run.samples[::-1])
    key = "output_sha256:reference/word_problems/b1/ntp"
    assert by_key(run)[key].value == by_key(backwards)[key].value == expected
    last = run.samples[2]
    row = last.rows[0].model_copy(update={"output_ids": [7] * 64 + [8]})
    other = with_samples(run, [*run.samples[:2], last.model_copy(update={"rows": [row]}), *run.samples[3:]])
    assert by_key(other)[key].value != expected


def test_repeats_and_processes_count_once() -> None:
    """However often a prompt was decoded, its passes count once: runs of different lengths agree."""
    once, often = by_key(two_arms()), by_key(in_processes(two_arms(repeats=3), 1.0, 1.1))
    assert once == often


def test_only_the_first_repeat_counts() -> None:
    """At temperature 1 every repeat writes something else; how many there are must not matter."""
    once, often = two_arms(), two_arms(repeats=2)
    warm = [case.model_copy(update={"arm": case.arm | {"temperature": 1.0}}) for case in once.header.cases]
    rows = {s.repeat: [row.model_copy(update={"output_ids": [s.repeat] * 65}) for row in s.rows] for s in often.samples}
    found = []
    for run in (once, often):
        samples = [s.model_copy(update={"rows": rows[s.repeat]}) for s in run.samples]
        header = run.header.model_copy(update={"cases": warm})
        found.append(by_key(Run(header=header, samples=samples, outcomes=[], sessions=[])))
    assert found[0] == found[1] and all(count.value is not None for count in found[0].values())


def test_what_a_run_does_not_repeat_is_not_deterministic() -> None:
    """A second process that wrote something else: no value, and the reason names the batch."""
    run = in_processes(two_arms(), 1.0, 1.0)
    last = run.samples[-1]
    row = last.rows[0].model_copy(update={"output_ids": [8] * 65})
    other = with_samples(run, [*run.samples[:-1], last.model_copy(update={"rows": [row]})])
    found = {key: count for key, count in by_key(other).items() if "sbd" in key}
    assert found and all(count.value is None and "batch 3 was decoded again" in str(count.reason) for count in found.values())


def test_a_case_without_samples_says_how_it_ended() -> None:
    """The outcome that the run recorded is the reason."""
    case_id = "reference/word_problems/b1/ntp"
    outcome = CaseOutcome(case_id=case_id, outcome="does_not_fit", reason="9 GB")
    run = build(outcomes=(outcome,), without=frozenset({case_id}))
    assert by_key(run)[f"passes:{case_id}"].reason == "does_not_fit: 9 GB"


def test_the_peak_is_the_largest_that_a_meter_read() -> None:
    """Over all samples of the case, warm-ups left out."""
    run = two_arms()
    samples = [s.model_copy(update={"meters": {"peak_memory_bytes": 1e6 + i}}) for i, s in enumerate(run.samples)]
    found = by_key(with_samples(run, samples))
    assert found["peak_memory_bytes:reference/word_problems/b1/ntp"].value == 1e6 + 4


def test_one_number_per_process() -> None:
    """Time per token and speedup by hand; a process that is slower as a whole has the same speedup."""
    run = in_processes(two_arms(), 1.0, 1.1, 0.9)
    processes = processes_of(run)
    for arm, s_per_token in (("ntp", NTP_S_PER_TOKEN), ("sbd", SBD_S_PER_TOKEN)):
        found = numbers(timed("decode_s_per_token", arm, run), processes)
        assert found == pytest.approx([s_per_token, 1.1 * s_per_token, 0.9 * s_per_token])
    assert numbers(timed("wall_speedup", "sbd", run), processes) == pytest.approx([NTP_S_PER_TOKEN / SBD_S_PER_TOKEN] * 3)
    assert numbers(timed("prefill_s", "sbd", run), processes) == pytest.approx([0.02, 0.022, 0.018])


def test_a_time_that_is_void_on_one_side_is_left_out_on_the_other() -> None:
    """The slowest prompt of NEW was void: with it in BASE alone, NEW would look faster than it is."""
    run = two_arms(jitter=0.5)
    new = altered(run, lambda s: {"decode_s": None, "prefill_s": None} if s.group == 3 else {})
    metric = timed("decode_s_per_token", "ntp", run)
    assert numbers(metric, processes_of(run), processes_of(new)) == pytest.approx([NTP_S_PER_TOKEN * 1.5] * 2)
    assert numbers(metric, processes_of(run)) == pytest.approx([NTP_S_PER_TOKEN * 1.75])
    base_times, new_times = observed(metric, processes_of(run), processes_of(new))
    assert base_times.prompts == new_times.prompts and len(base_times.values) == 3
    assert all(math.isclose(one, other) for one, other in zip(base_times.values, new_times.values, strict=True))


def test_no_shared_time_is_a_reason() -> None:
    """The rules that voided the times are in it."""
    run = two_arms()
    meters = {"compiled_graphs": 1.0}
    void = altered(run, lambda s: {"meters": meters})
    found = numbers(timed("prefill_s", "ntp", run), processes_of(run), processes_of(void))
    assert isinstance(found, str) and "compiled while the clock ran" in found


def kept(run: Run, *groups: tuple[int, int]) -> Run:
    """The run's samples of these (process, batch) alone."""
    return with_samples(run, (one for one in run.samples if (one.process, one.group) in groups))


def test_a_process_is_gated_beside_its_twin_alone() -> None:
    """Pairs of processes with prompts of their own: by hand; a pair that shares no prompt has no ratio, but a reason."""
    both = in_processes(two_arms(), 1.0, 1.1)
    metric = timed("decode_s_per_token", "ntp", both)
    base, other = processes_of(kept(both, (0, 0), (1, 1))), processes_of(kept(both, (0, 1), (1, 0)))
    assert log_ratios(metric, base, base) == pytest.approx([0, 0])
    assert log_ratios(metric, base, other[1:]) == pytest.approx([math.log(1.1)])
    found = log_ratios(metric, base, other)
    assert isinstance(found, str) and "no decode of it was timed everywhere" in found


@pytest.mark.parametrize(
    ("of_base", "of_new"),
    [
        pytest.param([(0, 0), (1, 1)], [(0, 2), (1, 3)], id="no prompt in common"),
        pytest.param([(0, 0), (0, 1), (1, 0), (1, 2)], [(0, 1), (1, 2)], id="one that both of a run have"),
    ],
)
def test_runs_with_other_prompts_have_a_reason_in_place_of_a_change(
    of_base: list[tuple[int, int]], of_new: list[tuple[int, int]]
) -> None:
    """Before, the first ended for want of a median, the second because the prompts differ."""
    both = in_processes(two_arms(), 1.0, 1.1)
    changes = compare_runs(kept(both, *of_base), kept(both, *of_new)).changes
    found = [one for one in changes if one.metric == "decode_s_per_token"]
    assert found and all(one.ratio.value is None and "timed everywhere" in (one.ratio.reason or "") for one in found)


def test_the_primaries_answer_the_question() -> None:
    """NTP's time, the highlight's time and speedup; γ = 0.6 loses accuracy here, so γ = 0.1 is the highlight, given second."""
    keys = [metric.key for metric in primary_metrics(build(arms=(ARMS[0], ARMS[2], ARMS[1])))]
    sbd = "reference/b1/sbd-k16-g0.1-t0-entropy_bounded"
    assert keys == ["decode_s_per_token:reference/b1/ntp", f"decode_s_per_token:{sbd}", f"wall_speedup:{sbd}"]


def test_never_more_than_five() -> None:
    """Two parts have six: the last is left out; of untimed parts there are none."""
    both = build(Part(name="one"), Part(name="two"), Part(name="three", timed=False))
    assert [metric.part for metric in primary_metrics(both)] == ["one"] * 3 + ["two"] * 2
    assert primary_metrics(build(timed=False)) == ()
    with pytest.raises(UserError, match=r"--metric \*: 16 metrics, at most 5"):
        primary_metrics(both, ["*"])


def test_a_user_picks_by_name_key_or_pattern() -> None:
    """A name means all its cells; what is not there is refused with what is."""
    run = two_arms()
    assert {metric.name for metric in primary_metrics(run, ["prefill_s"])} == {"prefill_s"}
    assert [metric.arm for metric in primary_metrics(run, ["decode_s_per_token:*/ntp"])] == ["ntp"]
    with pytest.raises(UserError, match=r"--metric latency: .*it has decode_s_per_token:reference/b1/ntp"):
        primary_metrics(run, ["latency"])
