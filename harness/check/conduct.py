"""Conducts `sbd check`: a run in its own process until its time is up, then the other checks; results as files.

The folder receives scenario.yaml, the run with its report, cells.json, cells.md, attention.json, attention.md, exactness.json.
They list what was not reached.
"""

from __future__ import annotations

import copy
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import yaml
from transformers import LlamaConfig, LlamaForCausalLM

from harness import __version__
from harness.analysis.answer import Derived
from harness.check.attention import ATTENTION_VERSION, CAPTURABLE, AttentionTime, compare_ways
from harness.check.cells import CELLS_VERSION, TIME_UP, CellRow, WidthRow, attention_table, cells_table, rows, unreached, widths
from harness.check.grid import attention_cells, attention_heads, scenario
from harness.check.half_precision import HalfPrecisionPass, half_precision
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, DecodeRequest
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.engine.captured_attention import choose_kernels
from harness.engine.cuda_graphs import CudaGraphs, GraphedSession, by_calling_again
from harness.engine.decoders import FORMS
from harness.engine.engine import drain
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.errors import CheckFailedError, UserError
from harness.meters.clock import clock_of
from harness.record.regular_file import write_whole
from harness.record.store import read_run
from harness.runner.subprocesses import ending_with_this
from harness.scenario.loading import load_scenario
from harness.scenario.plan import make_plan

EXACTNESS_VERSION = 2
MOST_DIFFERENCE = 0.05
"""Of attention over values of about 1 in bfloat16, where the last digit is 0.008, and 0.016 from 2 on."""
RESERVED_S = 90.0
"""Time kept back from the run for exactness, attention and the report."""
TO_END_S = 20.0
SHORTEST_RUN_S = 45.0
"""A shorter run only loads a model of this size and measures nothing, so it is not begun."""


def check(out: Path, minutes: float, *, dry: bool) -> str:
    """Measure until the time is up and write the results into ``out``; returns the tables as Markdown.

    A second call with the same folder continues the first.

    Raises:
        UserError: the folder holds another run.
        CheckFailedError: the engine's tokens differ from the plain session's, or graphs in half precision differ from float32
            (the files are written).
    """
    deadline_s = time.monotonic() + 60 * minutes
    device = "cpu" if dry else "cuda"
    file, run = out / "scenario.yaml", out / "run"
    _write_scenario(file, run, dry)
    left_s = deadline_s - RESERVED_S - time.monotonic()
    stopped = take_run(file, run, left_s) if left_s >= SHORTEST_RUN_S else TIME_UP
    # Not earlier: this process on the GPU would void the samples of the measuring one.
    choose_kernels(device)
    exact = exactness(device)
    half = half_precision(device)
    passes = [asdict(result) | {"right": result.right} for result in half]
    _write_json(out / "exactness.json", {"version": EXACTNESS_VERSION, "exact": exact, "half_precision": passes})
    clock = clock_of(device)
    times = compare_ways(device, torch.bfloat16, attention_heads(dry), attention_cells(dry), clock, deadline_s)
    _write_json(out / "attention.json", {"version": ATTENTION_VERSION, "device": device, "times": [asdict(t) for t in times]})
    found, curve = _cells(file, run, stopped)
    cells = {"cells": [asdict(row) for row in found], "widths": [asdict(width) for width in curve]}
    _write_json(out / "cells.json", {"version": CELLS_VERSION, "dry_run": dry, "stopped": stopped, **cells})
    write_whole(out / "cells.md", cells_table(found, curve).encode())
    write_whole(out / "attention.md", attention_table(times).encode())
    faults = _faults(exact, half, times)
    if faults:
        raise CheckFailedError(f"on {device} {'; '.join(faults)}; files: {out}")
    return cells_table(found, curve) + "\n" + attention_table(times)


def _faults(exact: dict[str, bool], half: Sequence[HalfPrecisionPass], times: Sequence[AttentionTime]) -> list[str]:
    """What this device computes wrongly, in words."""
    wrong, faults = [method for method, same in exact.items() if not same], []
    if wrong:
        faults.append(f"the engine does not write the plain session's tokens ({', '.join(wrong)})")
    off = [str(result) for result in half if not result.right]
    if off:
        faults.append(f"{len(off)} of {len(half)} passes of graphs in half precision are not those of float32 ({off[0]})")
    apart = [result.difference for result in times if result.way == CAPTURABLE and result.difference is not None]
    if far := [difference for difference in apart if not 0 <= difference < MOST_DIFFERENCE]:  # NaN is not below it
        faults.append(f"attention over used lengths differs from the masked one by {far[0]}")
    return faults


def _write_scenario(file: Path, run: Path, dry: bool) -> None:
    text = yaml.safe_dump(scenario(dry), sort_keys=False)
    if run.exists() and (not file.exists() or file.read_text(encoding="utf-8") != text):
        raise UserError(f"--out {file.parent}: it holds another run (of another version, or a dry one); give another folder")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


def take_run(file: Path, run: Path, seconds: float) -> str | None:
    """`sbd run` and its report in their own processes; at the time limit the run is interrupted and keeps its samples. Returns
    why it did not finish.
    """
    command = [sys.executable, "-m", "harness", "run", str(file), "--out", str(run), "--no-report"]
    process = subprocess.Popen(command, env=ending_with_this())
    stopped = None
    try:
        if code := process.wait(max(seconds, 0.0)):
            stopped = f"the run ended with exit code {code}"
    except subprocess.TimeoutExpired:
        stopped = TIME_UP
        process.send_signal(signal.SIGINT)
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(TO_END_S)
        process.kill()  # no effect on an ended process
        process.wait()
    if run.exists():
        subprocess.run([sys.executable, "-m", "harness", "report", str(run)], env=ending_with_this(), check=False)
    return stopped


def _cells(file: Path, run: Path, stopped: str | None) -> tuple[list[CellRow], list[WidthRow]]:
    if not run.exists():
        return unreached(make_plan(load_scenario(file)), stopped or "the run left no record"), []
    derived = Derived(read_run(run), ())
    return rows(derived, stopped or TIME_UP), widths(derived)


def _write_json(file: Path, content: Mapping[str, object]) -> None:
    write_whole(file, json.dumps({"program_version": __version__, **content}, indent=1, ensure_ascii=False).encode())


def exactness(device: str) -> dict[str, bool]:
    """Whether the engines on ``device``, eager and captured into graphs, write the tokens of the plain session on a CPU.

    The model is small and in float64. On a CPU a captured pass calls the same work again.
    """
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        initializer_range=0.3,
    )
    model: Any = LlamaForCausalLM(config)
    model = model.double().eval()
    capture = CudaGraphs() if device.startswith("cuda") else by_calling_again
    # Each has its own configuration, because the static sessions change it.
    engines = {
        "eager": StaticSession(copy.deepcopy(model).to(device)),
        "graphs": GraphedSession(copy.deepcopy(model).to(device), capture),
    }
    plain = TransformersSession(model, "sdpa")
    return {
        f"{method}, {name}": _tokens(plain, "cpu", method) == _tokens(engine, device, method)
        for method in ("ntp", "lockstep", "ragged", "verified", "linear", "quadratic")
        for name, engine in engines.items()
    }


def _tokens(session: ModelSession, device: str, method: Any) -> tuple[tuple[int, ...], ...]:
    request = DecodeRequest(
        prompts=((1, 5, 9, 3), (2, 8), (7, 7, 7)),
        max_new_tokens=40,
        stop=NEVER,
        suppressed_ids=(63,),
        temperature=0.0,
        generator=torch.Generator(device),
        device=torch.device(device),
    )
    acceptance = SolverAcceptance(entropy_bounded, gamma=1.5)
    if method == "ntp":
        decoder = decode_next_token(session, request)
    elif method in FORMS:
        decoder = FORMS[method](session, request, block_size=8, mask_id=63)
    elif method == "verified":
        decoder = decode_verified_blocks(session, request, block_size=8, mask_id=63, acceptance=acceptance)
    else:
        decoder = decode_set_block(session, request, block_size=8, mask_id=63, acceptance=acceptance, batching=method)
    return drain(decoder).output_ids
