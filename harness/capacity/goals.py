"""What users of a service are promised, and the deployments that keep it: values, all frozen.

A figure of a deployment comes from a simulation of one replica where ``simulated``, else from the mean of a steady load.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import Any

from harness.capacity.acceptance import AssumedAcceptance
from harness.capacity.results import Method, Sourced
from harness.errors import UserError
from harness.models.deployment import Deployment

GOALS_VERSION = 1
CHUNKS = (2048, 512, 1024)
"""Prompt tokens in a step: vLLM's default for servers ranks the devices; the others are tried on the best of them."""
PERCENTILE = 95.0
METHODS: tuple[Method, ...] = ("ntp", "sbd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests in the order of arrival: seconds since the first one, and lengths.

    Raises:
        UserError: fewer than two, columns of different length, all at once, or a request without a prompt or an answer.
    """

    at_s: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        columns = (self.at_s, self.prompt_tokens, self.output_tokens)
        if len(self.at_s) < 2 or len({len(column) for column in columns}) > 1 or not self.at_s[-1] > self.at_s[0]:
            raise UserError(
                f"a trace of {len(self.at_s)} requests was given; it needs two or more, over a time, each with both lengths"
            )
        if min(self.prompt_tokens) < 1 or min(self.output_tokens) < 1:
            raise UserError("a request of the trace has no prompt or no answer; both have at least one token")

    @property
    def requests_per_s(self) -> float:
        """Mean rate."""
        return (len(self.at_s) - 1) / (self.at_s[-1] - self.at_s[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceGoal:
    """A load and what its requests are promised. The load is one of:

    ``users``           so many, each with a request in flight but for ``think_s`` after an answer
    ``requests_per_s``  of a Poisson process
    ``trace``           times and lengths; else every request has ``prompt_tokens`` and ``output_tokens``

    ``tokens_per_s``    of a user, behind the first token: reached by ``percentile`` % of the requests; None: none is promised
    ``ttft_s``          time to first token, queue included: not exceeded by ``percentile`` % of the requests

    Raises:
        UserError: no load or several, or a figure out of its range.
    """

    users: int | None = None
    requests_per_s: float | None = None
    trace: Trace | None = None
    think_s: float = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    tokens_per_s: float | None = None
    ttft_s: float
    percentile: float = PERCENTILE

    def __post_init__(self) -> None:
        loads = {"--users": self.users, "--requests-per-s": self.requests_per_s, "--trace": self.trace}
        given = [name for name, load in loads.items() if load is not None]
        if len(given) != 1:
            raise UserError(f"the load is given by {' and '.join(given) or 'nothing'}; give one of {', '.join(loads)}")
        if self.trace is None and (self.prompt_tokens < 1 or self.output_tokens < 1):
            raise UserError(
                f"requests of {self.prompt_tokens} prompt and {self.output_tokens} output tokens were given; a goal needs "
                "--prompt-tokens and --output-tokens, both at least 1"
            )
        self._check_ranges()

    def _check_ranges(self) -> None:
        positive = {
            "--users": self.users,
            "--requests-per-s": self.requests_per_s,
            "--tokens-per-s": self.tokens_per_s,
            "--ttft": self.ttft_s,
        }
        for name, value in positive.items():
            if value is not None and not (value > 0 and isfinite(value)):
                raise UserError(f"{name} {value:g} was given; it must be more than 0")
        if not 50 <= self.percentile < 100:
            raise UserError(f"--percentile {self.percentile:g} was given; allowed are 50 to below 100")
        if not (self.think_s >= 0 and isfinite(self.think_s)) or (self.think_s and self.users is None):
            raise UserError(f"--think-s {self.think_s:g} was given; it is at least 0, and goes with --users")

    @property
    def load(self) -> float:
        """Users, or requests per second."""
        load = self.users or self.requests_per_s or (self.trace.requests_per_s if self.trace else None)
        assert load is not None
        return float(load)

    @property
    def prompts(self) -> tuple[int, ...]:
        """Lengths of the prompts: one, or those of the trace."""
        return self.trace.prompt_tokens if self.trace else (self.prompt_tokens,)

    @property
    def outputs(self) -> tuple[int, ...]:
        """Lengths of the answers, in the order of ``prompts``."""
        return self.trace.output_tokens if self.trace else (self.output_tokens,)

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of the longest request."""
        return max(prompt + output for prompt, output in zip(self.prompts, self.outputs, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """``replicas`` of ``tensor_parallel`` devices each, with one method.

    ``chunk_tokens``       most tokens of a prompt in a step
    ``load_per_replica``   in users or requests per second
    ``largest_load``       the most that a replica serves within the goal
    ``headroom``           share by which the whole load can grow until the goal fails; 0.1 is 10 %
    ``largest_batch``      rows that fit a replica's memory, what drafts look ahead included
    ``peak_batch``, ``mean_batch``  rows that decode at once
    ``occupancy``          mean_batch / largest_batch
    ``busy``               share of the time in which a replica makes steps
    ``ttft_p50_s``, ``ttft_s``      median, and at the goal's percentile
    ``tokens_per_s_p50``, ``tokens_per_s``  of a user behind the first token: median, and what the goal's percentile reaches
    ``arithmetic``         how weights are multiplied
    ``tokens_per_s_per_gpu``        delivered at this load; USD and kWh are per token delivered, idle time included
    """

    hardware: str
    rung: str
    method: Method
    tensor_parallel: int
    chunk_tokens: int
    replicas: int
    gpus: int
    load_per_replica: float
    largest_load: float
    headroom: float
    largest_batch: int
    peak_batch: float
    mean_batch: float
    occupancy: float
    busy: float | None
    ttft_p50_s: float
    ttft_s: float
    tokens_per_s_p50: float | None
    tokens_per_s: float | None
    tokens_per_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    kwh_per_million_tokens: float | None
    simulated: bool
    arithmetic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParetoPoint:
    """A steady batch on one device that no other point of its method beats in both speeds."""

    method: Method
    hardware: str
    tensor_parallel: int
    batch: int
    tokens_per_s_per_user: float
    tokens_per_s_per_gpu: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A device without a deployment of ``method`` (None: of any) and why. ``misses``: by which factor its best one fails."""

    hardware: str
    method: Method | None
    reason: str
    misses: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalPlan:
    """The question, the deployments (the cheapest first, those without a price after them, by GPUs), and what is assumed."""

    model: str
    params: int
    deployment: Deployment
    acceptance: AssumedAcceptance
    goal: ServiceGoal
    memory_reserve: float
    ntp: tuple[DeploymentPlan, ...]
    sbd: tuple[DeploymentPlan, ...]
    pareto: tuple[ParetoPoint, ...]
    refused: tuple[Refused, ...]
    prices: dict[str, Sourced] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    version: int = GOALS_VERSION

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data, ``version`` first. Of a trace the number of requests and the rate stand for its lines."""
        found = {"version": self.version, **asdict(self)}
        if trace := self.goal.trace:
            found["goal"]["trace"] = {"requests": len(trace.at_s), "requests_per_s": trace.requests_per_s}
        return found
