"""Exact bytes of one pass: what Nsight Compute counts of a replayed graph, beside what is modelled for it.

No periodic counter is fine enough for one pass. Three passes of Llama-3.1-8B shapes follow a prompt of 512 tokens: 1 token, 16,
and 16 that are committed with 16 after them. Each is captured, replayed and then profiled as one workload. Where ncu is
missing or refuses, bytes are modelled and times are taken all the same, and the reason is said.

    python -m benchmarks.graph_bytes [--device cuda] [--execution compiled] [--ncu ncu] [--out FOLDER]

FOLDER gets graph_bytes.json and ncu.csv. With --device cpu shapes are tiny, nothing is captured, and ncu is not asked.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from harness.check.grid import TINY
from harness.decoding.session import Segment, Visibility
from harness.engine.captured_attention import choose_kernels
from harness.engine.compiling import with_compiled_layers
from harness.engine.cuda_graphs import CudaGraphs, GraphedSession, by_calling_again
from harness.engine.loading import load_model
from harness.meters.clock import Clock, CudaClock, HostClock
from harness.record.trace import ForwardPass
from harness.roofline.operation import describe_pass
from harness.roofline.operations import forward_operations
from harness.scenario.part import Part

PROMPT, BLOCK, REPLAYS = 512, 16, 20
ANY_TOKEN = 1
TOOLKIT = "/usr/local/cuda/bin"
READ, WRITTEN, DURATION = "dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"
FIGURES = {"read_bytes": READ, "written_bytes": WRITTEN, "seconds": DURATION}
UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
"""ncu's words; older releases write nsecond, usecond, msecond and second."""
HEADER = '"ID"'
COLUMNS = ("tokens of the pass", "modelled, GB", "read, GB", "written, GB", "counted over modelled", "replay, ms", "by ncu, ms")


class NotCounted(Exception):
    """ncu gave no figures; the message says why, in its words where it has some."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What ncu counted of one workload: bytes from and to the device's memory, and seconds."""

    read_bytes: float
    written_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PassBytes:
    """One pass: modelled bytes, median seconds of a replay without a profiler, and ncu's figures, None with the ``reason``."""

    tokens: str
    modelled_bytes: float
    replay_s: float
    counted: Counted | None = None
    reason: str | None = None

    @property
    def over_modelled(self) -> float | None:
        """Counted bytes, read and written, over those modelled."""
        return None if self.counted is None else (self.counted.read_bytes + self.counted.written_bytes) / self.modelled_bytes


class ProfiledGraphs(CudaGraphs):
    """While ``profiling``, a profiler that was told to wait for it sees each replay and nothing else."""

    profiling = False

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """See Capture."""
        replay, profiler = super().__call__(work), cast(Any, torch.cuda.profiler)

        def seen() -> Tensor:
            if not self.profiling:
                return replay()
            torch.cuda.synchronize()
            profiler.start()
            out = replay()
            torch.cuda.synchronize()
            profiler.stop()
            return out

        return seen


def ncu_command(ncu: str, log: Path, arguments: Sequence[str]) -> list[str]:
    """This module under ncu: each graph one workload, the clocks left alone, ncu's own lines and its CSV in ``log``."""
    return [
        ncu,
        "--clock-control",
        "none",
        "--graph-profiling",
        "graph",
        "--metrics",
        ",".join((READ, WRITTEN, DURATION)),
        "--profile-from-start",
        "off",
        "--target-processes",
        "application-only",
        "--csv",
        "--page",
        "raw",
        "--print-units",
        "base",
        "--log-file",
        str(log),
        sys.executable,
        "-m",
        "benchmarks.graph_bytes",
        "--profiled",
        *arguments,
    ]


def read_ncu(text: str) -> list[Counted]:
    """The workloads of ncu's raw page as CSV, in the order they ran, among lines of its own.

    Raises:
        NotCounted: it holds no table, or a figure is missing or in an unknown unit.
    """
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(HEADER)), None)
    if start is None:
        said = [line.strip() for line in lines if line.startswith("==ERROR==") or "No kernels were profiled" in line]
        raise NotCounted("; ".join(said) or "ncu wrote no table")
    units, *rows = csv.DictReader(line for line in lines[start:] if line.startswith('"'))
    return [Counted(**{to: _figure(row, units, of) for to, of in FIGURES.items()}) for row in rows]


def _figure(row: Mapping[str, str], units: Mapping[str, str], metric: str) -> float:
    value, unit = row.get(metric), units.get(metric)
    try:
        return float(str(value).replace(",", "")) * UNITS[str(unit).replace("second", "s")]
    except (ValueError, KeyError):
        raise NotCounted(f"ncu gave {value!r} {unit!r} for {metric}") from None


def counted_by_ncu(ncu: str, folder: Path, arguments: Sequence[str], passes: int) -> list[Counted]:
    """Run the passes under ncu and read what it counted of each.

    Raises:
        NotCounted: ncu is not here, it failed, or it saw another number of graphs.
    """
    found = shutil.which(ncu) or shutil.which(ncu, path=TOOLKIT)
    if found is None:
        raise NotCounted(f"there is no {ncu} on the PATH and in {TOOLKIT}; install Nsight Compute, or say --ncu FILE")
    log = folder / "ncu.csv"
    log.unlink(missing_ok=True)
    done = subprocess.run(ncu_command(found, log, arguments), capture_output=True, text=True, check=False)
    text = log.read_text(errors="replace") if log.exists() else ""
    try:
        counted = read_ncu(text)
    except NotCounted as error:
        said = done.stderr.strip().splitlines()[-1:] if str(error) == "ncu wrote no table" else []
        raise NotCounted(f"{error}, exit code {done.returncode}{''.join(f': {line}' for line in said)}") from None
    if len(counted) != passes:
        raise NotCounted(f"ncu saw {len(counted)} workloads and not the {passes} graphs")
    return counted


def passes(device: torch.device) -> Iterator[tuple[str, list[Segment], ForwardPass]]:
    """Name, segments and description of each pass after the prompt; nothing of it is kept."""

    def segment(start: int, width: int, visibility: Visibility, logits: int) -> Segment:
        places = torch.arange(PROMPT + start, PROMPT + start + width, device=device)[None]
        return Segment(tokens=torch.full_like(places, ANY_TOKEN), positions=places, visibility=visibility, logits=logits)

    yield "1", [segment(0, 1, "causal", 1)], describe_pass("decide", 1, 1, PROMPT, logits=1, kept=1)
    block = segment(0, BLOCK, "bidirectional", BLOCK)
    yield f"{BLOCK}", [block], describe_pass("decide", 1, BLOCK, PROMPT, logits=BLOCK)
    both = [segment(0, BLOCK, "causal", 0), segment(BLOCK, BLOCK, "bidirectional", BLOCK)]
    described = describe_pass("commit+decide", 1, 2 * BLOCK, PROMPT, logits=BLOCK, kept=BLOCK)
    yield f"{BLOCK} + {BLOCK}", both, described


@torch.no_grad()
def take(device: str, execution: str, profiled: bool = False) -> list[PassBytes]:
    """Capture, replay and time every pass; ``profiled``: one replay more of each, for the profiler, and no time."""
    choose_kernels(device)
    on_gpu = device.startswith("cuda")
    part = Part.model_validate(
        {
            "name": "bytes",
            "model": {"random": "llama-3.1-8b" if on_gpu else TINY},
            "device": device,
            "dtype": "bfloat16",
            "arms": [{"method": "ntp"}],
            "workload": {"synthetic": {"prompt_tokens": PROMPT}, "prompts": 1, "max_new_tokens": 1},
        }
    )
    model = load_model(part)
    graphs = ProfiledGraphs() if on_gpu else by_calling_again
    forward: Any = with_compiled_layers(model.module) if on_gpu and execution == "compiled" else None
    session = GraphedSession(model.module, graphs, forward)
    clock: Clock = CudaClock(device) if on_gpu else HostClock()
    session.reset(1, PROMPT + 2 * BLOCK)
    places = torch.arange(PROMPT, device=device)[None]
    prompt = torch.full_like(places, ANY_TOKEN)
    session.forward([Segment(tokens=prompt, positions=places, visibility="causal", logits=1)])
    session.keep([PROMPT])
    found = []
    for name, segments, described in passes(torch.device(device)):
        session.forward(segments)  # captured
        seconds = [_timed(session, segments, clock) for _ in range(1 if profiled else REPLAYS)]
        if isinstance(graphs, ProfiledGraphs):
            graphs.profiling = profiled
            if profiled:
                session.forward(segments)
            graphs.profiling = False
        modelled = float(sum(one.bytes_ for one in forward_operations(model.shape, "bfloat16", described)))
        found.append(PassBytes(tokens=name, modelled_bytes=modelled, replay_s=statistics.median(seconds)))
    return found


def _timed(session: GraphedSession, segments: Sequence[Segment], clock: Clock) -> float:
    """Two replays, of which the second is timed: the device is busy while it is handed over."""
    session.forward(segments)
    start = clock.mark()
    session.forward(segments)
    end = clock.mark()
    clock.synchronise()
    return clock.spans_s([(start, end)])[0]


def table(found: Sequence[PassBytes]) -> str:
    """Markdown, with the reasons beneath."""
    lines: list[Sequence[str]] = [COLUMNS, ["-"] * len(COLUMNS)]
    for one in found:
        read = written = over = by_ncu = "-"
        if (counted := one.counted) is not None:
            read, written = f"{counted.read_bytes / 1e9:.4f}", f"{counted.written_bytes / 1e9:.4f}"
            over, by_ncu = f"{one.over_modelled:.3f}", f"{1e3 * counted.seconds:.3f}"
        modelled, replay = f"{one.modelled_bytes / 1e9:.4f}", f"{1e3 * one.replay_s:.3f}"
        lines.append([one.tokens, modelled, read, written, over, replay, by_ncu])
    reasons = dict.fromkeys(f"not counted: {one.reason}" for one in found if one.reason)
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", *reasons])


def beside(found: Sequence[PassBytes], count: Callable[[], list[Counted]]) -> list[PassBytes]:
    """The passes with what ``count`` gives of each, or with the reason that it gave nothing."""
    try:
        return [replace(one, counted=counted) for one, counted in zip(found, count(), strict=True)]
    except NotCounted as error:
        return [replace(one, reason=str(error)) for one in found]


def main() -> None:
    """Take, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--execution", choices=("compiled", "graphs"), default="compiled")
    parser.add_argument("--ncu", default="ncu", help="Nsight Compute's program")
    parser.add_argument("--out", type=Path, default=Path("graph-bytes"), help="folder for the results")
    parser.add_argument("--profiled", action="store_true", help="as ncu runs it")
    asked = parser.parse_args()
    found = take(asked.device, asked.execution, asked.profiled)
    if asked.profiled:
        return
    asked.out.mkdir(parents=True, exist_ok=True)

    def count() -> list[Counted]:
        if not asked.device.startswith("cuda"):
            raise NotCounted("ncu counts on a GPU")
        torch.cuda.empty_cache()
        again = ("--device", asked.device, "--execution", asked.execution)
        return counted_by_ncu(asked.ncu, asked.out, again, len(found))

    found = beside(found, count)
    result = {"device": asked.device, "execution": asked.execution, "torch": torch.__version__}
    result["passes"] = [asdict(one) for one in found]
    (asked.out / "graph_bytes.json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
