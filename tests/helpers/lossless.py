"""Runs with other outputs than they had."""

from __future__ import annotations

from tests.helpers import synthetic_run as synthetic


def outputs_changed(label: str, prompts: set[str], repeat: int = 1, timed: bool = True, **found: object):
    """A synthetic run in which one arm wrote something else on some prompts, and has these values on its axes besides."""
    run = synthetic.build(synthetic.Part(repeats=2, timed=timed))
    cases = [case.model_copy(update={"arm": case.arm | found}) if case.label == label else case for case in run.header.cases]
    changed = next(case.case_id for case in cases if case.label == label)
    samples = [
        sample.model_copy(
            update={
                "rows": [
                    row.model_copy(update={"output_ids": [*row.output_ids[:-1], 8]})
                    if row.prompt_id in prompts and sample.repeat == repeat
                    else row
                    for row in sample.rows
                ]
            }
        )
        if sample.case_id == changed
        else sample
        for sample in run.samples
    ]
    return run.model_copy(update={"samples": samples, "header": run.header.model_copy(update={"cases": cases})})
