"""Every method that can be captured into graphs, decoded by the program's own engine: arms, prompts, and answers by arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.models.choice import ReferenceModel
from harness.scenario.plan import Case, make_plan
from harness.scenario.scenario import Scenario

DRAFT = {"draft": {"reference": "draft"}}
ARMS: dict[str, dict[str, Any]] = {
    "ntp": {"method": "ntp"},
    "sbd": {"method": "sbd", "block_size": 8, "gamma": 0.1},
    "ragged": {"method": "sbd", "block_size": 8, "gamma": 0.1, "batching": "ragged"},
    "threshold": {"method": "sbd", "block_size": 8, "solver": "threshold", "tau": 0.95},
    "margin": {"method": "sbd", "block_size": 8, "solver": "entropy_bounded_margin", "gamma": 0.1},
    "verified": {"method": "sbd_verified", "block_size": 8, "gamma": 0.1},
    "short": {"method": "sbd_verified", "block_size": 8, "gamma": 99, "least_confidence": 0.5},
    "linear": {"method": "self_speculation", "form": "linear", "block_size": 8},
    "quadratic": {"method": "self_speculation", "form": "quadratic", "block_size": 4},
    "copies": {"method": "self_speculation", "form": "quadratic", "block_size": 4, "copies": True},
    "freedave": {"method": "freedave", "block_size": 8, "draft_steps": 3},
    "apd": {"method": "apd", "block_size": 8, "mixture": 0.5},
    "window": {"method": "block_diffusion", "family": "sdlm", "block_size": 4, "solver": "longest_prefix", "tau": 0.9},
    "own pass": {"method": "block_diffusion", "family": "sdar", "block_size": 4, "solver": "threshold", "tau": 0.9},
    "first slot": {"method": "block_diffusion", "family": "nemotron", "block_size": 8, "solver": "threshold", "tau": 0.9},
    "lookup": {"method": "prompt_lookup", "draft_tokens": 4},
    "draft": {"method": "draft_model", **DRAFT, "draft_tokens": 3},
    "translated": {"method": "universal_draft", **DRAFT, "draft_tokens": 3},
    "exit": {"method": "early_exit", "exit_layers": 2, "draft_tokens": 3},
    "stack": {"method": "hierarchical", "stack": [{**DRAFT, "draft_tokens": 6}, {"max_ngram": 2, "draft_tokens": 3}]},
    "exits": {"method": "hierarchical", "stack": [{"exit_layers": 4, "draft_tokens": 4}, {**DRAFT, "draft_tokens": 2}]},
}

GREEDY_ONLY = ("freedave",)
SMALL = {
    "name": "small",
    "layers": 2,
    "hidden": 256,
    "intermediate": 512,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 64,
    "vocab": 1024,
}
"""A random model whose heads flash attention takes."""


def cases(device: str, dtype: str, execution: str, names: Sequence[str] = tuple(ARMS), **more: Any) -> dict[str, Case]:
    """The case of every named arm of one part on the reference model. ``more``: keys of the part; ``tokens`` are those of its
    workload, ``temperature`` that of its arms.
    """
    tokens, temperature = more.pop("tokens", 24), more.pop("temperature", None)
    arms = [ARMS[name] | ({} if temperature is None else {"temperature": temperature}) for name in names]
    part = {
        "name": "p",
        "model": {"reference": "sbd"},
        "device": device,
        "dtype": dtype,
        "execution": execution,
        "arms": arms,
        "timed": False,
        "baseline_check": 0,
        "batch_sizes": [4],
        "workload": {"tasks": ["word_problems"], "prompts": 4, "max_new_tokens": tokens, "split": "test"},
    } | more
    planned = make_plan(Scenario.model_validate({"version": 1, "name": "s", "parts": [part]})).cases
    return dict(zip(names, planned, strict=True))


def answers(
    wanted: dict[str, Case], batches: Sequence[Sequence[tuple[int, ...]]], opened: Callable[[Any], object] = bool
) -> Iterator[tuple[str, int, Any]]:
    """(arm, batch, Generation) of every arm over every batch, by one engine, which ``opened`` is told."""
    from harness.engine.engine import open_engine

    engine = open_engine(next(iter(wanted.values())).part)
    opened(engine)
    for number, prompts in enumerate(batches):
        for name, case in wanted.items():
            yield name, number, engine.decode(case, prompts, seed=3 + number).generation


def prompts_of(count: int, task: str = "word_problems", split: str = "test") -> list[tuple[int, ...]]:
    """Prompts of a task that the reference model was trained for, in its tokens."""
    from harness.engine.loading import open_tokenizer
    from harness.workloads.loader import prompt_items
    from harness.workloads.spec import Workload

    work = Workload(tasks=(task,), split=split, prompts=count, max_new_tokens=8)
    tokenizer = open_tokenizer(ReferenceModel(reference="sbd"))
    return [item.ids for item in prompt_items(work, task, 1, tokenizer, 896)]


def adapted(folder: Path) -> dict[str, Any]:
    """The reference model under a random adapter with a mask of its own and a bigram, as a part names it."""
    import torch

    from harness.engine.adapter_files import write_adapter
    from harness.engine.gated_adapter import LowRank
    from harness.engine.loading import open_stored
    from tests.helpers.adapters import random_adapter

    held = open_stored(ReferenceModel(reference="sbd"), "float32", "sdpa")
    width, drawn = held.module.config.hidden_size, torch.Generator().manual_seed(9)
    bigram = LowRank(torch.randn(2, width, generator=drawn), torch.randn(width, 2, generator=drawn), 0.01)
    adapter = random_adapter(held.module, held.tokenizer.mask_token_id, size=0.02)
    write_adapter(folder, replace(adapter, bigram=bigram), "reference")
    return {"reference": "sbd", "adapter": str(folder)}
