"""The one table of named figures: unit, better direction, basis, and which claim, gate or history may use each.

harness.analysis.figures derives the figures of an arm; harness.regression.counted and harness.regression.timed derive
those of a gate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from functools import partial
from typing import Literal

from harness.frozen import positional

Basis = Literal["measured", "counted", "modelled", "predicted", "replayed"]
Better = Literal["higher", "lower", "equal", "nearer_zero"]
Scale = Literal["ratio", "difference"]


@positional
class Metric:
    """One figure. Who may use it: ``claimed``, ``gated``, ``tracked`` (by a history; ``by_default`` where none is named).

    ``words``       its name on a page; ``what``: how a gate derives it
    ``gate_unit``   unit in a gate's exports, if that is older than the table
    ``clock``       it is derived from times
    ``to_ntp``      it is a ratio to the time of NTP, so a slow baseline raises it
    ``averaged``    it is a mean of ratios, so there is a choice of estimator
    ``of_prompts``  it is taken prompt by prompt at any batch size
    ``either_way``  it may be off in both directions: a claim gives ``max`` alone, which bounds both signs
    ``percentile``  it is that percentile over prompts
    ``of_requests`` it is taken over the requests that a server answered, one figure a process
    ``tolerance``   share by which a deterministic one may differ and still count as unchanged
    ``scale``       a history looks for factors, or for differences where the figure may be 0 or negative
    """

    name: str
    unit: str
    better: Better
    _: KW_ONLY
    basis: Basis = "measured"
    words: str = ""
    what: str = ""
    claimed: bool = False
    gated: Literal["deterministic", "timed"] | None = None
    tracked: bool = False
    by_default: bool = False
    gate_unit: str | None = None
    clock: bool = True
    to_ntp: bool = False
    averaged: bool = True
    of_prompts: bool = False
    either_way: bool = False
    percentile: int | None = None
    of_requests: bool = False
    tolerance: float = 0.0
    scale: Scale = "ratio"

    @property
    def whole(self) -> bool:
        """Whether it is taken over whole requests, which may have a time where that of their decodes is void."""
        return self.name.startswith(("request_", "latency_"))


PRICES = ("shape-calibrated-ex-ante", "calibrated", "datasheet", "shape-calibrated")
"""Every price of a pass: first those known before the first sample (ex-ante), then those from the run itself."""
PERCENTILES = (50, 90, 95, 99)
WAITS = {
    "first_token": "time to the first token",
    "time_per_token": "time per token after the first",
    "inter_token": "time between two pieces of an answer",
    "request": "time of a whole request",
}
"""What a request to a server waits for."""
REQUEST_PERCENTILES = (50, 95, 99)


def _percentile_words(percent: int) -> str:
    return "median" if percent == 50 else f"{percent}th percentile"


_SHARE_OF_NTP = "NTP's time per token by the arm's, geometric mean over the prompts of a process"
_claimed = partial(Metric, claimed=True)
_of_requests = partial(Metric, claimed=True, averaged=False, of_requests=True)
_of_answers = partial(Metric, basis="counted", claimed=True, clock=False, averaged=False, of_prompts=True)
_counted = partial(Metric, basis="counted", gated="deterministic")
_ALL = (
    # speed by the clock; a gate takes the first few
    Metric(
        "decode_s_per_token",
        "s/token",
        "lower",
        gated="timed",
        what="decode time by decode tokens, median over the samples of a process",
    ),
    _claimed(
        "wall_speedup",
        "x",
        "higher",
        words="faster by the clock",
        what=_SHARE_OF_NTP,
        gated="timed",
        tracked=True,
        by_default=True,
        to_ntp=True,
    ),
    _claimed("request_speedup", "x", "higher", words="faster, prompt included", to_ntp=True),
    _claimed("wall_over_nfe", "x", "higher", words="speedup by the clock ÷ passes saved", to_ntp=True),
    _claimed("tokens_per_s", "tokens/s", "higher", words="tokens per second", tracked=True),
    Metric("time_per_token_s", "s/token", "lower", tracked=True, by_default=True),
    *(
        _claimed(
            f"latency_p{percent}_s",
            "s",
            "lower",
            averaged=False,
            percentile=percent,
            words=f"request latency, {_percentile_words(percent)}",
        )
        for percent in PERCENTILES
    ),
    # requests to servers under a load
    *(
        _of_requests(
            f"{wait}_p{percent}_s",
            "s",
            "lower",
            tracked=True,
            words=f"{words}, {_percentile_words(percent)}",
            # the highest rests on too few requests to be gated
            what="" if percent == 99 else f"{words}, {_percentile_words(percent)} over the requests of a process",
            gated=None if percent == 99 else "timed",
        )
        for wait, words in WAITS.items()
        for percent in REQUEST_PERCENTILES
    ),
    *(
        _of_requests(
            f"{wait}_p{percent}_speedup",
            "x",
            "higher",
            to_ntp=True,
            words=f"{words}, {_percentile_words(percent)}, NTP's by its own",
        )
        for wait, words in WAITS.items()
        for percent in REQUEST_PERCENTILES
    ),
    _of_requests(
        "throughput_tokens_per_s", "tokens/s", "higher", tracked=True, words="output tokens per second of all requests"
    ),
    _of_requests("throughput_ratio", "x", "higher", to_ntp=True, words="output tokens per second against NTP's"),
    _of_requests(
        "goodput_per_s", "requests/s", "higher", tracked=True, words="requests per second within the limits of the load"
    ),
    _of_requests("goodput_ratio", "x", "higher", to_ntp=True, words="goodput against NTP's"),
    Metric("prefill_s", "s", "lower", gated="timed", what="time of the prefill, median over the samples of a process"),
    # resources of the machine
    _claimed("joules_per_token", "J/token", "lower", averaged=False, words="energy per token"),
    _claimed("bandwidth_share", "of the read ceiling", "higher", basis="modelled", words="share of the read ceiling"),
    Metric("ceiling_share", "share", "higher", tracked=True),
    Metric(
        "peak_device_memory_bytes",
        "bytes",
        "lower",
        gated="deterministic",
        tolerance=0.01,
        what="most memory allocated on the GPU",
    ),
    Metric(
        "peak_memory_bytes",
        "bytes",
        "lower",
        gated="deterministic",
        tolerance=0.1,
        what="most memory of the process that was resident",
    ),
    # counts
    _claimed(
        "nfe_speedup", "x", "higher", basis="counted", words="fewer forward passes", clock=False, tracked=True, by_default=True
    ),
    _counted("passes", "passes", "equal", what="forward passes after prefill (NFE), first repeat"),
    _counted("final_tokens_per_pass", "tokens/pass", "equal", what="decode tokens by forward passes after prefill"),
    _counted("decode_tokens", "tokens", "equal", what="output tokens less those of the prefill, first repeat"),
    _counted("output_sha256", "", "equal", what="SHA-256 over all output ids in the order of the prompts, first repeat"),
    Metric(
        "modelled_bytes",
        "bytes",
        "equal",
        basis="modelled",
        gated="deterministic",
        what="bytes that the decode passes move, by the byte model",
    ),
    # what was written
    _of_answers("accuracy_loss_points", "percentage points", "lower", words="accuracy lost to NTP"),
    _of_answers(
        "identical_to_ntp",
        "of the prompts",
        "higher",
        words="outputs identical to NTP's",
        gated="deterministic",
        gate_unit="identical/prompt",
        what="share of the prompts with NTP's very output, first repeat; of arms that decode without loss",
    ),
    # an answer that parts from NTP's where rounding explains it counts as without loss (harness.runner.divergence)
    _of_answers("lossless", "of the prompts", "higher", words="answers without an error"),
    _counted(
        "accuracy",
        "share",
        "higher",
        gate_unit="correct/prompt",
        tracked=True,
        scale="difference",
        what="share of correct prompts, each the mean over its repeats; compared prompt by prompt",
    ),
    # distinct 4-grams ÷ all 4-grams of an answer's token ids, median over prompts: repetition flatters every method
    _of_answers("distinct4_median", "share", "higher", words="distinct 4-grams of an answer"),
    Metric("accuracy_difference", "share", "higher", tracked=True, scale="difference"),
    # predictions
    _claimed(
        "prediction_error",
        "predicted ÷ measured - 1",
        "lower",
        basis="predicted",
        words="error of the prediction, ex-ante",
        either_way=True,
    ),
    _claimed(
        "prediction_error_during_run",
        "predicted ÷ measured - 1",
        "lower",
        basis="predicted",
        words="error of the prediction calibrated during the run",
        either_way=True,
    ),
    *(
        Metric(f"{name}.{price}", "share", "nearer_zero", tracked=True, scale="difference", by_default=default)
        for name, default in (("wall_speedup_error", True), ("decode_error", False))
        for price in PRICES
    ),
)
METRICS = {metric.name: metric for metric in _ALL}
"""By name. ``*_error.<price>``: predicted ÷ measured - 1, by the ceilings of that rung. The top rung has two: ex-ante, known
before the first sample, and, under its bare name, calibrated during the run.
"""


def names_of(use: Callable[[Metric], object]) -> tuple[str, ...]:
    """Names of the metrics with a use, in the order of the table: ``names_of(lambda one: one.claimed)``."""
    return tuple(name for name, metric in METRICS.items() if use(metric))
