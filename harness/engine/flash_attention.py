"""Flash attention over packed runs of keys, by the operator beneath torch.nn.attention.varlen.

varlen_attn itself takes neither shared KV heads nor used lengths in torch 2.11; the operator has taken both since 2.5. Its
kernel reads as many keys of a run as are said to be used, from where the run is said to begin (``block_info.h``), so runs may
overlap. Axes: N runs, T queries of all runs, K packed keys, H query heads, G KV heads, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.errors import ScenarioError

OPERATOR = "aten::_flash_attention_forward"
TAKES = (
    "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask",
)  # fmt: skip
NAMED = ("scale", "seqused_k")
GIVES = ("output", "softmax_logsumexp")
LEAST_CAPABILITY = (8, 0)
MOST_HEAD_DIM, HEAD_DIM_STEP = 256, 8


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of packed queries, each over a run of packed keys; int32.

    ``asked``   (N+1,): where the queries of each run begin, and where all end; ``widest``: the most of one run
    ``starts``  (N+1,): where the keys of each run begin; the last entry is the end of all
    ``used``    (N,): keys of each run; ``longest`` at most
    ``empty``   (T,) bool: queries of runs without keys; None where each run has some
    """

    asked: Tensor
    starts: Tensor
    used: Tensor
    widest: int
    longest: int
    empty: Tensor | None


def takes_flash(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the operator is there for such tensors: half precision on a GPU, heads of up to 256 in steps of 8."""
    in_half = dtype in (torch.float16, torch.bfloat16)
    return device.type == "cuda" and in_half and head_dim <= MOST_HEAD_DIM and head_dim % HEAD_DIM_STEP == 0


def refuse_what_lacks_it(device: torch.device, schema: Any = None, cuda: Any = torch.cuda) -> None:
    """Look at torch and the GPU before anything is decoded with them. ``schema``: of the operator, by default that of the
    installed torch; it and ``cuda`` may be fakes.

    Raises:
        ScenarioError: the operator is another one than ``attend`` calls, or the GPU is older than its kernels.
    """
    found = torch.ops.aten._flash_attention_forward.default._schema if schema is None else schema
    arguments = {one.name: one for one in found.arguments}
    first, gives = tuple(arguments)[: len(TAKES)], tuple([one.name for one in found.returns])
    unnamed = [name for name in arguments if name not in (*TAKES, *NAMED) and not arguments[name].has_default_value()]
    if first != TAKES or not arguments.keys() >= set(NAMED) or unnamed or gives[: len(GIVES)] != GIVES:
        raise ScenarioError(
            f"torch {torch.__version__} has another {OPERATOR} than the one that graphs in half precision call: {found}; "
            "install torch 2.11 to 2.13, or use dtype: float32 or execution: eager"
        )
    if device.type == "cuda" and (capability := cuda.get_device_capability(device)) < LEAST_CAPABILITY:
        raise ScenarioError(
            f"graphs in half precision use flash attention, which wants compute capability 8.0; {device} has "
            f"{'.'.join(map(str, capability))}; use dtype: float32 or execution: eager"
        )


def attend(query: Tensor, keys: Tensor, values: Tensor, runs: Runs, scaling: float | None) -> tuple[Tensor, Tensor]:
    """Queries (T, H, D) of all runs over the keys and values (K, G, D) that each run has: output like the queries, log-sum-exp
    (T, H) in float32. A run without keys has output 0 and a log-sum-exp beside which every other outweighs it.
    """
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        query, keys, values, runs.asked, runs.starts, runs.widest, runs.longest, 0.0, False, False,
        scale=scaling, seqused_k=runs.used,
    )  # fmt: skip
    lse = lse.transpose(0, 1)
    if runs.empty is None:
        return out, lse
    # Flash attention 2 says +inf of a run without keys, which would outweigh all others; its output there may be NaN.
    nothing = runs.empty[:, None]
    return out.masked_fill(nothing[..., None], 0.0), lse.masked_fill(nothing, torch.finfo(lse.dtype).min)
