"""A config.json or a tokenizer file that holds anything: the model folder is refused by name, in every place that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UnknownModelError
from harness.models.choice import HuggingFaceModel, shape_called
from harness.models.decodable import read_model_facts, refuse_undecodable

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
BOMBS = {"deep": "[" * 100_000, "deep object": '{"a":' * 50_000, "long": '{"vocab_size": ' + "9" * 10_000 + "}", "list": "[1]"}
READERS: dict[str, Callable[[Path], object]] = {
    "shape_called": lambda folder: shape_called(str(folder)),
    "refuse_undecodable": lambda folder: refuse_undecodable(HuggingFaceModel(huggingface=str(folder)), "float32"),
    "read_model_facts": read_model_facts,
}


def written(folder: Path, config: dict[str, Any] | str, name: str = "config.json") -> Path:
    """The folder with such a file."""
    (folder / name).write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "config",
    [
        *BOMBS.values(),
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        LLAMA | {"num_attention_heads": 0},
        LLAMA | {"hidden_size": "x"},
        LLAMA | {"vocab_size": 10**1000},
        LLAMA | {"model_type": {}},
        LLAMA | {"architectures": [{}]},
        LLAMA | {"text_config": 1},
        MIXTRAL | {"num_hidden_layers": 10**12},
        MIXTRAL | {"mlp_only_layers": [[]]},
        MIXTRAL | {"decoder_sparse_step": 0},
    ],
    ids=lambda config: (config if isinstance(config, str) else str(config))[:30],
)
def test_the_folder_is_refused(config: dict[str, Any] | str, reader: str, tmp_path: Path) -> None:
    """Deep or long JSON, counts of any type and size; none takes long, as a loop over 10^12 layers would."""
    with pytest.raises(UnknownModelError) as refusal:
        READERS[reader](written(tmp_path, config))
    assert "config.json" in str(refusal.value) and str(refusal.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize("config", [{"layer_types": [1, {}]}, {"rope_scaling": {"rope_type": "dynamic"}}])
def test_what_only_a_session_asks_for(config: dict[str, Any], tmp_path: Path) -> None:
    """Layers of no kind, and positions that grow without a limit named."""
    with pytest.raises(UnknownModelError):
        READERS["refuse_undecodable"](written(tmp_path, LLAMA | config))


@pytest.mark.parametrize("text", [*BOMBS.values(), '{"mask_token": "m", "added_tokens_decoder": [1]}'])
def test_the_files_of_a_tokenizer(text: str, tmp_path: Path) -> None:
    """They tell the mask token, and hold anything too."""
    written(written(tmp_path, LLAMA), text, "tokenizer_config.json")
    with pytest.raises(UnknownModelError, match=str(tmp_path)):
        read_model_facts(tmp_path)
