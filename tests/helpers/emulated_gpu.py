"""A GPU's flash attention and CUDA graphs on a CPU: as strict as the real ones about what they are asked, and as careless about
what they leave undefined.
"""

from __future__ import annotations

import itertools
import math
import weakref
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from harness.engine import flash_attention
from harness.engine.cuda_graphs import CudaGraphs

HALF = (torch.float16, torch.bfloat16)


def flash_forward(
    query,
    key,
    value,
    cum_seq_q,
    cum_seq_k,
    max_q,
    max_k,
    dropout_p,
    is_causal,
    return_debug_mask,
    *,
    scale=None,
    seqused_k=None,
    **others,
):
    """aten::_flash_attention_forward over packed runs as flash attention 2 does it: run by run, in float32.

    A run without keys gets log-sum-exp +inf, and its output is never written.
    """
    total, heads, size = query.shape
    groups, runs = key.shape[1], cum_seq_q.numel() - 1
    assert all(one is None for one in others.values()), f"asked for {others}"
    assert query.dtype in HALF and key.dtype == value.dtype == query.dtype, "FlashAttention only supports fp16 and bf16"
    assert size % 8 == 0 and size <= 256 and heads % groups == 0 and not dropout_p and not return_debug_mask
    assert all(one.stride(-1) == 1 for one in (query, key, value)), "Input tensor must have contiguous last dimension"
    assert key.shape == value.shape == (key.shape[0], groups, size) and cum_seq_k.numel() == runs + 1
    for one in (cum_seq_q, cum_seq_k, seqused_k):
        assert one is None or (one.dtype == torch.int32 and one.is_contiguous())
    out = torch.full_like(query, math.nan)
    lse = torch.full((heads, total), math.inf, dtype=torch.float32)
    begins, ends = cum_seq_k.tolist()[:-1], cum_seq_k.tolist()[1:]
    used = [end - begin for begin, end in zip(begins, ends, strict=True)] if seqused_k is None else seqused_k.tolist()
    for (first, last), begin, count in zip(itertools.pairwise(cum_seq_q.tolist()), begins, used, strict=True):
        # The kernel never looks at where the next run begins, so runs may overlap; and it reads even behind the keys.
        assert last - first <= max_q and 0 <= begin <= begin + count <= key.shape[0] and count <= max_k
        if not count:
            continue
        asked = query[first:last].float().transpose(0, 1)
        seen, said = (
            one[begin : begin + count].float().repeat_interleave(heads // groups, dim=1).transpose(0, 1) for one in (key, value)
        )
        scores = asked @ seen.transpose(1, 2) * (size**-0.5 if scale is None else scale)
        if is_causal:
            width = last - first
            hidden = torch.arange(count)[None] > torch.arange(width)[:, None] + count - width
            scores = scores.masked_fill(hidden, -math.inf)
        out[first:last] = (scores.softmax(dim=-1) @ said).transpose(0, 1).to(query.dtype)
        lse[:, first:last] = scores.logsumexp(dim=-1)
    nothing = torch.empty(0)
    return out, lse, nothing, nothing, nothing


@contextmanager
def emulated_flash():
    """torch's operator answers on a CPU, and tensors there in half precision are taken to it as a GPU's are."""
    with torch.library._scoped_library("aten", "IMPL") as library, pytest.MonkeyPatch.context() as patch:
        library.impl("_flash_attention_forward", flash_forward, "CPU")
        on_gpu = flash_attention.takes_flash
        patch.setattr(
            flash_attention, "takes_flash", lambda device, dtype, head_dim: on_gpu(torch.device("cuda"), dtype, head_dim)
        )
        yield


class FakeCuda:
    """torch.cuda's streams, graphs and memory pools, with a ``log`` of what was asked of them.

    A graph records the operations that run while it is captured, and a replay runs them again on the same tensors and nothing
    else. Asserts what CUDA and torch's caching allocator assert: no capture on the default stream, none that waits for the
    device, and no pool whose graphs are all gone. Nor may a stream be used for the first time within a capture, for what is set
    up then would be captured too; but a workspace that cuBLAS has on the stream by then is not the graph's own.
    """

    def __init__(self, recorded=True):
        self.log = []
        self._recorded = recorded
        self.pools = {}  # how many live graphs use it; of a pool whose graphs are gone torch keeps the entry
        self._handles = itertools.count(1)
        self._current = self._default = FakeStream(self, "default")
        self._warm, self.workspaces = set(), set()
        self.shared = False  # whether another thread allocates meanwhile

    def Stream(self):
        """A side stream."""
        return FakeStream(self, "side")

    def clear_workspaces(self):
        """Every stream's workspace of cuBLAS is freed."""
        self.workspaces.clear()

    def current_stream(self):
        """Where work runs now."""
        return self._current

    def graph_pool_handle(self):
        """A name that no pool has had."""
        return next(self._handles)

    def CUDAGraph(self):
        """A graph with nothing in it yet."""
        return FakeGraph(self)

    @contextmanager
    def stream(self, one):
        """Work on another stream."""
        before, self._current = self._current, one
        self._warm.add(one)
        self.workspaces.add(one)
        self.log.append(f"{one.name}:")
        yield
        self.log.append(f":{one.name}")
        self._current = before

    @contextmanager
    def graph(self, graph, pool=None, stream=None, capture_error_mode="global"):
        """Work that is recorded."""
        stream = FakeStream(self, "capture") if stream is None else stream
        assert stream is not self._default, "CUDA graphs must be captured on a non-default stream"
        assert stream in self._warm, "what a stream sets up when it is first used would be captured"
        assert stream not in self.workspaces, "the graph would write to a workspace that it does not own"
        self.workspaces.add(stream)
        graph.begin(self.graph_pool_handle() if pool is None else pool)
        self.log.append("captured:")
        before, self._current = self._current, stream
        with graph.recording if self._recorded else nullcontext():
            yield
        self._current = before
        assert capture_error_mode == "thread_local" or not self.shared, "another thread has ended the capture"
        self.log.append(":captured")


def emulated_graphs(cuda=None, compiled=False):
    """CUDA graphs of this GPU, or one of its own; of a compiled forward too."""
    cuda = cuda or FakeCuda(recorded=not compiled)
    return (CalledAgain if compiled else CudaGraphs)(cuda, cuda.clear_workspaces)


class CalledAgain(CudaGraphs):
    """For compiled forwards, which no recording sees into: a replay calls the work itself, as long as the capture holds it."""

    def __call__(self, work):
        """See Capture."""
        replay, held = super().__call__(work), weakref.ref(work)

        def again():
            assert held() is not None, "what the graph reads has been freed"
            return replay().copy_(held()())

        return again


class FakeStream:
    """A stream of FakeCuda."""

    def __init__(self, cuda, name):
        self._cuda, self.name = cuda, name

    def wait_stream(self, other):
        """Work behind this call waits for the other's."""
        self._cuda.log.append(f"{self.name} waits for {other.name}")


class FakeGraph:
    """A graph of FakeCuda; as soon as nobody holds it, its pool counts one less."""

    def __init__(self, cuda):
        self._cuda, self._pool = cuda, None
        self.recording = Recording()

    def begin(self, pool):
        """torch's create_or_incref_pool."""
        live = self._cuda.pools
        if pool in live:
            assert live[pool] > 0, "INTERNAL ASSERT FAILED: it->second->use_count > 0"
        self._pool, live[pool] = pool, live.get(pool, 0) + 1
        weakref.finalize(self, self._released, live, pool)

    @staticmethod
    def _released(live, pool):
        live[pool] -= 1

    def pool(self):
        """The pool that it was captured into."""
        return self._pool

    def replay(self):
        """Everything recorded, again."""
        assert self._pool is not None, "replay of a graph that was never captured"
        self._cuda.log.append("replay")
        self.recording.run()


class Recording(TorchDispatchMode):
    """Operations as they run, to be run again on the very same memory.

    What the operations made is held, as a graph's pool holds it. What they read from elsewhere is not: a graph knows addresses
    alone. Memory that died since then has another owner, so a replay finds OVERWRITTEN there.
    """

    WAITS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
    OVERWRITTEN = 0x7E7E

    def __init__(self):
        super().__init__()
        self._steps, self._pool = [], set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run one and remember it."""
        assert func not in self.WAITS, f"{func}: operation not permitted when stream is capturing"
        kwargs = kwargs or {}
        read = {_owner(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        out = func(*args, **kwargs)
        made = {_owner(one) for one in tree_leaves(out) if isinstance(one, torch.Tensor)}
        self._pool |= made - read
        self._steps.append((func, *tree_map(self._noted, (args, kwargs, out))))
        return out

    def _noted(self, one):
        """A tensor of the graph's own pool itself, of any other its place."""
        return Place(one) if isinstance(one, torch.Tensor) and _owner(one) not in self._pool else one

    @torch.no_grad()
    def run(self):
        """Every operation writes to where it wrote when it was recorded."""
        for func, *noted in self._steps:
            args, kwargs, held = tree_map(lambda one: one.tensor() if isinstance(one, Place) else one, noted)
            again = func(*args, **kwargs)
            for there, here in zip(tree_leaves(held), tree_leaves(again), strict=True):
                if isinstance(there, torch.Tensor) and there.data_ptr() != here.data_ptr():
                    there.copy_(here)


class Place:
    """Where a tensor lies. It does not keep the memory."""

    def __init__(self, one):
        self._memory = StorageWeakRef(one.untyped_storage())
        self._dtype, self._view = one.dtype, (one.storage_offset(), one.shape, one.stride())

    def tensor(self):
        """What lies there now."""
        memory = torch.UntypedStorage._new_with_weak_ptr(self._memory.cdata)
        if memory is None:
            return torch.full(self._view[1], Recording.OVERWRITTEN).to(self._dtype)
        return torch.empty(0, dtype=self._dtype).set_(memory, *self._view)


def _owner(one):
    return one.untyped_storage()._cdata
