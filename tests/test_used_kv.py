"""Attention over the used part of fixed buffers: against torch's own over the used keys alone, in float64."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402 - after the import guard

from harness.meters.graphs import CAPTURES, GraphMeter  # noqa: E402
from harness.modeling.capturing import WARM_UPS, CudaGraphs  # noqa: E402
from harness.modeling.used_kv import UsedKv, merge, packed_attention, used_part  # noqa: E402
from harness.roofline import kv_slots  # noqa: E402
from harness.roofline.kv_slots import pieces_of  # noqa: E402
from tests.emulated_gpu import FakeCuda, emulated_flash  # noqa: E402

HEADS, GROUPS, SIZE, SLOTS = 4, 2, 8, 32


def plain_attention(query, keys, values, mask):
    """torch's attention of one row: query (H, n, D), keys and values (G, n, D), mask (n, keys)."""
    return torch.nn.functional.scaled_dot_product_attention(
        query[None], keys[None], values[None], attn_mask=mask[None, None], enable_gqa=True
    )[0]


@st.composite
def calls(draw):
    """Committed tokens per row, and parts as (width, causal)."""
    lengths = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    parts = draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3))
    return lengths, parts, draw(st.sampled_from([4, 8, 32]))


@given(calls())
@settings(max_examples=60, deadline=None)
def test_every_part_sees_what_is_used_and_nothing_else(call):
    """Unused slots hold large numbers that would show; pieces of any length give the same; KV lands in its slots."""
    lengths, widths, smallest = call
    rows, fed = len(lengths), sum(width for width, _ in widths)
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    keys, values = ([1e3 * random(rows, SLOTS, GROUPS, SIZE)] for _ in range(2))
    for row, length in enumerate(lengths):
        keys[0][row, :length], values[0][row, :length] = random(length, GROUPS, SIZE), random(length, GROUPS, SIZE)
    query, key, value = random(rows, HEADS, fed, SIZE), random(rows, GROUPS, fed, SIZE), random(rows, GROUPS, fed, SIZE)
    slots = torch.tensor(lengths)[:, None] + torch.arange(fed)
    seen, parts = torch.tensor(lengths), []
    before = kv_slots.SMALLEST_PIECE
    kv_slots.SMALLEST_PIECE = smallest
    try:
        for width, causal in widths:
            used = (seen if causal else seen + width).to(torch.int32)
            parts.append(used_part(width, causal, used, GROUPS, SLOTS))
            seen = seen + width
        layout = UsedKv(keys=keys, values=values, slots=slots, parts=tuple(parts))
        found = layout.attend(0, query, key, value, None)
    finally:
        kv_slots.SMALLEST_PIECE = before
    for row, length in enumerate(lengths):
        mask = torch.zeros(fed, length + fed, dtype=torch.bool)
        start = 0
        for width, causal in widths:
            for one in range(start, start + width):
                mask[one, : length + (one + 1 if causal else start + width)] = True
            start += width
        all_keys, all_values = (
            torch.cat([held[0][row, :length].transpose(0, 1), new[row]], dim=1) for held, new in ((keys, key), (values, value))
        )
        expected = plain_attention(query[row], all_keys, all_values, mask)
        assert (found[row].transpose(0, 1) - expected).abs().max() < 1e-12
        assert torch.equal(keys[0][row, length : length + fed], key[row].transpose(0, 1))


def test_merging_softmaxes_is_the_softmax_of_the_union():
    """By hand: log-sum-exps log 3 and log 1 weigh 3:1; an empty part weighs nothing, and empty parts alone give 0, not NaN."""
    nothing = float("-inf")
    outs = torch.tensor([[[4.0]], [[8.0]], [[100.0]]], dtype=torch.float64)
    lses = torch.tensor([[3.0], [1.0], [0.0]], dtype=torch.float64).log()
    out, lse = merge(outs, lses)
    assert out.item() == pytest.approx(5.0) and lse.exp().item() == pytest.approx(4.0)
    out, lse = merge(torch.zeros(2, 1, 1), torch.full((2, 1), nothing))
    assert out.item() == 0.0 and lse.item() == nothing


def test_a_run_without_used_keys_yields_zero():
    """A piece behind what is used."""
    query, keys = torch.ones(1, 2, 2, 4), torch.ones(8, 1, 4)
    runs = used_part(2, False, torch.tensor([0], dtype=torch.int32), 1, 8).pieces
    out, lse = packed_attention(query, keys, keys, runs, False, None)
    assert out.abs().max() == 0 and (lse == float("-inf")).all()


def test_plain_arithmetic_takes_each_run_by_itself():
    """Four rows are four times the work of one: 2 products x 2 x 16 query heads and tokens x 8 numbers x 32 keys a row."""
    for rows in (1, 4):
        runs = used_part(4, False, torch.full((rows,), 20, dtype=torch.int32), GROUPS, SLOTS).pieces
        keys = torch.ones(rows * SLOTS, GROUPS, SIZE)
        with FlopCounterMode(display=False) as counted:
            packed_attention(torch.ones(rows, 4, HEADS, SIZE), keys, keys, runs, False, None)
        assert counted.get_total_flops() == rows * 2 * 2 * 4 * HEADS * SIZE * SLOTS


def test_buffers_are_cut_only_as_far_as_it_helps():
    """One long row is cut until a large GPU is busy or the pieces are short; many rows are not cut."""
    assert [pieces_of(8, 32_768), pieces_of(8, 1024), pieces_of(512, 32_768), pieces_of(1, 300)] == [16, 4, 1, 1]


@pytest.mark.parametrize("lengths", [[5], [16], [17, 1], [30, 9, 2]])
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention_over_empty_pieces(monkeypatch, lengths, causal):
    """A kernel that says +inf of a run without keys and leaves its output as it was: the rest must not be lost in it."""
    monkeypatch.setattr(kv_slots, "SMALLEST_PIECE", 8)
    rows, width = len(lengths), 2
    generator = torch.Generator().manual_seed(4)

    def random(*shape):
        return torch.randn(*shape, generator=generator).bfloat16()

    def parts(dtype):
        used = torch.tensor(lengths, dtype=torch.int32) + (0 if causal else width)
        part = used_part(width, causal, used, GROUPS, SLOTS)
        keys, values = (one.to(dtype).clone() for one in held)
        slots = torch.tensor(lengths)[:, None] + torch.arange(width)
        layout = UsedKv(keys=[keys], values=[values], slots=slots, parts=(part,))
        return layout.attend(0, *(one.to(dtype) for one in fed), None)

    held = random(rows, SLOTS, GROUPS, SIZE), random(rows, SLOTS, GROUPS, SIZE)
    fed = random(rows, HEADS, width, SIZE), random(rows, GROUPS, width, SIZE), random(rows, GROUPS, width, SIZE)
    with emulated_flash():
        found = parts(torch.bfloat16)
    assert (found.double() - parts(torch.float64)).abs().max() < 4e-2


def test_a_capture_warms_up_where_it_captures_and_is_counted():
    """The order torch asks for; both graphs in one pool, on one stream; replays do no work of their own."""
    cuda, result = FakeCuda(), torch.zeros(1)

    def work():
        cuda.log.append(f"work on {cuda.current_stream().name}")
        return result

    meter = GraphMeter({"stats": {"unique_graphs": 0}})
    meter.open()
    made = CAPTURES.made
    capture = CudaGraphs(cuda)
    first = capture(work)
    on_side = "work on side"
    warm = ["side waits for default", "side:", *[on_side] * WARM_UPS, ":side", "default waits for side"]
    assert cuda.log == [*warm, "captured:", on_side, ":captured"]
    second = capture(work)
    assert list(cuda.pools.values()) == [2], "both graphs use one pool"
    cuda.log.clear()
    assert first() is result and second() is result
    assert cuda.log == ["replay", "replay"]
    assert CAPTURES.made == made + 2 and meter.close() == {"compiled_graphs": 2.0}


def test_graphs_that_are_gone_take_their_pool_with_them():
    """As torch's allocator asserts it: a pool of which no graph is left is never named again."""
    cuda = FakeCuda()
    capture = CudaGraphs(cuda)
    graphs = [capture(lambda: torch.zeros(1)) for _ in range(2)]
    del graphs[:]
    with pytest.raises(AssertionError, match="use_count > 0"):
        capture(lambda: torch.zeros(1))
    capture.release()
    held = capture(lambda: torch.zeros(1))
    assert held().item() == 0 and list(cuda.pools.values()) == [0, 1]


def test_a_fake_graph_runs_what_was_captured_and_nothing_else():
    """It sees what stands in the tensors it was made on, and not what the host has come to think meanwhile."""
    cuda, there, by_host = FakeCuda(), torch.tensor([1.0, 2.0]), [10.0]

    def work():
        held = torch.zeros(2)
        held[0:1] += there.sum()
        return held + by_host[0]

    replay = CudaGraphs(cuda)(work)
    there.copy_(torch.tensor([3.0, 4.0]))
    by_host[0] = 99.0
    assert replay().tolist() == [17.0, 10.0]
    with pytest.raises(AssertionError, match="not permitted when stream is capturing"):
        CudaGraphs(cuda)(lambda: torch.zeros(int(there[0])))
