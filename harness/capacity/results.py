"""The values of a capacity plan: plain, frozen, and the same again after a trip through JSON. Knows no formula.

Every figure of speed, cost or energy is a Band, a prediction on the rung of its device. What is absent is None beside its
reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.capacity.acceptance import AssumedAcceptance
from harness.errors import UserError
from harness.models.deployment import Deployment
from harness.roofline.memory import MemoryNeed

CAPACITY_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A prediction: ``expected``, and what it is with memory and arithmetic fully overlapped or not at all, whichever way."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tokens of a row. Passes are priced at ``context_tokens``, the mean; memory is held for ``longest_tokens``.

    ``prompt_tokens``, ``output_tokens``  of a request; None: not given, and then prefill is not priced

    Raises:
        UserError: a count below 0, a row longer than its longest, or an empty request.
    """

    context_tokens: int
    longest_tokens: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        counts = (self.context_tokens, self.prompt_tokens or 0, self.longest_tokens - self.context_tokens)
        if min(counts) < 0 or (self.output_tokens is not None and self.output_tokens < 1):
            raise UserError(
                f"got a context of {self.context_tokens} tokens, a prompt of {self.prompt_tokens} and an output of "
                f"{self.output_tokens}; context and prompt must be at least 0, the output at least 1"
            )

    @classmethod
    def of_request(cls, prompt_tokens: int, output_tokens: int) -> Workload:
        """Rows that start with a prompt and grow by the output: on average half of it is there."""
        return cls(
            context_tokens=prompt_tokens + output_tokens // 2, longest_tokens=prompt_tokens + output_tokens,
            prompt_tokens=prompt_tokens, output_tokens=output_tokens,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What decides the batch: a ``batch`` per replica, a least speed, or (neither) the most tokens per second that fit.

    ``requests_per_s`` then decides the number of replicas; without it a plan is for one.

    Raises:
        UserError: batch and speed together, or a figure that is not positive.
    """

    batch: int | None = None
    tokens_per_s_per_user: float | None = None
    requests_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.batch is not None and self.tokens_per_s_per_user is not None:
            raise UserError("a batch and a speed per user were given; the one follows from the other, so give one of them")
        for name in ("batch", "tokens_per_s_per_user", "requests_per_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"{name} is {value:g}; it must be more than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmPlan:
    """One arm on one kind of device, at the split and batch that the goal leads to.

    ``tensor_parallel`` devices make a replica, which serves ``batch`` rows at once. ``reason`` says why there is no plan, and
    then all that follows is None. ``tokens_per_s_per_user`` is decoding alone; ``tokens_per_s_per_gpu``, and with it GPUs,
    money and energy, have the prefill in them where a prompt was given, as time in which nothing is decoded.
    ``gpus`` is the number needed as expected, ``gpus_serial`` with nothing overlapped. Money and energy are at full load.
    """

    method: Literal["ntp", "sbd"]
    reason: str | None
    tensor_parallel: int | None = None
    batch: int | None = None
    memory: MemoryNeed | None = None
    passes_per_block: float | None = None
    tokens_per_s_per_user: Band | None = None
    tokens_per_s_per_gpu: Band | None = None
    prefill_s: Band | None = None
    gpus: int | None = None
    gpus_serial: int | None = None
    usd_per_million_tokens: Band | None = None
    usd_reason: str | None = None
    kwh_per_million_tokens: Band | None = None
    kwh_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Batches at which SBD decodes faster than NTP at the same batch, context and split.

    ``pays``            ranges (first, last batch) of all batches from 1 to ``searched_batch`` where the expected wall speedup
                        is above 1, memory aside; ``pays_overlapped`` and ``pays_serial`` at the two ends of the band
    ``last_batch``      the last batch of the first range; None where there is none, or where SBD pays up to what was searched
    ``tokens_per_pass`` B x k at ``last_batch``
    ``largest_batch``   SBD rows of this context that fit
    ``reason``          why nothing could be searched
    """

    context_tokens: int
    reason: str | None
    tensor_parallel: int | None = None
    searched_batch: int | None = None
    largest_batch: int | None = None
    pays: tuple[tuple[int, int], ...] = ()
    pays_overlapped: tuple[tuple[int, int], ...] = ()
    pays_serial: tuple[tuple[int, int], ...] = ()
    last_batch: int | None = None
    tokens_per_pass: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """A figure of a profile with its source; where the value is None, ``source`` says why."""

    value: float | None
    source: str
    date: str | None = None
    grade: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlan:
    """NTP and SBD on one kind of device. ``reason`` says which figures are missing for a plan; then there are no arms.

    ``wall_speedup`` compares the arms at SBD's batch and split. ``break_even`` has one entry per context asked for, the
    workload's among them.
    """

    hardware: str
    rung: str | None
    reason: str | None
    price_usd_per_hour: Sourced
    power_w: Sourced
    ntp: ArmPlan | None = None
    sbd: ArmPlan | None = None
    wall_speedup: Band | None = None
    break_even: tuple[BreakEven, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer for every device asked for, what was asked, and in ``notes`` what is assumed."""

    model: str
    params: int
    deployment: Deployment
    matrix_dtype: str
    acceptance: AssumedAcceptance
    workload: Workload
    goal: Goal
    memory_reserve: float
    devices: tuple[DevicePlan, ...]
    notes: tuple[str, ...]
    version: int = CAPACITY_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, ``version`` first."""
        return {"version": self.version, **asdict(self)}
