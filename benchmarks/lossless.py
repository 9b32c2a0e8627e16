"""How often decoding without loss writes NTP's very tokens in bfloat16 and float32, task by task, on the reference model.

    python -m benchmarks.lossless [RUN]

RUN: a run measured earlier, of any scenario with such arms; its lossy arms are left out. reports/every_arm_accuracy has them
all, in bfloat16; benchmarks.published brings its record back.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measured_run import measured_run
from benchmarks.results_file import write_results
from benchmarks.solvers import GREEDY
from harness.analysis.answer import compare

SCENARIO = Path(__file__).parent / "lossless.yaml"


def main() -> None:
    """Decode (or read RUN), print, write."""
    figures: dict[str, float] = {}
    print("dtype | task | arm | prompts | identical to NTP | NFE speedup")
    held = measured_run(SCENARIO)
    for cell in compare(held).cells:
        for arm in cell.arms:
            same = arm.identical_to_ntp
            if cell.is_summary or same.value is None or arm.lossless != GREEDY:
                continue
            print(f"{cell.part} | {cell.task} | {arm.label} | {same.n} | {same.value:.3f} | {arm.nfe_speedup.value:.2f}x")
            figures[f"identical_to_ntp/{cell.part}/{cell.task}/{arm.case_ids[0].rpartition('/')[2]}"] = same.value
    write_results("lossless", figures, held.header.environment)


if __name__ == "__main__":
    main()
