"""The one table of named figures: unit, better direction, basis, and which claim, gate or history may use each.

harness.analysis.figures derives the figures of an arm; harness.regression.counted and harness.regression.timed derive
those of a gate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Basis = Literal["measured", "counted", "modelled", "predicted", "replayed"]
Better = Literal["higher", "lower", "equal", "nearer_zero"]
Scale = Literal["ratio", "difference"]


@dataclass(frozen=True, slots=True, kw_only=True)
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


PRICES = ("shape-calibrated-ex-ante", "calibrated", "datasheet", "shape-calibrated")
"""Every price of a pass: first those known before the first sample (ex-ante), then those from the run itself."""
PERCENTILES = (50, 90, 95, 99)
WAITS = {
    "first_token": "time to the first token",
    "time_per_token": "time per token behind the first",
    "inter_token": "time between two pieces of an answer",
    "request": "time of a whole request",
}
"""What a request to a server waits for."""
REQUEST_PERCENTILES = (50, 95, 99)


def _gated(what: str, percent: int) -> dict[str, Any]:
    """Of a percentile that a gate may take; the highest one rests on too few requests."""
    return {"gated": "timed", "what": what} if percent < 99 else {}


def _percentile_words(percent: int) -> str:
    return "median" if percent == 50 else f"{percent}th percentile"


_SHARE_OF_NTP = "NTP's time per token by the arm's, geometric mean over the prompts of a process"
_ALL = (
    # speed by the clock; a gate takes the first few
    Metric(
        name="decode_s_per_token",
        unit="s/token",
        better="lower",
        gated="timed",
        what="decode time by decode tokens, median over the samples of a process",
    ),
    Metric(
        name="wall_speedup",
        unit="x",
        better="higher",
        words="faster by the clock",
        what=_SHARE_OF_NTP,
        claimed=True,
        gated="timed",
        tracked=True,
        by_default=True,
        to_ntp=True,
    ),
    Metric(name="request_speedup", unit="x", better="higher", words="faster, prompt included", claimed=True, to_ntp=True),
    Metric(
        name="wall_over_nfe", unit="x", better="higher", words="speedup by the clock ÷ passes saved", claimed=True, to_ntp=True
    ),
    Metric(name="tokens_per_s", unit="tokens/s", better="higher", words="tokens per second", claimed=True, tracked=True),
    Metric(name="time_per_token_s", unit="s/token", better="lower", tracked=True, by_default=True),
    *(
        Metric(
            name=f"latency_p{percent}_s",
            unit="s",
            better="lower",
            claimed=True,
            averaged=False,
            percentile=percent,
            words=f"request latency, {_percentile_words(percent)}",
        )
        for percent in PERCENTILES
    ),
    # requests to servers under a load
    *(
        Metric(
            name=f"{wait}_p{percent}_s",
            unit="s",
            better="lower",
            claimed=True,
            tracked=True,
            averaged=False,
            of_requests=True,
            words=f"{words}, {_percentile_words(percent)}",
            **_gated(f"{words}, {_percentile_words(percent)} over the requests of a process", percent),
        )
        for wait, words in WAITS.items()
        for percent in REQUEST_PERCENTILES
    ),
    *(
        Metric(
            name=f"{wait}_p{percent}_speedup",
            unit="x",
            better="higher",
            claimed=True,
            averaged=False,
            of_requests=True,
            to_ntp=True,
            words=f"{words}, {_percentile_words(percent)}, NTP's by its own",
        )
        for wait, words in WAITS.items()
        for percent in REQUEST_PERCENTILES
    ),
    Metric(
        name="throughput_tokens_per_s",
        unit="tokens/s",
        better="higher",
        claimed=True,
        tracked=True,
        averaged=False,
        of_requests=True,
        words="output tokens per second of all requests",
    ),
    Metric(
        name="throughput_ratio",
        unit="x",
        better="higher",
        claimed=True,
        averaged=False,
        of_requests=True,
        to_ntp=True,
        words="output tokens per second against NTP's",
    ),
    Metric(
        name="goodput_per_s",
        unit="requests/s",
        better="higher",
        claimed=True,
        tracked=True,
        averaged=False,
        of_requests=True,
        words="requests per second within the limits of the load",
    ),
    Metric(
        name="goodput_ratio",
        unit="x",
        better="higher",
        claimed=True,
        averaged=False,
        of_requests=True,
        to_ntp=True,
        words="goodput against NTP's",
    ),
    Metric(
        name="prefill_s",
        unit="s",
        better="lower",
        gated="timed",
        what="time of the prefill, median over the samples of a process",
    ),
    # resources of the machine
    Metric(name="joules_per_token", unit="J/token", better="lower", words="energy per token", claimed=True),
    Metric(
        name="bandwidth_share",
        unit="of the read ceiling",
        better="higher",
        basis="modelled",
        words="share of the read ceiling",
        claimed=True,
    ),
    Metric(name="ceiling_share", unit="share", better="higher", tracked=True),
    Metric(
        name="peak_device_memory_bytes",
        unit="bytes",
        better="lower",
        gated="deterministic",
        tolerance=0.01,
        what="most memory allocated on the GPU",
    ),
    Metric(
        name="peak_memory_bytes",
        unit="bytes",
        better="lower",
        gated="deterministic",
        tolerance=0.1,
        what="most memory of the process that was resident",
    ),
    # counts
    Metric(
        name="nfe_speedup",
        unit="x",
        better="higher",
        basis="counted",
        words="fewer forward passes",
        claimed=True,
        clock=False,
        tracked=True,
        by_default=True,
    ),
    Metric(
        name="passes",
        unit="passes",
        better="equal",
        basis="counted",
        gated="deterministic",
        what="forward passes after prefill (NFE), first repeat",
    ),
    Metric(
        name="final_tokens_per_pass",
        unit="tokens/pass",
        better="equal",
        basis="counted",
        gated="deterministic",
        what="decode tokens by forward passes after prefill",
    ),
    Metric(
        name="decode_tokens",
        unit="tokens",
        better="equal",
        basis="counted",
        gated="deterministic",
        what="output tokens less those of the prefill, first repeat",
    ),
    Metric(
        name="output_sha256",
        unit="",
        better="equal",
        basis="counted",
        gated="deterministic",
        what="SHA-256 over all output ids in the order of the prompts, first repeat",
    ),
    Metric(
        name="modelled_bytes",
        unit="bytes",
        better="equal",
        basis="modelled",
        gated="deterministic",
        what="bytes that the decode passes move, by the byte model",
    ),
    # what was written
    Metric(
        name="accuracy_loss_points",
        unit="percentage points",
        better="lower",
        basis="counted",
        words="accuracy lost to NTP",
        claimed=True,
        clock=False,
        averaged=False,
        of_prompts=True,
    ),
    Metric(
        name="identical_to_ntp",
        unit="of the prompts",
        better="higher",
        basis="counted",
        words="outputs identical to NTP's",
        claimed=True,
        gated="deterministic",
        gate_unit="identical/prompt",
        clock=False,
        averaged=False,
        of_prompts=True,
        what="share of the prompts with NTP's very output, first repeat; of arms that decode without loss",
    ),
    # an answer that parts from NTP's where rounding explains it counts as without loss (harness.runner.divergence)
    Metric(
        name="lossless",
        unit="of the prompts",
        better="higher",
        basis="counted",
        words="answers without an error",
        claimed=True,
        clock=False,
        averaged=False,
        of_prompts=True,
    ),
    Metric(
        name="accuracy",
        unit="share",
        better="higher",
        basis="counted",
        gated="deterministic",
        gate_unit="correct/prompt",
        tracked=True,
        scale="difference",
        what="share of correct prompts, each the mean over its repeats; compared prompt by prompt",
    ),
    # distinct 4-grams ÷ all 4-grams of an answer's token ids, median over prompts: repetition flatters every method
    Metric(
        name="distinct4_median",
        unit="share",
        better="higher",
        basis="counted",
        words="distinct 4-grams of an answer",
        claimed=True,
        clock=False,
        averaged=False,
        of_prompts=True,
    ),
    Metric(name="accuracy_difference", unit="share", better="higher", tracked=True, scale="difference"),
    # predictions
    Metric(
        name="prediction_error",
        unit="predicted ÷ measured - 1",
        better="lower",
        basis="predicted",
        claimed=True,
        words="error of the prediction, ex-ante",
        either_way=True,
    ),
    Metric(
        name="prediction_error_during_run",
        unit="predicted ÷ measured - 1",
        better="lower",
        basis="predicted",
        claimed=True,
        words="error of the prediction calibrated during the run",
        either_way=True,
    ),
    *(
        Metric(name=f"{name}.{price}", unit="share", better="nearer_zero", tracked=True, scale="difference", by_default=default)
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
