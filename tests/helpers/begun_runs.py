"""Runs that have begun: a header and a few samples on disk."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.models import KNOWN_SHAPES
from harness.record.schema import CaseHeader, PassColumns, RowResult, RunHeader, Sample
from harness.record.store import RunStore


def make_header(**changes: object) -> RunHeader:
    """The header of a run with one case."""
    case = CaseHeader(
        case_id="c",
        part="p",
        arm={"method": "ntp"},
        label="NTP",
        batch_size=1,
        task="t",
        model=KNOWN_SHAPES["llama-250m"],
        model_source={"random": "llama-250m"},
        dtype="bfloat16",
        device="cpu",
        attention="sdpa",
        timed=True,
    )
    fields = {
        "run_id": "r1",
        "scenario_name": "s",
        "question": "?",
        "scenario": {"seed": 1, "parts": [{"name": "p"}]},
        "scenario_digest": "d1",
        "command": "sbd run s",
        "created_at": "2026-01-01T00:00:00",
        "cases": [case],
        "hardware": None,
        "environment": {},
    }
    return RunHeader.model_validate(fields | changes)


def make_sample(group: int, text: str = "a") -> Sample:
    """A sample of one row and one pass."""
    passes = PassColumns(
        role=["decide"],
        query_tokens=[[1]],
        context_tokens=[[4]],
        logit_tokens=[[1]],
        kept_tokens=[[1]],
        decided_tokens=[[1]],
        final_tokens=[[1]],
        active=[[True]],
        padded_query=[1],
        padded_context=[4],
        forward_s=[0.25],
    )
    row = RowResult(prompt_id=text, prompt_tokens=4, output_tokens=1, output_ids=[7], stop_reason="length", correct=None)
    return Sample(
        case_id="c",
        group=group,
        repeat=0,
        warmup=False,
        seed=1,
        rows=[row],
        passes=passes,
        prefill_s=0.1,
        decode_s=0.25,
        started_at="2026-01-01T00:00:00",
        load_1min=0.0,
    )


def begun(folder: Path, samples: int = 0) -> Path:
    """A run with some samples."""
    with RunStore(folder) as store:
        store.create(make_header())
        for group in range(samples):
            store.append(make_sample(group))
    return folder


@contextmanager
def resumed(folder: Path, lent: int | None = None) -> Iterator[RunStore]:
    """The run continued, with a lock of its own or a lent one; sealed in the end."""
    with RunStore(folder, lent) as store:
        store.resume(make_header().scenario, "d1")
        yield store


def full_disk(descriptor: int) -> None:
    """Stands for os.fsync where nothing more fits."""
    raise OSError(errno.ENOSPC, "No space left on device")
