"""Names as people write them: models by their repository, dtypes by their short names."""

from __future__ import annotations

import pytest

from harness.errors import UnknownModelError
from harness.models import KNOWN_SHAPES
from harness.models.choice import shape_called
from harness.models.deployment import dtype_called


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_a_model_is_known_by_its_repository_and_in_capitals(written: str, name: str) -> None:
    """The tuned ones have the shape of their base."""
    assert shape_called(written) == KNOWN_SHAPES[name]


def test_a_near_miss_is_refused_with_a_hint() -> None:
    """And is never taken for another size."""
    with pytest.raises(UnknownModelError, match=r"did you mean llama-3\.1-70b"):
        shape_called("meta-llama/Llama-3.1-71B")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("bf16", "bfloat16"),
        ("FP8", "float8"),
        ("half", "float16"),
        ("f32", "float32"),
        ("BFloat16", "bfloat16"),
        ("int3", "int3"),
    ],
)
def test_short_names_of_dtypes(written: str, name: str) -> None:
    """An unknown one stays as it is, for whoever refuses it."""
    assert dtype_called(written) == name
