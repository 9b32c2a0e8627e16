"""The values of a capacity plan: frozen, and unchanged by a conversion to JSON and back.

Figures of speed, cost or energy are Bands, predictions on the rung of their device. An absent value is None beside its reason.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.capacity.acceptance import AssumedAcceptance
from harness.errors import UserError
from harness.models.deployment import Deployment
from harness.roofline.memory import MemoryNeed
from harness.roofline.operation import larger, some

CAPACITY_VERSION = 1
Method = Literal["ntp", "sbd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A prediction: ``expected``, and its values with memory and arithmetic fully overlapped or not at all, in either order."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Tokens of a row. Passes are priced at ``context_tokens``, the mean; memory is held for ``longest_tokens``.

    Counts may be numpy arrays where only speeds are asked (harness.capacity.serving.serve_each).

    ``prompt_tokens``, ``output_tokens``  of a request; None: not given, and then prefill is not priced
    ``shared_tokens``  of the prompt, those of a prefix that every request has and that is in the cache already
    ``chunk_tokens``   tokens of a prompt that one step reads beside the rows that decode; None: prompts are read whole, alone

    Raises:
        UserError: a count below 0, a row longer than its longest, a prefix longer than the prompt, or an empty request.
    """

    context_tokens: int
    longest_tokens: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    shared_tokens: int = 0
    chunk_tokens: int | None = None

    def __post_init__(self) -> None:
        chunked = self.chunk_tokens is None or self.chunk_tokens >= 1
        prompt, output = (0 if self.prompt_tokens is None else self.prompt_tokens, self.output_tokens)
        if not chunked or some(self.shared_tokens < 0) or some(self.shared_tokens > prompt):
            raise UserError(
                f"got a shared prefix of {self.shared_tokens} tokens, a chunk of {self.chunk_tokens} and a prompt of "
                f"{self.prompt_tokens}; the prefix is part of the prompt, and a chunk has at least 1 token"
            )
        counts = (self.context_tokens, prompt, self.longest_tokens - self.context_tokens)
        if any(some(one < 0) for one in counts) or (output is not None and some(output < 1)):
            raise UserError(
                f"got a context of {self.context_tokens} tokens, a prompt of {self.prompt_tokens} and an output of "
                f"{self.output_tokens}; context and prompt must be at least 0, the output at least 1"
            )

    @classmethod
    def of_request(
        cls, prompt_tokens: int, output_tokens: int, *, shared_tokens: int = 0, chunk_tokens: int | None = None
    ) -> Workload:
        """Rows that start with a prompt and grow by the output; half of the output is present on average."""
        return cls(
            context_tokens=prompt_tokens + output_tokens // 2,
            longest_tokens=prompt_tokens + output_tokens,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            shared_tokens=shared_tokens,
            chunk_tokens=chunk_tokens,
        )

    @property
    def read_tokens(self) -> int:
        """Tokens of a prompt that have to be read; the last one always is, because its logits give the first token."""
        tokens: int = 0 if self.prompt_tokens is None else larger(self.prompt_tokens - self.shared_tokens, 1)
        return tokens if self.prompt_tokens is not None and some(self.prompt_tokens > 0) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What decides the batch: a ``batch`` per replica, a least speed, or (neither) the most tokens per second that fit.

    ``requests_per_s`` then decides the number of replicas; without it a plan has one.

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
    """One arm on one kind of device, at the split and batch that follow from the goal.

    ``devices`` of them make a replica, ``tensor_parallel`` a stage of it; it serves ``batch`` rows at once. ``reason`` says why
    a plan is absent; then all later fields are None. With a prompt, speed per user and per GPU, GPUs, money and energy include
    what reading prompts takes (harness.capacity.serving); ``decode_tokens_per_s_per_user`` is decoding alone. ``gpus`` is the
    expected number, ``gpus_serial`` that with nothing overlapped. Money and energy are at full load.
    """

    method: Method
    reason: str | None
    tensor_parallel: int | None = None
    devices: int | None = None
    batch: int | None = None
    memory: MemoryNeed | None = None
    passes_per_block: float | None = None
    tokens_per_s_per_user: Band | None = None
    decode_tokens_per_s_per_user: Band | None = None
    tokens_per_s_per_gpu: Band | None = None
    prefill_s: Band | None = None
    first_token_s: Band | None = None
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
    """NTP and SBD on one kind of device. ``reached``: what published speeds reach of the datasheet there. ``arithmetic``: how
    weights are multiplied.

    ``reason`` names the figures that a plan lacks; then both arms are absent.

    ``wall_speedup`` compares the arms at SBD's batch and split. ``break_even`` has one entry per requested context, the
    workload's included.
    """

    hardware: str
    rung: str | None
    reason: str | None
    price_usd_per_hour: Sourced
    power_w: Sourced
    reached: str | None = None
    arithmetic: str | None = None
    ntp: ArmPlan | None = None
    sbd: ArmPlan | None = None
    wall_speedup: Band | None = None
    break_even: tuple[BreakEven, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The question, the answer for every device, and in ``notes`` the assumptions."""

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
