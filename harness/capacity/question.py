"""A question for the planner: a model and how it is stored, an acceptance, the tokens of a row, and what is wanted.

A ``Goal`` asks for full replicas, a ``ServiceGoal`` for users or requests that wait in a queue.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import get_args

from harness.capacity.acceptance import AssumedAcceptance
from harness.errors import UserError
from harness.frozen import frozen
from harness.hardware.figures import PeakDtype
from harness.hardware.links import Link
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchored import ProfileRung
from harness.roofline.operation import larger, some
from harness.roofline.storage import MEMORY_RESERVE

Counts = tuple[int, ...]
DEGREES = (1, 2, 4, 8)  # devices per replica to try where the split is not given
PERCENTILE = 95.0


@frozen
class RowTokens:
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
        if any(some(count < 0) for count in counts) or (output is not None and some(output < 1)):
            raise UserError(
                f"got a context of {self.context_tokens} tokens, a prompt of {self.prompt_tokens} and an output of "
                f"{self.output_tokens}; context and prompt must be at least 0, the output at least 1"
            )

    @classmethod
    def of_request(
        cls, prompt_tokens: int, output_tokens: int, *, shared_tokens: int = 0, chunk_tokens: int | None = None
    ) -> RowTokens:
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
        if self.prompt_tokens is None or not some(self.prompt_tokens > 0):
            return 0
        tokens: int = larger(self.prompt_tokens - self.shared_tokens, 1)
        return tokens


@frozen
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


@frozen
class Trace:
    """Requests in the order of arrival: seconds since the first one, and lengths.

    Raises:
        UserError: fewer than two, columns of different length, all at once, or a request without a prompt or an answer.
    """

    at_s: tuple[float, ...]
    prompt_tokens: Counts
    output_tokens: Counts

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


@frozen
class ServiceGoal:
    """A load and what its requests are promised. The load is one of:

    ``users``           so many, each with a request in flight but for ``think_s`` after an answer
    ``requests_per_s``  of a Poisson process
    ``trace``           times and lengths; else every request has ``prompt_tokens`` and ``output_tokens``

    ``tokens_per_s``    of a user, after the first token: reached by ``percentile`` % of the requests; None: none is promised
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
    def prompts(self) -> Counts:
        """Lengths of the prompts: one, or those of the trace."""
        return self.trace.prompt_tokens if self.trace else (self.prompt_tokens,)

    @property
    def outputs(self) -> Counts:
        """Lengths of the answers, in the order of ``prompts``."""
        return self.trace.output_tokens if self.trace else (self.output_tokens,)

    @property
    def longest_tokens(self) -> int:
        """Prompt and answer of the longest request."""
        return max(prompt + output for prompt, output in zip(self.prompts, self.outputs, strict=True))


@frozen
class Question:
    """Everything a plan depends on but the devices.

    ``workload``        tokens of a row; of a service the longest request, and ``chunk_tokens`` None tries several chunks
    ``goal``            what is wanted of full replicas
    ``service``         what is promised to users who wait in a queue, in place of ``goal``
    ``deployment``      its ``tensor_parallel`` is replaced by the degrees that are tried
    ``degrees``         devices per stage to try, smallest first; of several, those that do not divide the heads are left out
    ``link``            what joins the devices of a replica; None: what is known of each device
    ``matrix_dtype``    whose peak bounds all arithmetic; None: the deployment's dtype
    ``memory_reserve``  share of a device's memory that is kept for the runtime, fragmentation and the prefill's activations
    ``contexts``        contexts for break-even besides the workload's own
    ``rung``            the ceilings to price on; None: the best that a profile has

    Raises:
        UserError: a reserve outside [0, 1), a dtype without a peak, a context below 0, no degree that divides the heads, a
            batch of unknown acceptance, or a service in lockstep.
    """

    shape: ModelShape
    deployment: Deployment
    acceptance: AssumedAcceptance
    workload: RowTokens
    goal: Goal = Goal()
    service: ServiceGoal | None = None
    degrees: Counts = DEGREES
    matrix_dtype: str | None = None
    memory_reserve: float = MEMORY_RESERVE
    contexts: Counts = ()
    rung: ProfileRung | None = None
    link: Link | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.memory_reserve < 1:
            raise UserError(f"a memory reserve of {self.memory_reserve:g} was given; it is a share, from 0 to below 1")
        if self.rate_dtype not in get_args(PeakDtype):
            raise UserError(f"no device has a peak for {self.rate_dtype!r}; allowed are {', '.join(get_args(PeakDtype))}")
        if min(self.contexts, default=0) < 0:
            raise UserError(f"got a context of {min(self.contexts)} tokens; it must be at least 0")
        if not self.possible_degrees:
            raise UserError(
                f"{self.shape.name} has {self.shape.heads} attention heads, which cannot be split evenly over "
                f"{' or '.join(map(str, self.degrees))} devices; choose a divisor of {self.shape.heads}"
            )
        known = self.acceptance.largest_batch
        if self.goal.batch is not None and known is not None and self.goal.batch > known:
            raise UserError(f"passes per block are given up to batch {known}, not for {self.goal.batch}; give them for it too")
        if self.goal.requests_per_s is not None and self.workload.output_tokens is None:
            raise UserError("requests per second were given, but not how many tokens a request writes; give its output tokens")
        if self.service is not None and self.acceptance.batching == "lockstep":
            raise UserError(
                "a goal is planned for rows that do not wait for one another, as servers run them; leave out --batching "
                "lockstep and --passes-at"
            )

    @property
    def rate_dtype(self) -> str:
        """The dtype whose peak bounds all arithmetic."""
        return self.matrix_dtype or self.deployment.dtype

    def split(self, degree: int) -> Deployment:
        """The deployment with a replica of ``degree`` devices."""
        return replace(self.deployment, tensor_parallel=degree)

    @property
    def possible_degrees(self) -> Counts:
        """Degrees over which heads, and experts that are shared out, can be split."""
        widths = [] if self.deployment.attention_data_parallel else [self.shape.heads]
        if self.deployment.expert_parallel and self.shape.moe is not None:
            widths.append(self.shape.moe.experts)
        return tuple(sorted(degree for degree in self.degrees if degree >= 1 and all(width % degree == 0 for width in widths)))
