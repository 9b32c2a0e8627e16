"""Prediction beside published figure, on every rung that needs no machine, with a verdict.

The rungs are the datasheet, the published rates that others measured on the part, and the anchored rung. The anchored rung
adds the fixed cost per layer that makes one published decode exact. The anchor that gave this constant is marked and not
judged on that rung; for all others it is a prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from harness.errors import UnknownHardwareError
from harness.hardware.profile import HardwareProfile
from harness.models import ModelShape
from harness.roofline.anchor_values import Anchor, AnchorTable
from harness.roofline.ceilings import Ceilings, ceilings_from_profile, ceilings_from_published
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import price_counts

Rung = Literal["datasheet", "published", "anchored"]
Agreement = Literal["agrees", "disagrees", "disagrees_as_stated", "agrees_against_reason"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One figure on one rung, in the figure's unit. ``value`` is the expected one, ``low`` and ``high`` bound it.

    ``error`` is value / published - 1; ``too_fast`` the ratio of predicted to published speed, also where the figure is a time.
    """

    value: float
    low: float
    high: float
    error: float
    too_fast: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One anchor with its predictions by rung (a rung whose figures are not known is absent) and what they show.

    ``modelled_bytes_per_s``  modelled bytes of a decode pass (weights, KV, activations, at the mean context) times passes per
                              second, per GPU; None where the figure is no batch-1 decode of a dense model
    ``fitted``                the constant of the anchored rung was solved from this anchor
    """

    anchor: Anchor
    predictions: Mapping[Rung, Prediction]
    finding: Agreement
    rung: Rung
    rival_error: float | None
    modelled_bytes_per_s: float | None
    datasheet_share: float | None
    fitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorReport:
    """All anchors of a table, in its order, and the one constant that was solved from one of them."""

    fixed_s_per_layer: float
    comparisons: tuple[Comparison, ...]


def compare_anchors(table: AnchorTable, profiles: Mapping[str, HardwareProfile]) -> AnchorReport:
    """Predict every anchor and judge it.

    Raises:
        UnknownHardwareError: a profile lacks what its anchors need.
    """
    source = next(anchor for anchor in table.anchors if anchor.name == table.fixed_cost_from)
    fixed_s = fixed_s_per_layer(source, table.shape_of(source), ceilings_from_published(profiles[source.device], source.dtype))
    compared = tuple(_compare(anchor, table, profiles[anchor.device], source, fixed_s) for anchor in table.anchors)
    return AnchorReport(fixed_s_per_layer=fixed_s, comparisons=compared)


def fixed_s_per_layer(anchor: Anchor, shape: ModelShape, ceilings: Ceilings) -> float:
    """Seconds per layer and pass that the ceilings leave unexplained in a published decode, over all its passes.

    The price is a straight line in this constant, so two prices give it.
    """
    at_zero = seconds(anchor, shape, ceilings)[1]
    slope = seconds(anchor, shape, replace(ceilings, fixed_s_per_layer=1.0))[1] - at_zero
    return (_published_s(anchor) - at_zero) / slope


def seconds(anchor: Anchor, shape: ModelShape, ceilings: Ceilings) -> tuple[float, float, float]:
    """Price of what the anchor measured, in seconds: lowest, expected, highest (see PassPrice).

    The whole request for ``tokens_per_s`` (the prefill's logits give the first token), its mean pass after the prefill for
    ``token_s``, the prefill alone for ``first_token_s``.
    """
    rows, prompt, decoded = anchor.batch, anchor.prompt_tokens, anchor.new_tokens - 1
    prefill = price_counts(
        shape, anchor.deployment, PassCounts(rows=rows, query=prompt, context=0, logits=1, kept=rows * prompt), ceilings
    )
    sides = (prefill.low_s, prefill.expected_s, prefill.high_s)
    if anchor.measure == "first_token_s":
        return sides
    price = price_counts(shape, anchor.deployment, decode_counts(anchor), ceilings)
    decode = [float(np.sum(np.broadcast_to(side, decoded))) for side in (price.low_s, price.expected_s, price.high_s)]
    of_token = anchor.measure == "token_s"
    low, expected, high = (s / decoded if of_token else before + s for before, s in zip(sides, decode, strict=True))
    return low, expected, high


def decode_counts(anchor: Anchor) -> PassCounts:
    """All passes after the prefill at once: an array over the growing context."""
    context = anchor.prompt_tokens + np.arange(anchor.new_tokens - 1)
    return PassCounts(rows=anchor.batch, query=1, context=context, logits=1, kept=anchor.batch)  # type: ignore[arg-type]


def _published_s(anchor: Anchor) -> float:
    if anchor.measure == "tokens_per_s":
        return anchor.batch * anchor.new_tokens / anchor.published
    return anchor.published


def _compare(anchor: Anchor, table: AnchorTable, profile: HardwareProfile, source: Anchor, fixed_s: float) -> Comparison:
    shape = table.shape_of(anchor)
    rungs: dict[Rung, Ceilings] = {"datasheet": ceilings_from_profile(profile, anchor.dtype)}
    try:
        rungs["published"] = ceilings_from_published(profile, anchor.dtype)
    except UnknownHardwareError:
        pass  # nobody measured this part: the rungs above are absent, and its reason says so
    else:
        if profile.name == source.device:
            reason = f"solved from {source.name}: {fixed_s * 1e6:.1f} µs a layer"
            rungs["anchored"] = replace(rungs["published"], rung="anchored", fixed_s_per_layer=fixed_s, fixed_reason=reason)
    predictions = {rung: _predict(anchor, shape, ceilings) for rung, ceilings in rungs.items()}
    fitted = anchor.name == source.name
    finding, rung = _judge(anchor, table, predictions, fitted)
    bandwidth, datasheet = _modelled_bandwidth(anchor, shape), profile.bandwidth_bytes_per_s.value
    return Comparison(
        anchor=anchor,
        predictions=predictions,
        finding=finding,
        rung=rung,
        rival_error=anchor.rival.value / anchor.published - 1 if anchor.rival else None,
        modelled_bytes_per_s=bandwidth,
        datasheet_share=bandwidth / datasheet if bandwidth and datasheet else None,
        fitted=fitted,
    )


def _predict(anchor: Anchor, shape: ModelShape, ceilings: Ceilings) -> Prediction:
    low_s, expected_s, high_s = seconds(anchor, shape, ceilings)
    too_fast = _published_s(anchor) / expected_s
    if anchor.measure != "tokens_per_s":
        return Prediction(value=expected_s, low=low_s, high=high_s, error=1 / too_fast - 1, too_fast=too_fast)
    tokens = anchor.batch * anchor.new_tokens
    return Prediction(
        value=tokens / expected_s, low=tokens / high_s, high=tokens / low_s, error=too_fast - 1, too_fast=too_fast
    )


def _judge(anchor: Anchor, table: AnchorTable, predictions: Mapping[Rung, Prediction], fitted: bool) -> tuple[Agreement, Rung]:
    """What the predictions show, and the highest rung that was judged.

    A group's bar holds on each of its rungs, but not on the anchored one for the anchor that was fitted. An anchor with a
    reason must lie outside the tightest bar there is, or the reason is not needed.
    """
    best: Rung = list(predictions)[-1]
    if anchor.group is None:
        bar = min(bar for group in table.groups.values() for bar in group.within_pct.values()) / 100
        return ("disagrees_as_stated" if predictions[best].too_fast > 1 + bar else "agrees_against_reason"), best
    bars = {rung: bar / 100 for rung, bar in table.groups[anchor.group].within_pct.items()}
    if fitted:
        bars.pop("anchored", None)
    agrees = bool(bars) and all(rung in predictions and abs(predictions[rung].error) <= bar for rung, bar in bars.items())
    return ("agrees" if agrees else "disagrees"), list(bars)[-1] if bars else best


def _modelled_bandwidth(anchor: Anchor, shape: ModelShape) -> float | None:
    if anchor.measure != "tokens_per_s" or anchor.batch > 1 or shape.moe is not None or anchor.new_tokens == 1:
        return None
    ceilings = Ceilings(
        rung="datasheet", device_name="bytes only", dtype=anchor.dtype, bandwidth_bytes_per_s=1.0, matrix_rates=((1, 1.0),),
        link_bytes_per_s=1.0,
    )  # fmt: skip
    bytes_ = price_counts(shape, anchor.deployment, decode_counts(anchor), ceilings).bytes_
    return float(np.mean(bytes_)) * anchor.published
