"""Time of a decode pass against its query tokens: what was measured, what the roofline says there, and the line between.

Knows passes and prices; knows no arm's speed or accuracy and no page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.compare_pass_values import PassCurve, PassWidth
from harness.compare_pricing import Pricer
from harness.compare_tally import Tally, TimedPass
from harness.roofline.decode import describe_pass
from harness.stats import Quantity, absent, exact

CURVE_STEPS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
Kind = tuple[str, str, int]
"""(method, role and, of a draft model, its name, query tokens of each row)."""


def pass_widths(by_method: Sequence[tuple[str, Sequence[Tally]]]) -> tuple[PassWidth, ...]:
    """Median and quartiles per kind of pass, NTP's first; ``cost`` is relative to NTP's most frequent kind."""
    gathered: dict[Kind, list[TimedPass]] = {}
    for method, tallies in by_method:
        for tally in tallies:
            for timed in tally.timed:
                role = timed.role if timed.model is None else f"{timed.role} by {timed.model}"
                gathered.setdefault((method, role, timed.query_tokens), []).append(timed)
    kinds = sorted(gathered, key=lambda kind: (kind[0] != "ntp", kind[2], kind[1], kind[0]))
    ntp_kinds = [kind for kind in kinds if kind[0] == "ntp"]
    base = max(ntp_kinds, key=lambda kind: len(gathered[kind]), default=None)
    base_measured = _measured(gathered[base]) if base else absent("no NTP pass")
    base_predicted = _predicted(gathered[base]) if base else {}
    return tuple(_width(kind, gathered[kind], base_measured, base_predicted) for kind in kinds)


def _width(kind: Kind, timed: list[TimedPass], base: Quantity, base_predicted: dict[str, Quantity]) -> PassWidth:
    measured, predicted, no_ntp = _measured(timed), _predicted(timed), absent("no NTP pass")
    return PassWidth(
        method=kind[0],
        role=kind[1],
        query_tokens=kind[2],
        count=len(timed),
        measured_s=measured,
        predicted_s=predicted,
        cost=_ratio(measured, base),
        predicted_cost={rung: _ratio(price, base_predicted.get(rung, no_ntp)) for rung, price in predicted.items()},
        bytes_=float(np.mean([one.priced.bytes_ for one in timed])),
        flops=float(np.mean([one.priced.flops for one in timed])),
        attained_flops_per_s=_quartiles([one.priced.flops / one.forward_s for one in timed if one.forward_s]),
    )


def _measured(timed: list[TimedPass]) -> Quantity:
    return _quartiles([one.forward_s for one in timed if one.forward_s is not None])


def _quartiles(of_passes: list[float]) -> Quantity:
    if not of_passes:
        return absent("the passes were not timed one by one")
    low, median, high = np.quantile(of_passes, (0.25, 0.5, 0.75)).tolist()
    return Quantity(value=median, low=low, high=high, n=len(of_passes), method="median and quartiles")


def _predicted(timed: list[TimedPass]) -> dict[str, Quantity]:
    predicted = {}
    for rung in timed[0].priced.forward_s:
        low, expected, high = np.mean([one.priced.forward_s[rung] for one in timed], axis=0).tolist()
        predicted[rung] = Quantity(value=expected, low=low, high=high, n=len(timed), method="overlap band")
    return predicted


def _ratio(a: Quantity, b: Quantity) -> Quantity:
    if a.value is None or not b.value:
        return absent(a.reason or b.reason or "no NTP pass to compare with")
    return exact(a.value / b.value, n=a.n)


def curves(pricer: Pricer, tallies: Sequence[Tally], rows: int, block_size: int | None) -> tuple[PassCurve, ...]:
    """The roofline over query tokens at the median context; the LM head runs for at most one block, as it does in SBD."""
    timed = [one for tally in tallies for one in tally.timed if one.model is None]
    if not timed:
        return ()
    context = round(float(np.median([one.context_tokens for one in timed])))
    widest = max(one.query_tokens for one in timed)
    steps = sorted({step for step in CURVE_STEPS if step < widest} | {widest})
    passes = [describe_pass("decide", rows, step, context, logits=min(step, block_size or step)) for step in steps]
    prices = [pricer.price(one).forward_s for one in passes]
    return tuple(
        PassCurve(
            rung=rung,
            context_tokens=context,
            points=tuple((step, *price[rung]) for step, price in zip(steps, prices, strict=True)),
        )
        for rung in pricer.rungs
    )
