"""Capacity plans for a run's page: every answer of a grid, priced beforehand, so that the page only looks them up.

The axes: the run's largest model and Llama 8B and 70B, formats of weights and KV cache, requests, devices, GPUs of a replica
(TP), batches, and arms. Arms are NTP, those of the run that have an acceptance, and Table 1's. Every figure is what
`sbd capacity` says of the same question; a whole replica is priced at once, for all requests, arms and batches. Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np

from harness import formatting
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.capacity.acceptance import TABLE1_BLOCK_SIZE, AssumedAcceptance, from_table1
from harness.capacity.figures import J_PER_KWH, S_PER_HOUR, per_million, replicas_for
from harness.capacity.plan import DEGREES, PlannedDevice, Question, device_of
from harness.capacity.replica import Replica
from harness.capacity.results import Goal, Method, Workload
from harness.capacity.serving import Speeds, serve_each
from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import WEIGHT_FORMATS, Deployment
from harness.record.schema import Run
from harness.roofline.step import NTP, DecodeArm

DTYPE = "bfloat16"
WEIGHTS = {"16 bits (bfloat16)": None, "8 bits (fp8; int8 has the same speed)": "float8", "4 bits (int4-g128)": "int4-g128"}
"""Of the linear layers, by what the page calls them."""
KV_DTYPES = {"16 bits (bfloat16)": None, "8 bits (fp8)": "float8"}
DEVICES = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-80-sxm", "l40s", "rtx-4090")
"""Data-centre and desktop GPUs, each with a price."""
REQUESTS = ((2000, 300), (500, 1000), (16_000, 500))
"""(prompt, output) tokens: a question with its material, a long answer, a document."""
CHUNK_TOKENS = 2048
"""Prompt tokens in a step, as vLLM's default for servers has it."""
BATCHES = (1, 4, 8, 16, 32, 64, 128)
REQUESTS_PER_S = 10.0
"""The load for which GPUs are counted."""
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
"""The paper's, and a large one of its family."""
SMALLEST_PARAMS = 1e9
"""Nobody plans GPUs for a smaller model; a page has 180 kB for each."""
TABLE1_CELLS = ("llama-3.1-8b/GSM8K/low", "llama-3.1-8b/LiveCodeBench-v6/high")
"""The least and the most tokens per pass of this model in Table 1."""
MOST_ARMS = {"sbd": 2, "sbd_verified": 1}
"""Of a run, by method."""
CHECKED = frozenset({"sbd_verified"})
"""Methods whose blocks are checked, so that a part of each may be final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One acceptance to choose; ``basis``: the run measured it, was given it, or the paper published it.

    ``arm``        what its rows are called
    ``model``      whose acceptance it is; for another model it is an assumption
    ``remark``     the accuracy that it costs
    ``arguments``  its arguments for `sbd capacity`
    """

    label: str
    basis: Literal["measured", "replayed", "published"]
    model: str
    acceptance: AssumedAcceptance
    remark: str
    arguments: tuple[str, ...]

    @property
    def arm(self) -> str:
        """SBD, or its verified form."""
        return "SBD" if self.acceptance.tokens_per_check is None else "SBD verified"


class Figures(NamedTuple):
    """One arm at one batch: expected tokens/s with prompts, cost, GPUs for REQUESTS_PER_S, decode speed over NTP."""

    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    usd_per_million_tokens: float | None
    kwh_per_million_tokens: float | None
    gpus: float
    wall_speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One arm on replicas of one size: the ``rows`` that fit, and figures for each of BATCHES up to that.

    ``reason`` says why nothing could be priced; then there are no rows.
    """

    reason: str | None = None
    rows: int = 0
    figures: tuple[Figures, ...] = ()


Place = tuple[int, int, int, int, int, int, int]
"""Indices of model, weights, KV format, request, device, arm (0: NTP, then the choices), and TP (DEGREES)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Every column of the grid, by its place and in the order of places."""

    models: tuple[ModelShape, ...]
    choices: tuple[Choice, ...]
    columns: dict[Place, Column]


def panel_of(run: Run, comparison: Comparison) -> Panel:
    """The panel of a run; where no SBD arm has its own acceptance, it uses Table 1's."""
    return _panel(_models(run), (*_measured(comparison), *_published()))


@lru_cache(maxsize=4)
def _panel(models: tuple[ModelShape, ...], choices: tuple[Choice, ...]) -> Panel:
    columns: dict[Place, Column] = {}
    formats = [None if stored is None else WEIGHT_FORMATS[stored] for stored in WEIGHTS.values()]
    for model, shape in enumerate(models):
        for weights, stored in enumerate(formats):
            for kv, kv_dtype in enumerate(KV_DTYPES.values()):
                deployment = Deployment(dtype=DTYPE, weights=stored, kv_dtype=kv_dtype)
                for device, name in enumerate(DEVICES):
                    for (request, arm, degree), column in _columns(shape, deployment, name, choices):
                        columns[model, weights, kv, request, device, arm, degree] = column
    return Panel(models=models, choices=choices, columns=dict(sorted(columns.items())))


def _columns(
    shape: ModelShape, deployment: Deployment, hardware: str, choices: Sequence[Choice]
) -> Iterator[tuple[tuple[int, int, int], Column]]:
    """By (request, arm, degree): a model in one format on one kind of device."""
    question = Question(
        shape=shape, deployment=deployment, acceptance=choices[0].acceptance, workload=Workload.of_request(*REQUESTS[0]),
        goal=Goal(batch=1),
    )  # fmt: skip
    device = device_of(question, load_profile(hardware))
    for at, degree in enumerate(DEGREES):
        reason = device if isinstance(device, str) else _not_possible(device, degree)
        priced: dict[tuple[int, int], Column] = {}
        if reason is None and isinstance(device, PlannedDevice):
            priced = _priced(device, degree, choices)
        for request in range(len(REQUESTS)):
            for arm in range(1 + len(choices)):
                yield (request, arm, at), priced.get((request, arm), Column(reason=reason))


def _not_possible(device: PlannedDevice, degree: int) -> str | None:
    if degree not in device.question.possible_degrees:
        return f"{device.question.shape.heads} attention heads cannot be split evenly over {degree} GPUs"
    return device.no_link(degree)


def _priced(device: PlannedDevice, degree: int, choices: Sequence[Choice]) -> dict[tuple[int, int], Column]:
    """By (request, arm)."""
    rows = {key: _rows(device, degree, choices, *key) for key in np.ndindex(len(REQUESTS), 1 + len(choices))}
    if not any(rows.values()):
        return dict.fromkeys(rows, Column())
    speeds = _speeds(device.replica(degree), choices)
    ntp = speeds[0].decode
    return {
        (request, arm): Column(
            rows=fits,
            figures=tuple(
                _figures(device, degree, request, user, whole, decode / beside)
                for batch, user, whole, decode, beside in zip(
                    BATCHES, *(values[request].tolist() for values in speeds[arm]), ntp[request].tolist(), strict=True
                )
                if batch <= fits
            ),
        )
        for (request, arm), fits in rows.items()
    }  # fmt: skip


def _rows(device: PlannedDevice, degree: int, choices: Sequence[Choice], request: int, arm: int) -> int:
    """That fit, at their longest."""
    method: Method = "sbd" if arm else "ntp"
    asked = replace(device.question, acceptance=choices[max(arm - 1, 0)].acceptance)
    return replace(device, question=asked).need(method, degree, sum(REQUESTS[request])).largest_batch


SIZES: Any = np.array(BATCHES, dtype=float)
_REQUESTS: Any = (np.array(tokens, dtype=float)[:, None, None] for tokens in zip(*REQUESTS, strict=True))
WORK = Workload.of_request(*_REQUESTS, chunk_tokens=CHUNK_TOKENS)
"""All requests at once; axes of arrays are request, arm, batch."""
GOAL = Goal(batch=1, requests_per_s=REQUESTS_PER_S)
WORKS = tuple(Workload.of_request(*request, chunk_tokens=CHUNK_TOKENS) for request in REQUESTS)


def _speeds(replica: Replica, choices: Sequence[Choice]) -> list[Speeds]:
    """Of NTP and of every choice, each as (request, batch); arms with and without checks are priced apart."""
    found = {0: _by_arm(serve_each(replica, NTP, SIZES, WORK), 1)[0]}
    for checked in (False, True):
        here = [i for i, one in enumerate(choices) if (one.acceptance.tokens_per_check is not None) == checked]
        if not here:
            continue
        taken = [choices[i].acceptance for i in here]
        numbers = [(one.block_size, one.passes_per_block, one.tokens_per_check or 0) for one in taken]
        sizes, passes, tokens = np.array(numbers, dtype=float).T[:, :, None]
        arm = DecodeArm(block_size=sizes, passes_per_block=passes, tokens_per_check=tokens if checked else None)
        found |= {1 + i: one for i, one in zip(here, _by_arm(serve_each(replica, arm, SIZES, WORK), len(here)), strict=True)}
    return [found[arm] for arm in range(1 + len(choices))]


def _by_arm(speeds: Speeds, arms: int) -> list[Speeds]:
    shape = (len(REQUESTS), arms, len(BATCHES))
    user, whole, decode = (np.broadcast_to(values, shape) for values in speeds)
    return [Speeds(user[:, arm], whole[:, arm], decode[:, arm]) for arm in range(arms)]


def _figures(device: PlannedDevice, degree: int, request: int, user: float, whole: float, speedup: float) -> Figures:
    profile, per_gpu = device.profile, whole / degree
    return Figures(
        tokens_per_s_per_user=user, tokens_per_s_per_gpu=per_gpu, gpus=degree * replicas_for(GOAL, WORKS[request], whole),
        usd_per_million_tokens=per_million(profile.price_usd_per_hour.value, S_PER_HOUR, per_gpu),
        kwh_per_million_tokens=per_million(profile.power_w.value, J_PER_KWH, per_gpu), wall_speedup=speedup,
    )  # fmt: skip


def _models(run: Run) -> tuple[ModelShape, ...]:
    """The run's largest where it is large enough, then MODELS."""
    known = {case.model for case in run.header.cases if case.model is not None and case.model.params >= SMALLEST_PARAMS}
    own = sorted(known, key=lambda shape: (-shape.params, shape.name))[:1]
    return tuple(dict.fromkeys((*own, *(KNOWN_SHAPES[name] for name in MODELS))))


def _measured(comparison: Comparison) -> tuple[Choice, ...]:
    """The arms of the run with blocks, SBD before its verified form; replayed ones where no other has an acceptance.

    Of a method, highlighted arms come first, then those that lose least accuracy; each with that of its smallest batch.
    """
    found = [
        (cell, arm, acceptance, arm.label == highlight.label)
        for highlight in comparison.answers
        for cell in [comparison.summary(highlight.part, highlight.batch_size)]
        for arm in cell.arms
        if (acceptance := _acceptance(cell, arm)) is not None
    ]
    real = [one for one in found if one[1].replayed is None] or found
    smallest: dict[tuple[str, str], tuple[Cell, ArmResult, AssumedAcceptance, bool]] = {}
    for one in sorted(real, key=lambda one: one[0].batch_size):
        smallest.setdefault((one[0].part, one[1].label), one)
    ranked = sorted(smallest.values(), key=_rank)
    by_method = {method: [one for one in ranked if one[1].method == method][:most] for method, most in MOST_ARMS.items()}
    return tuple(_choice(*one) for arms in by_method.values() for one in arms)


def _rank(one: tuple[Cell, ArmResult, AssumedAcceptance, bool]) -> tuple[bool, float, float]:
    _, arm, acceptance, is_highlight = one
    lost = arm.accuracy_difference.value
    return not is_highlight, inf if lost is None else -lost, -acceptance.nfe_speedup


def _acceptance(cell: Cell, arm: ArmResult) -> AssumedAcceptance | None:
    """What a plan can use of an arm: with blocks, and between one pass per block and one per token."""
    tokens, size = arm.nfe_speedup.value, arm.block_size
    if arm.method not in MOST_ARMS or size is None or not tokens:
        return None
    per_check = _tokens_per_check(arm) if arm.method in CHECKED else None
    basis = "measured" if arm.replayed is None else "replayed"
    try:
        return AssumedAcceptance(
            block_size=size, passes_per_block=(per_check or size) / tokens, tokens_per_check=per_check,
            source=f"NFE speedup {tokens:g} of {arm.label} in this run (part {cell.part}, batch {cell.batch_size}), {basis}",
        )  # fmt: skip
    except UserError:
        return None


def _tokens_per_check(arm: ArmResult) -> float:
    """Mean tokens of the passes that made any final: those are the checks."""
    checks = sum(arm.final_tokens_histogram[1:])
    return sum(tokens * count for tokens, count in enumerate(arm.final_tokens_histogram)) / checks if checks else 0.0


def _choice(cell: Cell, arm: ArmResult, acceptance: AssumedAcceptance, is_highlight: bool) -> Choice:
    tokens, per_check = arm.nfe_speedup.value, acceptance.tokens_per_check
    basis: Literal["measured", "replayed"] = "measured" if arm.replayed is None else "replayed"
    checked = () if per_check is None else ("--tokens-per-check", repr(per_check))
    return Choice(
        label=f"{arm.label}: {formatting.ratio(acceptance.nfe_speedup)} fewer passes",
        basis=basis,
        model=cell.model,
        acceptance=acceptance,
        remark=f"{basis} on {cell.model}, {_accuracy(arm)}{'; the arm that answers this run' * is_highlight}",
        arguments=("--nfe-speedup", repr(tokens), *checked, "--block-size", str(acceptance.block_size)),
    )


def _accuracy(arm: ArmResult) -> str:
    if arm.replayed is not None:
        return "which says nothing about accuracy"
    lost = arm.accuracy_difference
    if lost.value is None:
        return f"accuracy not known: {lost.reason}"
    return f"accuracy against NTP {formatting.points(lost.value)}, observed"


def _published() -> tuple[Choice, ...]:
    found = []
    for cell in TABLE1_CELLS:
        acceptance = from_table1(TABLE1_BLOCK_SIZE, cell)
        model, task, level = cell.split("/")
        found.append(
            Choice(
                label=f"Table 1, {task}, γ {level}: {formatting.ratio(acceptance.nfe_speedup)} fewer passes", basis="published",
                model=model, acceptance=acceptance, remark=f"published for {model} on {task}, not measured in this run",
                arguments=("--table1", cell),
            )
        )  # fmt: skip
    return tuple(found)
