"""Where tensors of the emulated GPU lie: its memory is this process's own, so the CPU reads and writes there."""

from __future__ import annotations

import ctypes
import math
from bisect import bisect
from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from tests.emulated_gpu import device

NOTHING = 0xFF
"""Bytes of memory without values: NaN, -1 or True."""


class Place(NamedTuple):
    """Where a tensor lies. It holds no memory: a graph knows addresses alone."""

    begin: int
    bytes: int
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self) -> Tensor:
        """What lies there now, on the CPU.

        Raises:
            RuntimeError: the device has taken the memory back.
        """
        if not self.bytes or not math.prod(self.shape):
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype)
        whole = bytes_at(self.begin, self.bytes)
        return (
            whole[: self.bytes // self.dtype.itemsize * self.dtype.itemsize]
            .view(self.dtype)
            .as_strided(self.shape, self.strides, self.offset)
        )


def place_of(one: Tensor) -> Place:
    """The place of a tensor on the GPU."""
    held = one.untyped_storage()
    return Place(held.data_ptr(), held.nbytes(), one.dtype, one.storage_offset(), tuple(one.shape), one.stride())


def bytes_at(begin: int, count: int) -> Tensor:
    if not device.runtime().emulated_is_there(ctypes.c_void_p(begin), ctypes.c_size_t(count)):
        raise RuntimeError(f"{count} bytes at {begin:#x} are used, but the device has taken them back")
    return torch.frombuffer((ctypes.c_char * count).from_address(begin), dtype=torch.uint8)


class Memory:
    """Which memory operations have been given. What has been freed loses its values before the next replay, which is the first
    that could still read it.
    """

    def __init__(self) -> None:
        self._given: dict[int, tuple[int, StorageWeakRef]] = {}

    def note(self, one: Tensor) -> None:
        """A tensor that an operation has made."""
        held = one.untyped_storage()
        if held.nbytes():
            self._given[held.data_ptr()] = held.nbytes(), StorageWeakRef(held)

    def forget(self) -> None:
        """What is given and freed from now on is not seen."""
        self._given.clear()

    def spoil_what_is_free(self) -> None:
        """Whoever has a part of it by now keeps that part."""
        kept = sorted((begin, begin + count) for begin, (count, held) in self._given.items() if not held.expired())
        for begin in [begin for begin, (_, held) in self._given.items() if held.expired()]:
            count, _ = self._given.pop(begin)
            at, end = begin, begin + count
            for first, last in kept[max(0, bisect(kept, (begin, begin)) - 1) :]:
                if first >= end:
                    break
                _spoil(at, first)
                at = max(at, last)
            _spoil(at, end)


def _spoil(begin: int, end: int) -> None:
    """Nothing where the device has taken the memory back: whoever reads it is told so."""
    there = device.runtime().emulated_is_there
    if end > begin and there(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin)):
        ctypes.memset(begin, NOTHING, end - begin)
