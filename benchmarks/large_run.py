"""A run of a million passes: how long it takes to load, to become a page, how much memory that takes and how much disk.

2,000 cases, made up: five parts of five tasks, four batch sizes and twenty arms, timed pass by pass, calibrated, with the
positions that every pass decided, noise in every duration and tokens like a tokenizer's. The run is written once and then read
by a process of its own, whose peak memory is measured, with that of the processes it forks. Beside seconds by the clock stand
those of the processor, which other work on the machine lengthens less.

    python -m benchmarks.large_run [REPEATS]
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

from benchmarks.results_file import write_results
from harness.record.schema import PassColumns, RowResult, Run, Sample
from harness.record.store import EVENTS, HEADER, SAMPLES
from tests.helpers import synthetic_run as synthetic
from tests.helpers.sealed_lines import chained

PARTS, TASKS = 5, ("word_problems", "record_to_json", "short_trace", "code", "summary")
BATCH_SIZES, PROMPTS, BLOCKS, REPEATS = (1, 2, 4, 8), 8, 5, 4
VOCAB = 32_000
PASSES_PER_BLOCK = (16, 12, 10, 9, 8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 4, 3, 3, 2, 2)
T = TypeVar("T")


def main() -> None:
    """Write the run, have it read by a process of its own, print, and keep the figures."""
    if "--read" in sys.argv:
        print(json.dumps(read(Path(sys.argv[-1]))))
        return
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else REPEATS
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        counted = write(directory, repeats)
        reader = [sys.executable, "-m", "benchmarks.large_run", "--read", str(directory)]
        figures = counted | watched(reader)
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    print(write_results("large_run", figures))


def watched(command: list[str]) -> dict[str, float]:
    """What the reader prints last, and the most memory that it and the processes it forked held together, shared pages once."""
    peak_kb = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        while reader.poll() is None:
            peak_kb = max(peak_kb, sum(map(proportional_kb, family(reader.pid))))
            time.sleep(0.2)
        assert reader.stdout is not None and reader.returncode == 0, "the reader failed"
        printed: dict[str, float] = json.loads(reader.stdout.read().splitlines()[-1])
        return printed | {"peak_memory_gb": round(peak_kb * 1024 / 1e9, 2)}


def family(pid: int) -> list[int]:
    """A process and those it forked."""
    try:
        return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except OSError:
        return []


def proportional_kb(pid: int) -> int:
    """A process's share of the memory it maps (PSS), in KiB; 0 of one that has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)


def write(directory: Path, repeats: int) -> dict[str, float]:
    """The run directory; returns how large it is."""
    sbd = [
        synthetic.Arm(label=f"SBD k=16 γ={number / 20:g}", gamma=number / 20, passes_per_block=passes)
        for number, passes in enumerate(PASSES_PER_BLOCK)
    ]
    parts = [
        synthetic.Part(
            name=f"part_{number}", arms=(synthetic.NTP, *sbd), tasks=TASKS, prompts=PROMPTS, blocks=BLOCKS, batch_size=size
        )
        for number in range(PARTS)
        for size in BATCH_SIZES
    ]
    empty = synthetic.build(*parts, calibration=synthetic.calibration(), without=every_case(parts))
    directory.mkdir()
    header = empty.header.model_dump_json().encode()
    (directory / HEADER).write_bytes(header)
    (directory / EVENTS).write_bytes(b"".join(chained((json.dumps({"session": one}) for one in empty.sessions), header)))
    counts = {"passes": 0, "samples": 0}

    def written() -> Iterator[str]:
        for sample in samples(parts, repeats):
            counts["passes"] += len(sample.packed_passes or ())
            counts["samples"] += 1
            yield sample.model_dump_json()

    with (directory / SAMPLES).open("wb") as file:
        file.writelines(chained(written(), header))
    size = sum(file.stat().st_size for file in directory.iterdir())
    return counts | {"cases": len(empty.header.cases), "megabytes_on_disk": round(size / 1e6, 1)}


def every_case(parts: list[synthetic.Part]) -> frozenset[str]:
    """The ids of all cases."""
    return frozenset(synthetic.case(part, arm, task).case_id for part in parts for task in part.tasks for arm in part.arms)


def samples(parts: list[synthetic.Part], repeats: int) -> Iterator[Sample]:
    """Every sample, warm-ups first, in the order of the cases."""
    luck = random.Random(8)
    for part in parts:
        for task in part.tasks:
            for arm in part.arms:
                case_id = synthetic.case(part, arm, task).case_id
                for repeat in range(-1, repeats):
                    groups = range(part.prompts // part.batch_size) if repeat >= 0 else range(1)
                    for group in groups:
                        yield sample(part, arm, case_id, group, repeat, luck)


def sample(part: synthetic.Part, arm: synthetic.Arm, case_id: str, group: int, repeat: int, luck: random.Random) -> Sample:
    """One decode: rows of the same length, durations of log-normal noise, a share of a block decided in each pass."""
    size, tokens = part.batch_size, 1 + 16 * part.blocks
    prompts = [40 + 7 * ((group * size + row) % 5) for row in range(size)]
    passes = columns(arm, prompts, part.blocks, luck)
    decode_s = sum(passes.forward_s or ()) + sum(passes.sampler_s or ()) - (passes.forward_s or [0.0])[0]
    rows = [
        RowResult(
            prompt_id=f"p{group * size + row}",
            prompt_tokens=prompts[row],
            output_tokens=tokens,
            output_ids=[luck.randrange(VOCAB) for _ in range(tokens)],
            stop_reason="length",
            correct=luck.random() < 0.8,
        )
        for row in range(size)
    ]
    return Sample(
        case_id=case_id,
        group=group,
        repeat=max(repeat, 0),
        warmup=repeat < 0,
        seed=1,
        rows=rows,
        passes=passes,
        prefill_s=(passes.forward_s or [0.0])[0],
        decode_s=decode_s * 1.03,
        started_at="2026-11-20T10:00:00.000+00:00",
        load_1min=0.3,
        meters={"kernel_before_s": 0.01 * luck.uniform(1, 1.02), "kernel_after_s": 0.01 * luck.uniform(1, 1.02)},
    )


def columns(arm: synthetic.Arm, prompts: list[int], blocks: int, luck: random.Random) -> PassColumns:
    """The passes of one batch whose prompts are so long."""
    rows, longest = len(prompts), max(prompts)
    steps = [("prefill", longest, 1, 0, 1)] + [("decide", 1, 1, 1, 1)] * (16 * blocks)
    if arm.gamma is not None:
        count = arm.passes_per_block
        shares = [16 * (i + 1) // count - 16 * i // count for i in range(count)]
        steps = [("prefill", longest, 1, 0, 1)]
        for block in range(blocks):
            opening = ("commit+decide", 32, 16, 16, shares[0]) if block else ("decide", 16, 16, 0, shares[0])
            steps += [opening, *(("decide", 16, 16, 0, share) for share in shares[1:])]
    role, query, logits, kept, final = (list(column) for column in zip(*steps, strict=True))
    committed = [0, *(sum(kept[1:i]) for i in range(1, len(steps)))]
    slots = [None if name == "prefill" else [sorted(luck.sample(range(16), share))] * rows for name, _, _, _, share in steps]
    return PassColumns(
        role=role,
        query_tokens=[prompts] + [[one] * rows for one in query[1:]],
        context_tokens=[[0] * rows] + [[prompt + done for prompt in prompts] for done in committed[1:]],
        logit_tokens=[[one] * rows for one in logits],
        kept_tokens=[prompts] + [[one] * rows for one in kept[1:]],
        decided_tokens=[[one] * rows for one in final],
        final_tokens=[[one] * rows for one in final],
        active=[[True] * rows] * len(steps),
        padded_query=query,
        padded_context=[0] + [longest + done for done in committed[1:]],
        decided_slots=slots if arm.gamma is not None else None,
        forward_s=[(0.01 + 2e-4 * one) * luck.lognormvariate(0, 0.02) for one in query],
        sampler_s=[0.0] + [7e-4 * luck.lognormvariate(0, 0.1) for _ in query[1:]],
    )


def timed(what: Callable[[], T]) -> tuple[T, float, float]:
    """The result, the seconds it took by the clock, and those of the processor, in this process and those it forked."""
    start, processor = time.perf_counter(), sum(os.times()[:4])
    found = what()
    return found, time.perf_counter() - start, sum(os.times()[:4]) - processor


def read(directory: Path) -> dict[str, float]:
    """Load the run, then make its page from the directory as `sbd report` does, which loads it again."""
    from harness.record.store import read_run
    from harness.reporting import write_report

    run, load_s, load_cpu_s = timed(lambda: read_run(directory))
    assert isinstance(run, Run)
    del run
    page, render_s, render_cpu_s = timed(lambda: write_report(directory))
    return {
        "load_s": round(load_s, 2),
        "load_cpu_s": round(load_cpu_s, 2),
        "render_s": round(render_s, 2),
        "render_cpu_s": round(render_cpu_s, 2),
        "page_megabytes": round(page.stat().st_size / 1e6, 1),
    }


if __name__ == "__main__":
    main()
