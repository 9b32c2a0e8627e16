"""Flash attention over packed runs of keys, by the operator beneath torch.nn.attention.varlen.

varlen_attn itself takes neither shared KV heads nor used lengths in torch 2.11; the operator has taken both since 2.5. Axes:
N runs, n queries of each, T packed keys of all runs, H query heads, G KV heads, D head dimension.
"""

from __future__ import annotations

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


def attend(
    query: Tensor, keys: Tensor, values: Tensor, starts: Tensor, used: Tensor, longest: int, causal: bool, scaling: float | None
) -> tuple[Tensor, Tensor]:
    """Queries (N, n, H, D) over the ``used`` (N,) first ones of each run of keys (T, G, D): output like the queries,
    log-sum-exp (N, n, H) in float32.

    ``starts`` (N+1,): where each run begins. Causal: the last query sees all that is used, each earlier one fewer by one. A run
    without used keys has log-sum-exp +inf, and an output that means nothing (flash attention 2).
    """
    many, width, heads, size = query.shape
    of_query = torch.arange(0, many * width + 1, width, dtype=torch.int32, device=query.device)
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        query.reshape(many * width, heads, size), keys, values, of_query, starts, width, longest, 0.0, causal, False,
        scale=scaling, seqused_k=used,
    )  # fmt: skip
    return out.reshape(query.shape), lse.transpose(0, 1).reshape(many, width, heads)
