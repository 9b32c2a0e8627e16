"""Values for the emulated GPU: each torch operation runs its CUDA host code, then is computed on the CPU in the memory that
torch has allocated. What is captured is computed by each replay, at the addresses of the capture, whoever has them then.

Memory without values holds what a careless GPU leaves there: bytes 0xff, which are NaN, -1 or True. So does memory that torch
has freed, and the workspace of a matrix product. A generator of the GPU draws what one of the CPU with the same seed draws.

Where EMULATED_GPU_MOST_VALUES is set, operations on a tensor of more numbers run their host code alone.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.emulated_gpu import attention, device, interpreted
from tests.emulated_gpu.places import NOTHING, Memory, Place, bytes_at, place_of

aten = torch.ops.aten
WITHOUT_VALUES = (
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)
BOOKKEEPING = ("aten::set_", "aten::resize_", "aten::record_stream", "aten::_local_scalar_dense", "aten::_pin_memory")
"""Their host code alone does all of it: a number is copied to the host as it lies in memory."""
MOST_SCRIBBLED = 1 << 20


class Replays:
    """Computations by number: the device keeps a graph's numbers in their order, and asks for them when it is launched."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._of: dict[int, Callable[[], None]] = {}
        self._numbers = itertools.count()
        self._called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_long), ctypes.c_size_t)(self._replay)
        device.runtime().emulated_computes(self._called)

    def now_or_later(self, compute: Callable[[], None]) -> None:
        """Compute now, or by each replay where the current stream is captured."""
        number, stream = next(self._numbers), torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        if device.runtime().emulated_captured(ctypes.c_void_p(stream), ctypes.c_long(number)):
            self._of[number] = compute
        else:
            compute()

    def _replay(self, numbers: Any, count: int) -> int:
        """0: all computed. A failure is said here; torch learns of it as of a failed assertion on the device."""
        try:
            self._memory.spoil_what_is_free()
            with torch._C._DisableTorchDispatch(), torch.no_grad():
                for i in range(count):
                    self._of[numbers[i]]()
        except Exception:
            print("emulated GPU: a replay cannot be computed:", file=sys.stderr)
            traceback.print_exc()
            return 1
        return 0


class Twins:
    """A generator of the CPU for each of the GPU, seeded as that one is."""

    def __init__(self) -> None:
        self._of: dict[int, torch.Generator] = {}

    def of(self, func: Any, given: list[Any]) -> torch.Generator | None:
        """Which one an operation draws from; None where it draws nothing. To be asked before its host code: at offset 0 the
        generator has been seeded anew.
        """
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return None
        own = [one for one in given if isinstance(one, torch.Generator)]
        generator = own[0] if own else torch.cuda.default_generators[torch.cuda.current_device()]
        # Where torch makes its Python object anew for each operation, only the generator behind it stays the same.
        twin = self._of.setdefault(generator._cdata, torch.Generator())
        if not torch.cuda.is_current_stream_capturing() and not generator.get_offset():
            twin.manual_seed(generator.initial_seed())
        return twin


@cache
def most_values() -> float:
    """Of one tensor."""
    return float(os.environ.get("EMULATED_GPU_MOST_VALUES", math.inf))


class Values(TorchDispatchMode):
    """While it is entered, operations on the GPU have values."""

    def __init__(self, memory: Memory, replays: Replays) -> None:
        super().__init__()
        self._memory, self._replays, self._twins = memory, replays, Twins()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch.compile compiles, and what it has compiled runs here."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Host code first, then values."""
        kwargs = kwargs or {}
        given = tree_leaves((args, kwargs))
        tensors = [one for one in given if isinstance(one, Tensor)]
        made_there = not any(map(_on_gpu, tensors)) and any(map(_is_gpu, given))
        if not made_there and not any(map(_on_gpu, tensors)):
            return func(*args, **kwargs)
        name = func._schema.name
        if name in BOOKKEEPING:
            return func(*args, **kwargs)
        if name == "aten::equal":
            func(*args, **kwargs)
            return func(*tree_map(_read, args))
        if name in ("aten::nonzero", "aten::masked_select") or _takes_a_mask(name, args):
            return self._of_unknown_size(func, args, kwargs)
        lowered = tree_map(_lowered, (args, kwargs))  # before an operation in place changes shapes
        twin = self._twins.of(func, given)
        out = func(*args, **kwargs)
        workspaces = _workspaces()
        outs = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
        for one in filter(_on_gpu, outs):
            self._memory.note(one)
        if max((one.numel() for one in (*tensors, *outs)), default=0) > most_values():
            return out
        if func in WITHOUT_VALUES:
            self._replays.now_or_later(partial(_without_values, [place_of(one) for one in outs]))
        elif outs and not _is_view(func, outs, tensors):
            targets = None if func._schema.is_mutable else [place_of(one) if _on_gpu(one) else one for one in outs]
            self._replays.now_or_later(partial(_compute, func, lowered, targets, workspaces, twin))
        return out

    def _of_unknown_size(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Values decide the size of the result, so the host waits for the device."""
        torch.cuda.current_stream().synchronize()
        with torch.no_grad():
            found = func(*tree_map(_read, args), **tree_map(_read, kwargs))
        out = torch.empty_strided(found.shape, found.stride(), dtype=found.dtype, device="cuda")
        self._memory.note(out)
        place_of(out).tensor().copy_(found)
        return out


def _on_gpu(one: Any) -> bool:
    return isinstance(one, Tensor) and one.device.type == "cuda"


def _is_gpu(one: Any) -> bool:
    return isinstance(one, torch.device) and one.type == "cuda"


def _lowered(one: Any) -> Any:
    """An argument for the CPU: a place for a tensor of the GPU."""
    if _on_gpu(one):
        return Held(place_of(one))
    return torch.device("cpu") if _is_gpu(one) else one


def _read(one: Any) -> Any:
    """An argument with the values that it has now."""
    return place_of(one).tensor() if _on_gpu(one) else one


class Held:
    """A place among arguments: no tuple, which would be taken apart with them."""

    def __init__(self, place: Place) -> None:
        self.place = place


def _filled(one: Any) -> Any:
    return one.place.tensor() if isinstance(one, Held) else one


def _takes_a_mask(name: str, args: Any) -> bool:
    masks = (torch.bool, torch.uint8)
    return name == "aten::index" and any(one is not None and one.dtype in masks for one in args[1])


def _is_view(func: Any, outs: list[Tensor], tensors: list[Tensor]) -> bool:
    """Whether an operation gives its arguments' own memory back."""
    held = {one.untyped_storage().data_ptr() for one in tensors if _on_gpu(one) and one.untyped_storage().nbytes()}
    return not func._schema.is_mutable and all(_on_gpu(one) and one.untyped_storage().data_ptr() in held for one in outs)


def _without_values(places: list[Place]) -> None:
    for place in places:
        if place.bytes:
            bytes_at(place.begin, place.bytes).fill_(NOTHING)


def _workspaces() -> list[tuple[int, int]]:
    """(address, bytes) of what matrix products of the last operation may have written to."""
    found: list[tuple[int, int]] = []
    begin, count = ctypes.c_void_p(), ctypes.c_size_t()
    while device.runtime().emulated_workspace(ctypes.c_size_t(len(found)), ctypes.byref(begin), ctypes.byref(count)):
        found.append((begin.value or 0, count.value))
    return found


def _compute(
    func: Any, lowered: Any, targets: list[Any] | None, workspaces: list[tuple[int, int]], twin: torch.Generator | None
) -> None:
    """One operation on the CPU. ``targets``: of its results; None where it writes to its arguments."""
    args, kwargs = tree_map(_filled, lowered)
    for begin, count in workspaces:
        bytes_at(begin, min(count, MOST_SCRIBBLED)).fill_(NOTHING)
    kwargs.pop("pin_memory", None)
    if func._schema.name == "aten::_to_copy":
        kwargs.pop("non_blocking", None)
    run = attention.ON_CPU.get(func, func)
    with torch.no_grad(), _drawing_from(twin, args, kwargs) as (args, kwargs):
        found = run(*args, **kwargs)
    if targets is None:
        return
    # A GPU's attention returns its random state too, which nobody reads.
    results = [one for one in tree_leaves(found) if isinstance(one, Tensor)]
    for target, result in zip(targets, results, strict=run is func):
        (target.tensor() if isinstance(target, Place) else target).copy_(result)


@contextmanager
def _drawing_from(twin: torch.Generator | None, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """The CPU's own generator is as it was, whatever the GPU draws."""
    if twin is None:
        yield args, kwargs
        return
    before = torch.get_rng_state()
    torch.set_rng_state(twin.get_state())
    try:
        yield tree_map(lambda one: None if isinstance(one, torch.Generator) else one, (args, kwargs))
    finally:
        twin.set_state(torch.get_rng_state())
        torch.set_rng_state(before)


@cache
def _made() -> tuple[Memory, Replays]:
    memory = Memory()
    return memory, Replays(memory)


@contextmanager
def values() -> Iterator[None]:
    """Operations of this thread on the emulated GPU have values."""
    memory, replays = _made()

    def lower(one: Any) -> Any:
        if _on_gpu(one):
            memory.note(one)  # a buffer of compiled code is made by no operation
        return _lowered(one)

    given = interpreted.Memory(lower, _filled, replays.now_or_later, most_values())
    _workspaces()  # of products before, by host code alone
    try:
        with Values(memory, replays), interpreted.launches(given):
            yield
    finally:
        memory.forget()
