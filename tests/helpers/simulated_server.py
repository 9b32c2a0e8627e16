"""A server simulated pass by pass, whose times are known because they were put in; and a run under loads that it decoded.

Every pass takes all requests in flight one step further: first tokens of new ones, ``per_pass`` tokens of the others. It takes
``pass_s(requests in flight)``. The client sends the next request CLIENT_S after an answer. No clock, no network: the samples
are what harness.serving makes of answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.record.schema import PassColumns, RowResult, Run, RunHeader, Sample
from harness.record.trace import ForwardPass
from harness.scenario.loading import scenario_digest
from harness.scenario.plan import Case, Slot, make_plan
from harness.scenario.scenario import Scenario
from harness.serving.counts import arrivals, described, merged, prompt_pass
from harness.serving.stream import Chunk, ServedAnswer
from harness.serving.times import Turns, batch_times, own_times, row_times, turns_of

PROMPT = 16
CLIENT_S = 1e-4
BOTH: tuple[dict[str, Any], ...] = (
    {"concurrency": [1, 2, 4], "first_token_s": 0.05},
    {"requests_per_s": 10.0, "first_token_s": 0.05},
)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """One server: tokens of a pass, and the seconds of a pass with one request and of each further one in it."""

    per_pass: int
    first_s: float
    further_s: float

    def pass_s(self, in_flight: int) -> float:
        """Of a pass."""
        return self.first_s + self.further_s * (in_flight - 1)


NTP = Serving(per_pass=1, first_s=0.010, further_s=0.0005)
FAST = Serving(per_pass=2, first_s=0.012, further_s=0.006)
"""Twice the tokens a pass; with n in flight NTP takes (10 + 0.5 (n - 1)) ms a token and this (12 + 6 (n - 1)) / 2: 1.67x,
1.17x and 0.77x with 1, 2 and 4.
"""


def answers_of(turns: Turns, tokens: int, per_pass: int, pass_s: Callable[[int], float]) -> list[ServedAnswer]:
    """What a client of the simulated server sees; a request that comes within a pass joins the next one."""
    waiting, now = deque(sorted(enumerate(turns.after_s), key=lambda one: one[1])), 0.0
    sent: dict[int, float] = {}
    chunks: dict[int, list[Chunk]] = {}
    active: list[int] = []
    while waiting or active:
        if not active and waiting:
            now = max(now, waiting[0][1])
        while waiting and waiting[0][1] <= now and len(active) < turns.at_once:
            number, after_s = waiting.popleft()
            sent[number] = after_s if after_s or not number else now + CLIENT_S
            chunks[number] = []
            active.append(number)
        now += pass_s(len(active))
        for number in list(active):
            written = sum(len(chunk.ids) for chunk in chunks[number])
            chunks[number].append(Chunk(at_s=now, ids=(7,) * (min(per_pass, tokens - written) if written else 1)))
            if written + len(chunks[number][-1].ids) == tokens:
                active.remove(number)
    return [
        ServedAnswer(sent_at_s=sent[one], chunks=tuple(chunks[one]), stop_reason="length", prompt_tokens=PROMPT)
        for one in range(len(turns.after_s))
    ]


def load_run(
    loads: Sequence[dict[str, Any]] = BOTH,
    processes: int = 3,
    prompts: int = 40,
    tokens: int = 13,
    fast: Serving = FAST,
    claims: Sequence[dict[str, Any]] = (),
    calibration: dict[str, Any] | None = None,
) -> Run:
    """A run of NTP and of one fast server under ``loads``; the processes are 1 % apart, each arm in its own way."""
    part = {
        "name": "served",
        "model": {"pretrained": "smollm2-135m"},
        "dtype": "bfloat16",
        "warmup": 1,
        "processes": processes,
        "servers": {"plain": {"engine": "vllm"}, "fast": {"engine": "vllm"}},
        "load": list(loads),
        "arms": [{"method": "ntp", "server": "plain"}, {"method": "served", "server": "fast"}],
        "workload": {"synthetic": {"prompt_tokens": PROMPT}, "prompts": prompts, "max_new_tokens": tokens},
    }
    scenario = Scenario.model_validate({"version": 1, "name": "loads", "parts": [part], "claims": list(claims)})
    plan = make_plan(scenario)
    shape = plan.cases[0].shape
    assert shape is not None
    resolved = scenario.model_dump(mode="json")
    header = RunHeader(
        run_id="20261120-100000-loads",
        scenario_name="loads",
        question="",
        scenario=resolved,
        scenario_digest=scenario_digest(resolved),
        command="sbd run loads.yaml",
        created_at="2026-11-20T10:00:00Z",
        cases=[case.header(shape, "served") for case in plan.cases],
        hardware=None,
        hardware_reason="simulated",
        calibration=calibration,
        environment={"python": "3.11.7", "cpu_model": "Example CPU", "reasons": {}},
    )
    samples = [sample_of(slot, fast) for slot in plan.slots()]
    return Run(header=header, samples=samples, outcomes=[], sessions=[])


def sample_of(slot: Slot, fast: Serving = FAST) -> Sample:
    """One sample of the plan, as the server of its arm would have answered."""
    case, seed = slot.case, slot.seed
    one = NTP if case.arm.method == "ntp" else fast
    slower = 1 + 0.01 * (slot.process if case.arm.method == "ntp" else slot.process**2 / 2)
    turns = turns_of(case.load, case.batch_size, len(slot.prompt_range), seed)
    answers = answers_of(turns, case.workload.max_new_tokens, one.per_pass, lambda n: slower * one.pass_s(n))
    return served_sample(case, slot, answers, seed)


def served_sample(case: Case, slot: Slot, answers: Sequence[ServedAnswer], seed: int) -> Sample:
    """Answers as harness.serving.engine makes a sample of them."""
    prompts = [(1,) * PROMPT] * len(answers)
    passes = merged([arrivals(row, one, PROMPT, case.arm.method == "ntp") for row, one in enumerate(answers)])
    every = [prompt_pass(answers, prompts), *(described(one, len(answers)) for one in passes)]
    times = batch_times(answers, passes) if case.load is None or case.load.closed else own_times(answers)
    columns: dict[str, Any] = {
        name: [list(value) if isinstance(value, tuple) else value for value in (getattr(one, name) for one in every)]
        for name in ForwardPass._fields
        if getattr(every[0], name) is not None
    }
    rows = [
        RowResult(
            prompt_id=f"synthetic/1/{index}",
            prompt_tokens=PROMPT,
            output_tokens=len(one.ids),
            output_ids=list(one.ids),
            stop_reason="length",
            correct=None,
            ungraded_reason="simulated",
            times=own,
        )
        for index, one, own in zip(slot.prompt_range, answers, row_times(answers), strict=True)
    ]
    return Sample(
        case_id=case.case_id,
        group=slot.group,
        repeat=slot.repeat,
        process=slot.process,
        warmup=slot.warmup,
        seed=seed,
        rows=rows,
        passes=PassColumns(**columns, forward_s=times.forward_s, sampler_s=None),
        prefill_s=times.prefill_s,
        decode_s=times.decode_s,
        started_at="2026-11-20T10:00:00Z",
        load_1min=0.1,
    )
