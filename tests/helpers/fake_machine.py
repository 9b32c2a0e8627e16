"""A machine and an engine that decode nothing and keep count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import DoesNotFitError
from harness.record.decode import Readings
from harness.record.schema import RowTimes
from harness.record.trace import ForwardPass, Generation
from harness.runner.protocols import Machine
from tests.helpers.scenarios import write

SCENARIO = """
version: 1
name: fake
parts:
  - name: one
    model: {random: llama-250m}
    dtype: bfloat16
    arms: [{method: ntp}, {method: sbd, block_size: 8, acceptance: {replay: {nfe_speedup: 2.0}}}]
    workload: {synthetic: {prompt_tokens: 4}, prompts: 4, max_new_tokens: 3}
    batch_sizes: [1, 2]
    repeats: 2
    baseline_check: 0
"""


@dataclass
class FakeDecoded:
    """One decode of known length and time."""

    generation: Generation
    prefill_s: float = 0.5
    decode_s: float = 2.0
    forward_s: tuple[float, ...] = (0.5, 1.0, 1.0)
    sampler_s: tuple[float, ...] = (0.0, 0.25, 0.25)
    readings: Readings | None = None
    row_times: list[RowTimes] | None = None


def generation(rows: int) -> Generation:
    """A prefill and two passes that make three tokens in every row."""

    def forward_pass(role, final):
        return ForwardPass(
            role=role,
            query_tokens=(1,) * rows,
            context_tokens=(4,) * rows,
            logit_tokens=(1,) * rows,
            kept_tokens=(1,) * rows,
            decided_tokens=(final,) * rows,
            final_tokens=(final,) * rows,
            active=(True,) * rows,
            padded_query=1,
            padded_context=4,
        )

    passes = (forward_pass("prefill", 1), forward_pass("decide", 1), forward_pass("decide", 1))
    return Generation(passes=passes, prompt_tokens=(4,) * rows, output_ids=((5, 6, 7),) * rows, stop_reasons=("length",) * rows)


class FakeEngine:
    """Counts its decodes; can fail at the n-th one with a given error, or for one batch size. The n-th decode of a case
    takes the n-th time of the script a pass, those after it the last one.
    """

    tokenizer = None
    meters: dict[str, object] | None = None
    readings: Readings | None = None
    row_times: list[RowTimes] | None = None
    script_s: Sequence[float] = (1.0,)

    def __init__(self, shape, fail_at=None, error=None, too_big=None):
        self.shape, self.fail_at, self.error, self.too_big = shape, fail_at, error, too_big
        self.decoded = []

    def fingerprint(self, part):
        """Enough to tell the part."""
        return {"seen": part.name}

    def measure_passes(self, block_sizes, beside=()):
        """One short decode of NTP."""
        self.measured = [*getattr(self, "measured", []), tuple(block_sizes)]
        return [FakeDecoded(generation(1))]

    def decode(self, case, prompts, seed):
        """A fixed answer."""
        if self.too_big == case.batch_size:
            raise DoesNotFitError(f"batch {case.batch_size} does not fit")
        if self.fail_at is not None and len(self.decoded) == self.fail_at:
            self.fail_at = None  # once
            raise self.error
        self.decoded.append((case.case_id, tuple(prompts), seed))
        done = sum(case_id == case.case_id for case_id, _, _ in self.decoded)
        pass_s = self.script_s[min(done, len(self.script_s)) - 1]
        return FakeDecoded(generation(len(prompts)), forward_s=(0.5, pass_s, pass_s), readings=self.readings)


def fake_machine(engine, free_bytes=None):
    """A machine with no calibration and no profile."""
    return Machine(
        open_engine=lambda part: engine,
        calibrate=lambda part, shape, progress, known: None,
        free_bytes=lambda part: free_bytes,
        profile=lambda scenario: (None, "a fake machine"),
        execution=lambda part: "eager",
        shape=lambda part: engine.shape,
    )


def uncalibrated():
    """This machine, whose rates nobody measures: a calibration beside other tests is taken twice and not kept."""
    from harness.runner.local_machine import this_machine

    return replace(this_machine(), calibrate=lambda part, shape, progress, known: None)


def run_of(scenario: str, folder: Path) -> Path:
    """The record of a scenario, taken here without a calibration."""
    from harness.runner.runner import run

    return run(write(folder, scenario), folder / "out", machine=uncalibrated())
