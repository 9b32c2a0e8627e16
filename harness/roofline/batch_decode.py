"""Expected decode time of a batch, SBD and NTP, with the context growing as it is written.

Every pass of the batch is priced at its own width and context, and weighted by how often it happens. The result is modelled:
no pass has run at this batch size. The NTP batch writes the same lengths and waits for its longest row too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import UserError
from harness.models import ModelShape
from harness.record.trace import Role
from harness.roofline.batches import BatchPasses, RecordedRow, chance_of_all
from harness.roofline.ceilings import Ceilings
from harness.roofline.pricing import price_pass
from harness.roofline.speedup import describe_pass


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeTime:
    """Mean seconds of a batch's decode: everything overlapped, as the ceilings say, nothing overlapped."""

    low_s: float
    expected_s: float
    high_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPrediction:
    """SBD against NTP for one batch size and batching. Tokens are means per row, passes and times means per batch."""

    passes: BatchPasses
    ntp_passes: float
    sbd_tokens: float
    ntp_tokens: float
    sbd: DecodeTime
    ntp: DecodeTime

    @property
    def wall_speedup(self) -> float:
        """Ratio of expected times per decode token, NTP / SBD."""
        return self._speedup(self.ntp.expected_s, self.sbd.expected_s)

    @property
    def wall_speedup_overlapped(self) -> float:
        """The same with memory and arithmetic fully overlapped in both arms."""
        return self._speedup(self.ntp.low_s, self.sbd.low_s)

    @property
    def wall_speedup_serial(self) -> float:
        """The same with nothing overlapped in either arm."""
        return self._speedup(self.ntp.high_s, self.sbd.high_s)

    def _speedup(self, ntp_s: float, sbd_s: float) -> float:
        return (ntp_s / self.ntp_tokens) / (sbd_s / self.sbd_tokens)


def predict_batch(
    shape: ModelShape,
    dtype: str,
    ceilings: Ceilings,
    passes: BatchPasses,
    record: Sequence[RecordedRow],
    *,
    block_size: int,
    prompt_tokens: int,
) -> BatchPrediction:
    """Price ``passes`` and NTP's over rows as long as those of ``record``, after ``prompt_tokens`` cached tokens per row.

    The prefill's logits give NTP its first token, so NTP decodes one token less of every row.

    Raises:
        UserError: no prompt wrote a second token, more rows than prompts, or an unknown dtype.
    """
    lengths = np.array([row.output_tokens for row in record], dtype=np.int64)
    if lengths.max() < 2:
        raise UserError("every recorded output is one token long: NTP decodes nothing, there is no speedup; record longer ones")
    chance = chance_of_all(len(record), passes.rows)
    reached = [float(1 - chance[np.count_nonzero(lengths <= step)]) for step in range(1, int(lengths.max()))]
    return BatchPrediction(
        passes=passes,
        ntp_passes=sum(reached),
        sbd_tokens=float(lengths.mean()),
        ntp_tokens=float(lengths.mean()) - 1,
        sbd=sbd_time(shape, dtype, ceilings, passes, block_size=block_size, prompt_tokens=prompt_tokens),
        ntp=_time(
            shape, dtype, ceilings, passes.rows,
            (
                _Priced(role="decide", query=1, context=prompt_tokens + step, logits=1, kept=1, count=count)
                for step, count in enumerate(reached)
            ),
        ),
    )  # fmt: skip


def sbd_time(
    shape: ModelShape, dtype: str, ceilings: Ceilings, passes: BatchPasses, *, block_size: int, prompt_tokens: int
) -> DecodeTime:
    """Price the passes of a batch, each at its width (2k where a row commits a block, else k) and context.

    A ragged pass that opens a block counts all rows as writing their KV, though few do: the term is small.

    Raises:
        UserError: unknown dtype.
    """
    described = (
        _Priced(
            role="commit+decide" if step.opening else "decide",
            query=2 * block_size if step.opening else block_size,
            context=prompt_tokens + round(step.committed_blocks * block_size),
            logits=block_size,
            kept=block_size if step.opening else 0,
            count=step.count,
        )
        for step in passes.steps
    )
    return _time(shape, dtype, ceilings, passes.rows, described)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """Passes to be priced, every row alike."""

    role: Role
    query: int
    context: int
    logits: int
    kept: int
    count: float


def _time(shape: ModelShape, dtype: str, ceilings: Ceilings, rows: int, passes: Iterable[_Priced]) -> DecodeTime:
    low_s = expected_s = high_s = 0.0
    for one in passes:
        described = describe_pass(one.role, rows, one.query, one.context, logits=one.logits, kept=one.kept)
        price = price_pass(shape, dtype, described, ceilings)
        low_s += one.count * price.low_s
        expected_s += one.count * price.expected_s
        high_s += one.count * price.high_s
    return DecodeTime(low_s=low_s, expected_s=expected_s, high_s=high_s)
