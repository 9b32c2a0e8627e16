"""The values of a capacity plan: frozen. ``harness.capacity.columns`` writes them as plain data.

Figures of speed, cost or energy are predictions on the rung of their device: Bands on full replicas, numbers of a queue. An
absent value is None beside its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from math import inf
from typing import Annotated, Any, Literal, get_origin, get_type_hints

from harness.capacity.question import Question
from harness.formatting import count, figure, rate
from harness.frozen import frozen, positional
from harness.hardware.figures import SourcedFigure
from harness.roofline.pricing import SummedPrice
from harness.roofline.storage import MemoryNeed

Method = Literal["ntp", "sbd"]
METHODS: tuple[Method, ...] = ("ntp", "sbd")
Sort = Literal["cost", "speed", "name"]
Load = Literal["full", "service"]
"""Full replicas, or users who wait in a queue."""
ABSENT = "?"
MILLION = 1e6
S_PER_HOUR = 3600.0
J_PER_KWH = 3.6e6


@positional
class Band:
    """A prediction: ``expected``, and its values with memory and arithmetic fully overlapped or not at all, in either order."""

    low: float
    expected: float
    high: float

    @classmethod
    def of_seconds(cls, price: SummedPrice) -> Band:
        """A price as a figure."""
        return cls(price.low_s, price.expected_s, price.high_s)

    def scaled(self, factor: float) -> Band:
        """The same in another unit."""
        return Band(self.low * factor, self.expected * factor, self.high * factor)


def per_million(rate: float | None, unit: float, tokens_per_s: Any) -> Any:
    """``rate`` per device for a million tokens: USD/h with seconds per hour, or W with J per kWh; None where not known.

    Of a band a band: the fastest is the cheapest.
    """
    if rate is None or tokens_per_s is None:
        return None
    amount = rate * MILLION / unit
    if not isinstance(tokens_per_s, Band):
        return amount / tokens_per_s
    return Band(amount / tokens_per_s.high, amount / tokens_per_s.expected, amount / tokens_per_s.low)


def expected(figure: Band | float | None) -> float | None:
    """The figure as one number."""
    return figure.expected if isinstance(figure, Band) else figure


@positional
class PlanColumn:
    """How a figure of a DeploymentPlan is shown: the one list for JSON, CSV, and the tables of terminal and page.

    ``loads``  for which loads there is such a figure; JSON and CSV have it under its name there
    ``head``   above it in a terminal's table; empty: it is not shown there
    ``write``  how the number is written
    ``title``  above it on the page
    """

    loads: tuple[Load, ...]
    head: str = ""
    write: Callable[[float], str] = count
    title: str = ""


full, service, both = (
    partial(PlanColumn, ("full",)),
    partial(PlanColumn, ("service",)),
    partial(PlanColumn, ("full", "service")),
)
FULL, SERVICE, BOTH = full(), service(), both()
_share = "{:.0%}".format


@frozen
class DeploymentPlan:
    """One method on one kind of device. ``reason`` says why there is no deployment; then the figures are None.

    A field without a column of its own is a service's, in JSON and CSV alone.

    ``misses``           by which factor the best split fails a service's goal, where that is the reason
    ``devices``          of a replica; ``tensor_parallel`` of them make a stage
    ``gpus``             the expected number for the whole load; ``gpus_serial`` with nothing overlapped
    ``tokens_per_s_per_gpu``  with what prompts take; delivered at this load, so USD and kWh are per token delivered

    Of full replicas alone:

    ``batch``            rows that a replica serves at once
    ``tokens_per_s_per_user``  with what prompts take (harness.capacity.serving); ``decode_tokens_per_s_per_user`` without
    ``prefill_s``, ``first_token_s``  of a prompt read alone, and from admission to the first token; None without prompts

    Of a service alone, from a simulation of one replica where ``simulated``, else from the mean of a steady load:

    ``chunk_tokens``       most tokens of a prompt in a step
    ``load_per_replica``   in users or requests per second
    ``largest_load``       the most that a replica serves within the goal
    ``headroom``           share by which the whole load can grow until the goal fails; 0.1 is 10 %
    ``largest_batch``      rows that fit a replica's memory, what drafts look ahead included
    ``peak_batch``, ``mean_batch``  rows that decode at once
    ``occupancy``          mean_batch / largest_batch
    ``busy``               share of the time in which a replica makes steps
    ``ttft_p50_s``, ``ttft_s``      median, and at the goal's percentile
    ``tokens_per_s_p50``, ``tokens_per_s``  of a user after the first token: median, and what the goal's percentile reaches
    """

    hardware: str
    rung: str
    method: Annotated[Method, BOTH]
    reason: Annotated[str | None, FULL] = None
    misses: float | None = None
    tensor_parallel: Annotated[int | None, both("TP", count, "TP")] = None
    devices: Annotated[int | None, full("GPUs of a\nreplica")] = None
    batch: Annotated[int | None, full("batch", count, "Batch")] = None
    memory: Annotated[MemoryNeed | None, FULL] = None
    passes_per_block: Annotated[float | None, FULL] = None
    chunk_tokens: int | None = None
    replicas: int | None = None
    gpus: Annotated[int | None, both("GPUs")] = None
    gpus_serial: Annotated[int | None, full("at\nmost")] = None
    load_per_replica: float | None = None
    largest_load: float | None = None
    headroom: Annotated[float | None, service("head", _share)] = None
    largest_batch: Annotated[int | None, service("rows\nfit", count, "Rows that fit")] = None
    peak_batch: Annotated[float | None, service("at\nonce")] = None
    mean_batch: float | None = None
    occupancy: Annotated[float | None, service("used", _share)] = None
    busy: float | None = None
    ttft_p50_s: float | None = None
    ttft_s: Annotated[float | None, service("TTFT\ns", partial(figure, digits=2))] = None
    tokens_per_s_p50: float | None = None
    tokens_per_s: Annotated[float | None, service("tok/s\nuser", rate)] = None
    tokens_per_s_per_user: Annotated[Band | None, full("tok/s\nuser", rate, "Tokens/s per user")] = None
    decode_tokens_per_s_per_user: Annotated[Band | None, FULL] = None
    tokens_per_s_per_gpu: Annotated[Band | float | None, both("tok/s\nGPU", rate, "Tokens/s per GPU")] = None
    prefill_s: Annotated[Band | None, FULL] = None
    first_token_s: Annotated[Band | None, full("TTFT\ns", rate)] = None
    usd_per_hour: float | None = None
    usd_per_million_tokens: Annotated[Band | float | None, both("USD/\nM tok", rate, "USD per million tokens")] = None
    usd_reason: Annotated[str | None, FULL] = None
    kwh_per_million_tokens: Annotated[Band | float | None, both("kWh/\nM tok", rate, "kWh per million tokens")] = None
    kwh_reason: Annotated[str | None, FULL] = None
    simulated: bool = False
    arithmetic: str

    def cell(self, name: str) -> str:
        """One of its figures for a reader, as expected."""
        value = expected(getattr(self, name))
        return ABSENT if value is None else COLUMNS[name].write(value)

    @property
    def usd(self) -> float | None:
        """Expected USD per million tokens."""
        return expected(self.usd_per_million_tokens)

    @property
    def speed(self) -> float | None:
        """Expected tokens per second of a user; of a service at the goal's percentile."""
        return self.tokens_per_s if self.tokens_per_s_per_user is None else self.tokens_per_s_per_user.expected

    @property
    def order(self) -> tuple[bool, float, int, float, str]:
        """The cheapest first; those without a price after them, by GPUs and energy."""
        kwh = expected(self.kwh_per_million_tokens)
        return self.usd is None, self.usd or 0.0, self.gpus or 0, inf if kwh is None else kwh, self.hardware


COLUMNS: dict[str, PlanColumn] = {
    name: hint.__metadata__[0] if get_origin(hint) is Annotated else SERVICE
    for name, hint in get_type_hints(DeploymentPlan, include_extras=True).items()
    if name != "misses"
}
BANDS = {field.name for field in fields(DeploymentPlan) if "Band" in str(field.type)}
"""Of full replicas these have two ends, so three columns in CSV."""


Ranges = tuple[tuple[int, int], ...]
"""(first, last batch), rising."""


@frozen
class BreakEven:
    """Batches at which SBD decodes faster than NTP at the same batch, context and split.

    ``pays``            ranges (first, last batch) of all batches from 1 to ``searched_batch`` where the expected wall speedup
                        is above 1, memory aside; ``pays_overlapped`` and ``pays_serial`` at the two ends of the band
    ``last_batch``      the last batch of the first range; None without one, or where SBD pays up to ``searched_batch``
    ``tokens_per_pass`` B x k at ``last_batch``
    ``largest_batch``   SBD rows of this context that fit
    ``reason``          why nothing could be searched
    """

    context_tokens: int
    reason: str | None
    tensor_parallel: int | None = None
    searched_batch: int | None = None
    largest_batch: int | None = None
    pays: Ranges = ()
    pays_overlapped: Ranges = ()
    pays_serial: Ranges = ()
    last_batch: int | None = None
    tokens_per_pass: int | None = None


@frozen
class DevicePlan:
    """NTP and SBD on one kind of device. ``reached``: what published speeds reach of the datasheet there. ``arithmetic``: how
    weights are multiplied.

    ``reason`` names the figures that a plan lacks; then both methods are absent.

    ``wall_speedup`` compares them at SBD's batch and split. ``break_even`` has one entry per requested context, the
    workload's included. A service has neither.
    """

    hardware: str
    price_usd_per_hour: SourcedFigure
    power_w: SourcedFigure
    rung: str | None = None
    reason: str | None = None
    reached: str | None = None
    arithmetic: str | None = None
    ntp: DeploymentPlan | None = None
    sbd: DeploymentPlan | None = None
    wall_speedup: Band | None = None
    break_even: tuple[BreakEven, ...] = ()

    @property
    def deployments(self) -> list[DeploymentPlan]:
        """Those that there are, NTP first."""
        return [row for row in (self.ntp, self.sbd) if row is not None and row.reason is None]


@frozen
class ParetoPoint:
    """A steady batch on one device that no other point of its method beats in both speeds."""

    method: Method
    hardware: str
    tensor_parallel: int
    batch: int
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float


@frozen
class Refused:
    """A device without a deployment of ``method`` (None: of any) and why. ``misses``: by which factor its best one fails."""

    hardware: str
    method: Method | None
    reason: str
    misses: float | None = None


@frozen
class CapacityPlan:
    """The question, the answer for every device, and in ``notes`` the assumptions. ``pareto``: of a service."""

    question: Question
    devices: tuple[DevicePlan, ...]
    pareto: tuple[ParetoPoint, ...] = ()
    notes: tuple[str, ...] = ()
    sort: Sort = "cost"

    def sorted_by(self, sort: Sort) -> CapacityPlan:
        """With the best device first, then those with an unknown figure, then those without a deployment."""

        def key(device: DevicePlan) -> tuple[int, float, str]:
            rows = device.deployments
            if not rows or sort == "name":
                return 0 if rows else 2, 0.0, device.hardware
            figure = rows[-1].usd if sort == "cost" else rows[-1].speed
            return int(figure is None), (figure or 0.0) * (1 if sort == "cost" else -1), device.hardware

        return replace(self, devices=tuple(sorted(self.devices, key=key)), sort=sort)

    def deployments(self, method: Method) -> list[DeploymentPlan]:
        """All with a method: the simulated ones first, each the best first."""

        def key(row: DeploymentPlan) -> tuple[bool, float | str, tuple[bool, float, int, float, str]]:
            first: dict[Sort, float | str] = {"cost": 0.0, "speed": -(row.speed or 0.0), "name": row.hardware}
            return not row.simulated, first[self.sort], row.order

        return sorted((row for device in self.devices for row in device.deployments if row.method == method), key=key)

    @property
    def refused(self) -> list[Refused]:
        """Devices without a plan, and on the others the methods without one."""
        refused = []
        for device in self.devices:
            if device.reason is not None:
                refused.append(Refused(hardware=device.hardware, method=None, reason=device.reason))
            for row in (device.ntp, device.sbd):
                if row is not None and row.reason is not None:
                    refused.append(Refused(hardware=row.hardware, method=row.method, reason=row.reason, misses=row.misses))
        return refused
