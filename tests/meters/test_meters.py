"""Clocks as windows, with fakes: durations are exact, nothing waits inside the loop, every call is passed on."""

from __future__ import annotations

from harness.meters.clock import CudaClock, HostClock, MeteredSession
from tests.helpers.fake_clock import FakeClock
from tests.helpers.fake_cuda import FakeCuda


class Session:
    """Takes three ticks for a forward."""

    context_tokens, context_width = (4,), 6

    def __init__(self, clock):
        self.clock, self.kept, self.rows = clock, [], None

    def reset(self, rows, capacity):
        """Remember."""
        self.rows = rows

    def forward(self, segments):
        """Let time pass."""
        self.clock.time_s += 3
        return segments

    def keep(self, tokens):
        """Remember."""
        self.kept.append(tokens)

    def drop(self, tokens):
        """Nothing to forget."""

    def read(self, tokens):
        """Nothing to fetch."""
        return tokens


def test_forward_and_sampler_times_are_exact_and_leave_out_what_is_outside():
    """Forwards of 3 s and a sampler of 10 s (each and one tick of the mark itself); what lies behind the readback is neither.

    A prompt pass that nothing was read from had no sampler.
    """
    clock = FakeClock()
    session = MeteredSession(Session(clock), clock)
    session.reset(1, 8)
    assert session.forward(["a"]) == ["a"]
    clock.time_s += 100
    session.forward(["b"])
    clock.time_s += 10
    assert session.read([[7]]) == [[7]]
    clock.time_s += 100
    session.keep([1])
    session.forward(["c"])
    assert session.forward_s() == [4.0, 4.0, 4.0]
    assert session.sampler_s() == [0.0, 11.0, 0.0]
    assert (session.context_tokens, session.context_width) == ((4,), 6)
    assert clock.synchronised == 0, "no synchronisation inside the loop"
    session.reset(2, 8)
    assert session.forward_s() == session.sampler_s() == []


def test_cuda_spans_are_seconds_from_events():
    """CUDA reports milliseconds; recording never synchronises."""
    cuda = FakeCuda()
    clock = CudaClock("cuda:0", cuda)
    start = clock.mark()
    cuda.now_ms = 250.0
    end = clock.mark()
    assert clock.spans_s([(start, end)]) == [0.25]
    assert cuda.synchronized == []
    clock.synchronise()
    assert cuda.synchronized == ["cuda:0"]
    assert clock.now_s() <= clock.now_s()


def test_the_host_clock_is_monotonic_seconds():
    """Spans are differences of marks."""
    clock = HostClock()
    clock.synchronise()
    assert clock.mark() <= clock.now_s()
    assert clock.spans_s([(1.0, 3.5)]) == [2.5]
