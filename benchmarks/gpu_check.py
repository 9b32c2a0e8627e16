"""What only a GPU can show, in one call of at most 8 minutes; results as files. Also the same code on a CPU with tiny shapes.

    python -m benchmarks.gpu_check [--out DIR] [--minutes 7.5] [--dry-run]

Cells of an 8B shape with random weights, from the most to the least wanted: context 1k, 8k, 32k, each at batch 1, 4, 16, 64,
NTP and SBD at k = 4, 8, 16, 32. A cell that does not fit, and one that the deadline cut off, is listed as such. Into DIR go
the run with its report, cells.md, cells.json, and exactness.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from harness.compare import compare
from harness.compare_values import ArmResult, Cell
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.decoding.stopping import NEVER
from harness.modeling.engine import drain
from harness.modeling.session import TransformersSession
from harness.modeling.static_session import StaticSession
from harness.record import CaseHeader, Run
from harness.store import read_run

BLOCKS, BATCHES, CONTEXTS = (4, 8, 16, 32), (1, 4, 16, 64), (1024, 8192, 32768)
PASSES_SAVED = 3.0
"""NFE speedup replayed at every k, inside the range of the paper's Table 1; a pass costs the same whatever is accepted."""
TINY = {"name": "tiny", "layers": 2, "hidden": 32, "intermediate": 48, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 64}


def scenario(dry: bool) -> dict[str, Any]:
    """One part per cell, all on the same weights; in a dry run tiny ones on the CPU."""
    model: Any = {"random": TINY} if dry else {"random": "llama-3.1-8b"}
    arms: list[dict[str, Any]] = [{"method": "ntp"}] + [
        {"method": "sbd", "block_size": k, "acceptance": {"replay": {"nfe_speedup": PASSES_SAVED}}} for k in BLOCKS
    ]
    parts = [
        {
            "name": f"context_{context}_batch_{batch}", "model": model, "device": "cpu" if dry else "cuda", "dtype": "bfloat16",
            "arms": arms, "batch_sizes": [batch], "repeats": 2, "warmup": 3, "baseline_check": 2,
            "workload": {
                "synthetic": {"prompt_tokens": context // 256 if dry else context},
                "prompts": 2 * batch, "max_new_tokens": 32 if dry else 64,
            },
        }
        for context in CONTEXTS for batch in (BATCHES[:2] if dry else BATCHES)
    ]  # fmt: skip
    return {"version": 1, "name": "gpu_check", "question": "Does SBD make an 8B model faster on this GPU?", "parts": parts}


def exactness(device: str) -> dict[str, bool]:
    """Whether the engine on ``device`` writes the plain CPU session's tokens, in float64, row by row and ragged."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, initializer_range=0.3,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval()
    twin = copy.deepcopy(model)  # with a configuration of its own, which the static session changes
    plain, engine = TransformersSession(model, "sdpa"), StaticSession(twin.to(device))
    return {
        method: _tokens(plain, "cpu", method) == _tokens(engine, device, method) for method in ("ntp", "lockstep", "ragged")
    }


def _tokens(session: ModelSession, device: str, method: Any) -> tuple[tuple[int, ...], ...]:
    request = DecodeRequest(
        prompts=((1, 5, 9, 3), (2, 8), (7, 7, 7)), max_new_tokens=40, stop=NEVER, suppressed_ids=(63,), temperature=0.0,
        generator=torch.Generator(device), device=torch.device(device),
    )  # fmt: skip
    if method == "ntp":
        return drain(decode_next_token(session, request)).output_ids
    acceptance = SolverAcceptance(entropy_bounded, 1.5)
    decoder = decode_set_block(session, request, block_size=8, mask_id=63, acceptance=acceptance, batching=method)
    return drain(decoder).output_ids


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what became of a cell's arm. Times in seconds; None where there is none, and why."""

    part: str
    batch: int
    arm: str
    state: str
    pass_s: float | None = None
    over_one_token: float | None = None
    wall_speedup: float | None = None
    share_of_ceiling: float | None = None
    baseline: str = ""


def rows(held: Run) -> list[Row]:
    """Every planned arm of every cell in order: measured (so many of its samples), its outcome, or not run."""
    comparison = compare(held)
    ended = {outcome.case_id: f"{outcome.outcome}: {outcome.reason}" for outcome in held.outcomes}
    taken = Counter(sample.case_id for sample in held.samples if not sample.warmup)
    found = []
    for case in held.header.cases:
        if case.is_check:
            continue
        cell = comparison.summary(case.part, case.batch_size)
        arm = next((arm for arm in cell.arms if case.case_id in arm.case_ids), None)
        state = ended.get(case.case_id, f"measured, {taken[case.case_id]} samples" if arm else "not run: the time was up")
        found.append(_row(case, state, cell, arm))
    return found


def _row(case: CaseHeader, state: str, cell: Cell, arm: ArmResult | None) -> Row:
    if arm is None:
        return Row(case.part, case.batch_size, case.label, state)
    width = 1 if arm.is_ntp else arm.block_size
    one = next((w for w in cell.pass_widths if (w.method, w.role, w.query_tokens) == (arm.method, "decide", width)), None)
    speed = cell.baseline_check.best_speed
    checked = f"{speed.value:.3f} of {cell.baseline_check.best} ({cell.baseline_check.state})" if speed and speed.value else ""
    return Row(
        case.part, case.batch_size, case.label, state,
        pass_s=one.measured_s.value if one else None,
        over_one_token=one.cost.value if one else None,
        wall_speedup=arm.wall_speedup.value,
        share_of_ceiling=arm.ceiling_share.value,
        baseline=checked if arm.is_ntp else "",
    )  # fmt: skip


def table(found: list[Row]) -> str:
    """The rows as Markdown."""
    heads = ("part", "batch", "arm", "state", "pass, ms", "over a 1-token pass", "wall speedup", "of ceiling", "generate()")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in found:
        numbers = (row.pass_s and 1e3 * row.pass_s, row.over_one_token, row.wall_speedup, row.share_of_ceiling)
        written = " | ".join("-" if number is None else f"{number:.3f}" for number in numbers)
        lines.append(f"| {row.part} | {row.batch} | {row.arm} | {row.state} | {written} | {row.baseline} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Check, measure until the time is up, write what there is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-check"))
    parser.add_argument("--minutes", type=float, default=7.5)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.minutes
    device = "cpu" if options.dry_run else "cuda"
    if device == "cuda" and not torch.cuda.is_available():
        print("torch sees no CUDA device here; run this on a GPU machine, or with --dry-run", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    file, run = options.out / "scenario.yaml", options.out / "run"
    file.write_text(yaml.safe_dump(scenario(options.dry_run)))
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(run), "--no-report"]
    try:
        subprocess.run(command, timeout=max(deadline - time.monotonic(), 1), check=False)
    except subprocess.TimeoutExpired:
        print("the time is up; what is finished is kept")
    # Only now: this process on the GPU beside the measuring one would void its samples.
    exact = exactness(device)
    (options.out / "exactness.json").write_text(json.dumps(exact))
    subprocess.run([sys.executable, "-m", "harness", "report", str(run)], check=False)
    found = rows(read_run(run))
    (options.out / "cells.json").write_text(json.dumps({"version": 1, "cells": [asdict(row) for row in found]}, indent=1))
    (options.out / "cells.md").write_text(table(found))
    print(table(found), f"exact: {exact}", sep="\n")
    return 0 if all(exact.values()) else 3


if __name__ == "__main__":
    sys.exit(main())
