"""Builds the kernels by the machine's C++ compiler, once per machine and version, and loads them.

The sources need no headers but the compiler's own, so that a build takes seconds.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import subprocess
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from harness.paths import cache_dir

SOURCES = tuple(Path(__file__).with_name(name) for name in ("forward.cpp", "walk.cpp", "in_turn.cpp", "built.cpp", "vectors.h"))
FLAGS = ("-O3", "-std=c++20", "-shared", "-fPIC", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno")
NAMES = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
"""The types that every kernel takes, as its name ends."""


class PackedUp(Structure):
    """As in forward.cpp, like all structures here."""

    _fields_ = [("up", c_void_p), ("rank", c_int64), ("first", c_int64)]


class PackedProduct(Structure):
    """Several linear layers of one input, packed."""

    _fields_ = [
        ("weights", c_void_p),
        ("bias", c_void_p),
        ("blocks", c_int64),
        ("inputs", c_int64),
        ("down", c_void_p),
        ("down_blocks", c_int64),
        ("ups", POINTER(PackedUp)),
    ]


class PackedLayer(Structure):
    """A decoder layer."""

    _fields_ = [
        *((name, PackedProduct) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("before_attention", "before_inner", "query_norm", "key_norm")),
    ]


class PackedModel(Structure):
    """A model, packed once."""

    _fields_ = [
        ("layers", POINTER(PackedLayer)),
        *((name, c_int64) for name in ("count", "hidden", "inner", "heads", "groups", "width", "vocab")),
        ("eps", c_float),
        ("scale", c_float),
        *((name, c_void_p) for name in ("cosines", "sines", "last_norm")),
        ("head", PackedProduct),
        ("embeddings", c_void_p),
        ("mask_id", c_int64),
        ("mask_row", c_int64),
    ]


class ForwardCall(Structure):
    """One forward over few tokens."""

    _fields_ = [
        *((name, c_int64) for name in ("rows", "tokens", "wanted", "slots", "threads")),
        *((name, c_void_p) for name in ("ids", "positions", "lengths", "which", "inside", "fed", "adapted")),
        *((name, c_void_p) for name in ("keys", "values", "logits")),
    ]


@cache
def library(level: str = "native") -> Any:
    """The kernels for a ``level`` of the processor, as compilers name it (``-march``).

    Raises:
        OSError, subprocess.CalledProcessError: no compiler builds them.
    """
    command = [os.environ.get("CXX", "g++"), *FLAGS, f"-march={level}"]
    texts = [source.read_text() for source in SOURCES]
    made = hashlib.sha256(repr([*texts, command, _processor()]).encode()).hexdigest()[:16]
    target = cache_dir() / "kernels" / f"{made}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=target.parent) as directory:
            half = Path(directory) / target.name
            units = [str(source) for source in SOURCES if source.suffix == ".cpp"]
            subprocess.run([*command, *units, "-o", str(half)], check=True, capture_output=True, text=True)
            half.replace(target)
    return ctypes.CDLL(str(target))


@cache
def why_not_built() -> str | None:
    """Why there are no kernels here, with the remedy; None where there are."""
    try:
        library()
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()[-300:]
        return f"no C++ compiler builds them here ({said}); install g++, or name one in CXX"
    return None


def built_for() -> str:
    """The compiler of the kernels, and the instruction sets that it was allowed to use."""
    told = library().sbd_built_for
    told.restype = ctypes.c_char_p
    return str(told().decode())


def _processor() -> str:
    """What ``-march=native`` depends on; a cache may be shared by several machines."""
    try:
        found = re.search(r"^(flags|Features)\s*:.*$", Path("/proc/cpuinfo").read_text(errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    return found[0] if found else platform.processor()
