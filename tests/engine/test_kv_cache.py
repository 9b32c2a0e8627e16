"""Attention over the used part of fixed buffers: every way against torch's own over the used keys alone, in float64."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decoding.session import Segment
from harness.engine import flash_attention, kv_cache
from harness.engine.captured_attention import OPTIONS
from harness.engine.cuda_graphs import WARM_UPS, GraphedSession
from harness.engine.flash_attention import FlashRuns
from harness.engine.kv_cache import ForwardKind, UsedKv
from harness.errors import UnknownModelError
from harness.meters.host import CAPTURES, GraphMeter
from harness.roofline import storage
from harness.training import trainer
from tests.helpers.emulated_gpu import FakeCuda, emulated_flash, emulated_graphs
from tests.helpers.tiny_model import tiny_model

HEADS, GROUPS, SIZE, SLOTS = 4, 2, 8, 32
CPU = torch.device("cpu")


@pytest.mark.parametrize("attend", [kv_cache.attend, trainer.attend])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softcap", 30.0),
        ("sliding_window", 8),
        ("s_aux", torch.zeros(HEADS)),
        ("position_bias", torch.ones(1)),
        ("dropout", 0.1),
        ("an_option_of_tomorrow", True),
    ],
)
def test_an_option_that_would_be_left_out_is_refused(attend, name, value):
    """Each changes the result; off or absent, it changes nothing."""
    tensor = torch.ones(1, HEADS, 3, SIZE)
    layer = kv_cache.LayerSlots(
        tensor.clone(), tensor.clone(), kv_cache.SlotLayout([], [], None, 0, torch.empty(0), 3, 3, None, None)
    )
    plain = {"scaling": None, "kv": layer, "position_ids": torch.arange(3), "use_cache": True, "dropout": 0.0}
    out, _ = attend(None, tensor, tensor, tensor, None, **plain, **({} if name == "dropout" else {name: None}))
    assert out.shape == (1, 3, HEADS, SIZE)
    with pytest.raises(UnknownModelError, match=f"attention asks for {name}, which"):
        attend(None, tensor, tensor, tensor, None, **plain | {name: value})


class Call:
    """Rows with ``lengths`` committed tokens that feed ``parts``, each (width, causal), in float64; what nobody may look at
    holds large numbers, which would show.
    """

    def __init__(self, lengths, parts, slots=SLOTS):
        self.lengths, self.parts, self.slots = lengths, tuple(parts), slots
        self.rows, self.tokens = len(lengths), sum(width for width, _ in parts)
        generator = torch.Generator().manual_seed(1)

        def random(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.held = [1e3 * random(self.rows, slots, GROUPS, SIZE) for _ in "kv"]
        for buffer in self.held:
            for row, length in enumerate(lengths):
                buffer[row, :length] = random(length, GROUPS, SIZE)
        self.query = random(self.rows, HEADS, self.tokens, SIZE)
        self.fresh = [random(self.rows, GROUPS, self.tokens, SIZE) for _ in "kv"]

    def answer(self, option, dtype=torch.float64):
        """(B, Q, H, D) by one of OPTIONS, and the buffers (B, C, G, D) as it leaves them."""
        fed = ForwardKind(self.parts, self.rows, HEADS, GROUPS, self.slots, dtype, CPU)
        seen, used = torch.tensor(self.lengths, dtype=torch.int32), []
        for width, causal in self.parts:
            used.append(seen if causal else seen + width)
            seen = seen + width
        keys, values = (one.to(dtype).clone().flatten(0, 1) for one in self.held)
        first = torch.arange(self.rows)[:, None] * self.slots + torch.tensor(self.lengths)[:, None]
        places = (first + torch.arange(self.tokens)).flatten()
        layout = UsedKv([keys], [values], places, OPTIONS[option](fed).read(torch.stack(used)))
        found = layout.of_layer(0).attend(self.query.to(dtype), *(one.to(dtype) for one in self.fresh), None)
        return found, [one.unflatten(0, (self.rows, -1)) for one in (keys, values)]

    def expected(self):
        """The same by torch's attention, row by row over the row's own tokens, with a mask spelled out anew."""
        found = []
        for row, length in enumerate(self.lengths):
            mask, start = torch.zeros(self.tokens, length + self.tokens, dtype=torch.bool), 0
            for width, causal in self.parts:
                for one in range(start, start + width):
                    mask[one, : length + (one + 1 if causal else start + width)] = True
                start += width
            keys, values = (
                torch.cat([held[row, :length].transpose(0, 1), fresh[row]], dim=1)
                for held, fresh in zip(self.held, self.fresh, strict=True)
            )
            out = torch.nn.functional.scaled_dot_product_attention(
                self.query[row][None], keys[None], values[None], attn_mask=mask[None, None], enable_gqa=True
            )
            found.append(out[0].transpose(0, 1))
        return torch.stack(found)


def run_by_run(query, keys, values, runs, scaling):
    """What harness.engine.flash_attention.attend promises, in the queries' own precision."""
    out = torch.full_like(query, math.nan)
    lse = torch.full((query.shape[1], query.shape[0]), math.inf, dtype=query.dtype)
    bounds = runs.asked.tolist()
    for first, last, start, used in zip(bounds, bounds[1:], runs.starts.tolist(), runs.used.tolist(), strict=False):
        assert last - first <= runs.widest and used <= runs.longest and start + used <= len(keys)
        if used:
            scores = torch.einsum("nhd,thd->nht", query[first:last], keys[start : start + used]) * SIZE**-0.5
            out[first:last] = torch.einsum("nht,thd->nhd", scores.softmax(dim=-1), values[start : start + used])
            lse[:, first:last] = scores.logsumexp(dim=-1).T
    return out, lse


@st.composite
def calls(draw):
    """Up to three rows and parts, and the shortest piece of a buffer of 32 slots."""
    lengths = draw(st.lists(st.integers(0, 12), min_size=1, max_size=3))
    parts = draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3))
    return lengths, parts, draw(st.sampled_from([4, 8, 32]))


@pytest.mark.parametrize("option", ["flash", "masked"])
@given(drawn=calls())
@settings(max_examples=60, deadline=None)
def test_every_token_sees_what_is_used_and_nothing_else(option, drawn):
    """Pieces of any length give the same; KV lands in its slots. The kernel beneath the runs is exact here."""
    lengths, parts, smallest = drawn
    call = Call(lengths, parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "SMALLEST_PIECE", smallest)
        patch.setattr(flash_attention, "attend", run_by_run)
        found, buffers = call.answer(option)
    assert (found - call.expected()).abs().max() < 1e-12
    for buffer, held, fresh in zip(buffers, call.held, call.fresh, strict=True):
        for row, length in enumerate(lengths):
            end = length + call.tokens
            assert torch.equal(buffer[row, length:end], fresh[row].transpose(0, 1))
            assert torch.equal(buffer[row, :length], held[row, :length]) and torch.equal(buffer[row, end:], held[row, end:])


LONG = 8192
CONTEXTS = [[0, 1], [255, 256], [257, 511], [512, 1023], [1024, 2500], [4095, 5000]]
"""Of two rows; a buffer of 8,192 slots is cut into 32 pieces, most of them empty."""
PASSES = {"one token": [(1, False)], "a block": [(16, False)], "a block that commits another": [(16, True), (16, False)]}


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize(
    ("option", "dtype", "tolerance"),
    [
        ("flash", torch.bfloat16, 3e-2),
        ("masked", torch.bfloat16, 3e-2),
        ("masked", torch.float32, 1e-5),
        ("flex", torch.bfloat16, 3e-2),
        ("flex", torch.float32, 1e-5),
    ],
)
def test_every_option_in_its_own_precision_at_long_contexts(option, dtype, tolerance, name):
    """Against float64, from no committed token to 5,000; the flash kernel is emulated with what it leaves undefined."""
    for lengths in CONTEXTS:
        call = Call(lengths, PASSES[name], LONG)
        with emulated_flash():
            found, _ = call.answer(option, dtype)
        assert found.dtype == dtype and (found.double() - call.expected()).abs().max() < tolerance, lengths


def test_a_commit_is_one_call_whose_runs_can_be_counted():
    """By hand, two rows of 1,024 slots in pieces of 256, 3 causal tokens and 2 more: 4 pieces x 2 rows x 2 parts, then 3 tokens
    apart and the rest for each row.
    """
    plan = FlashRuns(ForwardKind(((3, True), (2, False)), 2, HEADS, GROUPS, 1024, torch.float64, CPU))
    runs = plan.read(torch.tensor([[300, 0], [305, 5]], dtype=torch.int32)).runs
    shared = HEADS // GROUPS
    assert runs.asked.diff().tolist() == [3 * shared, 2 * shared] * 8 + [*[shared] * 3, 2 * shared] * 2
    assert runs.used.tolist() == [
        256,
        256,
        0,
        5,  # the first piece: both parts of the first row, then of the second
        44,
        49,
        0,
        0,
        *[0] * 8,
        1,
        2,
        3,
        0,
        1,
        2,
        3,
        0,
    ]
    assert runs.starts[:4].tolist() == [0, 0, 1024, 1024] and runs.starts[4:6].tolist() == [256, 256]
    assert runs.starts[16:19].tolist() == [300] * 3 and runs.starts[20:23].tolist() == [1024] * 3
    assert runs.starts[-1].item() == 2048 and (runs.widest, runs.longest) == (3 * shared, 256)
    assert torch.equal(runs.empty, torch.repeat_interleave(runs.used == 0, runs.asked.diff()))


@pytest.mark.parametrize(("widths", "most"), [([1], 8), ([4, 4], 10)])
def test_a_graph_works_out_its_places_in_few_operations(widths, most):
    """Before it looks up a token: where its KV goes (3), what each run reads (3, and 2 where tokens see each other), and which
    runs have no keys (2). The rest comes with the pass's one upload.
    """
    with emulated_flash():
        session = GraphedSession(tiny_model("llama").bfloat16(), emulated_graphs())
        session.reset(1, 2 * storage.SMALLEST_PIECE)
        place = torch.arange(9)[None]
        session.forward([Segment(tokens=place, positions=place, visibility="causal", logits=1)])
        session.keep([9])
        segments = []
        for width, visibility in zip(widths, ("causal", "bidirectional"), strict=False):
            fed = torch.arange(9, 9 + width)[None]
            segments.append(Segment(tokens=fed, positions=fed, visibility=visibility, logits=1))
        session.forward(segments)
    [held] = session._graphs.values()
    names = [step[0] for step in held.replay.args[0].recording._steps]
    before = names[: names.index(torch.ops.aten.embedding.default)]
    made = [name for name in before if not name.is_view]
    assert len(made) <= most, made


def test_no_run_reaches_behind_the_buffer():
    """A row that feeds padding where others commit may have no slot left for it."""
    plan = FlashRuns(ForwardKind(((4, True), (4, False)), 1, HEADS, GROUPS, SLOTS, torch.float64, CPU))
    for used in (0, SLOTS - 4, SLOTS - 1, SLOTS):
        runs = plan.read(torch.tensor([[used], [used]], dtype=torch.int32)).runs
        assert (runs.starts[:-1] + runs.used).max() <= SLOTS


def test_a_capture_warms_up_where_it_captures_and_is_counted():
    """The order torch asks for; both graphs in one pool, on one stream; replays do no work of their own."""
    cuda, result = FakeCuda(), torch.zeros(1)

    def work():
        cuda.log.append(f"work on {cuda.current_stream().name}")
        return result

    meter = GraphMeter({"stats": {"unique_graphs": 0}})
    meter.open()
    made = CAPTURES.made
    capture = emulated_graphs(cuda)
    first = capture(work)
    on_side = "work on side"
    warm = ["side waits for default", "side:", *[on_side] * WARM_UPS, ":side", "default waits for side"]
    assert cuda.log == [*warm, "captured:", on_side, ":captured"]
    second = capture(work)
    assert list(cuda.pools.values()) == [2], "both graphs use one pool"
    cuda.log.clear()
    assert first() is result and second() is result
    assert cuda.log == ["replay", "replay"]
    assert not cuda.workspaces, "what another program part clears must not be a graph's"
    assert CAPTURES.made == made + 2 and meter.close() == {"compiled_graphs": 2.0}


def test_another_thread_that_allocates_does_not_end_a_capture():
    """By CUDA's default it would, and the capture would fail with an error that names neither."""
    cuda = FakeCuda()
    cuda.shared = True
    assert emulated_graphs(cuda)(lambda: torch.ones(1))().item() == 1


def test_what_a_graph_reads_lives_as_long_as_the_graph():
    """Its inputs have no other owner: freed after the capture, their addresses would be handed out again (weak references)."""

    def captured():
        read = torch.tensor([2, 0, 1]), torch.tensor([10, 20, 30])
        return emulated_graphs()(lambda: read[1][read[0]]), *map(weakref.ref, read)

    replay, places, offsets = captured()
    assert places() is not None and offsets() is not None, "the graph would read freed memory"
    assert replay().tolist() == [30, 10, 20]
    places().fill_(1)
    assert replay().tolist() == [20, 20, 20]
    del replay
    assert places() is None and offsets() is None, "nothing else may hold it"


def test_a_fake_graph_overwrites_what_dies():
    """A replay over freed memory reads what its next owner wrote there, in every test of graphed sessions."""
    graph, there = FakeCuda().CUDAGraph(), torch.ones(2)
    with graph.recording:
        out = there + 1
    graph.recording.run()
    assert out.tolist() == [2, 2]
    del there
    graph.recording.run()
    assert out.tolist() == [graph.recording.OVERWRITTEN + 1] * 2


def test_a_session_that_is_dropped_takes_its_graphs_along():
    """No graph holds its session, so no cycle keeps buffers and pools until the next collection."""
    cuda = FakeCuda()
    session = GraphedSession(tiny_model("llama"), emulated_graphs(cuda))
    session.reset(1, 20)
    for start, end in ((0, 5), (5, 6)):
        place = torch.arange(start, end)[None]
        session.forward([Segment(tokens=place, positions=place, visibility="causal", logits=1)])
        session.keep([end - start])
    assert list(cuda.pools.values()) == [1]
    gc.disable()
    try:
        del session
        assert list(cuda.pools.values()) == [0]
    finally:
        gc.enable()


def test_a_fake_graph_runs_what_was_captured_and_nothing_else():
    """It sees what stands in the tensors it was made on, and not what the host has come to think meanwhile."""
    cuda, there, by_host = FakeCuda(), torch.tensor([1.0, 2.0]), [10.0]

    def work():
        held = torch.zeros(2)
        held[0:1] += there.sum()
        return held + by_host[0]

    replay = emulated_graphs(cuda)(work)
    there.copy_(torch.tensor([3.0, 4.0]))
    by_host[0] = 99.0
    assert replay().tolist() == [17.0, 10.0]
    with pytest.raises(AssertionError, match="not permitted when stream is capturing"):
        emulated_graphs(cuda)(lambda: torch.zeros(int(there[0])))
