"""The packed passes of a sample as numpy arrays, to count, price and add up a run's many passes."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from harness.record.passes import PackedPasses
from harness.record.trace import Role

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
ROLES: tuple[Role, ...] = get_args(Role)
PREFILL = ROLES.index("prefill")


class TraceArrays:
    """Arrays of shape (passes,): ``role`` indexes ROLES; ``model`` indexes ``models``, whose first is the case's own (None).

    ``decode`` is True for every pass but the prompts' own, ``own`` for decode passes of the case's own model. A draft model's
    reading of the prompts is a decode pass, because NTP does not need it.
    """

    def __init__(self, packed: PackedPasses) -> None:
        self._columns, self.rows, self.count = packed.arrays(), packed.rows, packed.count
        codes = np.array([ROLES.index(role) for role in packed.roles], dtype=np.int8)
        self.role: npt.NDArray[np.int8] = codes[np.asarray(self._columns["role"])] if packed.count else codes
        self.models: tuple[str | None, ...] = (None, *packed.models)
        self.model: Ints = np.asarray(self._columns.get("model", np.zeros(self.count)), dtype=np.int64)
        self.decode: Bools = (self.role != PREFILL) | (self.model != 0)
        self.own: Bools = self.decode & (self.model == 0)

    @property
    def drafts_in_prompt(self) -> bool:
        """Whether the pass that reads the prompts drafts too, and so counts as one decode pass. Older records have such passes,
        and so have arms without a KV cache.
        """
        return self.count > 0 and not self.decode[0] and int(self.per_row("logit_tokens")[0].max()) > 1

    @property
    def passes(self) -> int:
        """Passes of the case's own model: those after the prompts', and that one where it drafts."""
        return int(self.own.sum()) + self.drafts_in_prompt

    @property
    def draft_passes(self) -> int:
        """Decode passes of draft models."""
        return int((self.decode & ~self.own).sum())

    @property
    def reads_more(self) -> bool:
        """Whether a pass that reads prompts does more than NTP's: it drafts, or a draft model reads them too."""
        return self.drafts_in_prompt or bool((self.role[self.decode] == PREFILL).any())

    @property
    def row_passes(self) -> int:
        """The same, summed over the active rows."""
        return int(self.per_row("active")[self.own].sum(dtype=np.int64)) + self.drafts_in_prompt * self.rows

    @property
    def given_tokens(self) -> int:
        """Output tokens, over all rows, that the prompts' own logits gave, as in NTP; tokens drafted beside them do not count.

        A pass has the prompts' logits where one more position has logits than was fed beyond the prompts.
        """
        logits, fed, kept = (self.per_row(name).astype(np.int64) for name in ("logit_tokens", "query_tokens", "kept_tokens"))
        own = (~self.decode)[:, None] & (logits - 1 == fed - kept)
        return int(self.per_row("final_tokens")[own].sum())

    def per_row(self, name: str) -> npt.NDArray[Any]:
        """A column of shape (passes, rows), in its packed type: few bytes, unsigned."""
        return np.asarray(self._columns[name]).reshape(self.count, self.rows)

    def over_rows(self, name: str) -> Ints:
        """A per-row column summed over the rows."""
        found: Ints = self.per_row(name).sum(axis=1, dtype=np.int64)
        return found

    def per_pass(self, name: str) -> Ints:
        """A column of shape (passes,)."""
        return np.asarray(self._columns[name], dtype=np.int64)

    def decode_seconds(self, name: str) -> float | None:
        """The sum over the decode passes; None where they were not timed one by one."""
        found = self.seconds(name)
        return None if found is None else float(found[self.decode].sum())

    def seconds(self, name: str) -> Floats | None:
        """A column of durations, None where the passes were not timed one by one."""
        found = self._columns.get(name)
        return None if found is None else np.asarray(found, dtype=np.float64)
