"""The passes of one sample spelt out, column by column: what a decoder hands in and what is read one by one."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from harness.record.trace import ForwardPass, Role


class PassColumns(BaseModel):
    """The passes of one sample, column by column: entry i of every column belongs to pass i; durations in seconds.

    The per-row columns hold one list per pass with one entry per batch row, named as in harness.record.trace.ForwardPass.
    ``forward_s`` and ``sampler_s`` (from the end of the forward to the readback of what was decided; 0 where nothing was
    read) are None where the sample was not timed pass by pass. ``decided_slots`` is None where no pass says (another decoder,
    an older record), and so is its entry for a pass over no block. ``model`` names the draft model that made a pass, by the
    name of its shape in the case; None, like its entries, where the case's own model did.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    role: list[Role]
    query_tokens: list[list[int]]
    context_tokens: list[list[int]]
    logit_tokens: list[list[int]]
    kept_tokens: list[list[int]]
    decided_tokens: list[list[int]]
    final_tokens: list[list[int]]
    active: list[list[bool]]
    padded_query: list[int]
    padded_context: list[int]
    decided_slots: list[list[list[int]] | None] | None = None
    model: list[str | None] | None = None
    forward_s: list[float] | None = None
    sampler_s: list[float] | None = None

    def untimed(self) -> PassColumns:
        """The same passes without their durations."""
        return self.model_copy(update={"forward_s": None, "sampler_s": None})

    def passes(self) -> list[ForwardPass]:
        """The trace as the decoder described it."""
        per_row = ("query_tokens", "context_tokens", "logit_tokens", "kept_tokens", "decided_tokens", "final_tokens", "active")
        return [
            ForwardPass(
                role=role,
                padded_query=self.padded_query[i],
                padded_context=self.padded_context[i],
                decided_slots=_as_tuples(self.decided_slots[i]) if self.decided_slots else None,
                model=made_by,
                **{name: tuple(getattr(self, name)[i]) for name in per_row},
            )
            for i, (role, made_by) in enumerate(zip(self.role, self.made_by, strict=True))
        ]

    @property
    def made_by(self) -> list[str | None]:
        """Of every pass the draft model that made it, None for the case's own."""
        return self.model or [None] * len(self.role)


def _as_tuples(rows: list[list[int]] | None) -> tuple[tuple[int, ...], ...] | None:
    return None if rows is None else tuple(map(tuple, rows))
