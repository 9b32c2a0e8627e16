"""What a figure over several tasks, or over related prompts, is about: from the scenario's key to interval and words."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from harness.analysis.answer import compare
from harness.analysis.figures.arm_metrics import pair_up, wall_speedups
from harness.analysis.figures.arms import beside_ntp
from harness.analysis.judge.judgement import Judgement
from harness.analysis.tally.by_request import Tallies
from harness.analysis.tally.tally import labels_of
from harness.errors import ScenarioError
from harness.record.schema import Run
from harness.regression.changes import compare_runs
from harness.scenario.loading import load_scenario
from tests.helpers import published
from tests.helpers import synthetic_run as synthetic
from tests.helpers.judged_runs import judged

TASKS = ("word_problems", "record_to_json", "short_trace")
LABEL = synthetic.ARMS[2].label


def run_of(work: dict[str, object], tasks: tuple[str, ...] = TASKS, prompts: int = 6, **fields: int) -> Run:
    """A part with this workload, in one process. The arm is slower by 0, 20 and 40 % on the tasks, and by 3 % a prompt."""
    run = synthetic.build(tasks=tasks, prompts=prompts, **fields)
    run.header.scenario["parts"][0]["workload"] = work
    case = {one.case_id: one for one in run.header.cases}

    def slower(one):
        if case[one.case_id].arm.method == "ntp" or one.decode_s is None:
            return {}
        return {"decode_s": one.decode_s * (1 + 0.2 * tasks.index(case[one.case_id].task)) * (1 + 0.03 * (one.group % 4))}

    return synthetic.altered(run, slower)


def one(run: Run, text: str) -> Judgement:
    """The only answer to one claim, about this process."""
    (found,) = judged(run, text).judgements
    return found


def logs(run: Run) -> dict[str, list[float]]:
    """Log ratios of the arm by task, straight from the samples; tokens are equal."""
    case = {one.case_id: one for one in run.header.cases}
    times = {
        (case[one.case_id].task, case[one.case_id].label, one.group): one.decode_s for one in run.samples if not one.warmup
    }
    found = defaultdict(list)
    for (task, label, group), seconds in times.items():
        if label == LABEL:
            found[task].append(math.log(times[task, "NTP", group] / seconds))
    return found


def test_by_default_tasks_are_strata() -> None:
    """Mean over prompts; variance within the tasks alone, and text and page say that it is about these tasks."""
    run = run_of({"tasks": list(TASKS), "prompts": 6})
    found, own = synthetic.arm_of(compare(run), LABEL).wall_speedup, logs(run)
    pooled = math.sqrt(sum(np.var(one, ddof=1) for one in own.values()) / 3 / 18)
    assert found.value == pytest.approx(math.exp(np.mean([*own.values()])), rel=1e-9)
    assert math.log(found.high / found.value) == pytest.approx(scipy_stats.t.ppf(0.975, 15) * pooled, rel=0.02)
    text = one(run, f"wall_speedup >= 1 at arm='{LABEL}'").reason
    assert "18 prompts over these 3 tasks" in text


def test_tasks_may_be_a_sample() -> None:
    """t with two degrees over the means of three tasks; more prompts are to be of other tasks. In one task nothing changes."""
    run = run_of({"tasks": list(TASKS), "prompts": 6, "generalise_over": "tasks"})
    comparison = compare(run)
    found, means = synthetic.arm_of(comparison, LABEL).wall_speedup, [np.mean(one) for one in logs(run).values()]
    low, high = scipy_stats.t.interval(0.95, 2, np.mean(means), scipy_stats.sem(means))
    assert (found.low, found.high, found.n) == (pytest.approx(math.exp(low)), pytest.approx(math.exp(high)), 18)
    bound = f"{math.exp(np.mean(means)) / 1.35:.3f}"
    answer = one(run, f"wall_speedup >= {bound} at arm='{LABEL}'")
    assert "over tasks such as these 3" in answer.reason and "prompts of other tasks or clusters (" in answer.remedy
    of_task, plain = (
        next(one for one in each.cells if one.task == TASKS[1])
        for each in (comparison, compare(run_of({"tasks": list(TASKS), "prompts": 6})))
    )
    assert of_task.arm(LABEL).wall_speedup == plain.arm(LABEL).wall_speedup and of_task.population == ""
    assert synthetic.arm_of(comparison, LABEL).figures["latency_p50_s"].low is None, "three values are too few"


def test_sampled_tasks_are_clusters_of_accuracy() -> None:
    """Thirty answers alike in each of three tasks are three."""
    arms = tuple(
        synthetic.Arm(label=one.label, gamma=one.gamma, wrong=frozenset(range(0, 30, 3))) for one in synthetic.ARMS[:2]
    )
    bounds = []
    for work in ({}, {"generalise_over": "tasks"}):
        run = synthetic.build(tasks=TASKS, prompts=30, timed=False, arms=arms)
        run.header.scenario["parts"][0]["workload"] = work
        bounds.append(synthetic.arm_of(compare(run), arms[1].label).accuracy_difference)
    assert bounds[0].low == pytest.approx(0.025 ** (1 / 90) - 1) and bounds[1].low == pytest.approx(0.025 ** (1 / 3) - 1)


def test_related_prompts_are_units_of_speed() -> None:
    """Four documents of three prompts each: t with three degrees over their means, of times, passes and latencies."""
    run = run_of({"prompts_file": "p.jsonl", "cluster": "document"}, tasks=("p",), prompts=12)
    related = synthetic.with_rows(run, lambda _, row: {"cluster": str(int(row.prompt_id[1:]) // 3)})
    found, values = synthetic.arm_of(compare(related), LABEL), logs(run)["p"]
    means = np.reshape(values, (4, 3)).mean(axis=1)
    low, high = scipy_stats.t.interval(0.95, 3, np.mean(means), scipy_stats.sem(means))
    assert (found.wall_speedup.low, found.wall_speedup.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.wall_speedup_totals.reason.startswith("4 clusters only")
    assert synthetic.arm_of(compare(run), LABEL).wall_speedup_totals.low is not None
    answer = one(related, f"wall_speedup >= {found.wall_speedup.value / 1.015:.4f} at arm='{LABEL}'")
    assert "12 prompts related by document" in answer.reason and "prompts of other tasks or clusters (" in answer.remedy


def test_batches_chained_by_a_document_are_one_cluster() -> None:
    """Batches of two: documents a b | b c | d d | c e. The first, second and fourth are related; the third is by itself."""
    run = synthetic.with_rows(
        synthetic.build(prompts=8, batch_size=2), lambda _, row: {"cluster": "abbcddce"[int(row.prompt_id[1:])]}
    )
    tallies = Tallies(run, priced=False)(run.cases[0].case_id)
    first, second, third, fourth = (one.cluster for one in labels_of(tallies)[0])
    assert first == second == fourth != third


def test_two_runs_are_compared_over_the_same_design() -> None:
    """A change of one task as a whole is what these tasks show; where they are a sample it may be chance."""
    ratios = []
    for more in ({}, {"generalise_over": "tasks"}):
        base = run_of({"tasks": list(TASKS), "prompts": 6} | more)
        case = {one.case_id: one for one in base.header.cases}
        new = synthetic.altered(
            base,
            lambda one, case=case: {
                "decode_s": one.decode_s
                and one.decode_s * (1.3 if case[one.case_id].task == TASKS[0] else 1 + 1e-3 * one.group)
            },
        )
        changes = compare_runs(base, new).changes
        ratios.append(next(one.ratio for one in changes if one.metric == "decode_s_per_token"))
    assert ratios[0].value == pytest.approx(ratios[1].value) and ratios[0].low > 1.08 and ratios[1].low < 0.95


def test_the_published_interval_is_of_its_ten_domains() -> None:
    """reports/real_model: ten domains of two prompts, three processes. By hand, 8 % where 20 prompts have 15 %."""
    run = published.published("real_model")
    tallies = Tallies(run, priced=False)
    arm, ntp = next(pair for pair in beside_ntp(run.cases, tallies) if "k=5" in pair[0].cases[0].label)
    pairs = pair_up(ntp.tallies, arm.tallies)
    found, _ = wall_speedups(pairs, "")
    cells = defaultdict(list)
    for one, other in pairs:
        ratio = math.log(one.decode_s / one.decode_tokens * other.decode_tokens / other.decode_s)
        cells[one.key[0], one.key[1], one.key[3]].append(ratio)
    table = np.array([np.mean(cells[key]) for key in sorted(cells)]).reshape(10, 2, 3)
    of_domain = np.ptp(table.mean(axis=2), axis=1) ** 2 / 2
    degrees = min(10, of_domain.sum() ** 2 / (of_domain**2 / 3).sum() - 2)
    within = math.sqrt(of_domain.mean() / 20)
    half = math.log(found.high / found.value)
    assert half == pytest.approx(scipy_stats.t.ppf(0.975, degrees) * within, rel=0.03), "processes add next to nothing"
    as_one = scipy_stats.t.ppf(0.975, 19) * scipy_stats.sem(table.mean(axis=2).ravel())
    assert half < 0.081 and as_one > 0.139, "8 % beside 15 %"


SCENARIO = """\
version: 1
name: tasks
parts:
  - name: one
    model: {reference: sbd}
    dtype: float32
    arms: [{method: ntp}]
    timed: false
    baseline_check: 0
    workload: {WORK, prompts: 2, max_new_tokens: 3}
"""


def loaded(folder: Path, work: str) -> dict[str, object]:
    """The workload as a record has it."""
    (folder / "p.jsonl").write_text(
        json.dumps({"prompt": "one", "domain": "a"}) + "\n" + json.dumps({"prompt": "two", "domain": "b"})
    )
    (folder / "s.yaml").write_text(SCENARIO.replace("WORK", work))
    return load_scenario(folder / "s.yaml").parts[0].workload.model_dump(mode="json")


def test_the_key_of_a_workload(tmp_path: Path) -> None:
    """Left out, a scenario's digest stays; one task is no sample; and prompts of a file name their field with cluster."""
    assert loaded(tmp_path, "tasks: [word_problems, short_trace], generalise_over: tasks")["generalise_over"] == "tasks"
    assert "generalise_over" not in loaded(tmp_path, "tasks: [word_problems, short_trace]")
    for work in ("tasks: [word_problems]", "prompts_file: p.jsonl, cluster: domain"):
        with pytest.raises(ScenarioError, match=r"at least, and this workload has 1.*cluster: FIELD names what is a sample"):
            loaded(tmp_path, f"{work}, generalise_over: tasks")
