"""How far memory and arithmetic overlap on a device, from measured times of layers streamed from memory."""

from __future__ import annotations

from dataclasses import dataclass

from harness.roofline.operation import Points, interpolate


@dataclass(frozen=True, slots=True)
class OverlapFit:
    """Overlap in [0, 1], stall >= 1 (1 unless the overlap is 0), and the largest relative error they leave."""

    overlap: float
    stall: float
    error: float


def fit_overlap(streaming: Points, resident: Points, bandwidth_bytes_per_s: float, bytes_per_element: int) -> OverlapFit:
    """The overlap o with the least squared relative error of max + (1 - o) * min against measured streaming times.

    Where o = 0 is still too fast, the sum is multiplied by the stall factor that fits best.

    Args:
        streaming: (m, seconds per weight byte) of a linear layer read from memory.
        resident: (m, FLOP/s) of such a layer with its weight in the cache.
        bandwidth_bytes_per_s: read rate; memory time is 1 / bandwidth per weight byte.
        bytes_per_element: a weight byte carries 2 * m / bytes_per_element flops.
    """
    parts = []
    for tokens, measured_s in streaming:
        memory_s = 1 / bandwidth_bytes_per_s
        compute_s = 2 * tokens / bytes_per_element / interpolate(resident, tokens)
        parts.append((max(memory_s, compute_s) / measured_s, min(memory_s, compute_s) / measured_s))
    best = sum(shorter * (longer + shorter - 1) for longer, shorter in parts) / sum(shorter**2 for _, shorter in parts)
    overlap, stall = min(1.0, max(0.0, best)), 1.0
    if overlap == 0.0:
        sums = [longer + shorter for longer, shorter in parts]
        stall = max(1.0, sum(sums) / sum(both**2 for both in sums))
    error = max(abs(stall * (longer + (1 - overlap) * shorter) - 1) for longer, shorter in parts)
    return OverlapFit(overlap, stall, error)
