"""Runs that differ in their header: its environment, claims or cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.record.schema import CaseHeader, Run


def with_header(run: Run, **changes: Any) -> Run:
    """The run with other values in its header."""
    return run.model_copy(update={"header": run.header.model_copy(update=changes)})


def with_environment(run: Run, **changes: Any) -> Run:
    """The run on another machine."""
    return with_header(run, environment=run.header.environment | changes)


def with_claims(run: Run, *claims: dict[str, Any]) -> Run:
    """The run as if its scenario had stated these."""
    return with_header(run, scenario=run.header.scenario | {"claims": list(claims)})


def with_cases(run: Run, change: Callable[[CaseHeader], Mapping[str, Any]]) -> Run:
    """The run whose cases have these values instead."""
    return with_header(run, cases=[case.model_copy(update=change(case)) for case in run.header.cases])
