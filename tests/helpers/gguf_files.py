"""Small GGUF files, written by the package gguf: a Llama of 2 layers in Q4_1 with a byte-level vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WIDTH = 2, 64, 96, 4, 2, 16
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def vocabulary(*words: str) -> list[str]:
    """Three special tokens, every byte, two spaces as one token, and ``words`` that no merge makes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]  # GPT-2 writes the other bytes as letters from 256 on
    letters = [chr(one) for one in shown] + [chr(256 + n) for n in range(256 - len(shown))]
    return ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters, "ĠĠ", *words]


def values_of(packed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rows of Q4_1 as numbers: a block of 32 is a scale and a least value in float16, then low and high halves of 16 bytes."""
    blocks = packed.reshape(-1, 20)
    scale, least = (blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32) for at in (0, 2))
    steps = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1).astype(np.float32)
    return np.asarray(steps * scale + least, dtype=np.float32).reshape(packed.shape[0], -1)


def write_gguf(
    file: Path,
    *,
    splits: str | None = "smollm",
    kind: str = "llama",
    adds: bool | None = False,
    word: str | None = None,
    change: Callable[[Any], None] = lambda writer: None,
) -> dict[str, np.ndarray[Any, Any]]:
    """Write the file; returns its tensors, de-quantised, by the names of transformers. ``change`` may add to the writer.

    ``splits``, ``adds``: how texts are split, and whether they begin with a token; None leaves the key out.
    """
    import gguf

    words, random = vocabulary(*filter(None, [word])), np.random.default_rng(1)
    writer = gguf.GGUFWriter(file, kind)
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100_000.0)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("gpt2")
    if splits is not None:
        writer.add_tokenizer_pre(splits)
    writer.add_token_list(words)
    writer.add_token_types([3, 3, 3, *[1] * (len(words) - 3)])
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    if adds is not None:
        writer.add_add_bos_token(adds)
    writer.add_chat_template(TEMPLATE)
    found: dict[str, np.ndarray[Any, Any]] = {}

    def norm(name: str, ours: str) -> None:
        found[name] = random.normal(1, 0.1, HIDDEN).astype(np.float32)
        writer.add_tensor(ours, found[name])

    def matrix(name: str, ours: str, rows: int, columns: int, heads: int | None = None) -> None:
        packed = gguf.quantize(random.normal(0, 0.2, (rows, columns)).astype(np.float32), gguf.GGMLQuantizationType.Q4_1)
        found[name] = values_of(packed)
        if heads is not None:  # llama.cpp turns pairs of neighbours where transformers turns the halves of a head
            packed = packed.reshape(heads, 2, rows // heads // 2, -1).swapaxes(1, 2).reshape(packed.shape)
        writer.add_tensor(ours, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)

    matrix("model.embed_tokens.weight", "token_embd.weight", len(words), HIDDEN)
    norm("model.norm.weight", "output_norm.weight")
    for layer in range(LAYERS):
        theirs, ours = f"model.layers.{layer}", f"blk.{layer}"
        norm(f"{theirs}.input_layernorm.weight", f"{ours}.attn_norm.weight")
        norm(f"{theirs}.post_attention_layernorm.weight", f"{ours}.ffn_norm.weight")
        matrix(f"{theirs}.self_attn.q_proj.weight", f"{ours}.attn_q.weight", HEADS * WIDTH, HIDDEN, HEADS)
        matrix(f"{theirs}.self_attn.k_proj.weight", f"{ours}.attn_k.weight", KV_HEADS * WIDTH, HIDDEN, KV_HEADS)
        matrix(f"{theirs}.self_attn.v_proj.weight", f"{ours}.attn_v.weight", KV_HEADS * WIDTH, HIDDEN)
        matrix(f"{theirs}.self_attn.o_proj.weight", f"{ours}.attn_output.weight", HIDDEN, HEADS * WIDTH)
        matrix(f"{theirs}.mlp.gate_proj.weight", f"{ours}.ffn_gate.weight", INNER, HIDDEN)
        matrix(f"{theirs}.mlp.up_proj.weight", f"{ours}.ffn_up.weight", INNER, HIDDEN)
        matrix(f"{theirs}.mlp.down_proj.weight", f"{ours}.ffn_down.weight", HIDDEN, INNER)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return found
