"""The cells of `sbd check`: an 8B shape with random weights, most to least important, as a scenario.

It writes plain data; knows no model and no device.
"""

from __future__ import annotations

BLOCKS, BATCHES, CONTEXTS = (4, 8, 16, 32), (1, 4, 16, 64), (1024, 8192, 32768)
PAPER_BLOCK = 16
PASSES_SAVED = 3.0
"""NFE speedup replayed at block sizes outside the paper's Table 1; a pass costs the same at any acceptance."""
TABLE_1 = (("GSM8K", "sbd_gamma_low"), ("LiveCodeBench-v6", "sbd_gamma_high"))
"""The lowest and the highest rate of Llama-3.1-8B in Table 1."""
ENERGY_BATCHES = (1, 16)
ENERGY_TOKENS = 2048
"""A decode of so many tokens outlasts ENERGY_WINDOW_S (harness.check.cells), also at batch 1."""
ATTENTION = ((1, 1024), (1, 8192), (16, 8192))
"""(batch, context) at which ways of attending are compared, at 1, k and 2k queries."""
TINY = {"name": "tiny", "layers": 2, "hidden": 32, "intermediate": 48, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 64}


Plain = dict[str, object]
"""A part of the scenario, as it is written."""


def scenario(dry: bool) -> Plain:
    """One part per cell, all on the same weights; a dry run has tiny ones on the CPU. The shortest context is first."""
    per_context = [[_cell(context, batch, dry) for batch in (BATCHES[:2] if dry else BATCHES)] for context in CONTEXTS]
    energy = [_energy(batch, dry) for batch in (BATCHES[:2] if dry else ENERGY_BATCHES)]
    parts = [*per_context[0], *energy, _baseline(dry), *(part for parts in per_context[1:] for part in parts)]
    return {"version": 1, "name": "gpu_check", "question": "Does SBD make an 8B model faster on this GPU?", "parts": parts}


def attention_cells(dry: bool) -> list[tuple[int, int, int]]:
    """(batch, context, block size) of the comparison of ways of attending."""
    return [(batch, context // 256 if dry else context, 4 if dry else PAPER_BLOCK) for batch, context in ATTENTION]


def attention_heads(dry: bool) -> tuple[int, int, int]:
    """(query heads, KV heads, head dimension): those of the decoded shape."""
    return (4, 2, 8) if dry else (32, 8, 128)


def _cell(context: int, batch: int, dry: bool) -> Plain:
    others = [_replayed(k, {"nfe_speedup": PASSES_SAVED}) for k in BLOCKS if k != PAPER_BLOCK]
    arms: list[Plain] = [{"method": "ntp"}, *others, *(_replayed(PAPER_BLOCK, _table1(*of)) for of in TABLE_1)]
    more = {"repeats": 2, "warmup": 3}
    return _part(f"context_{context}_batch_{batch}", arms, context, batch, dry, prompts=2 * batch) | more


def _energy(batch: int, dry: bool) -> Plain:
    arms: list[Plain] = [{"method": "ntp"}, _replayed(PAPER_BLOCK, _table1(*TABLE_1[0]))]
    new_tokens = 64 if dry else ENERGY_TOKENS
    return _part(f"energy_batch_{batch}", arms, CONTEXTS[0], batch, dry, prompts=batch, new_tokens=new_tokens)


def _baseline(dry: bool) -> Plain:
    """generate() in one cell only, because its first compiled decode takes a minute."""
    more = {"warmup": 1, "baseline_check": 1}
    return _part("baseline", [{"method": "ntp"}], CONTEXTS[0], 1, dry, prompts=2) | more


def _part(
    name: str, arms: list[Plain], context: int, batch: int, dry: bool, *, prompts: int, new_tokens: int | None = None
) -> Plain:
    # Compiling every shape of every cell would exceed the time of the check.
    place = {"device": "cpu", "execution": "eager"} if dry else {"device": "cuda", "execution": "graphs"}
    return {
        "name": name,
        "model": {"random": TINY if dry else "llama-3.1-8b"},
        **place,
        "dtype": "bfloat16",
        "arms": arms,
        "batch_sizes": [batch],
        "health": {"kernel": 0.1, "steal": 0.02},  # a clock that follows the power drawn varies more
        "repeats": 1,
        "warmup": 0,
        "baseline_check": 0,
        "workload": {
            "synthetic": {"prompt_tokens": context // 256 if dry else context},
            "prompts": prompts,
            "max_new_tokens": new_tokens or (32 if dry else 64),
        },
    }


def _replayed(block_size: int, source: Plain) -> Plain:
    return {"method": "sbd", "block_size": block_size, "acceptance": {"replay": source}}


def _table1(task: str, sampling: str) -> Plain:
    return {"table1": {"base_model": "llama-3.1-8b", "task": task, "sampling": sampling}}
