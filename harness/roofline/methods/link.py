"""Split computing: some layers here, the rest behind a network, so that every pass of the target pays a round trip."""

from __future__ import annotations

import math
from dataclasses import replace

from harness.errors import UserError
from harness.roofline.methods.calls import MethodTrace, ModelCall, Setting
from harness.roofline.methods.set_block import next_token, set_block

STATE_BYTES = 2
BITS_PER_BYTE, BITS_PER_MEGABIT, MS_PER_S = 8, 1e6, 1e3


def over_a_link(
    at: Setting, *, round_trip_ms: float, megabits_per_s: float, block_size: int | None = None, nfe_speedup: float = 1.0
) -> MethodTrace:
    """NTP, or SBD with a block size, where the hidden states of every pass go to another machine and come back.

    First and last layers with embedding and LM head are on this side, as in arXiv 2602.16760. So a pass sends the hidden state
    of every query token out, in 16 bits, and gets as many back. Nothing of a pass overlaps with its link.

    Raises:
        UserError: no round trip or rate above 0; see set_block.
    """
    if not (0 < round_trip_ms < math.inf and 0 < megabits_per_s < math.inf):
        raise UserError(f"got a round trip of {round_trip_ms:g} ms at {megabits_per_s:g} Mbit/s; allowed are figures above 0")
    inner = (
        next_token(at)
        if block_size is None
        else set_block(at, block_size=block_size, passes_per_block=block_size / nfe_speedup)
    )

    def seconds(call: ModelCall) -> float:
        states = call.forward_pass.rows * call.forward_pass.padded_query
        bits = 2 * states * at.target.hidden * STATE_BYTES * BITS_PER_BYTE
        return round_trip_ms / MS_PER_S + bits / (megabits_per_s * BITS_PER_MEGABIT)

    link_s = sum(call.count_per_token * seconds(call) for call in inner.calls)
    notes = "both sides are priced as this one device"
    return replace(inner, family=f"{inner.family} over a link", notes=notes, link_s_per_token=link_s)
