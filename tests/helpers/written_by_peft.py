"""A tiny model, and an adapter of it that PEFT itself writes, with the logits that PEFT gives. The stored one in
tests/data/peft_adapter was made so by peft 0.21.2: ``python -m tests.helpers.written_by_peft tests/data/peft_adapter``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

IDS = torch.tensor([[1, 5, 9, 3, 22, 8, 7]])
STORED = {
    "r": 3,
    "lora_alpha": 7,
    "use_rslora": True,
    "target_modules": r".*\.(q_proj|v_proj|gate_proj|down_proj)",
    "rank_pattern": {"q_proj": 5},
    "alpha_pattern": {"model.layers.1.mlp.down_proj": 20},
}


def base_model(weights: Path | None = None):
    """Llama of 2 layers in float32, drawn or from a file."""
    torch.manual_seed(7)
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=23,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=4,
            max_position_embeddings=64,
            initializer_range=0.3,
        )
    ).eval()
    if weights is not None:
        model.load_state_dict(load_file(weights))
    return model


def write_by_peft(folder: Path, **config):
    """Have peft draw an adapter and save it; its logits (1, Q, V) for IDS."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(3)
    model = get_peft_model(base_model(), LoraConfig(task_type="CAUSAL_LM", **{"init_lora_weights": False, **config})).eval()
    model.save_pretrained(folder)
    with torch.no_grad():
        return model(input_ids=IDS).logits


def logits_by_peft(folder: Path):
    """What peft reads from ``folder`` says of IDS."""
    from peft import PeftModel

    with torch.no_grad():
        return PeftModel.from_pretrained(base_model(), folder)(input_ids=IDS).logits


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    said = write_by_peft(folder, **STORED)
    save_file({"logits": said.contiguous()}, folder / "logits.safetensors")
    save_file(base_model().state_dict(), folder / "base.safetensors")
