"""Headers that differ in their environment."""

from __future__ import annotations

from typing import Any

from harness.record.schema import Run


def with_header(run: Run, **changes: Any) -> Run:
    """The run with other values in its header."""
    return run.model_copy(update={"header": run.header.model_copy(update=changes)})


def with_environment(run: Run, **changes: Any) -> Run:
    """The run on another machine."""
    return with_header(run, environment=run.header.environment | changes)
