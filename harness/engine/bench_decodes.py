"""Short decodes of one row at one context, NTP and SBD: the measured passes that predictions of all other cells start from.

Random prompts, a replayed acceptance that makes every kind of pass, and the decoders themselves, so that what is measured is
what a sample is made of. Knows no clock.
"""

from __future__ import annotations

from collections.abc import Generator

import torch

from harness.decoding.acceptance import ReplayedAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest, Fuse
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.stopping import NEVER
from harness.record.trace import ForwardPass, Generation
from harness.runner.estimates import MEASURED_BLOCKS, MEASURED_CONTEXT

NTP_TOKENS = 17
PASSES_PER_BLOCK = 2
WARM_ROUNDS, ROUNDS = 1, 2


def bench_decoder(
    session: ModelSession, block_size: int | None, vocab: int, mask_id: int | None, device: torch.device,
    fuse: Fuse | None = None,
) -> Generator[ForwardPass, None, Generation]:
    """NTP (no block size), or SBD that takes two passes a block: one that commits the block before, one that does not."""
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(vocab, (MEASURED_CONTEXT,), generator=generator).tolist()
    request = DecodeRequest(
        prompts=(tuple(prompt),), max_new_tokens=MEASURED_BLOCKS * block_size if block_size else NTP_TOKENS, stop=NEVER,
        suppressed_ids=() if mask_id is None else (mask_id,), temperature=0.0, generator=torch.Generator(device), device=device,
        fuse=fuse,
    )  # fmt: skip
    if block_size is None:
        return decode_next_token(session, request)
    if mask_id is None:
        raise ValueError("blocks need a mask token")
    acceptance = ReplayedAcceptance(lambda rng: PASSES_PER_BLOCK, seed=0)
    return decode_set_block(session, request, block_size=block_size, mask_id=mask_id, acceptance=acceptance)
