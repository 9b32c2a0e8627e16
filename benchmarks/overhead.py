"""A decode pass in three columns: forward, sampler, and the rest of the loop. What is neither is ours to keep small.

The columns are those of every record, so caches are as cold as in a run.

    python -m benchmarks.overhead
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.results_file import write_results
from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.sampling import NativeFigures, TorchFigures, usable
from harness.decoding.solvers import BlockView
from harness.engine.engine import open_engine
from harness.scenario.plan import Case, make_plan
from harness.scenario.scenario import Scenario
from harness.workloads.loader import prompt_items
from tests.helpers.solver_rules import SOLVERS

ROUNDS, WARM_ROUNDS = 10, 3
VOCAB_OF_8B, POSITIONS = 128_256, 16


def parts() -> Scenario:
    """The bandwidth-bound shape and the reference model, NTP and SBD, on the engine."""
    block = {"method": "sbd", "block_size": 16}
    shared = {"execution": "auto", "baseline_check": 0, "device": "cpu"}
    return Scenario.model_validate(
        {
            "version": 1,
            "name": "overhead",
            "parts": [
                shared
                | {
                    "name": "250m",
                    "model": {"random": "llama-250m"},
                    "dtype": "bfloat16",
                    "arms": [{"method": "ntp"}, block | {"acceptance": {"replay": {"nfe_speedup": 4.0}}}],
                    "workload": {"synthetic": {"prompt_tokens": 64}, "prompts": 1, "max_new_tokens": 128},
                },
                shared
                | {
                    "name": "reference",
                    "model": {"reference": "sbd"},
                    "dtype": "float32",
                    "arms": [{"method": "ntp"}, block | {"gamma": 0.003}],
                    "workload": {"tasks": ["word_problems"], "prompts": 1, "max_new_tokens": 96},
                },
            ],
        }
    )


def columns(case: Case, engine: Any) -> tuple[float, float, float]:
    """Median over rounds of microseconds per pass: forward, sampler, rest."""
    items = prompt_items(case.workload, case.task, case.part.seed, engine.tokenizer, engine.shape.vocab)
    found = []
    for round_ in range(WARM_ROUNDS + ROUNDS):
        decoded = engine.decode(case, [items[0].ids], seed=1)
        passes = len(decoded.forward_s) - 1
        forward_s, sampler_s = sum(decoded.forward_s[1:]), sum(decoded.sampler_s[1:])
        rest_s = decoded.decode_s - forward_s - sampler_s
        if round_ >= WARM_ROUNDS:
            found.append([1e6 * seconds / passes for seconds in (forward_s, sampler_s, rest_s)])
    forward, sampler, rest = (statistics.median(column) for column in zip(*found, strict=True))
    return forward, sampler, rest


def sampler_ms() -> tuple[float, float]:
    """Milliseconds of sampling 16 positions of a 128k vocabulary at temperature 0: by torch, and by the kernels."""
    logits = usable(torch.randn(1, POSITIONS, VOCAB_OF_8B).bfloat16(), torch.tensor([7]))
    masked = torch.ones(1, POSITIONS, dtype=torch.bool)
    acceptance = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=0.1)

    def sample(figures: type[TorchFigures]) -> tuple[torch.Tensor, torch.Tensor]:
        view = BlockView(logits, masked, 0.0, figures)
        return acceptance.choose(view), view.tokens

    return _median_ms(lambda: sample(TorchFigures)), _median_ms(lambda: sample(NativeFigures))


def _median_ms(work: Callable[[], Any]) -> float:
    times = []
    for _ in range(WARM_ROUNDS + ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[WARM_ROUNDS:])


def main() -> None:
    """Measure, print, write."""
    figures: dict[str, float] = {}
    print("part | arm | forward, µs | sampler, µs | rest, µs (medians per pass)")
    engines: dict[str, Any] = {}
    for case in make_plan(parts()).cases:
        name = case.part.name
        engines[name] = engines.get(name) or open_engine(case.part)
        forward, sampler, rest = columns(case, engines[name])
        print(f"{name} | {case.label} | {forward:.0f} | {sampler:.0f} | {rest:.0f}", flush=True)
        figures[f"{case.arm.method}_rest_us_per_pass_{name}"] = round(rest, 1)
        figures[f"{case.arm.method}_sampler_us_per_pass_{name}"] = round(sampler, 1)
        of_arm = "sampler_share_pct" if case.arm.method == "sbd" else "ntp_sampler_share_pct"
        figures[f"{of_arm}_{name}"] = round(100 * sampler / (forward + sampler + rest), 2)
        worst = f"rest_us_per_pass_{name}"
        figures[worst] = max(figures.get(worst, 0.0), round(rest, 1))
    as_is, fused = sampler_ms()
    print(f"sampler, 16 positions of a vocabulary of {VOCAB_OF_8B}: {as_is:.2f} ms; by the kernels: {fused:.2f} ms")
    figures |= {"sampler_ms_16x128k": round(as_is, 3), "sampler_ms_16x128k_fused": round(fused, 3)}
    print(write_results("overhead", figures))


if __name__ == "__main__":
    main()
