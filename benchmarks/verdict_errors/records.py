"""Simulated runs in memory, as read_run gives them, judged through the door of `sbd verify`: ``Derived(run, claims)``.

A sample has no passes, as one of a server that tells none: times, tokens, energy and what makes it void are what counts here.
Figures that no claim asks for are not worked out: they take most of the time and are judged by nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.verdict_errors.drawn import TOKEN_S
from harness.analysis.answer import Derived
from harness.analysis.figures import arm_metrics
from harness.analysis.figures.arms import FIGURES
from harness.analysis.judge import check
from harness.analysis.judge.judgement import Judgement
from harness.models import ModelShape
from harness.record.schema import CaseHeader, RowResult, Run, RunHeader, Sample
from harness.record.written import Happened, WrittenArm
from harness.scenario.claims import Claim, Where
from harness.scenario.loading import scenario_digest
from harness.stats.quantity import Quantity, absent
from harness.stats.ratios import ratio_of_totals

PART, TASK, MOMENT = "simulated", "task", "2026-11-20T10:00:00Z"
SHAPE = ModelShape(name="toy-60m", layers=8, hidden=512, intermediate=1536, heads=8, kv_heads=4, head_dim=64, vocab=8000)
ALWAYS = {"wall_speedup", "identical_to_ntp", "accuracy_difference"}
"""Figures that a cell is built of."""
PROMPT_S, STOLEN, JOULES = 0.02, {"steal_s": 1e6}, "cpu_energy_j"
UNEVEN = 1e-3
"""Most by which a token of NTP takes longer or shorter in a decode: times that are whole multiples show a coarse clock."""
BEYOND, POWER = 1.1, "_power"
"""A bound that the truth exceeds by 10 %, and the end of the name of its claim."""
LESS = ("5_s", "0_s", "joules_per_token")
"""How metrics end of which less is better."""
Asked = Sequence[tuple[str, Claim]]
"""Claims by the names of their cells; several of one name count as one cell."""


def label(arm: int) -> str:
    """Of arm 0, which is NTP, and of the others."""
    return f"SBD k={arm + 1} γ=0.1" if arm else "NTP"


def claimed(
    name: str, truth: float, power: bool = False, metric: str = "wall_speedup", arm: int | None = None, **given: Any
) -> Asked:
    """A claim at the truth, at most where less is better; and, for its ``power``, one that the truth exceeds by 10 %."""
    side, easier = ("max", truth * BEYOND) if metric.endswith(LESS) else ("min", truth / BEYOND)
    bounds = {name: truth} | ({name + POWER: easier} if power else {})
    where = Where(arm=None if arm is None else label(arm))
    return [(cell, Claim(metric=metric, where=where, **{side: bound}, **given)) for cell, bound in bounds.items()]


@cache
def header(arms: int, tasks: int = 1, batch_size: int = 1) -> RunHeader:
    """Of NTP and so many arms; each task is a case."""
    methods: list[dict[str, Any]] = [
        {"method": "ntp"},
        *({"method": "sbd", "block_size": arm + 1, "gamma": 0.1} for arm in range(1, arms + 1)),
    ]
    cases = [
        CaseHeader(
            case_id=f"{PART}/{TASK}{task}/b{batch_size}/{arm}",
            part=PART,
            arm=WrittenArm.model_validate(method | {"temperature": 0.0}),
            label=label(arm),
            batch_size=batch_size,
            task=f"{TASK}{task}",
            model=SHAPE,
            model_source={"random": SHAPE.name},
            dtype="bfloat16",
            device="cpu",
            attention="sdpa",
            timed=True,
        )
        for task in range(tasks)
        for arm, method in enumerate(methods)
    ]
    return RunHeader(
        run_id=PART,
        scenario_name=PART,
        question="",
        scenario={"version": 1, "name": PART, "parts": [{"name": PART}]},
        scenario_digest="",
        command="",
        created_at=MOMENT,
        cases=cases,
        hardware=None,
        environment={},
    )


def run_of(base: RunHeader, samples: list[Sample], part: Mapping[str, Any] | None = None, claims: Sequence[Claim] = ()) -> Run:
    """The run whose scenario has these values in its part, and these claims."""
    told = [one.model_dump(mode="json", exclude_defaults=True) for one in claims]
    processes = sorted({one.process for one in samples})
    written = {"name": PART, "processes": len(processes), **(part or {})}
    scenario = base.scenario | {"parts": [written], "claims": told}
    given = {"scenario": scenario, "scenario_digest": scenario_digest(scenario)}
    events: list[Happened] = [
        {"event": event, "part": PART, "process": number} for number in processes for event in ("start", "end")
    ]
    return Run.model_construct(header=base.model_copy(update=given), samples=samples, outcomes=[], sessions=events, seal=None)


def sample(case_id: str, group: int, process: int, rows: list[RowResult], decode_s: float, meters: dict[str, float]) -> Sample:
    """One sample without passes. Arms of a process share its seed, from which a load is drawn."""
    return Sample.model_construct(
        case_id=case_id,
        group=group,
        repeat=0,
        process=process,
        warmup=False,
        seed=process,
        rows=rows,
        packed_passes=None,
        prefill_s=PROMPT_S,
        decode_s=decode_s,
        started_at=None,
        load_1min=None,
        meters=meters,
        meter_reasons={"passes": "not simulated"},
    )


def row(prompt_id: str, tokens: int, **given: Any) -> RowResult:
    """An answer that nobody grades; its first token is the prompt's."""
    known: dict[str, Any] = {
        "prompt_id": prompt_id,
        "prompt_tokens": 40,
        "output_tokens": tokens + 1,
        "output_ids": None,
        "correct": None,
    }
    return RowResult.model_construct(**known | {"stop_reason": "length", "ungraded_reason": "not simulated"} | given)


def paired_run(
    tokens: np.ndarray,
    logs: np.ndarray,
    claims: Sequence[Claim] = (),
    work: Mapping[str, str] | None = None,
    tasks: Sequence[int] | None = None,
    clusters: Sequence[int] | None = None,
    joules: np.ndarray | None = None,
    void: np.ndarray | None = None,
    own: bool = False,
) -> Run:
    """NTP and arms whose log ratios to it are ``logs``, shape (arms, prompts, processes), NTP always equally fast.

    Args:
        tokens: of each prompt, as are ``tasks`` and ``clusters``, by number.
        work: of the part's workload.
        joules: of each decode, NTP's too; ``void``: those that lose their times. Both have the shape (1 + arms, ...).
        own: every process has prompts of its own.
    """
    every = np.concatenate([np.zeros((1, *logs.shape[1:])), logs])
    each_s = TOKEN_S * np.random.default_rng(len(tokens)).uniform(1 - UNEVEN, 1 + UNEVEN, (1, *logs.shape[1:]))
    seconds, of_prompt = (each_s * tokens[None, :, None] * np.exp(-every)).tolist(), tasks or [0] * len(tokens)
    base = header(len(logs), 1 + max(of_prompt))
    names = [None if clusters is None else f"c{clusters[p]}" for p in range(len(tokens))]
    sets = logs.shape[2] if own else 1
    rows = [[[row(f"p{q}-{p}", int(count), cluster=names[p])] for p, count in enumerate(tokens)] for q in range(sets)]

    def meters(place: tuple[int, ...]) -> dict[str, float]:
        return ({} if joules is None else {JOULES: float(joules[place])}) | (STOLEN if void is not None and void[place] else {})

    samples = [
        sample(
            base.cases[of_prompt[p] * len(every) + arm].case_id,
            p,
            q,
            rows[q % sets][p],
            seconds[arm][p][q],
            meters((arm, p, q)),
        )
        for arm, p, q in np.ndindex(every.shape)
    ]
    return run_of(base, samples, {"workload": dict(work or {})}, claims)


@contextmanager
def only(claims: Sequence[Claim]) -> Iterator[list[Quantity]]:
    """Within it cells have the figures of these claims alone, with bootstraps only where totals are claimed.

    Gives the figures that decide, at the level that each is judged at, in the order in which they are judged.
    """
    bounds, decided = [bound for one in claims for bound in one.bounds], list[Quantity]()
    wanted = ALWAYS | {bound.metric for bound in bounds}
    made = {make for name, make in FIGURES.items() if name in wanted}
    totals = any(one.estimator == "ratio_of_totals" or one.metric == "joules_per_token" for one in bounds)
    judged_figure = check.judged_figure

    def kept(*given: Any) -> Quantity:
        decided.append(judged_figure(*given))
        return decided[-1]

    with (
        patch.dict(FIGURES, {name: make for name, make in FIGURES.items() if make in made}, clear=True),
        patch.object(arm_metrics, "ratio_of_totals", ratio_of_totals if totals else _not_wanted),
        patch.object(check, "judged_figure", kept),
    ):
        yield decided


def _not_wanted(*_given: Any) -> Quantity:
    return absent("not wanted")


def judged(run: Run, asked: Asked, counts: Counter[str]) -> tuple[Judgement, ...]:
    """Judge these claims, each about one arm, and count their states and the intervals that decide."""
    claims = tuple(one for _, one in asked)
    with only(claims) as decided:
        found = Derived(run, claims).comparison.judgements
    assert found is not None
    for (name, one), judgement, value in zip(asked, found.judgements, decided, strict=True):
        counts[f"{name}_runs"] += 1
        counts[f"{name}_{judgement.state}"] += 1
        if value.low is not None and value.high is not None:
            (bound,) = one.bounds
            counts[f"{name}_intervals"] += 1
            counts[f"{name}_covered"] += value.low <= (bound.min or bound.max or 0.0) <= value.high
    return found.judgements
