"""The text of a claim, the inverse of read_claim."""

from __future__ import annotations

import re

from harness.scenario.claims import Bound, Claim


def write_claim(claim: Claim) -> str:
    """The text that reads back as ``claim``, without its name and source."""
    bounds = list(claim.bounds[:-1] if claim.within_points is not None else claim.bounds)
    clauses = ""
    if claim.within_points is not None:
        if bounds:
            clauses = f" within {claim.within_points!r} points"
        else:
            bounds = list(claim.bounds)
    where = claim.where.model_dump(exclude_none=True)
    if where:
        clauses += " at " + ", ".join(f"{key}={_quoted(value)}" for key, value in where.items())
    if claim.scope is not None:
        clauses += f" in {claim.scope}"
    return " and ".join(map(_write_bound, bounds)) + clauses


def _write_bound(bound: Bound) -> str:
    by = "" if bound.estimator == "geometric_mean" else f" by {bound.estimator}"
    if bound.min is not None and bound.max is not None:
        return f"{bound.min!r} <= {bound.metric} <= {bound.max!r}{by}"
    if bound.min is not None:
        return f"{bound.metric} >= {bound.min!r}{by}"
    return f"{bound.metric} <= {bound.max!r}{by}"


def _quoted(value: object) -> str:
    text = repr(value) if isinstance(value, float) else str(value)
    if not re.search(r"""[\s,=<>'"]""", text):
        return text
    return f'"{text}"' if "'" in text else f"'{text}'"
