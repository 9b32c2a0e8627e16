"""Random weights are those of the shape that was asked for, or there are none."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.engine import engine
from harness.engine.loading import load_model
from harness.errors import UnknownModelError
from harness.models.choice import RandomModel
from tests.helpers.plans import case_of

SIZES = {"name": "x", "layers": 2, "hidden": 16, "intermediate": 24, "heads": 4, "kv_heads": 2, "head_dim": 4, "vocab": 50}


def load(**changes: Any) -> Any:
    """The module for a tiny shape with changes."""
    part = SimpleNamespace(
        model=RandomModel.model_validate({"random": SIZES | changes}),
        device="cpu",
        dtype="float32",
        seed=1,
        model_attention="sdpa",
    )
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # loading switches gradients off for good
        return load_model(part).module  # type: ignore[arg-type]


def test_a_plain_shape_is_built() -> None:
    """Llama and Qwen3, to the last parameter."""
    assert load().num_parameters() == 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24 + 2 * 16) + 16 + 2 * 50 * 16
    assert load(architecture="qwen3", qk_norm=True).num_parameters() == load().num_parameters() + 2 * 2 * 4


@pytest.mark.parametrize(
    "changes",
    [
        {"qkv_bias": True},
        {"gated_ffn": False},
        {"sliding_window": 8, "sliding_layers": 1},
        {"moe": {"experts": 4, "experts_per_token": 2, "intermediate": 8, "layers": 1}},
    ],
)
def test_what_cannot_be_built_is_refused(changes: dict[str, Any]) -> None:
    """Never a plain model under the name of another: its price would be of something that did not run."""
    with pytest.raises(UnknownModelError, match="cannot be built"):
        load(**changes)


def test_a_model_is_given_back_when_the_next_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where something points back at it in a circle, and though what is loaded is kept from collections meanwhile.

    What an engine changes in the whole process (where the C library puts memory) is left out: other tests run in it.
    """
    for change in ("map_what_comes", "keep_what_is_freed"):
        monkeypatch.setattr(engine, change, lambda: None)
    part = case_of("ntp", model={"random": SIZES}, dtype="float32", timed=False, arms=[{"method": "ntp"}]).part
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        module: Any = engine.open_engine(part)._model.module
        module.circle = [module]
        gone = weakref.ref(module)
        del module
        assert gone() is not None
        engine.open_engine(part)
    assert gone() is None
    gc.unfreeze()
