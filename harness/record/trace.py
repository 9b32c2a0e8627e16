"""What a decoder did, in counts: the one description that decoders write and the roofline prices.

A decoder describes each model call as a ForwardPass. Every per-row field is a tuple with one entry per batch row. This module
knows no tensor, clock, tokenizer or hardware.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from harness.errors import InvariantError
from harness.frozen import frozen

Role = Literal["prefill", "decide", "commit+decide", "draft", "verify", "verify+draft"]
StopReason = Literal["stop", "length"]
PER_ROW = ("query_tokens", "context_tokens", "logit_tokens", "kept_tokens", "decided_tokens", "final_tokens", "active")


class ForwardPass(NamedTuple):
    """One model call. Token counts are per row; a *padded* figure is what each row's tensor holds.

    It is a tuple because one is made in every timed pass, after a forward that emptied the caches. A frozen dataclass takes
    three times as long.

    ``query_tokens``    real tokens fed (left padding of a prompt is not counted)
    ``context_tokens``  committed KV entries the row's queries may see (left padding not counted)
    ``logit_tokens``    positions for which the LM head ran
    ``kept_tokens``     fed tokens whose KV stays in the cache
    ``decided_tokens``  positions whose token became known in this pass; a draft that another replaces counts anew
    ``final_tokens``    output tokens that became final: every position before them is known and no stop came earlier
    ``active``          False for a row that had ended before this pass and only waits (lockstep)
    ``decided_slots``   positions of the decided ones in the row's open block, counted from 0; None: no block
    ``model``           who made the pass: None for the target, whose tokens count; else the name of a draft model's shape
    """

    role: Role
    query_tokens: tuple[int, ...]
    context_tokens: tuple[int, ...]
    logit_tokens: tuple[int, ...]
    kept_tokens: tuple[int, ...]
    decided_tokens: tuple[int, ...]
    final_tokens: tuple[int, ...]
    active: tuple[bool, ...]
    padded_query: int
    padded_context: int
    decided_slots: tuple[tuple[int, ...], ...] | None = None
    model: str | None = None

    @property
    def rows(self) -> int:
        """Batch rows in the tensors of this pass."""
        return len(self.query_tokens)


class PassColumns(BaseModel):
    """The passes of one sample, column by column: entry i of every column belongs to pass i; durations in seconds.

    The per-row columns hold one list per pass with one entry per batch row, named as in ForwardPass.
    ``forward_s`` and ``sampler_s`` (from the end of the forward to the readback of what was decided; 0 where nothing was
    read) are None where the sample was not timed pass by pass. ``decided_slots`` is None where no pass has it (another
    decoder, an older record); so is its entry for a pass over no block. ``model`` names a pass's draft model by its shape in
    the case; None, or a None entry, stands for the case's own model.
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
        given = self.decided_slots or [None] * len(self.role)
        return [
            ForwardPass(
                role=role,
                padded_query=self.padded_query[i],
                padded_context=self.padded_context[i],
                decided_slots=None if slots is None else tuple(map(tuple, slots)),
                model=made_by,
                **{name: tuple(getattr(self, name)[i]) for name in PER_ROW},
            )
            for i, (role, made_by, slots) in enumerate(zip(self.role, self.made_by, given, strict=True))
        ]

    @property
    def made_by(self) -> list[str | None]:
        """The draft model that made each pass; None for the case's own model."""
        return self.model or [None] * len(self.role)


@frozen
class Generation:
    """All passes of one decode of one batch, with what each row wrote (up to and including its stop)."""

    passes: tuple[ForwardPass, ...]
    prompt_tokens: tuple[int, ...]
    output_ids: tuple[tuple[int, ...], ...]
    stop_reasons: tuple[StopReason, ...]

    @property
    def decode_passes(self) -> tuple[ForwardPass, ...]:
        """Passes of the target after prefill; their number is the NFE of the batch. A draft model's passes do not count."""
        return tuple(p for p in self.passes if p.role != "prefill" and p.model is None)

    @property
    def draft_passes(self) -> tuple[ForwardPass, ...]:
        """Passes of draft models after they have read the prompts."""
        return tuple(p for p in self.passes if p.role != "prefill" and p.model is not None)

    def nfe(self, row: int) -> int:
        """Forward passes of the target after prefill in which ``row`` was still active."""
        return sum(p.active[row] for p in self.decode_passes)

    def decode_tokens(self, row: int) -> int:
        """Output tokens of ``row``, less the ones the prefill logits gave."""
        from_prefill = sum(p.final_tokens[row] for p in self.passes if p.role == "prefill")
        return len(self.output_ids[row]) - from_prefill

    def check_conservation(self) -> None:
        """Final tokens over the decode passes equal decode tokens, row by row.

        Raises:
            InvariantError: a row's counts do not add up.
        """
        for row, output in enumerate(self.output_ids):
            counted = sum(p.final_tokens[row] for p in self.decode_passes)
            if counted != self.decode_tokens(row):
                raise InvariantError(
                    f"row {row}: the passes count {counted} final tokens, the output of {len(output)} tokens has "
                    f"{self.decode_tokens(row)} decode tokens; this is a fault in the decoder, please report it"
                )
