"""Other engines on the same cores: llama.cpp by llama-bench, or by llama-server's stream; vLLM by its stream.

A program that is not installed, or fails, is a NotMeasured with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2 as httpx
import numpy as np

from benchmarks.engines.figures import NotMeasured
from benchmarks.engines.models import DTYPES, folder_of, gguf_of
from harness.errors import SbdError
from harness.scenario.servers import Server
from harness.serving.dialects.dialect import ServerRequest
from harness.serving.served_model import ServedModel
from harness.serving.stream import ServedAnswer, ask

PROMPT_TOKENS, NEW_TOKENS, ASKED = 64, 64, 5
PASS_CONTEXT, WIDTHS, REPEATS = 128, (8, 16, 32), 5
WORDS = 32_000
"""Ids of prompts are below: every tokenizer here has them."""
VLLM_SWITCHES = {"VLLM_CPU_KVCACHE_SPACE": "1"}
MOST_S = 600.0


def program(name: str) -> Path:
    """Where llama-server or llama-bench is: as SBD_LLAMA_SERVER says or beside it, else on the path.

    Raises:
        NotMeasured: it is not there.
    """
    server = os.environ.get("SBD_LLAMA_SERVER")
    found = str(Path(server).with_name(name)) if server else shutil.which(name)
    if found is None or not os.access(found, os.X_OK):
        raise NotMeasured(f"there is no {name}; run `make llama-ready` and set SBD_LLAMA_SERVER=build/llama/bin/llama-server")
    return Path(found)


def thread_counts() -> list[int]:
    """What is tried: powers of two up to the cores that this process may use, and all of them."""
    cores = len(os.sched_getaffinity(0))
    return sorted({cores, *(1 << n for n in range(cores.bit_length()) if 1 << n <= cores)})


def llama_bench(model: Path, *words: str) -> list[dict[str, Any]]:
    """What llama-bench says of its tests.

    Raises:
        NotMeasured: it is not there, or fails.
    """
    command = [str(program("llama-bench")), "-m", str(model), "-o", "json", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MOST_S)
        said: list[dict[str, Any]] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise NotMeasured(f"llama-bench: {(getattr(error, 'stderr', None) or str(error)).strip()[-300:]}") from error
    return said


def seconds_of(test: dict[str, Any]) -> float:
    """The median run of a test of llama-bench, which tells each run in nanoseconds."""
    return float(statistics.median(test["samples_ns"])) / 1e9


class LlamaCpp:
    """llama.cpp on one model, at the settings that were fastest here: of each number of threads with and without flash
    attention, one for NTP and, of SmolLM2, one for passes.
    """

    def __init__(self, name: str, smoke: bool) -> None:
        """Raises NotMeasured: neither of its programs, or no GGUF file, is here."""
        self._smoke = smoke
        try:
            self._model = gguf_of(name, program("llama-bench"))
        except NotMeasured:
            self._model, self._served = gguf_of(name, program("llama-server")), name
            self.settings = {"server": "no llama-bench is here"}
            return
        self._served = ""
        grid = ["-t", ",".join(map(str, thread_counts())), "-fa", "on,off"]
        self._ntp = self._best([*grid, *self._ntp_words(3)])
        self._passes = self._best([*grid, *self._pass_words((16,), 3)]) if name == "135m" else []
        self.settings = {"ntp": " ".join(self._ntp), "passes": " ".join(self._passes)}

    def _best(self, words: Sequence[str]) -> list[str]:
        """The settings of the fastest test."""
        best = min(llama_bench(self._model, *words), key=seconds_of)
        return ["-t", str(best["n_threads"]), "-fa", str(best["flash_attn"]).lower()]

    def _ntp_words(self, repeats: int) -> list[str]:
        return ["-p", "0", "-n", str(NEW_TOKENS), "-d", str(PROMPT_TOKENS), "-r", str(1 if self._smoke else repeats)]

    def _pass_words(self, widths: Sequence[int], repeats: int) -> list[str]:
        return ["-p", ",".join(map(str, widths)), "-n", "0", "-d", str(PASS_CONTEXT), "-r", str(1 if self._smoke else repeats)]

    def measured(self) -> dict[str, float]:
        """Tokens/s of NTP after a prompt, and by how many threads; seconds of a pass by its width.

        Raises:
            NotMeasured: a program fails.
        """
        if self._served:
            fixed = ("--parallel", "1", "--ctx-size", "512")
            by_threads = [
                served("llama_cpp", self._served, self._smoke, ("--threads", str(count), *fixed)) | {"threads": float(count)}
                for count in thread_counts()
            ]
            return max(by_threads, key=lambda one: one["tokens_per_s"])
        [test] = llama_bench(self._model, *self._ntp, *self._ntp_words(REPEATS))
        found = {"tokens_per_s": NEW_TOKENS / seconds_of(test), "threads": float(test["n_threads"])}
        if not self._passes:
            return found
        tests = llama_bench(self._model, *self._passes, *self._pass_words(WIDTHS, REPEATS))
        return found | {f"pass_s_{one['n_prompt']}": seconds_of(one) for one in tests}


def served(
    engine: str, name: str, smoke: bool, arguments: Sequence[str] = (), switches: dict[str, str] | None = None
) -> dict[str, float]:
    """Tokens/s of one request at a time after its first token, by this client: the median of several. The server is started
    for it and ended.

    Raises:
        NotMeasured: it does not start, or does not answer.
    """
    choice = Server.model_validate({"engine": engine, "arguments": tuple(arguments), "environment": switches or {}})
    try:
        with TemporaryDirectory() as logs:
            server = ServedModel("one", choice, str(folder_of(name)), DTYPES[name], Path(logs))
            try:
                server.ensure_running()
                answers = asyncio.run(_answers(server, 1 if smoke else ASKED))
            finally:
                server.close()
    except (SbdError, OSError) as error:
        raise NotMeasured(f"{engine}: {error}") from error
    return {"tokens_per_s": statistics.median(map(tokens_per_s, answers[1:]))}


def tokens_per_s(answer: ServedAnswer) -> float:
    """Of the tokens after the first chunk."""
    first, last = answer.chunks[0], answer.chunks[-1]
    return (len(answer.ids) - len(first.ids)) / (last.at_s - first.at_s)


async def _answers(server: ServedModel, count: int) -> list[ServedAnswer]:
    """One after the other, and one before them."""
    drawn = np.random.default_rng(0)
    async with httpx.AsyncClient(base_url=server.address, trust_env=False) as client:
        answers = []
        for number in range(count + 1):
            ids = drawn.integers(WORDS, size=PROMPT_TOKENS).tolist()
            request = ServerRequest(
                ids=ids, max_tokens=NEW_TOKENS + 1, temperature=0.0, seed=number, salt=f"prompt {number}", ignore_stop=True
            )
            answers.append(await ask(client, server.dialect, request, server.model, server.silent_s))
    return answers


def vllm(name: str, smoke: bool) -> dict[str, float]:
    """vLLM's NTP. Raises NotMeasured: it is not installed, or fails."""
    return served("vllm", name, smoke, ("--max-model-len", "512"), VLLM_SWITCHES)
