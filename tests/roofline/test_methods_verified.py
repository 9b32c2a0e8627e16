"""The price of verified SBD: hand-worked counts, the limit where it is equation 16, and simulated blocks in float64."""

from __future__ import annotations

import numpy as np
import pytest

from harness.errors import UserError
from harness.models import KNOWN_SHAPES
from harness.roofline.methods.calls import PricedAt
from harness.roofline.methods.set_block import set_block, verified_set_block

AT = PricedAt(target=KNOWN_SHAPES["llama-3.1-8b"], batch=1, context_tokens=1000)


def counts(trace) -> list[tuple[str, int, float]]:
    """(role, query tokens, calls per token)."""
    return [(call.forward_pass.role, call.forward_pass.padded_query, call.count_per_token) for call in trace.calls]


def test_by_hand() -> None:
    """k=3, two draft passes, a=1/2: 1 + 1/2 + 1/4 = 7/4 tokens a check; a quarter of the blocks is opened by the check."""
    found = counts(verified_set_block(AT, block_size=3, draft_passes=2, acceptance=0.5))
    assert found == [("verify+draft", 6, pytest.approx(4 / 7)), ("draft", 3, pytest.approx((2 - 1 / 4) * 4 / 7))]


@pytest.mark.parametrize("passes", [1, 2.5, 16])
def test_where_every_draft_is_right_it_is_equation_16(passes: float) -> None:
    """One pass of 2k and l - 1 of k per k tokens, as set_block counts them."""
    verified = counts(verified_set_block(AT, block_size=16, draft_passes=passes, acceptance=1.0))
    plain = counts(set_block(AT, block_size=16, passes_per_block=passes))
    assert [(query, pytest.approx(count)) for _, query, count in verified] == [(query, count) for _, query, count in plain]


def simulated(block_size: int, draft_passes: int, acceptance: float, blocks: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """(tokens gained, draft passes) of block after block, played as the decoder plays them: slot by slot, the masks that ride
    along used only behind a block that was right as a whole.
    """
    agrees = np.random.default_rng(7).random((blocks, block_size - 1)) < acceptance
    accepted = np.cumprod(agrees, axis=1).sum(axis=1)
    opened_ahead = np.concatenate([[False], accepted[:-1] == block_size - 1])
    return accepted + 1.0, np.where(opened_ahead, draft_passes - 1.0, float(draft_passes))


@pytest.mark.parametrize(("block_size", "draft_passes"), [(2, 1), (4, 3), (16, 1), (16, 5)])
@pytest.mark.parametrize("acceptance", [0.3, 0.8, 0.97])
def test_counts_against_simulated_blocks(block_size: int, draft_passes: int, acceptance: float) -> None:
    """Passes per token of both kinds within five standard errors of 200,000 blocks.

    Would catch: one draft too many checked, the head's own token forgotten, the free first pass given to every block.
    """
    gained, drafts = simulated(block_size, draft_passes, acceptance)
    (_, _, checks), (_, _, per_token) = counts(
        verified_set_block(AT, block_size=block_size, draft_passes=draft_passes, acceptance=acceptance)
    )
    error = gained.std() / np.sqrt(gained.size)
    assert abs(gained.mean() - 1 / checks) < 5 * error
    # Neighbouring blocks share one outcome (gained here, opened ahead there), hence twice the error of independent ones.
    opened_ahead = acceptance ** (block_size - 1)  # where that is too rare to have come up, the sample has no spread
    spread = max(drafts.std(), np.sqrt(opened_ahead * (1 - opened_ahead)))
    assert abs(drafts.mean() - per_token / checks) < 10 * spread / np.sqrt(drafts.size)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"block_size": 0}, "block size"), ({"draft_passes": 9}, "allowed are 1 to"), ({"acceptance": 1.2}, "probability")],
)
def test_impossible_figures_are_refused(changes, words) -> None:
    """With what is allowed."""
    with pytest.raises(UserError, match=words):
        verified_set_block(AT, **{"block_size": 8, "draft_passes": 2, "acceptance": 0.5, **changes})
