"""Traces of other decoding methods: hand-worked counts, limits where a method is NTP exactly, and simulated rounds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES
from harness.models.shape import with_layers
from harness.roofline.ceilings import Ceilings, ceilings_from_profile
from harness.roofline.methods.calls import MethodTrace, PricedAt, price_method, whole_widths
from harness.roofline.methods.set_block import (
    approximate_cache,
    block_diffusion,
    chunks,
    longest_prefix,
    next_block,
    next_token,
    over_a_link,
    pruned,
    pruned_decoding,
    set_block,
    verified_set_block,
    whole_sequence,
    with_auxiliary,
)
from harness.roofline.methods.speculative import (
    PricedDrafter,
    caught_up,
    copied_state,
    hierarchy,
    small_drafter,
    speculative,
    tree_drafting,
)
from harness.roofline.methods.systems import spans
from harness.roofline.operation import describe_pass
from harness.roofline.pricing import price_pass
from tests.helpers.speedups import predict_speedup

TARGET = KNOWN_SHAPES["llama-3.1-8b"]  # 32 layers
DRAFT = KNOWN_SHAPES["llama-250m"]
AT = PricedAt(target=TARGET, batch=1, context_tokens=1000)
Row = tuple[str, int, int, int, int, float]


def roof() -> Ceilings:
    """The datasheet of an H100."""
    return ceilings_from_profile(load_profile("h100-sxm"), "bfloat16")


def rows(trace: MethodTrace) -> list[Row]:
    """(model, layers, query tokens, context tokens, logits, calls per token) of every call."""
    return [
        (
            call.model,
            call.shape.layers,
            call.forward_pass.padded_query,
            call.forward_pass.padded_context,
            call.forward_pass.logit_tokens[0],
            pytest.approx(call.count_per_token),
        )
        for call in trace.calls
        if call.count_per_token
    ]


def seconds(trace: MethodTrace, at: PricedAt = AT) -> float:
    """Expected time per token on the H100."""
    assert all(call.forward_pass.rows == at.batch for call in trace.calls)
    return price_method(trace, "bfloat16", roof()).expected_s


def test_next_token_and_the_sum_of_prices() -> None:
    """One pass a token costs what price_pass says; two kinds of call are added up by their counts, on every side."""
    assert rows(next_token(AT)) == [("target", 32, 1, 1000, 1, 1.0)]
    trace = speculative(AT, auxiliary=DRAFT, drafted_tokens=2, acceptance=0.5)  # 1 + 1/2 + 1/4 = 7/4 tokens a round
    price = price_method(trace, "bfloat16", roof())
    verify = price_pass(TARGET, "bfloat16", describe_pass("verify", 1, 3, 1000, logits=3, kept=3), roof())
    draft = price_pass(DRAFT, "bfloat16", describe_pass("draft", 1, 1, 1000, logits=1, kept=1), roof())
    for side in ("low_s", "expected_s", "high_s", "bytes_"):
        assert getattr(price, side) == pytest.approx((getattr(verify, side) + 2 * getattr(draft, side)) / 1.75)


def test_set_block_is_equation_16() -> None:
    """k=16, l=4: 1/16 pass of 32 tokens and 3/16 of 16; the speedup is that of predict_speedup, on every side."""
    trace = set_block(AT, block_size=16, passes_per_block=4)
    assert rows(trace) == [("target", 32, 32, 984, 16, 1 / 16), ("target", 32, 16, 1000, 16, 3 / 16)]
    assert trace.tokens_per_target_pass == pytest.approx(4)
    assert trace.query_tokens_per_target_pass == pytest.approx((32 + 3 * 16) / 4)
    reference = predict_speedup(TARGET, "bfloat16", roof(), block_size=16, passes_per_block=4, batch=1, context_tokens=1000)
    found = price_method(next_token(AT), "bfloat16", roof()).speedup_of(price_method(trace, "bfloat16", roof()))
    sides = (reference.wall_speedup, reference.wall_speedup_overlapped, reference.wall_speedup_serial)
    assert found == pytest.approx((min(sides), reference.wall_speedup, max(sides)))


def test_speculative_decoding_by_hand() -> None:
    """g=3, a=0.8: 1 + .8 + .64 + .512 = 2.952 tokens a round, one pass of 4 tokens, 3 passes of the draft."""
    trace = speculative(AT, auxiliary=DRAFT, drafted_tokens=3, acceptance=0.8)
    assert rows(trace) == [("target", 32, 4, 1000, 4, 1 / 2.952), ("draft", 16, 1, 1000, 1, 3 / 2.952)]
    assert trace.tokens_per_target_pass == pytest.approx(2.952)


def test_speculative_limits() -> None:
    """No draft: NTP. Nothing accepted: slower than NTP. All accepted: g + 1 tokens a pass."""
    assert rows(speculative(AT, auxiliary=DRAFT, drafted_tokens=0, acceptance=0.5)) == rows(next_token(AT))
    useless = speculative(AT, auxiliary=DRAFT, drafted_tokens=4, acceptance=0.0)
    assert useless.tokens_per_target_pass == 1
    assert seconds(useless) > seconds(next_token(AT)) + 4 * seconds(next_token(PricedAt(target=DRAFT, context_tokens=1000)))
    perfect = speculative(AT, auxiliary=DRAFT, drafted_tokens=4, acceptance=1.0)
    assert rows(perfect) == [("target", 32, 5, 1000, 5, 1 / 5), ("draft", 16, 1, 1000, 1, 4 / 5)]


def test_hierarchy_by_hand() -> None:
    """The target asks for 2 tokens (a=1/2: 7/4 a round). The middle model gets 1 from the small one (a=1/2) for the first:

    2 lack: it drafts 1, verifies 2 wide, gains 2 (p=1/2) or 1 (p=1/2); then 1 lacks: a pass of 1, no draft. So a round has 1
    pass of 2, 1/2 pass of 1 and 1 pass of the small model.
    """
    middle = PricedDrafter(shape=with_layers(TARGET, 8), drafted_tokens=2, acceptance=0.5)
    small = PricedDrafter(shape=DRAFT, drafted_tokens=1, acceptance=0.5)
    assert rows(hierarchy(AT, (middle, small))) == [
        ("target", 32, 3, 1000, 3, 4 / 7),
        ("draft 1", 8, 1, 1000, 1, 0.5 * 4 / 7),
        ("draft 1", 8, 2, 1000, 2, 4 / 7),
        ("draft 2", 16, 1, 1000, 1, 4 / 7),
    ]


def draft_by_simulation(levels: list[tuple[int, float]], level: int, wanted: int, passes: Counter[tuple[int, int]]) -> None:
    """Make ``wanted`` tokens with model ``level`` as a program would: draft below, verify, go on. Counts passes by width."""
    while wanted:
        drafted = 0
        if level + 1 < len(levels):
            drafted = min(levels[level + 1][0], wanted - 1)
            draft_by_simulation(levels, level + 1, drafted, passes)
        passes[level, drafted + 1] += 1
        gained = 1
        while gained <= drafted and random.random() < levels[level + 1][1]:
            gained += 1
        wanted -= gained


@pytest.mark.parametrize("levels", [[(3, 0.7)], [(5, 0.6), (2, 0.8)], [(6, 0.9), (4, 0.5), (2, 0.3)]])
def test_counts_of_a_hierarchy_against_simulated_rounds(levels: list[tuple[int, float]]) -> None:
    """20,000 rounds of the target, drawn: tokens and passes of every model and width within 3 %."""
    random.seed(20251022)
    passes: Counter[tuple[int, int]] = Counter()
    tokens, rounds = 0, 20_000
    for _ in range(rounds):
        draft_by_simulation(levels, 0, levels[0][0], passes)
        accepted = 0
        while accepted < levels[0][0] and random.random() < levels[0][1]:
            accepted += 1
        tokens += accepted + 1
    drafters = tuple(PricedDrafter(shape=DRAFT, drafted_tokens=drafted, acceptance=chance) for drafted, chance in levels)
    target, *drafts = hierarchy(AT, drafters).calls
    assert target.count_per_token == pytest.approx(rounds / tokens, rel=0.02)
    found = {
        (int(call.model.partition(" ")[2] or 1) - 1, call.forward_pass.padded_query): call.count_per_token for call in drafts
    }
    assert set(found) == set(passes)
    for key, count in passes.items():
        if count > 5000:  # rarer ones scatter by more than the tolerance
            assert found[key] == pytest.approx(count / tokens, rel=0.03), key


def test_early_exit_with_copied_state_by_hand() -> None:
    """Half the tokens leave after 8 of 32 layers: half a pass of 8 layers, half of 32; .5 * 8/32 + .5 = .625 passes a token."""
    exits = ((8, 0.5), (32, 0.5))
    hidden = copied_state(AT, exits)
    assert rows(hidden) == [("8 layers of the target", 8, 1, 1000, 1, 0.5), ("target", 32, 1, 1000, 1, 0.5)]
    assert hidden.target_passes_per_token == pytest.approx(0.625)


def test_in_a_batch_the_last_row_to_leave_decides() -> None:
    """Two rows, each leaving early with 1/2: both do with 1/4."""
    at = PricedAt(target=TARGET, batch=2, context_tokens=1000)
    trace = copied_state(at, ((8, 0.5), (32, 0.5)))
    assert [row[-1] for row in rows(trace)] == [0.25, 0.75]
    assert trace.calls[0].forward_pass.rows == 2


def test_caught_up_exits_by_hand() -> None:
    """Three of four tokens leave after 8 layers: 8 layers a token, 24 layers over 4 tokens at every fourth.

    Verified with one in three rejected (a = 2/3): of a run of n tokens (n - 1 early) 1 + a + ... + a^(n-1) stay; over
    P(n) = 3^(n-1) / 4^n that is 1 / (1 - 3/4 * 2/3) = 2 of 4. Every count doubles, and the head runs over all 4.
    """
    exits = ((8, 0.75), (32, 0.25))
    lossy = [("8 layers of the target", 8, 1, 1000, 1, 1.0), ("24 layers of the target", 24, 4, 1000, 1, 0.25)]
    assert rows(caught_up(AT, exits, verified=False)) == lossy
    assert rows(caught_up(AT, exits, verified=True, rejected=1 / 3)) == [
        ("8 layers of the target", 8, 1, 1000, 1, 2.0),
        ("24 layers of the target", 24, 4, 1000, 4, 0.5),
    ]


def test_tree_drafting_by_hand() -> None:
    """60 tokens verified, 4 stay, 5 drafter passes of 10 between: 1/4 and 5/4 passes a token; the drafter is one layer."""
    drafter = small_drafter(TARGET, layers=1, intermediate_of_hidden=2)
    trace = tree_drafting(
        AT,
        tree_tokens=60,
        tokens_per_pass=4,
        drafter_layers=1,
        drafter_intermediate_of_hidden=2,
        drafter_passes=5,
        drafter_query_tokens=10,
    )
    assert trace.calls[1].shape == drafter
    assert rows(trace) == [("target", 32, 60, 1000, 60, 1 / 4), ("drafter", 1, 10, 1000, 10, 5 / 4)]
    assert (drafter.hidden, drafter.intermediate) == (4096, 8192)
    assert trace.query_tokens_per_target_pass == 60  # the drafter is another model
    assert len(tree_drafting(AT, tree_tokens=60, tokens_per_pass=4).calls) == 1


def test_chunks_and_pruned_decoding_by_hand() -> None:
    """4 tokens a vector: 1/4 pass over 250 entries, logits for 4. Pruned: widths 4096 and 14336 times .57, cut off."""
    assert rows(chunks(AT, tokens_per_pass=4)) == [("target", 32, 1, 250, 4, 1 / 4)]
    decoder = pruned(TARGET, width_share=0.57)
    assert (decoder.hidden, decoder.intermediate, decoder.heads, decoder.layers) == (2334, 8171, 32, 32)
    assert 3.1e9 < decoder.params < 3.3e9  # published as the 3B decoder of the 8B model
    trace = pruned_decoding(AT, width_share=0.57)
    assert rows(trace) == [("pruned", 32, 1, 1000, 1, 1.0)]
    assert (trace.target_passes_per_token, trace.tokens_per_target_pass, trace.query_tokens_per_target_pass) == (0, None, None)


def test_diffusion_by_hand() -> None:
    """Whole sequences, an approximate cache in two blocks of 4, blocks with nested drafts, and an auxiliary model."""
    # 8 new tokens in 2 passes: 1/4 pass a token over 1000 + 8 tokens.
    assert rows(whole_sequence(AT, new_tokens=8, passes=2)) == [("target", 32, 1008, 0, 8, 1 / 4)]
    # A block of 4 in 3 passes: one over everything, two over the block and the slots behind it (8, then 4).
    assert rows(approximate_cache(AT, new_tokens=8, block_size=4, passes_per_block=3)) == [
        ("target", 32, 1008, 0, 4, 1 / 8),
        ("target", 32, 8, 1000, 4, 2 / 8),
        ("target", 32, 1008, 0, 4, 1 / 8),
        ("target", 32, 4, 1004, 4, 2 / 8),
    ]
    # 4 copies of a block of 4, two deciding passes, one that stores without logits.
    assert rows(block_diffusion(AT, block_size=4, passes_per_block=3, drafts=4)) == [
        ("target", 32, 16, 1000, 16, 2 / 4),
        ("target", 32, 4, 1000, 0, 1 / 4),
    ]
    # 2 tokens stay of 4: they are fed clean, the last again with 3 masks; of 1001 known tokens 999 are in the cache.
    assert rows(longest_prefix(AT, block_size=4, tokens_per_pass=2)) == [("target", 32, 6, 999, 4, 1 / 2)]
    # 5 stay of a lookahead of 100; 16 known tokens are fed again.
    assert rows(with_auxiliary(AT, auxiliary=DRAFT, window=16, lookahead=100, tokens_per_pass=5)) == [
        ("target", 32, 116, 984, 100, 1 / 5),
        ("auxiliary", 16, 100, 1000, 100, 1 / 5),
    ]


@pytest.mark.parametrize(
    "limit",
    [
        lambda at: speculative(at, auxiliary=DRAFT, drafted_tokens=0, acceptance=0.9),
        lambda at: hierarchy(at, (PricedDrafter(shape=DRAFT, drafted_tokens=0, acceptance=1.0),) * 3),
        lambda at: copied_state(at, ((32, 1.0),)),
        lambda at: copied_state(at, ((8, 0.0), (32, 1.0))),
        lambda at: caught_up(at, ((32, 1.0),), verified=False),
        lambda at: caught_up(at, ((32, 1.0),), verified=True, rejected=0.5),
        lambda at: tree_drafting(at, tree_tokens=1, tokens_per_pass=1),
        lambda at: longest_prefix(at, block_size=1, tokens_per_pass=1),
        lambda at: chunks(at, tokens_per_pass=1),
        lambda at: pruned_decoding(at, width_share=1.0),
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_limits_are_next_token_exactly(limit: Callable[[PricedAt], MethodTrace], batch: int) -> None:
    """No draft, an exit at the last layer, a tree, block or chunk of one token, nothing pruned: the price of NTP itself."""
    at = PricedAt(target=TARGET, batch=batch, context_tokens=1000)
    assert price_method(limit(at), "bfloat16", roof()) == price_method(next_token(at), "bfloat16", roof())


def test_a_set_block_of_one_token_is_not_next_token() -> None:
    """Its pass feeds the token before and a mask, so it can only cost more."""
    assert rows(set_block(AT, block_size=1, passes_per_block=1)) == [("target", 32, 2, 999, 1, 1.0)]
    assert seconds(set_block(AT, block_size=1, passes_per_block=1)) > seconds(next_token(AT))


def counts(trace) -> list[tuple[str, int, float]]:
    """(role, query tokens, calls per token)."""
    return [(call.forward_pass.role, call.forward_pass.padded_query, call.count_per_token) for call in trace.calls]


def test_verified_blocks_by_hand() -> None:
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


@given(st.floats(1, 60))
def test_whole_widths_keep_the_mean(mean: float) -> None:
    """Shares of 1, whole widths next to each other, and the mean itself."""
    parts = whole_widths(mean)
    assert sum(share for _, share in parts) == pytest.approx(1)
    assert sum(width * share for width, share in parts) == pytest.approx(mean)
    assert max(width for width, _ in parts) - min(width for width, _ in parts) <= 1


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: PricedAt(target=TARGET, batch=0), "batch >= 1"),
        (lambda: PricedAt(target=TARGET, context_tokens=-1), "context >= 0"),
        (lambda: speculative(AT, auxiliary=DRAFT, drafted_tokens=3, acceptance=1.1), "allowed are 0 to 1"),
        (lambda: speculative(AT, auxiliary=DRAFT, drafted_tokens=-1, acceptance=0.5), "allowed is 0 or more"),
        (lambda: hierarchy(AT, ()), "at least one draft model"),
        (lambda: set_block(AT, block_size=4, passes_per_block=5), "1 to the block size, 4"),
        (lambda: copied_state(AT, ((8, 0.5), (16, 0.5))), "last layer, 32"),
        (lambda: copied_state(AT, ((8, 0.5), (32, 0.4))), "add up to 1"),
        (lambda: caught_up(AT, ((8, 1.0), (32, 0.0)), verified=True), "give the last exit a share"),
        (lambda: tree_drafting(AT, tree_tokens=4, tokens_per_pass=5), "1 to the tree's 4 tokens"),
        (lambda: tree_drafting(AT, tree_tokens=4, tokens_per_pass=2, drafter_passes=1), "give both, or neither"),
        (lambda: approximate_cache(AT, new_tokens=9, block_size=4, passes_per_block=2), "whole blocks"),
        (lambda: longest_prefix(AT, block_size=4, tokens_per_pass=5), "1 to the block size, 4"),
        (lambda: with_auxiliary(AT, auxiliary=DRAFT, window=1, lookahead=2, tokens_per_pass=3), "1 to the lookahead, 2"),
        (lambda: pruned(TARGET, width_share=0), "above 0 and at most 1"),
        (lambda: verified_set_block(AT, block_size=0, draft_passes=2, acceptance=0.5), "block size"),
        (lambda: verified_set_block(AT, block_size=8, draft_passes=9, acceptance=0.5), "allowed are 1 to"),
        (lambda: verified_set_block(AT, block_size=8, draft_passes=2, acceptance=1.2), "probability"),
    ],
)
def test_impossible_figures_are_refused(refused: Callable[[], object], words: str) -> None:
    """What was given and what is allowed is said."""
    with pytest.raises(UserError, match=words):
        refused()


def test_a_part_of_a_model_has_its_layers_of_each_kind_in_proportion():
    """Gemma 3 12B: 40 of 48 layers slide, so 5 of 6 and none of a single full one; DeepSeek-V3: 58 of 61 route, so 29 of 30."""
    gemma, deepseek = KNOWN_SHAPES["gemma-3-12b"], KNOWN_SHAPES["deepseek-v3"]
    assert gemma.moe is None and (gemma.layers, gemma.sliding_layers) == (48, 40)
    assert with_layers(gemma, 6).sliding_layers == 5
    assert deepseek.moe is not None and (deepseek.layers, deepseek.moe.layers) == (61, 58)
    part = with_layers(deepseek, 30).moe
    assert part is not None and part.layers == 29 and with_layers(deepseek, 30).dense_layers == 1
    assert small_drafter(deepseek, layers=1, intermediate_of_hidden=4.0).moe is None


def test_next_block_by_hand() -> None:
    """Blocks of 64: one pass of 64 query tokens gives 64. At 16 tokens a pass three more refine; of one token it is NTP."""
    assert rows(next_block(AT, block_size=64)) == [("target", 32, 64, 1000, 64, 1 / 64)]
    refined = next_block(AT, block_size=64, tokens_per_pass=16)
    assert rows(refined) == [("target", 32, 64, 1000, 64, 1 / 64), ("target", 32, 64, 1000, 64, 3 / 64)]
    assert [call.forward_pass.kept_tokens[0] for call in refined.calls] == [64, 0]
    assert seconds(next_block(AT, block_size=1)) == pytest.approx(seconds(next_token(AT)))
    with pytest.raises(UserError, match="1 to the block size, 64"):
        next_block(AT, block_size=64, tokens_per_pass=65)


def test_a_link_by_hand() -> None:
    """NTP: 4,096 states of 16 bits out and back at 10 Mbit/s are 13.1 ms, and 80 ms on the way.

    At 16 tokens a block and 4 passes: 1 pass of 32 tokens and 3 of 16 are 80 tokens on the link, in 4 round trips.
    """
    token_s = 2 * 4096 * 16 / 10e6
    ntp = over_a_link(AT, round_trip_ms=80, megabits_per_s=10)
    assert ntp.link_s_per_token == pytest.approx(0.080 + token_s)
    assert seconds(ntp) == pytest.approx(seconds(next_token(AT)) + 0.080 + token_s)
    blocks = over_a_link(AT, round_trip_ms=80, megabits_per_s=10, block_size=16, nfe_speedup=4)
    assert blocks.link_s_per_token == pytest.approx((4 * 0.080 + 80 * token_s) / 16)
    with pytest.raises(UserError, match="allowed are figures above 0"):
        over_a_link(AT, round_trip_ms=80, megabits_per_s=0)


@given(st.lists(st.floats(0, 1), max_size=4))
def test_spans_are_where_it_holds(turns: list[float]) -> None:
    """A condition that changes at these places: every share of a fine grid lies in a span just where it holds.

    Stretches shorter than a step of the scan may be missed, so the grid leaves out what is that close to a turn.
    """
    turns, shares = sorted(turns), [step / 24 for step in range(25)]
    found = spans(lambda share: sum(turn <= share for turn in turns) % 2 == 1, shares)
    for share in shares:
        assert any(low <= share <= high for low, high in found) == (sum(turn <= share for turn in turns) % 2 == 1)
    assert all(low <= high for low, high in found)
    assert all(high <= low for (_, high), (low, _) in pairwise(found))
