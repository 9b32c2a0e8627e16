"""Plans for every combination of choices, priced beforehand: a form looks its answer up instead of asking for it.

Every figure is what ``harness.capacity.plan`` gives for the same question. A replica is priced for all requests, arms and
batches at once: axes of its arrays are request, arm, batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.plan import replicas_for
from harness.capacity.question import DEGREES, Goal, Question, RowTokens
from harness.capacity.replica import PlannedDevice, device_of
from harness.capacity.results import J_PER_KWH, S_PER_HOUR, Method, per_million
from harness.capacity.serving import serve
from harness.frozen import frozen
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment, WeightFormat
from harness.roofline.step import NTP, DecodeArm


@dataclass(frozen=True, kw_only=True)
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
        """Their numbers: 0 is NTP."""
        return range(1 + len(self.acceptances))

    @cached_property
    def sizes(self) -> Any:
        """The batches as an array."""
        return np.array(self.batches, dtype=float)

    @cached_property
    def works(self) -> tuple[RowTokens, ...]:
        """The requests one by one."""
        return tuple(RowTokens.of_request(*request, chunk_tokens=self.chunk_tokens) for request in self.requests)

    @cached_property
    def work(self) -> RowTokens:
        """All requests as arrays along the first axis."""
        prompts, outputs = np.array(self.requests, dtype=float).T[:, :, None, None]
        return RowTokens.of_request(prompts, outputs, chunk_tokens=self.chunk_tokens)

    @cached_property
    def kinds(self) -> list[tuple[list[int], DecodeArm]]:
        """Arms that are priced in one call: their numbers, and all as one whose figures are arrays over (arm, batch)."""
        alike: dict[tuple[bool, str], list[int]] = {}
        for number, acceptance in enumerate(self.acceptances, start=1):
            alike.setdefault((acceptance.tokens_per_check is None, acceptance.batching), []).append(number)
        kinds = [([0], NTP)]
        for numbers in alike.values():
            arms = [self.acceptances[number - 1].arm_at(self.sizes) for number in numbers]
            lines = zip(*((arm.block_size, arm.passes_per_block, arm.tokens_per_check or 0.0) for arm in arms), strict=True)
            block, passes, checked = (
                np.array([np.broadcast_to(value, self.sizes.shape) for value in line], dtype=float) for line in lines
            )
            together = replace(arms[0], block_size=block, passes_per_block=passes)
            kinds.append((numbers, replace(together, tokens_per_check=checked) if arms[0].tokens_per_check else together))
        return kinds


class Figures(NamedTuple):
    """One arm at one batch: expected tokens/s with prompts, cost, GPUs for the load, decode speed over NTP at its batch."""

    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float
    usd_per_million_tokens: float | None
    kwh_per_million_tokens: float | None
    gpus: float
    wall_speedup: float


@frozen
class PricedColumn:
    """One arm on replicas of one size: the ``rows`` that fit, and figures for each batch of the grid up to that.

    ``reason`` says why nothing could be priced; then there are no rows.
    """

    reason: str | None = None
    rows: int = 0
    figures: tuple[Figures, ...] = ()


class Place(NamedTuple):
    """Where a column stands: the numbers of its choices, in the order in which a page counts columns."""

    model: int
    weights: int
    kv: int
    request: int
    device: int
    arm: int
    degree: int


def price_grid(grid: Grid) -> dict[Place, PricedColumn]:
    """Every column, in the order of places."""
    columns: dict[Place, PricedColumn] = {}
    for (model, shape), (weights, stored), (kv, kv_dtype), (number, profile) in product(
        enumerate(grid.models), enumerate(grid.weights), enumerate(grid.kv_dtypes), enumerate(grid.devices)
    ):
        deployment = Deployment(dtype=grid.dtype, weights=stored, kv_dtype=kv_dtype)
        question = Question(shape=shape, deployment=deployment, acceptance=grid.acceptances[0], workload=grid.works[0])
        device = device_of(question, profile)
        for degree, devices in enumerate(DEGREES):
            for (request, arm), column in _columns(grid, device, devices).items():
                place = Place(model=model, weights=weights, kv=kv, request=request, device=number, arm=arm, degree=degree)
                columns[place] = column
    return dict(sorted(columns.items()))


def _columns(grid: Grid, device: PlannedDevice | str, degree: int) -> dict[tuple[int, int], PricedColumn]:
    """By (request, arm): a model in one format on replicas of ``degree`` devices of a kind."""
    reason = device if isinstance(device, str) else _not_possible(device, degree)
    if isinstance(device, str) or reason is not None:
        return dict.fromkeys(product(range(len(grid.requests)), grid.arms), PricedColumn(reason=reason))
    rows = _rows(grid, device, degree)
    if not any(rows.values()):
        return dict.fromkeys(rows, PricedColumn())
    speeds, replica = dict[int, list[Any]](), device.replica(degree)
    for numbers, together in grid.kinds:
        served, shape = serve(replica, together, grid.sizes, grid.work), (len(grid.works), len(numbers), len(grid.sizes))
        bands = (served.user_tokens_per_s, served.tokens_per_s, served.decode_tokens_per_s)
        lines = [np.broadcast_to(band.expected, shape) for band in bands]
        speeds |= {number: [line[:, place] for line in lines] for place, number in enumerate(numbers)}
    columns = {}
    for (request, arm), fits in rows.items():
        by_batch = [values[request].tolist() for values in (*speeds[arm], speeds[0][2])]
        figures = [_figures(grid, device, degree, request, *line) for line in zip(*by_batch, strict=True)]
        columns[request, arm] = PricedColumn(
            rows=fits, figures=tuple(figures[: int(np.searchsorted(grid.sizes, fits, "right"))])
        )
    return columns


def _not_possible(device: PlannedDevice, degree: int) -> str | None:
    if degree not in device.question.possible_degrees:
        return f"{device.question.shape.heads} attention heads cannot be split evenly over {degree} GPUs"
    return device.no_link(degree)


def _rows(grid: Grid, device: PlannedDevice, degree: int) -> dict[tuple[int, int], int]:
    """That fit at their longest, by (request, arm). Arms with the same blocks take the same memory."""
    fitting, by_blocks = dict[tuple[int, int], int](), dict[tuple[object, ...], list[int]]()
    for arm in grid.arms:
        acceptance = grid.acceptances[max(arm - 1, 0)]
        method: Method = "sbd" if arm else "ntp"
        blocks = (method, acceptance.block_size, acceptance.tokens_per_check is None) if arm else (method,)
        if blocks not in by_blocks:
            asked = replace(device, question=replace(device.question, acceptance=acceptance))
            by_blocks[blocks] = [asked.need(method, degree, work.longest_tokens).largest_batch for work in grid.works]
        fitting |= {(request, arm): rows for request, rows in enumerate(by_blocks[blocks])}
    return fitting


def _figures(
    grid: Grid, device: PlannedDevice, degree: int, request: int, user: float, whole: float, decode: float, ntp: float
) -> Figures:
    profile, per_gpu, goal = device.profile, whole / degree, Goal(requests_per_s=grid.requests_per_s)
    return Figures(
        tokens_per_s_per_user=user,
        tokens_per_s_per_gpu=per_gpu,
        usd_per_million_tokens=per_million(profile.price_usd_per_hour.value, S_PER_HOUR, per_gpu),
        kwh_per_million_tokens=per_million(profile.power_w.value, J_PER_KWH, per_gpu),
        gpus=degree * replicas_for(goal, grid.works[request], whole),
        wall_speedup=decode / ntp,
    )
