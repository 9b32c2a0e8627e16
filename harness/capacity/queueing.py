"""Requests at one replica in time: when each has its first token and its last, with chunked prefill and continuous batching.

A step of an engine decodes every row that is open, and reads waiting prompts in the order of arrival until its budget of
tokens is spent or the batch is full: several short ones, or a chunk of a long one. Between two events (a request arrives, a row
ends) all steps that read nothing are alike but for the growing context, so they are taken at once.

Source of the model: the scheduler of vLLM and SGLang with chunked prefill (decodes first, then prompts as far as the step's
budget goes). Left out: preemption (the batch is limited to what fits), that rows take from the budget, and the host's own time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from harness.errors import UserError
from harness.frozen import frozen

Floats = NDArray[np.float64]
StepSeconds = Callable[[int, float, int, float], float]
"""Seconds of a step: (prompt tokens read in it, mean number in the cache before their chunks, rows decoded, their mean
context).
"""


def passes_of(output_tokens: int, tokens_per_pass: float) -> int:
    """Decode passes of an answer, whose first token comes from the prompt's pass."""
    return max(1, round((output_tokens - 1) / tokens_per_pass))


@frozen
class QueueEngine:
    """One replica with one way of decoding.

    ``step_s``           seconds of a step
    ``largest_batch``    rows that its memory holds
    ``chunk_tokens``     most prompt tokens in a step, of all prompts together
    ``tokens_per_pass``  mean tokens that a decode pass makes final per row
    """

    step_s: StepSeconds
    largest_batch: int
    chunk_tokens: int
    tokens_per_pass: float = 1.0

    def __post_init__(self) -> None:
        if self.largest_batch < 1 or self.chunk_tokens < 1 or not 1 <= self.tokens_per_pass < inf:
            raise UserError(
                f"got a batch of {self.largest_batch}, chunks of {self.chunk_tokens} and {self.tokens_per_pass:g} tokens per "
                "pass; each is at least 1"
            )


@frozen
class Arrivals:
    """Requests in the order of arrival.

    ``after_s``  think times of closed users; then ``at_s`` are their first requests alone, and request i follows an answer by
                 ``after_s[i]``
    ``passes``   decode passes of each answer; None: as many as the engine's tokens per pass make of it
    """

    at_s: Sequence[float]
    prompt_tokens: Sequence[int]
    output_tokens: Sequence[int]
    after_s: Sequence[float] | None = None
    passes: Sequence[int] | None = None


@frozen
class ServedRequests:
    """What requests waited for, by request, in seconds. ``busy_s``: time in which the engine made steps."""

    arrived_s: Floats
    first_token_s: Floats
    finished_s: Floats
    output_tokens: NDArray[np.int_]
    busy_s: float

    @property
    def waited_s(self) -> Floats:
        """Time to first token."""
        return self.first_token_s - self.arrived_s

    @property
    def time_per_token_s(self) -> Floats:
        """Mean time per output token after the first; NaN where an answer has one token."""
        later_tokens = self.output_tokens - 1.0
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(later_tokens > 0, (self.finished_s - self.first_token_s) / later_tokens, np.nan)

    def steady(self, warm_share: float = 0.2, last_share: float = 0.0) -> ServedRequests:
        """Without the first requests, a share of all: the queue of an empty engine is none. The last ones see it drain."""
        requests = len(self.arrived_s)
        keep = slice(int(requests * warm_share), requests - int(requests * last_share))
        order = np.argsort(self.arrived_s, kind="stable")[keep]
        return ServedRequests(
            arrived_s=self.arrived_s[order],
            first_token_s=self.first_token_s[order],
            finished_s=self.finished_s[order],
            output_tokens=self.output_tokens[order],
            busy_s=self.busy_s,
        )


def poisson(rate_per_s: float, prompt_tokens: Sequence[int], output_tokens: Sequence[int], seed: int) -> Arrivals:
    """One request per entry, at the times of a Poisson process."""
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, len(prompt_tokens))
    return Arrivals(at_s=np.cumsum(gaps).tolist(), prompt_tokens=prompt_tokens, output_tokens=output_tokens)


def closed_loop(
    users: int,
    think_s: float,
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    over_s: float,
    seed: int | None = None,
) -> Arrivals:
    """``users`` that always have a request in flight or think; their first ones come evenly over ``over_s``.

    With a ``seed`` they think for exponential times of the mean ``think_s`` and begin at random; users of equal think times
    would march in step.
    """
    at_s, thinks = np.arange(users) * over_s / users, np.full(len(prompt_tokens), think_s)
    if seed is not None:
        drawn = np.random.default_rng(seed)
        at_s, thinks = np.sort(drawn.uniform(0, over_s, users)), drawn.exponential(think_s, len(prompt_tokens))
    return Arrivals(at_s=at_s.tolist(), prompt_tokens=prompt_tokens, output_tokens=output_tokens, after_s=thinks.tolist())


def simulate(engine: QueueEngine, arrivals: Arrivals) -> ServedRequests:
    """Serve all requests.

    Complexity: a few numpy operations over the open rows, and a price, per request and per step that reads.
    """
    return _Replica(engine, arrivals).served()


class _Replica:
    """The state between two events."""

    def __init__(self, engine: QueueEngine, arrivals: Arrivals) -> None:
        self._engine, self._arrivals = engine, arrivals
        self._total, self._ended = len(arrivals.prompt_tokens), 0
        self._passes = arrivals.passes or [passes_of(tokens, engine.tokens_per_pass) for tokens in arrivals.output_tokens]
        self._coming: list[tuple[float, int]] = [(at_s, number) for number, at_s in enumerate(arrivals.at_s[: self._total])]
        heapq.heapify(self._coming)
        self._sent = len(self._coming)
        self._waiting: deque[int] = deque()
        self._read = 0  # tokens of the first that waits, read so far
        self._open = np.empty(0, dtype=np.int_)  # requests that decode
        self._left = np.empty(0)  # passes that each of them still needs
        self._context = 0.0  # Σ context of these
        self._now_s = self._busy_s = 0.0
        self._arrived, self._first, self._finished = np.zeros((3, self._total))

    def served(self) -> ServedRequests:
        while self._ended < self._total:
            while self._coming and self._coming[0][0] <= self._now_s:  # note who has come
                at_s, request = heapq.heappop(self._coming)
                self._arrived[request] = at_s
                self._waiting.append(request)
            if self._waiting and len(self._open) < self._engine.largest_batch:
                self._reading_step()
            elif len(self._open):
                self._decode()
            else:
                self._now_s = max(self._now_s, self._coming[0][0])
        return ServedRequests(
            arrived_s=self._arrived,
            first_token_s=self._first,
            finished_s=self._finished,
            output_tokens=np.asarray(self._arrivals.output_tokens),
            busy_s=self._busy_s,
        )

    def _reading_step(self) -> None:
        """One step that reads."""
        rows = len(self._open)
        tokens, before, read = self._prompts(self._engine.largest_batch - rows)
        self._spend(self._engine.step_s(tokens, before, rows, self._context / rows if rows else 0.0))
        self._progress(1)
        opened = []
        for request in read:
            self._first[request] = self._now_s
            if self._arrivals.output_tokens[request] > 1:
                opened.append(request)
            else:
                self._end(request)
        if opened:
            self._open = np.append(self._open, opened)
            self._left = np.append(self._left, [self._passes[request] for request in opened])
            self._context += sum(self._arrivals.prompt_tokens[request] for request in opened)

    def _prompts(self, room: int) -> tuple[int, float, list[int]]:
        """What the next step reads: its tokens, the mean number in the cache before their chunks, the prompts that it ends."""
        tokens, before, ends = 0, 0.0, list[int]()
        while self._waiting and len(ends) < room and tokens < self._engine.chunk_tokens:
            left = self._arrivals.prompt_tokens[self._waiting[0]] - self._read
            chunk = min(self._engine.chunk_tokens - tokens, left)
            tokens, before = tokens + chunk, before + chunk * self._read
            if chunk < left:
                self._read += chunk
                break
            ends.append(self._waiting.popleft())
            self._read = 0
        return tokens, before / max(tokens, 1), ends

    def _decode(self) -> None:
        """All steps up to the next event."""
        steps = int(self._left.min())
        seconds = self._steps_s(steps)
        if self._coming and len(self._open) < self._engine.largest_batch:
            gap_s = self._coming[0][0] - self._now_s
            if seconds > gap_s:  # the fewest steps that reach the arrival
                steps = bisect_left(range(1, steps), gap_s, key=self._steps_s) + 1
                seconds = self._steps_s(steps)
        self._spend(seconds)
        self._progress(steps)

    def _steps_s(self, steps: int) -> float:
        """Of so many decode steps; their price is taken at the middle of the context that they see."""
        rows = len(self._open)
        context = self._context / rows + self._engine.tokens_per_pass * (steps - 1) / 2
        return steps * self._engine.step_s(0, 0.0, rows, context)

    def _spend(self, seconds: float) -> None:
        self._now_s += seconds
        self._busy_s += seconds

    def _progress(self, steps: int) -> None:
        """Every open row has made ``steps`` passes; those that need no more end."""
        per_pass, prompts = self._engine.tokens_per_pass, self._arrivals.prompt_tokens
        self._left -= steps
        self._context += steps * per_pass * len(self._open)
        ends = self._left <= 0
        if ends.any():
            ended = self._open[ends].tolist()
            for request in ended:
                self._end(request)
            self._context -= sum(prompts[request] + self._passes[request] * per_pass for request in ended)
            self._open, self._left = self._open[~ends], self._left[~ends]

    def _end(self, request: int) -> None:
        self._finished[request] = self._now_s
        self._ended += 1
        if self._arrivals.after_s is not None and self._sent < self._total:
            heapq.heappush(self._coming, (self._now_s + self._arrivals.after_s[self._sent], self._sent))
            self._sent += 1
