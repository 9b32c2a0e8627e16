"""Time of a decode pass against its query tokens: measured values, roofline prices, and the roofline's curve between them.

A large run has millions of passes, so they stay in arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.analysis.tally.pass_arrays import ROLES, Floats
from harness.analysis.tally.pass_values import PassCurve, PassWidth
from harness.analysis.tally.pricing import Places, Pricer
from harness.analysis.tally.tally import Decodes, TimedPasses
from harness.frozen import frozen
from harness.roofline.operation import describe_pass
from harness.stats.quantity import Quantity, absent, quotient

CURVE_STEPS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
NO_NTP = "no NTP pass"
WidthKind = tuple[str, str, int]
"""(method, role and, of a draft model, its name, query tokens of each row)."""


@frozen
class _Alike:
    """All passes of one kind: seconds, NaN where a sample was not timed pass by pass, and the indices of their prices.

    Arms of one method can have different draft models and so different pricers; an index belongs to its own pricer.
    """

    forward_s: Floats
    places: tuple[tuple[Pricer, Places], ...]

    def priced(self, what: Callable[[Pricer, Places], Floats]) -> Floats:
        """``what`` of every pass, in the order of ``forward_s``."""
        return np.concatenate([what(pricer, places) for pricer, places in self.places])


def pass_widths(by_method: Sequence[tuple[str, Decodes]]) -> tuple[PassWidth, ...]:
    """Median and quartiles per kind of pass, NTP's first; ``cost`` is relative to NTP's most frequent kind."""
    of_method: dict[str, list[TimedPasses]] = {}
    for method, tallies in by_method:
        of_method.setdefault(method, []).extend(one.sums.timed for one in tallies if one.sums.timed)
    gathered = {kind: alike for method, timed in of_method.items() if timed for kind, alike in _by_kind(method, timed).items()}
    kinds = sorted(gathered, key=lambda kind: (kind[0] != "ntp", kind[2], kind[1], kind[0]))
    ntp_kinds = [kind for kind in kinds if kind[0] == "ntp"]
    base = max(ntp_kinds, key=lambda kind: len(gathered[kind].forward_s), default=None)
    base_measured = _measured(gathered[base]) if base else absent(NO_NTP)
    base_predicted = _predicted(gathered[base]) if base else {}
    return tuple(_width(kind, gathered[kind], base_measured, base_predicted) for kind in kinds)


def _by_kind(method: str, timed: Sequence[TimedPasses]) -> dict[WidthKind, _Alike]:
    roles = np.concatenate([one.role for one in timed])
    widths = np.concatenate([one.query_tokens for one in timed])
    places = np.concatenate([one.places for one in timed])
    forward_s = np.concatenate([np.full(len(one.places), np.nan) if one.forward_s is None else one.forward_s for one in timed])
    pricers = list(dict.fromkeys(one.pricer for one in timed))
    owners = np.concatenate([np.full(len(one.places), pricers.index(one.pricer)) for one in timed])
    found = {}
    names = list(dict.fromkeys(name for one in timed for name in one.models))
    models = np.concatenate([np.array([names.index(name) for name in one.models])[one.model] for one in timed])
    for role, model, width in np.unique(np.stack([roles, models, widths]), axis=1).T.tolist():
        which = (roles == role) & (models == model) & (widths == width)
        mine = [(pricer, which & (owners == number)) for number, pricer in enumerate(pricers)]
        mine = [(pricer, of_pricer) for pricer, of_pricer in mine if of_pricer.any()]
        alike = _Alike(
            forward_s=np.concatenate([forward_s[one] for _, one in mine]),
            places=tuple((pricer, places[one]) for pricer, one in mine),
        )
        maker = "" if names[model] is None else f" by {names[model]}"
        found[method, ROLES[role] + maker, width] = alike
    return found


def _width(kind: WidthKind, alike: _Alike, base: Quantity, base_predicted: dict[str, Quantity]) -> PassWidth:
    measured, predicted = _measured(alike), _predicted(alike)
    flops, clocked = alike.priced(Pricer.flops), alike.forward_s > 0  # False for NaN
    return PassWidth(
        method=kind[0],
        role=kind[1],
        query_tokens=kind[2],
        count=len(alike.forward_s),
        measured_s=measured,
        predicted_s=predicted,
        cost=quotient(measured, base, NO_NTP),
        predicted_cost={
            rung: quotient(price, base_predicted.get(rung, absent(NO_NTP)), NO_NTP) for rung, price in predicted.items()
        },
        bytes_=float(np.mean(alike.priced(Pricer.bytes_))),
        flops=float(np.mean(flops)),
        attained_flops_per_s=_quartiles(flops[clocked] / alike.forward_s[clocked]),
    )


def _measured(alike: _Alike) -> Quantity:
    return _quartiles(alike.forward_s[~np.isnan(alike.forward_s)])


def _quartiles(of_passes: Floats) -> Quantity:
    if not len(of_passes):
        return absent("the passes were not timed one by one")
    low, median, high = np.quantile(of_passes, (0.25, 0.5, 0.75)).tolist()
    return Quantity(value=median, low=low, high=high, n=len(of_passes), method="median and quartiles")


def _predicted(alike: _Alike) -> dict[str, Quantity]:
    means = alike.priced(Pricer.forward_s).mean(axis=0).tolist()
    return {
        rung: Quantity(value=expected, low=low, high=high, n=len(alike.forward_s), method="overlap band")
        for rung, (low, expected, high) in zip(alike.places[0][0].rungs, means, strict=True)
    }


def curves(pricer: Pricer, tallies: Decodes, rows: int, block_size: int | None) -> tuple[PassCurve, ...]:
    """The roofline over query tokens at the median context; the LM head runs for at most one block, as it does in SBD."""
    timed = [one.sums.timed for one in tallies if one.sums.timed]
    context_tokens = [one.context_tokens[one.model == 0] for one in timed]
    query_tokens = [one.query_tokens[one.model == 0] for one in timed]
    if not any(map(len, query_tokens)):
        return ()
    context = round(float(np.median(np.concatenate(context_tokens))))
    widest = int(np.concatenate(query_tokens).max())
    steps = sorted({step for step in CURVE_STEPS if step < widest} | {widest})
    passes = [describe_pass("decide", rows, step, context, logits=min(step, block_size or step)) for step in steps]
    prices = pricer.forward_s(pricer.places_of(passes)).transpose(1, 0, 2).tolist()
    return tuple(
        PassCurve(
            rung=rung, context_tokens=context, points=tuple((step, *band) for step, band in zip(steps, bands, strict=True))
        )
        for rung, bands in zip(pricer.rungs, prices, strict=True)
    )
