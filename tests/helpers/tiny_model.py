"""Tiny random models in float64, prompts for them, and the logits they should give."""

from __future__ import annotations

import torch
import transformers

from harness.decoding.request import DecodeRequest, StopRule
from harness.engine.static_session import StaticSession

# transformers runs the softmax of eager attention in float32, whatever the dtype of the model.
TOLERANCE = {"plain-sdpa": 1e-9, "plain-eager": 1e-5, "static": 1e-9, "graphed": 1e-9}
MASK_ID, VOCAB = 36, 37


def tiny_config(**changes):
    """A Llama of one layer of 16 numbers and two heads that share a KV head."""
    sizes = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return transformers.LlamaConfig(**sizes | {"num_key_value_heads": 1} | changes)


def tiny_model(architecture: str, attention: str = "sdpa", sizes=None):
    """A random model of 3 layers with grouped-query attention, float64; ``sizes`` replace those of its configuration."""
    torch.manual_seed(7)
    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }[architecture]
    of_all = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "head_dim": 8, **(sizes or {})}
    config = config_class(
        vocab_size=VOCAB,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        attn_implementation=attention,
        initializer_range=0.3,
        **of_all,
    )
    return model_class(config).to(torch.float64).eval()


def reference_logits(model, sequence, in_block, wanted):
    """One uncached forward: (key ≤ query) or (both in the current block), additive mask, explicit positions."""
    n = len(sequence)
    mask = torch.full((1, 1, n, n), torch.finfo(torch.float64).min, dtype=torch.float64)
    for query in range(n):
        for key in range(n):
            if key <= query or (in_block[query] and in_block[key]):
                mask[0, 0, query, key] = 0.0
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([sequence]), position_ids=torch.arange(n)[None], attention_mask=mask, use_cache=False
        )
    return out.logits[0, n - wanted :]


PROMPTS = {"one": ((1, 5, 9, 3, 22),), "padded": ((1, 5, 9, 3, 22, 8, 30), (1, 2), (1, 17, 4, 4))}


def request(prompts, stop_ids=(), temperature=0.0, max_new_tokens=21, mask_ids=(MASK_ID,), **more):
    """A decode request with a fixed seed."""
    fixed = {"generator": torch.Generator().manual_seed(3), "device": torch.device("cpu")}
    return DecodeRequest(
        prompts=tuple(prompts),
        max_new_tokens=max_new_tokens,
        stop=StopRule(token_ids=frozenset(stop_ids)),
        suppressed_ids=mask_ids,
        temperature=temperature,
        **fixed | more,
    )


def drain(generator):
    """Run a decoder to its end; returns its Generation."""
    while True:
        try:
            next(generator)
        except StopIteration as stop:
            return stop.value


def committed_kv(session, row):
    """(keys, values) of a row's committed tokens, each (G, n, D), per layer."""
    if isinstance(session, StaticSession):
        used = slice(session.context_tokens[row])
        return [(k[row, :, used], v[row, :, used]) for k, v in zip(session._keys, session._values, strict=True)]
    valid = session._valid[row]
    return [(layer.keys[row][:, valid], layer.values[row][:, valid]) for layer in session._cache.layers]


def check_kv(session, row, model, tokens, tolerance):
    """A row holds just the KV of an uncached causal forward over these tokens."""
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([tokens]), use_cache=True).past_key_values.layers
    for (keys, values), layer in zip(committed_kv(session, row), expected, strict=True):
        assert (keys - layer.keys[0]).abs().max() < tolerance
        assert (values - layer.values[0]).abs().max() < tolerance


class Says:
    """A session whose model says token s at slot s, whatever it is fed."""

    context_tokens, context_width = (3,), 3

    def reset(self, rows, capacity):
        """Nothing is kept."""

    def forward(self, segments):
        """(1, m, V) logits."""
        wanted = sum(s.logits for s in segments)
        return 9.0 * torch.eye(VOCAB)[None, :wanted]

    def keep(self, tokens):
        """Nothing is kept."""

    def read(self, tokens):
        """Nothing to fetch."""
        return tokens.tolist()
