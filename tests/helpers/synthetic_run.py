"""Builds small Run records whose speedups are known because they were put in: what compare and the report are tested on.

Every time is arithmetic on the constants of ``Arm``; no model, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from harness.analysis.results import ArmResult, Comparison
from harness.analysis.tally.pricing import Pricer
from harness.models import ModelShape
from harness.record.schema import CaseHeader, CaseOutcome, PassColumns, RowResult, Run, RunHeader, Sample
from harness.record.trace import ForwardPass, Role
from harness.scenario.loading import scenario_digest

SHAPE = ModelShape(name="toy-60m", layers=8, hidden=512, intermediate=1536, heads=8, kv_heads=4, head_dim=64, vocab=8000)
PASS_S = {1: 0.010, 16: 0.013, 32: 0.016}
"""Seconds of a forward by query tokens: a 16-token pass costs exactly 1.3 one-token passes."""
SAMPLER_S = 0.001
"""Seconds that every decode pass takes besides its forward, ..."""
SAMPLER_SHARE = 0.75
"""... and the share of them that is the sampler's own."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm with its truth: SBD makes ``passes_per_block`` passes per block of 16; ``wrong`` prompts are answered wrongly.

    With ``cache`` it is generate(), with ``server`` an engine of others; both take ``slower`` times what NTP takes.
    """

    label: str
    gamma: float | None = None
    passes_per_block: int = 1
    wrong: frozenset[int] = frozenset()
    replayed: dict[str, Any] | None = None
    cache: str | None = None
    server: str | None = None
    slower: float = 1.0

    @property
    def spec(self) -> dict[str, Any]:
        """The arm as a scenario resolves it."""
        if self.cache is not None:
            return {"method": "generate", "cache": self.cache, "execution": "eager", "temperature": 0.0}
        if self.server is not None:
            return {"method": "generate", "server": self.server, "execution": "served", "temperature": 0.0}
        if self.gamma is None:
            return {"method": "ntp", "temperature": 0.0}
        return {"method": "sbd", "block_size": 16, "gamma": self.gamma, "temperature": 0.0, "solver": "entropy_bounded"}


NTP = Arm(label="NTP", wrong=frozenset({3}))
ARMS = (
    NTP,
    Arm(label="SBD k=16 γ=0.1", gamma=0.1, passes_per_block=4, wrong=frozenset({3})),
    Arm(label="SBD k=16 γ=0.6", gamma=0.6, passes_per_block=2, wrong=frozenset({3, 5, 6, 7})),
)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of the scenario. ``blocks`` blocks of 16 decode tokens per prompt; prompt i runs (1 + jitter·i) times slower."""

    name: str = "reference"
    arms: tuple[Arm, ...] = ARMS
    tasks: tuple[str, ...] = ("word_problems",)
    prompts: int = 8
    blocks: int = 4
    batch_size: int = 1
    repeats: int = 1
    timed: bool = True
    per_pass: bool = True
    graded: bool = True
    jitter: float = 0.0
    baseline: str | None = None
    model: ModelShape = SHAPE
    shape_fields: dict[str, Any] = field(default_factory=dict)


def columns(arm: Arm, blocks: int, rows: int, slowdown: float, timed: bool) -> PassColumns:
    """The passes of one sample: a prefill that gives one token, then ``blocks`` blocks of 16 tokens."""
    steps: list[tuple[Role, int, int, int, int]] = [("prefill", 40, 1, 40, 1)]
    if arm.gamma is None:
        steps += [("decide", 1, 1, 1, 1)] * (16 * blocks)
    else:
        share = 16 // arm.passes_per_block
        for block in range(blocks):
            steps += [("commit+decide", 32, 16, 16, share) if block else ("decide", 16, 16, 0, share)]
            steps += [("decide", 16, 16, 0, share)] * (arm.passes_per_block - 1)
    role, query, logits, kept, final = map(list, zip(*steps, strict=True))
    context = [0] + [40 + sum(kept[1:i]) for i in range(1, len(kept))]
    return PassColumns(
        role=role,
        query_tokens=[[q] * rows for q in query],
        context_tokens=[[c] * rows for c in context],
        logit_tokens=[[x] * rows for x in logits],
        kept_tokens=[[x] * rows for x in kept],
        decided_tokens=[[f] * rows for f in final],
        final_tokens=[[f] * rows for f in final],
        active=[[True] * rows for _ in query],
        padded_query=query,
        padded_context=context,
        forward_s=[0.02] + [PASS_S[q] * slowdown for q in query[1:]] if timed else None,
        sampler_s=[0.0] + [SAMPLER_SHARE * SAMPLER_S * slowdown] * (len(query) - 1) if timed else None,
    )


def sample(part: Part, arm: Arm, case_id: str, group: int, repeat: int, warmup: bool = False) -> Sample:
    """One decode; prompt numbers run over the groups, so that a wrong one is the same prompt in every arm."""
    ids = [i for i in range(group * part.batch_size, (group + 1) * part.batch_size) if i < part.prompts]
    slowdown = arm.slower * (1 + part.jitter * group)
    if arm.gamma is not None or arm.cache or arm.server:
        slowdown *= 1 + part.jitter * ((group * 7) % 5 - 2) / 4
    passes = columns(arm, part.blocks, len(ids), slowdown, part.timed)
    forward_s = sum((passes.forward_s or [])[1:])
    overhead_s = SAMPLER_S * slowdown * (len(passes.role) - 1)
    tokens = 1 + 16 * part.blocks
    if not part.per_pass or arm.cache or arm.server:
        passes = passes.untimed()
    rows = [
        RowResult(
            prompt_id=f"p{i}",
            prompt_tokens=40,
            output_tokens=tokens,
            output_ids=[7] * tokens,
            stop_reason="length",
            correct=i not in arm.wrong if part.graded else None,
            ungraded_reason=None if part.graded else "the prompts have no answers",
        )
        for i in ids
    ]
    return Sample(
        case_id=case_id,
        group=group,
        repeat=repeat,
        warmup=warmup,
        seed=1,
        rows=rows,
        passes=passes,
        prefill_s=0.02 if part.timed else None,
        decode_s=(forward_s + overhead_s) * (9 if warmup else 1) if part.timed else None,
        started_at="2026-11-20T10:00:00Z",
        load_1min=0.3,
    )


def case(part: Part, arm: Arm, task: str) -> CaseHeader:
    """The header of one case."""
    one_token = f"generate-{arm.cache}" if arm.cache else f"engine-{arm.server}" if arm.server else "ntp"
    kind = one_token if arm.gamma is None else f"sbd-k16-g{arm.gamma:g}-t0-entropy_bounded"
    return CaseHeader(
        case_id=f"{part.name}/{task}/b{part.batch_size}/{kind}",
        part=part.name,
        arm=arm.spec,
        label=arm.label,
        batch_size=part.batch_size,
        task=task,
        model=part.model,
        model_source={"random": part.model.name},
        dtype="bfloat16",
        device="cpu",
        attention="sdpa",
        timed=part.timed,
        replayed=arm.replayed,
    )


def build(
    *parts: Part,
    calibration: dict[str, Any] | None = None,
    outcomes: tuple[CaseOutcome, ...] = (),
    without: frozenset[str] = frozenset(),
    question: str = "Is SBD really faster on this machine?",
    **fields: Any,
) -> Run:
    """A run of ``parts``, else of one part with these ``fields``: one warm-up sample per case (nine times too slow), then every
    group and repeat.

    ``without`` names case ids that left no sample.
    """
    parts = parts or (Part(**fields),)
    cases, samples = [], []
    for part in parts:
        for task in part.tasks:
            for arm in part.arms:
                header = case(part, arm, task)
                cases.append(header)
                if header.case_id in without:
                    continue
                groups = -(-part.prompts // part.batch_size)
                samples.append(sample(part, arm, header.case_id, 0, 99, warmup=True))
                samples += [sample(part, arm, header.case_id, g, r) for r in range(part.repeats) for g in range(groups)]
    scenario = {
        "version": 1,
        "name": "synthetic",
        "question": question,
        "parts": [{"name": part.name, "device": "cpu", "baseline": part.baseline} for part in parts],
    }
    return Run(
        header=RunHeader(
            run_id="20261120-100000-synthetic",
            scenario_name="synthetic",
            question=question,
            scenario=scenario,
            scenario_digest=scenario_digest(scenario),
            command="sbd run scenarios/synthetic.yaml",
            created_at="2026-11-20T10:00:00Z",
            cases=cases,
            hardware=None,
            hardware_reason="no profile describes this CPU",
            calibration=calibration,
            environment={
                "python": "3.11.7",
                "cpu_model": "Example CPU",
                "gpus": None,
                "load_average": [0.2, 0.3, 0.3],
                "packages": {"torch": "2.13.0"},
                "reasons": {"gpus": "torch sees no CUDA device"},
            },
        ),
        samples=samples,
        outcomes=list(outcomes),
        sessions=[{"when": "start", "load": [0.2, 0.3, 0.3]}, {"when": "end", "load": [1.9, 1.1, 0.6]}],
    )


def calibration(dram_bound: bool | None = True) -> dict[str, Any]:
    """A calibration of the CPU of ``build`` in which a 16-token pass is somewhat dearer than a one-token pass."""
    from harness.hardware.profile import BandwidthPoint, Calibration, DtypeRates

    bandwidth = 6.2e9
    resident = tuple((m, 30e9 * min(m, 8)) for m in (1, 2, 4, 8, 16, 32, 64))
    streaming = tuple((m, 1 / bandwidth + 0.3 * m / rate) for m, rate in resident)
    size = SHAPE.streamed_params * 2
    return Calibration(
        device_name="Example CPU",
        device="cpu",
        threads=2,
        torch_version="2.13.0",
        created_at="2026-11-20T10:00:00Z",
        load_1min=0.1,
        model_bytes=size,
        read_bandwidth=(
            BandwidthPoint(bytes_=size, bytes_per_s=bandwidth, kernel="sum"),
            BandwidthPoint(bytes_=4 << 30, bytes_per_s=bandwidth * 0.98, kernel="sum"),
        ),
        dram_bound=dram_bound,
        dram_bound_reason="both sizes agree within 5 %" if dram_bound else "the model's own size reads 40 % faster than 4 GiB",
        rates={"bfloat16": DtypeRates(streaming=streaming, resident=resident)},
        fixed_s_per_pass=0.0002,
        fixed_s_per_layer=0.00005,
        fixed_hidden=False,
        sampler_s_per_logit=5e-8,
    ).model_dump(mode="json")


def priced(pricer: Pricer, one: ForwardPass) -> SimpleNamespace:
    """What one pass costs: bytes and flops, and by rung the bands of its forward and of forward and sampler."""
    places = pricer.places_of([one])
    forward, decode = ([tuple(band) for band in of(places)[0].tolist()] for of in (pricer.forward_s, pricer.decode_s))
    return SimpleNamespace(
        bytes_=float(pricer.bytes_(places)[0]),
        flops=float(pricer.flops(places)[0]),
        forward_s=dict(zip(pricer.rungs, forward, strict=True)),
        decode_s=dict(zip(pricer.rungs, decode, strict=True)),
    )


KERNEL = "the calibration kernel took longer than usual"
STOLEN = "the hypervisor gave the cores to others"
THROTTLED = "the GPU was throttled"
NEIGHBOUR = "another process used the GPU"
CLOCK = "the GPU's clock was below 90 % of the arm's best"
COMPILED = "a forward pass was compiled while the clock ran"


def altered(run: Run, change: Callable[[Sample], Mapping[str, Any]]) -> Run:
    """The run whose samples have these values instead."""
    return run.model_copy(update={"samples": [one.model_copy(update=change(one)) for one in run.samples]})


def with_rows(run: Run, change: Callable[[Sample, RowResult], Mapping[str, Any]]) -> Run:
    """The run whose rows have these values instead."""
    return altered(run, lambda one: {"rows": [row.model_copy(update=change(one, row)) for row in one.rows]})


def arm_of(comparison: Comparison, label: str) -> ArmResult:
    """An arm of the first cell, by its label."""
    return next(arm for arm in comparison.cells[0].arms if arm.label == label)


def with_samples(run: Run, samples: Iterable[Sample]) -> Run:
    """The run with these samples instead."""
    return run.model_copy(update={"samples": list(samples)})
