"""Where a served arm first writes another token than NTP, and whether rounding explains it: by the weights themselves.

Speculation without loss computes the same logits in passes of other widths, which round otherwise. So tokens that are almost
equally likely can change places. In such a *near-tie* both tokens are behind the likeliest one, in the logits of a wider dtype,
by no more than the rounding of the served dtype. Anything else is an *error* of the speculation. The rounding is measured:
the gaps of control pairs in both dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from math import sqrt
from statistics import fmean
from typing import Any

from harness.frozen import frozen
from harness.record.schema import Sample
from harness.scenario.method import GREEDY
from harness.scenario.plan import Case

Context = tuple[int, ...]
Gaps = Callable[[Sequence[tuple[Context, int, int]]], list[tuple[float, float]]]
"""For (context, one token, another): log p(one) - log p(another), and how far the less likely one is behind the likeliest token
of all. In nats.
"""

DIVERGENCES = "divergences"
"""The event of a part with servers."""
DEVIATIONS = 6.0
"""Tokens behind by up to so many root mean squares of the rounding are near-ties. Two passes round independently, which makes a
factor of 1.4; six leaves less than one of 10,000 to chance.
"""
CONTROLS = 64
FEWEST_CONTROLS = 16
AT_ONCE = 8
"""Contexts in one forward."""
WIDER = {"bfloat16": "float32", "float16": "float32", "float32": "float64", "float64": "float64"}


@frozen
class Parting:
    """The first place where an answer is not NTP's. ``other`` or ``ntp`` None: that answer had ended."""

    case_id: str
    prompt_id: str
    at: int
    context: Context
    ntp: int | None
    other: int | None


def partings(
    samples: Sequence[Sample], cases: Mapping[str, Case], prompts: Mapping[tuple[str, str], Context]
) -> tuple[list[Parting], int]:
    """The first difference of every greedy answer to NTP's of the same group and repeat, and the number of answers compared.

    Args:
        prompts: ids by (task, prompt id).
    """
    of_ntp: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        case = cases[sample.case_id]
        if case.arm.method == "ntp" and case.arm.temperature == GREEDY:
            of_ntp[(case.cell, sample.group, sample.repeat)] = sample
    found, compared = [], 0
    for sample in samples:
        case = cases[sample.case_id]
        base = of_ntp.get((case.cell, sample.group, sample.repeat))
        if base is None or base is sample or case.arm.temperature != GREEDY:
            continue
        for one, other in zip(base.rows, sample.rows, strict=True):
            compared += 1
            for at, (ntp, own) in enumerate(zip_longest(one.ids, other.ids)):
                if ntp != own:
                    context = (*prompts[case.task, one.prompt_id], *one.ids[:at])
                    found.append(
                        Parting(case_id=sample.case_id, prompt_id=one.prompt_id, at=at, context=context, ntp=ntp, other=own)
                    )
                    break
    return found, compared


def controls(
    samples: Sequence[Sample], cases: Mapping[str, Case], prompts: Mapping[tuple[str, str], Context]
) -> list[tuple[Context, int, int]]:
    """Places at which the rounding is measured: a token that was written against the one behind it, one per answer in turn."""
    found = []
    for number, sample in enumerate(samples):
        for row in sample.rows:
            at = (7 * number) % max(1, len(row.ids) - 1)
            if len(row.ids) > 1 and row.ids[at] != row.ids[at + 1]:
                context = (*prompts[cases[sample.case_id].task, row.prompt_id], *row.ids[:at])
                found.append((context, row.ids[at], row.ids[at + 1]))
    return found[:: max(1, len(found) // CONTROLS)][:CONTROLS]


def classified(
    found: Sequence[Parting], measured: Sequence[tuple[Context, int, int]], exact: Gaps, rounded: Gaps
) -> dict[str, Any]:
    """The entry of the record: every parting with its gap, how far it is behind, and its class; and the rounding they are held
    against. No model is asked where nothing parted.

    Args:
        measured: the controls.
        exact: gaps of the weights in a wider dtype; ``rounded``: in the served one.
    """
    whole = [one for one in found if one.ntp is not None and one.other is not None]
    asked = [*measured, *((one.context, one.ntp or 0, one.other or 0) for one in whole)]
    told_exactly = exact(asked) if found and asked else []
    told_rounded = rounded(measured) if found and measured else []
    differences = [a[0] - b[0] for a, b in zip(told_exactly, told_rounded, strict=False)]
    rounding = sqrt(fmean(one * one for one in differences)) if len(differences) >= FEWEST_CONTROLS else None
    gaps = iter(told_exactly[len(measured) :])
    told = []
    for one in found:
        gap, behind = next(gaps) if one in whole else (None, None)
        verdict = "unclassified"
        if behind is not None and rounding is not None:
            verdict = "near_tie" if behind <= DEVIATIONS * rounding else "error"
        told.append(asdict(one) | {"gap": gap, "behind": behind, "class": verdict})
        del told[-1]["context"]
    return {"rounding": rounding, "controls": len(differences), "deviations": DEVIATIONS, "found": told}


def gaps_of(engine: Any) -> Gaps:
    """By a loaded model: harness.engine.engine.LocalEngine.answer_logprobs."""

    def gaps(asked: Sequence[tuple[Context, int, int]]) -> list[tuple[float, float]]:
        pairs = [(context, (token,)) for context, *tokens in asked for token in tokens]
        starts = range(0, len(pairs), 2 * AT_ONCE)
        told = [said for start in starts for said in engine.answer_logprobs(pairs[start : start + 2 * AT_ONCE])]
        both = zip(told[::2], told[1::2], strict=True)
        return [(one.log_p - other.log_p, max(one.behind, other.behind)) for one, other in both]

    return gaps
