"""Whether the fast engines on a device write the same tokens as the plain session, on a small model in float64."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, DecodeRequest
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.engine.cuda_graphs import CudaGraphs, GraphedSession, by_calling_again
from harness.engine.decoders import FORMS
from harness.engine.engine import drain
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession


def exactness(device: str) -> dict[str, bool]:
    """Whether the engines on ``device``, eager and captured into graphs, write the plain CPU session's tokens.

    On a CPU a captured pass calls the same work again.
    """
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, initializer_range=0.3,
    )  # fmt: skip
    model: Any = LlamaForCausalLM(config)
    model = model.double().eval()
    capture = CudaGraphs() if device.startswith("cuda") else by_calling_again
    # Each has its own configuration, because the static sessions change it.
    engines = {
        "eager": StaticSession(copy.deepcopy(model).to(device)),
        "graphs": GraphedSession(copy.deepcopy(model).to(device), capture),
    }
    plain = TransformersSession(model, "sdpa")
    return {
        f"{method}, {name}": _tokens(plain, "cpu", method) == _tokens(engine, device, method)
        for method in ("ntp", "lockstep", "ragged", "verified", "linear", "quadratic") for name, engine in engines.items()
    }  # fmt: skip


def _tokens(session: ModelSession, device: str, method: Any) -> tuple[tuple[int, ...], ...]:
    request = DecodeRequest(
        prompts=((1, 5, 9, 3), (2, 8), (7, 7, 7)), max_new_tokens=40, stop=NEVER, suppressed_ids=(63,), temperature=0.0,
        generator=torch.Generator(device), device=torch.device(device),
    )  # fmt: skip
    if method == "ntp":
        return drain(decode_next_token(session, request)).output_ids
    if method in FORMS:
        return drain(FORMS[method](session, request, block_size=8, mask_id=63)).output_ids
    acceptance = SolverAcceptance(entropy_bounded, gamma=1.5)
    if method == "verified":
        verified = decode_verified_blocks(session, request, block_size=8, mask_id=63, acceptance=acceptance)
        return drain(verified).output_ids
    decoder = decode_set_block(session, request, block_size=8, mask_id=63, acceptance=acceptance, batching=method)
    return drain(decoder).output_ids
