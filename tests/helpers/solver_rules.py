"""The functions of the program's solvers, by the names that a scenario uses."""

from __future__ import annotations

from pkgutil import resolve_name

from harness.decoding.solvers import Solver
from harness.scenario import solvers

SOLVERS: dict[str, Solver] = {name: resolve_name(spec.rule) for name, spec in solvers.SOLVERS.items()}
