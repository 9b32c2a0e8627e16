"""What the emulated GPU has counted, and what a CUDA graph holds. ``nodes`` asks CUDA's driver alone, so a real one answers."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

KINDS = {0: "kernel", 1: "memcpy", 2: "memset", 3: "host function", 4: "graph", 5: "empty"}
"""CUgraphNodeType."""


@cache
def runtime() -> Any:
    """libemulated_cuda.so, where this process has it from its start; None elsewhere."""
    process = ctypes.CDLL(None)
    try:
        process.emulated_entry.restype = process.emulated_readable.restype = ctypes.c_char_p
        process.emulated_operations.restype = process.emulated_waits.restype = ctypes.c_long
    except AttributeError:
        return None
    return process


def operations() -> int:
    """Kernels, copies and fills that were submitted since the process began; captured ones count when they are captured."""
    return runtime().emulated_operations()


def waits() -> int:
    """How often the host has waited for the device."""
    return runtime().emulated_waits()


def compiled() -> list[str]:
    """Kernels that Triton has loaded, in their order. A name that comes twice was compiled for other arguments."""
    return _entries(0)


def faults() -> list[str]:
    """What a GPU refuses, or does otherwise than was wanted, in the order in which it came."""
    return _entries(1)


def _entries(of: int) -> list[str]:
    found: list[str] = []
    while (entry := runtime().emulated_entry(of, ctypes.c_size_t(len(found)))) is not None:
        found.append(entry.decode())
    return found


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2: a kernel is a function of a module, or, newer, of a library."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        ("grid_and_block", ctypes.c_uint * 6),
        ("shared_bytes", ctypes.c_uint),
        ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


def nodes(graph: Any) -> list[str]:
    """The nodes of a torch.cuda.CUDAGraph(keep_graph=True): a kernel by its name, any other by its kind."""
    driver, handle, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t()
    _done(driver.cuGraphGetNodes(handle, None, ctypes.byref(count)))
    found = (ctypes.c_void_p * count.value)()
    _done(driver.cuGraphGetNodes(handle, found, ctypes.byref(count)))
    return [_name(driver, ctypes.c_void_p(node)) for node in found]


def _name(driver: Any, node: ctypes.c_void_p) -> str:
    kind, asked, name = ctypes.c_int(), KernelNode(), ctypes.c_char_p()
    _done(driver.cuGraphNodeGetType(node, ctypes.byref(kind)))
    if KINDS.get(kind.value) != "kernel":
        return KINDS.get(kind.value, f"type {kind.value}")
    _done(driver.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(asked)))
    if asked.function:
        _done(driver.cuFuncGetName(ctypes.byref(name), ctypes.c_void_p(asked.function)))
    else:
        _done(driver.cuKernelGetName(ctypes.byref(name), ctypes.c_void_p(asked.kernel)))
    return readable((name.value or b"").decode())


def readable(name: str) -> str:
    """A kernel's name without what C++ makes of it; as it is where no emulated GPU is there to translate it."""
    if runtime() is None or not name.startswith("_Z"):
        return name
    return re.sub(r"^void ", "", runtime().emulated_readable(name.encode()).decode())


def _done(answer: int) -> None:
    if answer:
        raise RuntimeError(f"CUDA's driver answered {answer}")
