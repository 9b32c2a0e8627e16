"""Where glibc puts tensors on a CPU, the same for every arm; nothing is done without glibc.

By default glibc gives the temporaries of a pass back to the kernel and faults them in again page by page. The sampler then took
3.3 ms a pass instead of 0.8 ms (vocabulary 32,000, block 16). Weights are read a quarter slower from the heap than from
mappings of their own (46 against 35 ms, a 250M model). Both were seen once, on a 2-core EPYC.
"""

from __future__ import annotations

import ctypes

# Options of mallopt(3), from glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_SMALL_BYTES, _LARGE_BYTES = 128 * 1024, 1 << 30


def map_what_comes() -> bool:
    """Give every later large allocation a mapping of its own: call before weights are loaded."""
    return _set(_MMAP_THRESHOLD, _SMALL_BYTES)


def keep_what_is_freed() -> bool:
    """Take large allocations from the heap and keep freed ones for the next pass: call after weights are loaded."""
    return _set(_MMAP_THRESHOLD, _LARGE_BYTES) and _set(_TRIM_THRESHOLD, _LARGE_BYTES)


def _set(option: int, value: int) -> bool:
    """False where this C library has no mallopt or refuses."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(option, value))
