"""The packed passes of a sample as numpy arrays, which is how a run's many passes are counted, priced and added up."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from harness.record_packed import PackedPasses
from harness.trace import Role

ROLES: tuple[Role, ...] = get_args(Role)
_PREFILL = ROLES.index("prefill")


class TraceArrays:
    """Of shape (passes,): ``role`` holds places in ROLES, ``model`` places in ``models``, whose first is the case's own model
    (None); ``decode`` is True for every pass after the prefill, ``own`` for those of them that the case's own model made.
    """

    def __init__(self, packed: PackedPasses) -> None:
        self._columns, self.rows, self.count = packed.arrays(), packed.rows, packed.count
        codes = np.array([ROLES.index(role) for role in packed.roles], dtype=np.int8)
        self.role: npt.NDArray[np.int8] = codes[np.asarray(self._columns["role"])] if packed.count else codes
        self.models: tuple[str | None, ...] = (None, *packed.models)
        self.model: npt.NDArray[np.int64] = np.asarray(self._columns.get("model", np.zeros(self.count)), dtype=np.int64)
        self.decode: npt.NDArray[np.bool_] = self.role != _PREFILL
        self.own: npt.NDArray[np.bool_] = self.decode & (self.model == 0)

    def per_row(self, name: str) -> npt.NDArray[Any]:
        """A column of shape (passes, rows), in the type that it was packed in: of few bytes and unsigned."""
        return np.asarray(self._columns[name]).reshape(self.count, self.rows)

    def over_rows(self, name: str) -> npt.NDArray[np.int64]:
        """A per-row column summed over the rows."""
        found: npt.NDArray[np.int64] = self.per_row(name).sum(axis=1, dtype=np.int64)
        return found

    def per_pass(self, name: str) -> npt.NDArray[np.int64]:
        """A column of shape (passes,)."""
        return np.asarray(self._columns[name], dtype=np.int64)

    def seconds(self, name: str) -> npt.NDArray[np.float64] | None:
        """A column of durations, None where the passes were not timed one by one."""
        found = self._columns.get(name)
        return None if found is None else np.asarray(found, dtype=np.float64)
