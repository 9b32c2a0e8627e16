"""One fresh process of our engine: NTP, whole passes by their width, and what this machine reads meanwhile.

    python -m benchmarks.engines.own 135m|250m|reference [--smoke]

Its last line is a JSON object of figures by key, or of the reason why there are none.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from benchmarks.engines.models import DTYPES, choice_of
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, DecodeRequest, causal_pass, prefill
from harness.decoding.sampling import NativeFigures
from harness.decoding.session import ModelSession
from harness.engine.compiling import execution_of
from harness.engine.engine import drain
from harness.engine.loading import LoadedModel, keep_what_is_freed, load_model, map_what_comes
from harness.engine.sessions import open_session, stepping
from harness.errors import SbdError
from harness.kernels.library import library
from harness.meters.clock import HostClock, MeteredSession
from harness.meters.torch_bench import TorchBench
from harness.models import DTYPE_BYTES
from harness.scenario.part import Part

PROMPT_TOKENS, NEW_TOKENS, DECODES = 64, 64, 5
PASS_CONTEXT, WIDTHS, PASSES = 128, (1, 8, 12, 16, 32), 25
READS = 9
READER, FLAGS = Path(__file__).with_name("reader.cpp"), ("-O3", "-march=native", "-shared", "-fPIC", "-fopenmp")
CPU = torch.device("cpu")


class ClockedKernels(ctypes.CDLL):
    """A loaded library whose functions add the seconds of their calls to ``spent_s``, which all such libraries share."""

    spent_s = 0.0

    def __getitem__(self, name: Any) -> Any:
        call = super().__getitem__(name)

        def clocked(*arguments: Any) -> Any:
            start = perf_counter()
            result = call(*arguments)
            ClockedKernels.spent_s += perf_counter() - start
            return result

        return clocked


class Own:
    """A model of ours, opened as a run opens it, with native forwards."""

    def __init__(self, name: str) -> None:
        """Raises SbdError: the model is not here, or the kernels cannot be used."""
        self.part = Part.model_validate(
            {
                "name": name,
                "model": choice_of(name),
                "dtype": DTYPES[name],
                "execution": "native",
                "arms": [{"method": "ntp"}],
                "workload": {"tasks": ["word_problems"], "prompts": 1, "max_new_tokens": NEW_TOKENS},
            }
        )
        execution = execution_of(self.part)
        for kernels in (library(), library("native")):  # one library, loaded once by each way to ask for it
            kernels.__class__ = ClockedKernels
        map_what_comes()
        self.model: LoadedModel = load_model(self.part)
        keep_what_is_freed()
        self.session: ModelSession = open_session(self.model.module, self.part.session, self.part.attention, execution)
        gc.freeze()

    def drawn(self, count: int) -> tuple[int, ...]:
        """Token ids, the same in every process."""
        return tuple(torch.randint(self.model.shape.vocab, (count,), generator=torch.Generator().manual_seed(0)).tolist())

    def decode(self, new_tokens: int) -> dict[str, float]:
        """One decode by NTP: seconds of a pass after the prompt, percent of them outside native calls, bytes of a pass."""
        shape, suppressed = self.model.shape, () if self.model.mask_id is None else (self.model.mask_id,)
        request = DecodeRequest(
            prompts=(self.drawn(PROMPT_TOKENS),),
            max_new_tokens=new_tokens,
            stop=NEVER,
            suppressed_ids=suppressed,
            temperature=0.0,
            generator=torch.Generator().manual_seed(0),
            device=CPU,
            figures=NativeFigures,
        )
        decoder = decode_next_token(MeteredSession(self.session, HostClock()), request)
        next(decoder)  # the prompt pass
        ClockedKernels.spent_s, start = 0.0, perf_counter()
        generation = drain(decoder)
        spent_s = perf_counter() - start
        passes = generation.passes[1:]
        read = sum(one.context_tokens[0] + 1 for one in passes) / len(passes)
        element = DTYPE_BYTES[self.part.dtype]
        return {
            "pass_s": spent_s / len(passes),
            "rest_share_pct": 100 * (1 - ClockedKernels.spent_s / spent_s),
            "bytes": element * (shape.streamed_params + shape.layers * shape.kv_width * read),
        }

    def ntp(self, new_tokens: int, decodes: int) -> dict[str, float]:
        """Medians over decodes, after one that is not counted."""
        found = [self.decode(new_tokens) for _ in range(decodes + 1)][1:]
        middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
        return {
            "tokens_per_s": 1 / middle["pass_s"],
            "rest_share_pct": middle["rest_share_pct"],
            "bytes_per_s": middle["bytes"] / middle["pass_s"],
        }

    def passes(self, widths: Sequence[int], repeats: int) -> dict[str, float]:
        """Median seconds of a causal pass of each width with all its logits, in turns after one context; nothing is kept."""
        prefill(self.session, [self.drawn(PASS_CONTEXT)], CPU, room=max(widths))
        spent_s: dict[int, list[float]] = {width: [] for width in widths}
        for _ in range(repeats + 1):
            for width, times in spent_s.items():
                fed = [self.drawn(width)]
                start = perf_counter()
                causal_pass(self.session, fed, width, CPU)
                times.append(perf_counter() - start)
        return {f"pass_s_{width}": statistics.median(times[1:]) for width, times in spent_s.items()}


class Readers:
    """Several kernels that read as many bytes as the weights of a model have."""

    def __init__(self, own: Own) -> None:
        """Raises OSError, CalledProcessError: the native one is not built."""
        part, shape = own.part, own.model.shape
        self.size_bytes = DTYPE_BYTES[part.dtype] * shape.streamed_params
        self._bench = TorchBench("cpu", part.dtype, None, stepping(part.session, part.attention, execution_of(part)))
        map_what_comes()  # as the weights
        self._bench.reserve(self.size_bytes)
        words = torch.ones(self.size_bytes // 8, dtype=torch.int64)
        keep_what_is_freed()
        read = built_reader()
        threads = torch.get_num_threads()

        def native() -> None:
            read(ctypes.c_void_p(words.data_ptr()), ctypes.c_int64(len(words)), ctypes.c_int(threads))

        self._kernels: dict[str, Callable[[], object]] = {**self._bench.read_kernels(self.size_bytes), "native": native}
        self._times_s: dict[str, list[float]] = {name: [] for name in self._kernels}

    def take(self, repeats: int) -> None:
        """Run each of them so often."""
        for name, kernel in self._kernels.items():
            self._times_s[name] += self._bench.seconds(kernel, repeats)

    def rates(self) -> dict[str, float]:
        """Bytes/s of the best reader, by medians and by the fastest run; and the median of each."""
        medians = {name: self.size_bytes / statistics.median(times) for name, times in self._times_s.items()}
        fastest = self.size_bytes / min(min(times) for times in self._times_s.values())
        best = {"ceiling_bytes_per_s": max(medians.values()), "fastest_bytes_per_s": fastest}
        return best | {f"read_{name}_bytes_per_s": rate for name, rate in medians.items()}


def built_reader() -> Any:
    """The native reader, built where its source is newer."""
    target = READER.parents[2] / "build" / "engines" / "reader.so"
    if not target.is_file() or target.stat().st_mtime < READER.stat().st_mtime:
        target.parent.mkdir(parents=True, exist_ok=True)
        half = target.with_suffix(f".{os.getpid()}")
        command = [os.environ.get("CXX", "g++"), *FLAGS, str(READER), "-o", str(half)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        half.replace(target)
    read = ctypes.CDLL(str(target)).sbd_read
    read.restype = ctypes.c_uint64
    return read


def measured(name: str, smoke: bool) -> dict[str, float]:
    """All figures of a model."""
    own = Own(name)
    new_tokens, decodes, passes, reads = (4, 1, 1, 1) if smoke else (NEW_TOKENS, DECODES, PASSES, READS)
    found: dict[str, float] = {}
    if name == "250m":
        readers = Readers(own)
        readers.take(reads)
        found |= own.ntp(new_tokens, decodes)
        readers.take(reads)
        found |= readers.rates()
    else:
        found |= own.ntp(new_tokens, decodes)
    if name == "135m":
        found |= own.passes(WIDTHS, passes)
    return found


def main() -> None:
    """Measure, print."""
    try:
        found: dict[str, Any] = measured(sys.argv[1], smoke="--smoke" in sys.argv)
    except (SbdError, OSError, subprocess.CalledProcessError) as error:
        found = {"reason": str(error)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
