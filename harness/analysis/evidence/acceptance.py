"""An arm's recorded acceptance in the form that engines take to force one, so that it can be timed inside them at full size.

vLLM 0.32 (config/speculative.py) and llama.cpp b11434 (common/arg.cpp) take the probability that the first i + 1 drafts are all
accepted. SGLang 0.5 takes the mean tokens of a verifying pass, the bonus token included (speculative/spec_utils.py), and
aiconfigurator drafts and accepted drafts. What such an engine then measures is replayed: the acceptance is given, not found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.analysis.tally.pass_arrays import ROLES, TraceArrays
from harness.analysis.trust.health import without_void_times
from harness.errors import UserError
from harness.frozen import frozen
from harness.record.schema import Run
from harness.scenario.arm_names import refuse_unknown_arms, same_arm

DRAFT = ROLES.index("draft")


@frozen
class ForcedAcceptance:
    """``rates[i]``: share of the verifying passes whose first i + 1 drafts were accepted. ``tokens_per_pass``: their mean,
    bonus included. ``passes``: how many were counted; the last one of an answer, which its end cuts, is not.
    ``own_draft_passes``: passes of the same model that only drafted, for each that verified; an engine must make them, too.
    """

    label: str
    rates: tuple[float, ...]
    tokens_per_pass: float
    passes: int
    own_draft_passes: float

    def engines(self) -> dict[str, str]:
        """What to give each engine, as one writes it."""
        rates = ", ".join(f"{one:.4f}" for one in self.rates)
        mean = self.tokens_per_pass - 1
        return {
            "vLLM": f'--speculative-config \'{{..., "num_speculative_tokens": {len(self.rates)}, '
            f'"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [{rates}]}}\'',
            "llama.cpp": f"--spec-draft-n-max {len(self.rates)} --spec-synth-rates {rates.replace(' ', '')}",
            "SGLang": f"SGLANG_SIMULATE_ACC_LEN={self.tokens_per_pass:.4f} (with {len(self.rates)} draft tokens)",
            "TensorRT-LLM": f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={round(mean)} (whole tokens; the mean is {mean:.2f})",
            "aiconfigurator": f"nextn={len(self.rates)} nextn_accepted={mean:.4f}",
        }


def forced_acceptance(run: Run, label: str) -> ForcedAcceptance:
    """Of all decodes of the arms with this label.

    Raises:
        UserError: no such arm; or an arm whose passes can decide nothing, which no verifying engine does.
    """
    known = dict.fromkeys(case.label for case in run.cases if not case.is_check)
    refuse_unknown_arms([label], known, f"--arm {label!r}, run {run.header.run_id[:10]}")
    label = next(one for one in known if same_arm(label, one))
    wanted = {case.case_id for case in run.cases if case.label == label}
    made: list[int] = []
    drafting = 0
    for case, sample in without_void_times(run)[0].of_arms():
        if case.case_id in wanted:
            if sample.packed_passes is None:
                raise UserError(f"{label}: the passes of a sample are unknown, or counts disagree; give a run that has them")
            found, of_drafts = _tokens_of_passes(TraceArrays(sample.packed_passes))
            made, drafting = made + found, drafting + of_drafts
    if not made or min(made) < 1:
        raise UserError(
            f"{label}: {'it left no whole pass' if not made else 'some of its passes make no token final'}; "
            "engines force the acceptance of drafts that every pass checks: give an arm that decodes without loss"
        )
    most = max(made)
    rates = tuple(float(np.mean(np.asarray(made) > accepted)) for accepted in range(1, most))
    return ForcedAcceptance(
        label=label, rates=rates, tokens_per_pass=float(np.mean(made)), passes=len(made), own_draft_passes=drafting / len(made)
    )


def _tokens_of_passes(trace: TraceArrays) -> tuple[list[int], int]:
    """Final tokens of every row's verifying passes but its last, and the number of passes that only draft."""
    own, only_draft = trace.own, trace.role == DRAFT
    final, active = trace.per_row("final_tokens")[own & ~only_draft], trace.per_row("active")[own & ~only_draft]
    rows: Sequence[int] = range(trace.rows)
    tokens = [int(one) for row in rows for one in final[active[:, row].astype(bool), row][:-1]]
    return tokens, int(trace.per_row("active")[own & only_draft].sum())
