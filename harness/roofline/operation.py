"""Two values between counting and pricing: the counts that decide the cost of a pass, and one operation of a pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.record.trace import ForwardPass

OperationKind = Literal["linear", "attention", "memory", "link", "sampler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCounts:
    """The counts of a forward pass that decide what it costs; passes that agree in them cost the same.

    ``query``, ``context`` and ``logits`` are those of the longest row, to which the others are padded; ``kept`` is the sum
    over the rows of tokens whose KV stays. For a grid every field may be a numpy array of one shape (harness.roofline.arrays).
    """

    rows: int
    query: int
    context: int
    logits: int
    kept: int

    @classmethod
    def of(cls, forward_pass: ForwardPass) -> PassCounts:
        """The counts of a recorded pass."""
        return cls(
            rows=forward_pass.rows,
            query=forward_pass.padded_query,
            context=forward_pass.padded_context,
            logits=max(forward_pass.logit_tokens, default=0),
            kept=sum(forward_pass.kept_tokens),
        )

    @property
    def lines(self) -> int:
        """Lines of the matrices that the layers multiply."""
        return self.rows * self.query

    @property
    def logit_lines(self) -> int:
        """Lines of the LM head's product."""
        return self.rows * self.logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one pass on one device, summed over the layers.

    ``tokens`` are the lines m of its matrix product (per row for attention, per expert for a mixture): they decide its matrix
    rate. ``link_bytes`` cross the link to the other devices. ``logits`` are set for the sampler only; ``sharing``, the query
    heads that share a KV head, for attention only.
    """

    name: str
    kind: OperationKind
    tokens: float
    sharing: float = 1
    flops: float = 0
    weight_bytes: float = 0
    kv_bytes: float = 0
    activation_bytes: float = 0
    link_bytes: float = 0
    logits: int = 0

    @property
    def bytes_(self) -> float:
        """All bytes this operation reads from or writes to the device's own memory."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes
