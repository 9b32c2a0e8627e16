"""Plans for every combination of choices, priced beforehand: a form looks its answer up instead of asking for it.

Every figure is what ``harness.capacity.plan`` gives for the same question. A replica is priced for all requests, arms and
batches at once: axes of its arrays are request, arm, batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.figures import J_PER_KWH, S_PER_HOUR, per_million, replicas_for
from harness.capacity.plan import DEGREES, PlannedDevice, Question, device_of
from harness.capacity.replica import Replica
from harness.capacity.results import Goal, Method, Workload
from harness.capacity.serving import Speeds, serve_each
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment, WeightFormat
from harness.roofline.step import NTP, DecodeArm


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The choices; the arms are NTP and then one for each of ``acceptances``, and TP is each of DEGREES.

    ``weights``, ``kv_dtypes``  None: as ``dtype`` says
    ``requests``        (prompt, output) tokens
    ``batches``         of a replica, rising
    ``chunk_tokens``    tokens of a prompt that one step reads beside the rows that decode
    ``requests_per_s``  the load for which GPUs are counted
    """

    models: tuple[ModelShape, ...]
    dtype: str
    weights: tuple[WeightFormat | None, ...]
    kv_dtypes: tuple[str | None, ...]
    requests: tuple[tuple[int, int], ...]
    devices: tuple[HardwareProfile, ...]
    acceptances: tuple[AssumedAcceptance, ...]
    batches: tuple[int, ...]
    chunk_tokens: int
    requests_per_s: float

    @property
    def arms(self) -> range:
        """Their places: 0 is NTP."""
        return range(1 + len(self.acceptances))


class Figures(NamedTuple):
    """One arm at one batch: expected tokens/s with prompts, cost, GPUs for the load, decode speed over NTP at its batch."""

    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    usd_per_million_tokens: float | None
    kwh_per_million_tokens: float | None
    gpus: float
    wall_speedup: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One arm on replicas of one size: the ``rows`` that fit, and figures for each batch of the grid up to that.

    ``reason`` says why nothing could be priced; then there are no rows.
    """

    reason: str | None = None
    rows: int = 0
    figures: tuple[Figures, ...] = ()


Place = tuple[int, int, int, int, int, int, int]
"""Indices of model, weights, KV format, request, device, arm, and TP."""


def price_grid(grid: Grid) -> dict[Place, Column]:
    """Every column, in the order of places."""
    every, found = _every(grid), dict[Place, Column]()
    for (model, shape), (weights, stored), (kv, kv_dtype), (at, profile) in product(
        enumerate(grid.models), enumerate(grid.weights), enumerate(grid.kv_dtypes), enumerate(grid.devices)
    ):
        deployment = Deployment(dtype=grid.dtype, weights=stored, kv_dtype=kv_dtype)
        for (request, arm, degree), column in _columns(every, shape, deployment, profile):
            found[model, weights, kv, request, at, arm, degree] = column
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Every:
    """What every replica of the grid is asked.

    ``works``  the requests one by one, ``work`` all of them as arrays
    ``kinds``  arms that are priced in one call, by their places
    """

    grid: Grid
    goal: Goal
    sizes: Any
    works: tuple[Workload, ...]
    work: Workload
    kinds: tuple[tuple[tuple[int, ...], DecodeArm], ...]


def _every(grid: Grid) -> _Every:
    sizes: Any = np.array(grid.batches, dtype=float)
    arms = (NTP, *(one.arm_at(sizes) for one in grid.acceptances))
    places: dict[tuple[object, ...], list[int]] = {}
    for place, arm in enumerate(arms):
        places.setdefault((arm.block_size is None, arm.tokens_per_check is None, arm.batching), []).append(place)
    prompts, outputs = map(_column_of, zip(*grid.requests, strict=True))
    work = Workload.of_request(prompts, outputs, chunk_tokens=grid.chunk_tokens)
    return _Every(
        grid=grid,
        goal=Goal(requests_per_s=grid.requests_per_s),
        sizes=sizes,
        work=work,
        works=tuple(Workload.of_request(*request, chunk_tokens=grid.chunk_tokens) for request in grid.requests),
        kinds=tuple((tuple(alike), _together([arms[place] for place in alike], sizes)) for alike in places.values()),
    )


def _column_of(tokens: Sequence[int]) -> Any:
    """Along the first axis, that of requests."""
    return np.array(tokens, dtype=float)[:, None, None]


def _together(arms: Sequence[DecodeArm], sizes: Any) -> DecodeArm:
    """Arms of one kind as one, whose numbers are arrays over (arm, batch)."""
    first = arms[0]
    if first.block_size is None:
        return first

    def stacked(values: Sequence[Any]) -> Any:
        return np.stack([np.broadcast_to(np.asarray(value, dtype=float), sizes.shape) for value in values])

    return DecodeArm(
        block_size=stacked([one.block_size for one in arms]),
        passes_per_block=stacked([one.passes_per_block for one in arms]),
        batching=first.batching,
        tokens_per_check=None if first.tokens_per_check is None else stacked([one.tokens_per_check for one in arms]),
    )


def _columns(
    every: _Every, shape: ModelShape, deployment: Deployment, profile: HardwareProfile
) -> Iterator[tuple[tuple[int, int, int], Column]]:
    """By (request, arm, degree): a model in one format on one kind of device."""
    grid = every.grid
    question = Question(
        shape=shape, deployment=deployment, acceptance=grid.acceptances[0], workload=every.works[0], goal=Goal(batch=1)
    )
    device = device_of(question, profile)
    for at, degree in enumerate(DEGREES):
        reason = device if isinstance(device, str) else _not_possible(device, degree)
        priced: dict[tuple[int, int], Column] = {}
        if reason is None and isinstance(device, PlannedDevice):
            priced = _priced(every, device, degree)
        for request, arm in product(range(len(grid.requests)), grid.arms):
            yield (request, arm, at), priced.get((request, arm), Column(reason=reason))


def _not_possible(device: PlannedDevice, degree: int) -> str | None:
    if degree not in device.question.possible_degrees:
        return f"{device.question.shape.heads} attention heads cannot be split evenly over {degree} GPUs"
    return device.no_link(degree)


def _priced(every: _Every, device: PlannedDevice, degree: int) -> dict[tuple[int, int], Column]:
    """By (request, arm)."""
    rows = _rows(every, device, degree)
    if not any(rows.values()):
        return dict.fromkeys(rows, Column())
    speeds = _speeds(every, device.replica(degree))
    ntp = speeds[0].decode
    return {
        (request, arm): Column(
            rows=fits,
            figures=tuple(
                _figures(every, device, degree, request, user, whole, decode / beside)
                for batch, user, whole, decode, beside in zip(
                    every.grid.batches,
                    *(values[request].tolist() for values in speeds[arm]),
                    ntp[request].tolist(),
                    strict=True,
                )
                if batch <= fits
            ),
        )
        for (request, arm), fits in rows.items()
    }


def _rows(every: _Every, device: PlannedDevice, degree: int) -> dict[tuple[int, int], int]:
    """That fit at their longest, by (request, arm). Arms with the same blocks take the same memory."""
    found = dict[tuple[int, int], int]()
    by_blocks = dict[tuple[object, ...], list[int]]()
    for arm in every.grid.arms:
        acceptance, method = every.grid.acceptances[max(arm - 1, 0)], _method(arm)
        blocks = (method, acceptance.block_size, acceptance.tokens_per_check is None) if arm else (method,)
        if blocks not in by_blocks:
            asked = replace(device, question=replace(device.question, acceptance=acceptance))
            by_blocks[blocks] = [asked.need(method, degree, work.longest_tokens).largest_batch for work in every.works]
        found |= {(request, arm): rows for request, rows in enumerate(by_blocks[blocks])}
    return found


def _method(arm: int) -> Method:
    return "sbd" if arm else "ntp"


def _speeds(every: _Every, replica: Replica) -> list[Speeds]:
    """Of every arm, each as (request, batch)."""
    found = dict[int, Speeds]()
    for places, arm in every.kinds:
        shape = (len(every.works), len(places), len(every.sizes))
        speeds = [np.broadcast_to(values, shape) for values in serve_each(replica, arm, every.sizes, every.work)]
        found |= {place: Speeds(*(values[:, at] for values in speeds)) for at, place in enumerate(places)}
    return [found[arm] for arm in every.grid.arms]


def _figures(
    every: _Every, device: PlannedDevice, degree: int, request: int, user: float, whole: float, speedup: float
) -> Figures:
    profile, per_gpu = device.profile, whole / degree
    return Figures(
        tokens_per_s_per_user=user,
        tokens_per_s_per_gpu=per_gpu,
        usd_per_million_tokens=per_million(profile.price_usd_per_hour.value, S_PER_HOUR, per_gpu),
        kwh_per_million_tokens=per_million(profile.power_w.value, J_PER_KWH, per_gpu),
        gpus=degree * replicas_for(every.goal, every.works[request], whole),
        wall_speedup=speedup,
    )
