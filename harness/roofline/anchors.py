"""Prediction beside published figure, on every rung that needs no machine, with a verdict.

The rungs are the datasheet, the published rates that others measured on the part, and the anchored rung. The verdict says
whether the published figure lies within the anchored rung's band. The constants were fitted to these figures, so only the
held-out errors of `python -m benchmarks.anchored` say how good predictions are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from harness.errors import UnknownHardwareError
from harness.frozen import frozen
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.models.deployment import Deployment
from harness.roofline.anchor_values import Anchor, AnchorTable
from harness.roofline.anchored import ceilings_from_anchors, constants
from harness.roofline.ceilings import Ceilings, ceilings_from_profile, ceilings_from_published, joined
from harness.roofline.operation import PassCounts
from harness.roofline.operations import count_operations
from harness.roofline.pricing import price_counts

Rung = Literal["datasheet", "published", "anchored"]
Finding = Literal["within", "too_fast", "too_slow"]


@frozen
class AnchorPrediction:
    """One figure on one rung, in the figure's unit. ``value`` is the expected one, ``low`` and ``high`` bound it.

    ``error`` is value / published - 1; ``too_fast`` the ratio of predicted to published speed, also where the figure is a time.
    """

    value: float
    low: float
    high: float
    error: float
    too_fast: float


@frozen
class ComparedAnchor:
    """One anchor with its predictions by rung (a rung whose figures are not known is absent) and what they show.

    ``finding``             whether the published figure lies in the anchored rung's band, or the prediction is too fast or slow
    ``modelled_bytes_per_s``  modelled bytes of a decode pass (weights, KV, activations, at the mean context) times passes per
                              second, per GPU; None where the figure is no batch-1 decode of a dense model
    """

    anchor: Anchor
    predictions: Mapping[Rung, AnchorPrediction]
    finding: Finding
    rival_error: float | None
    modelled_bytes_per_s: float | None
    datasheet_share: float | None


def compare_anchors(table: AnchorTable, profiles: Mapping[str, HardwareProfile]) -> tuple[ComparedAnchor, ...]:
    """Predict every anchor of a table and judge it, in its order.

    Raises:
        UnknownHardwareError: a profile lacks what its anchors need.
    """
    return tuple(_compare(anchor, table, profiles[anchor.device]) for anchor in table.anchors)


def seconds(anchor: Anchor, shape: ModelShape, deployment: Deployment, ceilings: Ceilings) -> tuple[float, float, float]:
    """Price of what the anchor measured: lowest, expected, highest (see PassPrice). Of a block pass the ratio of two passes.

    The whole request for ``tokens_per_s`` and ``request_s`` (the prefill's logits give the first token), the passes after it
    for ``decode_tokens_per_s``, their mean for ``token_s``, the prefill alone for ``first_token_s``.
    """
    if anchor.block is not None:
        one, many = (_sides(shape, deployment, block_counts(anchor, k), ceilings) for k in (anchor.block_base, anchor.block))
        passes = (anchor.prompt_tokens // anchor.block_base) / (anchor.prompt_tokens // anchor.block)
        low, expected, high = (passes * long / short for short, long in zip(one, many, strict=True))
        return min(low, expected, high), expected, max(low, expected, high)
    sides = [_sides(shape, deployment, counts, ceilings) for counts in counts_of(anchor)]
    low, expected, high = (sum(side) for side in zip(*sides, strict=True))
    return low, expected, high


def counts_of(anchor: Anchor) -> list[PassCounts]:
    """The passes that an anchor's figure covers: the prefill, the decode passes at once (arrays over the context), or both."""
    rows, prompt = anchor.batch, anchor.prompt_tokens
    prefill = PassCounts(rows=rows, query=prompt, context=0, logits=1, kept=rows * prompt, causal=True)
    if anchor.measure == "first_token_s":
        return [prefill]
    context: Any = prompt + np.arange(anchor.new_tokens - 1)
    decode = PassCounts(rows=rows, query=1, context=context, logits=1, kept=rows)
    return [decode] if anchor.measure in ("decode_tokens_per_s", "token_s") else [prefill, decode]


def block_counts(anchor: Anchor, tokens: int) -> PassCounts:
    """The passes that read the anchor's prompt ``tokens`` at a time. llama-bench wants no logits of them."""
    context: Any = tokens * np.arange(anchor.prompt_tokens // tokens)
    return PassCounts(rows=1, query=tokens, context=context, logits=0, kept=tokens, causal=True)


def published_s(anchor: Anchor) -> float:
    """The figure as seconds of all its passes; of a block pass the ratio."""
    figure, decoded = anchor.published, anchor.new_tokens - 1
    if anchor.measure == "tokens_per_s":
        return anchor.batch * anchor.new_tokens / (figure * (anchor.tensor_parallel if anchor.per_gpu else 1))
    if anchor.measure == "decode_tokens_per_s":
        return anchor.batch * decoded / figure
    return figure * decoded if anchor.measure == "token_s" else figure


def anchored_ceilings(anchor: Anchor, profile: HardwareProfile) -> Ceilings:
    """The anchored rung for an anchor. Apple publishes no matrix rate: its rows are decodes, priced by their bytes alone."""
    rated = _rated(profile)
    ceilings = ceilings_from_anchors(rated, anchor.rate_dtype, engine=anchor.engine)
    ceilings = joined(ceilings, profile, anchor.tensor_parallel)
    if rated is profile:
        return ceilings
    return replace(ceilings, matrix_rates=((1, math.inf),), unpacked_rates=((1, math.inf),))


def _rated(profile: HardwareProfile) -> HardwareProfile:
    """The profile; for a device whose maker publishes no rates, with the largest that a figure may have."""
    if profile.peak_flops_per_s["float16"].value is not None:
        return profile
    rates = {dtype: figure.model_copy(update={"value": 1e17}) for dtype, figure in profile.peak_flops_per_s.items()}
    return profile.model_copy(update={"peak_flops_per_s": rates})


def _sides(shape: ModelShape, deployment: Deployment, counts: PassCounts, ceilings: Ceilings) -> tuple[float, float, float]:
    price = price_counts(shape, deployment, counts, ceilings)
    passes = np.size(counts.context)
    low, expected, high = (
        float(np.sum(np.broadcast_to(side, passes))) for side in (price.low_s, price.expected_s, price.high_s)
    )
    return low, expected, high


def _compare(anchor: Anchor, table: AnchorTable, profile: HardwareProfile) -> ComparedAnchor:
    shape, deployment = table.shape_of(anchor), table.deployment_of(anchor)
    rungs: dict[Rung, Ceilings] = {"datasheet": ceilings_from_profile(_rated(profile), anchor.rate_dtype)}
    with suppress(UnknownHardwareError):  # nobody measured this part
        rungs["published"] = ceilings_from_published(profile, anchor.rate_dtype)
    rungs = {rung: joined(ceilings, profile, anchor.tensor_parallel) for rung, ceilings in rungs.items()}
    rungs["anchored"] = anchored_ceilings(anchor, profile)
    predictions = {rung: _predict(anchor, shape, deployment, ceilings) for rung, ceilings in rungs.items()}
    bandwidth, datasheet = _modelled_bandwidth(anchor, shape, deployment), profile.bandwidth_bytes_per_s.value
    return ComparedAnchor(
        anchor=anchor,
        predictions=predictions,
        finding=_finding(anchor, predictions["anchored"]),
        rival_error=anchor.rival.value / anchor.published - 1 if anchor.rival else None,
        modelled_bytes_per_s=bandwidth,
        datasheet_share=bandwidth / datasheet if bandwidth and datasheet else None,
    )


def _predict(anchor: Anchor, shape: ModelShape, deployment: Deployment, ceilings: Ceilings) -> AnchorPrediction:
    low_s, expected_s, high_s = seconds(anchor, shape, deployment, ceilings)
    if ceilings.rung == "anchored":
        slow, fast = constants().band[anchor.kind]
        # The band multiplies a speed, or the cost of a block pass.
        low_s, high_s = (slow * expected_s, fast * expected_s) if anchor.block else (expected_s / fast, expected_s / slow)
    measured_s, figure = published_s(anchor), anchor.published
    too_fast = measured_s / expected_s
    if anchor.measure in ("tokens_per_s", "decode_tokens_per_s"):
        value, low, high = (figure * measured_s / side for side in (expected_s, high_s, low_s))
    else:
        value, low, high = (figure * side / measured_s for side in (expected_s, low_s, high_s))
    return AnchorPrediction(value=value, low=low, high=high, error=value / figure - 1, too_fast=too_fast)


def _finding(anchor: Anchor, prediction: AnchorPrediction) -> Finding:
    if prediction.low <= anchor.published <= prediction.high:
        return "within"
    return "too_fast" if prediction.too_fast > 1 else "too_slow"


def _modelled_bandwidth(anchor: Anchor, shape: ModelShape, deployment: Deployment) -> float | None:
    if not anchor.measure.endswith("tokens_per_s") or anchor.block or anchor.batch > 1 or shape.moe or anchor.new_tokens == 1:
        return None
    operations = count_operations(shape, deployment, counts_of(anchor)[-1])
    moved = sum(operation.memory_bytes(None) for operation in operations)
    return float(np.mean(moved)) * anchor.published
