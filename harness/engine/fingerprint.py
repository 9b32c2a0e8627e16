"""The kernels of a part: our own on a CPU, in captured passes, and as scaled_dot_product_attention picks them for its shapes.

torch picks silently, by shape, mask, dtype and device; a slow pick can change a speedup. Axes: B rows, H query heads, G KV
heads, Q fed tokens, C slots, D head dimension.
"""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend

from harness.engine.captured_attention import LEFT_OUT, captured_kernel, choose_kernels, kernels_left
from harness.engine.compiling import compiled_unit, execution_of, why_without_kernels
from harness.engine.loading import LoadedModel
from harness.kernels.library import built_for
from harness.models import ModelShape
from harness.scenario.part import Part

MOST_KV_BYTES = 2**28
"""Limit of the keys of one layer. A longer context is cut; the answer's ``context_tokens`` is the length used."""
TYPICAL_CONTEXT = 512


def fingerprint(part: Part, model: LoadedModel) -> dict[str, object]:
    """Plain JSON values for the record; what is None has its reason beside it, under ``..._reason``."""
    revision = getattr(model.module.config, "_commit_hash", None)
    digest = None if model.tokenizer is None else model.tokenizer.digest
    execution, device = execution_of(part), torch.device(part.device)
    captured = no_sdpa = None
    if device.type != "cpu" and part.session != "plain" and execution != "eager":  # prompts and explicit masks never are
        captured = captured_kernel(part.attention, device, getattr(torch, part.dtype), model.shape.head_dim)
    if captured is not None:
        no_sdpa = "decode passes are captured into graphs, which attend by captured_attention"
    elif part.attention == "eager":
        no_sdpa = f"attention: {part.attention} does not call scaled_dot_product_attention"
    unit, no_kernels = compiled_unit(model.module, execution), why_without_kernels(part)
    facts = {
        "model_revision": (revision, None if revision else "the weights come from no hub"),
        "tokenizer_sha256": (digest, None if digest else "there is no tokenizer with a file form"),
        "compiled": (unit, None if unit else "forwards are not compiled"),
        "kernels": (None if no_kernels else built_for(), no_kernels),
        "sdpa": (None if no_sdpa else sdpa_backends(part, model.shape), no_sdpa),
        "sdpa_kernels": (kernels_left(), None if part.device == "cpu" else f"without {LEFT_OUT}"),
        "captured_attention": (captured, None if captured else "no pass is captured into a graph"),
    }
    return {key: value for name, pair in facts.items() for key, value in zip((name, f"{name}_reason"), pair, strict=True)}


def sdpa_backends(part: Part, shape: ModelShape) -> list[dict[str, object]]:
    """The backend for every decode pass a part makes: 1 token, k, and 2k where a block is committed and the next one opened.

    Each with and without a mask, for every batch size, as eager torch chooses.
    """
    widths = sorted({1, *part.block_sizes, *(2 * size for size in part.block_sizes)})
    return [
        sdpa_backend(part, shape, rows=rows, query=query, masked=masked)
        for rows in part.batch_sizes
        for query in widths
        for masked in (False, True)
    ]


def sdpa_backend(part: Part, shape: ModelShape, *, rows: int, query: int, masked: bool) -> dict[str, object]:
    """What torch picks for tensors of this shape, dtype and device, laid out as the part's session lays them out."""
    choose_kernels(part.device)
    dtype: torch.dtype = getattr(torch, part.dtype)
    context = _context(part, shape, rows, dtype)
    asked = {"rows": rows, "query_tokens": query, "context_tokens": context, "masked": masked}
    try:
        q, k, v, mask, gqa = _tensors(part, shape, rows, query, context, masked, dtype)
        choice = torch._fused_sdp_choice(q, k, v, attn_mask=mask, dropout_p=0.0, is_causal=False, enable_gqa=gqa)
        return {**asked, "backend": SDPBackend(choice).name.lower(), "reason": None}
    except (RuntimeError, ValueError, AttributeError) as error:  # torch's own function, not a promised one
        return {**asked, "backend": None, "reason": f"torch does not say: {str(error).partition(chr(10))[0]}"}


def _context(part: Part, shape: ModelShape, rows: int, dtype: torch.dtype) -> int:
    """Committed tokens in the middle of an answer, as far as the prompt's length is known and memory allows."""
    synthetic = part.workload.synthetic
    wanted = (synthetic.prompt_tokens + part.workload.max_new_tokens // 2) if synthetic else TYPICAL_CONTEXT
    per_token = rows * shape.heads * shape.head_dim * dtype.itemsize  # of the heads a session may repeat
    return max(1, min(wanted, MOST_KV_BYTES // per_token))


def _tensors(
    part: Part, shape: ModelShape, rows: int, query: int, context: int, masked: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, bool]:
    """Query (B, H, Q, D), keys and values (B, G, C, D), mask (B, 1, Q, C) or None; and whether the kernel groups heads.

    The static session reads the used part of wider buffers, with the query heads of a KV head after one another. The plain one
    leaves it to transformers. Under a mask transformers does the same for one token and repeats the KV heads for several. The
    values are neither read nor written.
    """
    heads, groups, width = shape.heads, shape.kv_heads, shape.head_dim
    static, grouped, slots = part.session == "static", heads != groups, context + query
    fed, kv_heads, lines = query, groups, query
    if grouped and (static or masked):
        if static or query == 1:
            heads, fed = groups, heads // groups * query
        else:
            kv_heads = heads
        grouped, lines = False, fed if static else query
    q = torch.empty(rows, fed, heads, width, dtype=dtype, device=part.device).transpose(1, 2)
    room = slots + 1 if static else slots
    k, v = torch.empty(2, rows, kv_heads, room, width, dtype=dtype, device=part.device)[..., :slots, :]
    kind = dtype if static else torch.bool
    mask = torch.empty(rows, 1, lines, slots, dtype=kind, device=part.device) if masked else None
    return q, k, v, mask, grouped
