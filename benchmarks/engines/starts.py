"""How long a run of the command line takes until its arms are decoding."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engines.figures import NotMeasured
from harness.hardware.profile import Calibration
from harness.record.schema import Run, Sample
from harness.record.store import read_run

HERE = Path(__file__).resolve().parent
MOST_S = 900.0


def started(name: str) -> dict[str, float]:
    """Run start_NAME.yaml from the start of a process on.

    Raises:
        NotMeasured: it fails, or calibrates this machine: that is not part of the wait.
    """
    with TemporaryDirectory() as folder:
        out = Path(folder, "run")
        words = [sys.executable, "-m", "harness", "run", str(HERE / f"start_{name}.yaml"), "--out", str(out), "--no-report"]
        begun_at, begun_s = int(time.time()), time.monotonic()
        try:
            subprocess.run(words, check=True, capture_output=True, text=True, timeout=MOST_S, cwd=HERE.parents[1])
        except (OSError, subprocess.SubprocessError) as error:
            raise NotMeasured(f"sbd run: {(getattr(error, 'stderr', None) or str(error)).strip()[-300:]}") from error
        held = read_run(out)
    if calibrated_after(held, begun_at):
        raise NotMeasured("the run calibrated this machine first")
    ntp = {case.case_id for case in held.header.cases if case.arm.method == "ntp"}
    return waits_of(held.samples, ntp, begun_s)


def calibrated_after(held: Run, begun_at: float) -> bool:
    """Whether a calibration of the run is younger than the seconds of a wall clock."""
    found = map(Calibration.model_validate, (held.header.calibration or {}).values())
    return any(datetime.fromisoformat(one.created_at).timestamp() >= begun_at for one in found)


def waits_of(samples: Sequence[Sample], ntp: set[str], begun_s: float) -> dict[str, float]:
    """Seconds from ``begun_s`` to the end of the first decode of a case in ``ntp``, and the longest that any other case takes
    from the end of the sample before it to the end of its own first. Clocks are monotonic.
    """
    first_s: float | None = None
    seen: set[str] = set()
    longest_s = before_s = 0.0
    for one in sorted(samples, key=lambda one: one.started_clock_s or 0.0):
        ended_s = one.ended_clock_s
        assert ended_s is not None, "a sample of this program has its times"
        if one.case_id in ntp:
            first_s = ended_s - begun_s if first_s is None else first_s
        elif one.case_id not in seen:
            longest_s = max(longest_s, ended_s - before_s)
        seen.add(one.case_id)
        before_s = ended_s
    if first_s is None or not before_s:
        raise NotMeasured("the run has no sample of NTP")
    return {"first_sample_s": first_s, "next_arm_s": longest_s}
