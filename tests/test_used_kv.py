"""Attention over the used part of fixed buffers: against torch's own over the used keys alone, in float64."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from harness.meters.graphs import CAPTURES, GraphMeter  # noqa: E402 - after the import guard
from harness.modeling import used_kv  # noqa: E402
from harness.modeling.capturing import WARM_UPS, cuda_graphs  # noqa: E402
from harness.modeling.used_kv import UsedKv, merge, packed_attention, pieces_of, used_part  # noqa: E402

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
    before = used_kv.SMALLEST_PIECE
    used_kv.SMALLEST_PIECE = smallest
    try:
        for width, causal in widths:
            used = (seen if causal else seen + width).to(torch.int32)
            parts.append(used_part(width, causal, used, GROUPS, SLOTS))
            seen = seen + width
        layout = UsedKv(keys=keys, values=values, slots=slots, parts=tuple(parts))
        found = layout.attend(0, query, key, value, None)
    finally:
        used_kv.SMALLEST_PIECE = before
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


def test_buffers_are_cut_only_as_far_as_it_helps():
    """One long row is cut until a large GPU is busy or the pieces are short; many rows are not cut."""
    assert [pieces_of(8, 32_768), pieces_of(8, 1024), pieces_of(512, 32_768), pieces_of(1, 300)] == [16, 4, 1, 1]


class FakeCuda:
    """torch.cuda's streams and graphs, with a list of what was asked of them. Within ``graph`` nothing runs on a real GPU."""

    def __init__(self):
        self.log, self.graphs = [], 0

    def Stream(self):
        """A side stream."""
        return SimpleNamespace(wait_stream=lambda other: self.log.append("side waits"))

    def current_stream(self):
        """The main stream."""
        return SimpleNamespace(wait_stream=lambda other: self.log.append("main waits"))

    def stream(self, one):
        """Work on the side."""
        return _Region(self.log, "aside")

    def graph(self, graph, pool):  # the pool is what is looked at
        """Work that is recorded."""
        self.log.append(f"pool {pool}")
        return _Region(self.log, "captured")

    def CUDAGraph(self):
        """A graph with its pool."""
        self.graphs += 1
        name = self.graphs
        return SimpleNamespace(pool=lambda: name, replay=lambda: self.log.append(f"replay {name}"))


class _Region:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def __enter__(self):
        self.log.append(f"{self.name}:")

    def __exit__(self, *error):
        self.log.append(f":{self.name}")


def test_a_capture_warms_up_aside_shares_its_pool_and_is_counted():
    """The order torch asks for; the second graph takes the pool of the first; replays do no work of their own."""
    cuda, result = FakeCuda(), torch.zeros(1)

    def work():
        cuda.log.append("work")
        return result

    meter = GraphMeter({"stats": {"unique_graphs": 0}})
    meter.open()
    made = CAPTURES.made
    capture = cuda_graphs(cuda)
    first = capture(work)
    warm = ["side waits", "aside:", *["work"] * WARM_UPS, ":aside", "main waits"]
    assert cuda.log == [*warm, "pool None", "captured:", "work", ":captured"]
    second = capture(work)
    assert "pool 1" in cuda.log
    cuda.log.clear()
    assert first() is result and second() is result
    assert cuda.log == ["replay 1", "replay 2"]
    assert CAPTURES.made == made + 2 and meter.close() == {"compiled_graphs": 2.0}
