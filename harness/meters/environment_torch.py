"""How torch was built and set, and the devices it sees. Asks the torch that is loaded; loads none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from harness.meters.environment_host import Reading

THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "KMP_BLOCKTIME", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"
)  # fmt: skip
NOT_LOADED = "torch is not loaded"
_BUILD_SETTINGS = "Build settings"


def torch_readers() -> dict[str, Callable[[], Reading]]:
    """What reads each fact, by name."""
    torch = sys.modules.get("torch")
    asked: dict[str, Callable[[Any], Reading]] = {
        "gpus": _gpus, "torch_build": _build, "precision": _precision, "sdpa_enabled": _sdpa_enabled
    }  # fmt: skip
    unloaded: Reading = (None, NOT_LOADED)
    readers: dict[str, Callable[[], Reading]] = {"threads": lambda: _threads(torch)}
    return readers | {
        name: (lambda read=read: unloaded if torch is None else read(torch)) for name, read in asked.items()
    }  # fmt: skip


def _threads(torch: Any) -> Reading:
    given = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    if torch is None:
        return {"torch": None, **given}, NOT_LOADED
    return {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads(), **given}, None


def _gpus(torch: Any) -> Reading:
    if not torch.cuda.is_available():
        return None, "torch sees no CUDA device"
    found = [_gpu(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count())]
    untold = [name for name, value in found[0].items() if value is None] if found else []
    return found, f"this torch does not tell {', '.join(untold)}" if untold else None


def _gpu(properties: Any) -> dict[str, Any]:
    """What this torch does not tell is None."""
    uuid, major = getattr(properties, "uuid", None), getattr(properties, "major", None)
    return {
        "name": properties.name,
        "uuid": None if uuid is None else str(uuid),
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
        "compute_capability": None if major is None else f"{major}.{properties.minor}",
        "cache_bytes": getattr(properties, "L2_cache_size", None),
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "memory_clock_khz": getattr(properties, "memory_clock_rate", None),
    }


def _build(torch: Any) -> Reading:
    """Versions, and what torch.__config__.show() says without compiler flags."""
    shown = [line.strip(" -") for line in torch.__config__.show().splitlines()[1:]]
    reason = None if torch.version.cuda else "this torch is built without CUDA"
    return {
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "git": torch.version.git_version,
        "config": "; ".join(line for line in shown if line and not line.startswith(_BUILD_SETTINGS)),
    }, reason


def _precision(torch: Any) -> Reading:
    """Flags that let matrix products round more than their dtype does."""
    matmul = torch.backends.cuda.matmul
    return {
        "float32_matmul": torch.get_float32_matmul_precision(),
        "tf32_matmul": matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "bf16_reduced_reduction": matmul.allow_bf16_reduced_precision_reduction,
        "fp16_reduced_reduction": matmul.allow_fp16_reduced_precision_reduction,
    }, None


def _sdpa_enabled(torch: Any) -> Reading:
    """The kernels of scaled_dot_product_attention that torch may choose from on a GPU."""
    cuda = torch.backends.cuda
    return {
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "cudnn": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }, None
