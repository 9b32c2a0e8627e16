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
from harness.roofline.batches import BatchPasses, RecordedRow, chance_of_all
from harness.roofline.ceilings import Ceilings
from harness.roofline.operation import PassCounts
from harness.roofline.pricing import SummedPrice, price_counts, sum_prices
from harness.roofline.speedup import WallSpeedups


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPrediction(WallSpeedups):
    """SBD against NTP for one batch size and batching. Tokens are means per row, passes and times means per batch."""

    passes: BatchPasses
    ntp_passes: float
    sbd_tokens: float
    ntp_tokens: float
    sbd: SummedPrice
    ntp: SummedPrice

    def _speedup(self, side: str) -> float:
        ntp_s, sbd_s = getattr(self.ntp, side), getattr(self.sbd, side)
        speedup: float = (ntp_s / self.ntp_tokens) / (sbd_s / self.sbd_tokens)
        return speedup


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
    rows = passes.rows
    chance = chance_of_all(len(record), rows)
    reached = [float(1 - chance[np.count_nonzero(lengths <= step)]) for step in range(1, int(lengths.max()))]

    def price(counted: Iterable[tuple[float, PassCounts]]) -> SummedPrice:
        return sum_prices((count, price_counts(shape, dtype, counts, ceilings)) for count, counts in counted)

    return BatchPrediction(
        passes=passes,
        ntp_passes=sum(reached),
        sbd_tokens=float(lengths.mean()),
        ntp_tokens=float(lengths.mean()) - 1,
        sbd=price(_sbd_passes(passes, block_size, prompt_tokens)),
        ntp=price(
            (count, PassCounts(rows=rows, query=1, context=prompt_tokens + step, logits=1, kept=rows))
            for step, count in enumerate(reached)
        ),
    )


def _sbd_passes(passes: BatchPasses, block_size: int, prompt_tokens: int) -> Iterable[tuple[float, PassCounts]]:
    """Every kind of pass with its count, at its width (2k where a row commits a block, else k) and context.

    A ragged pass that opens a block counts all rows as writing their KV, though few do: the term is small.
    """
    for step in passes.steps:
        yield (
            step.count,
            PassCounts(
                rows=passes.rows,
                query=2 * block_size if step.opening else block_size,
                context=prompt_tokens + round(step.committed_blocks * block_size),
                logits=block_size,
                kept=passes.rows * block_size if step.opening else 0,
            ),
        )
