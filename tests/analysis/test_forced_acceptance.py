"""Acceptance for other engines, by hand on a recorded decode."""

from __future__ import annotations

import pytest

from harness.analysis.evidence.acceptance import forced_acceptance
from harness.errors import UserError
from harness.record.passes import read_passes
from harness.record.schema import Run
from harness.record.trace import PassColumns
from tests.helpers import synthetic_run as synthetic

LABEL = "SBD k=16 γ=0.1"


def run_of(*final: int, roles: tuple[str, ...] = ()) -> Run:
    """A run whose arm of LABEL made these tokens final, pass by pass, in every decode; the first pass is the prompt's."""
    run = synthetic.build(batch_size=1)
    count = len(final) + 1
    ones, final_tokens = [[1]] * count, [[1], *([one] for one in final)]
    passes = PassColumns.model_validate(
        {
            "role": ["prefill", *(roles or ("verify",) * len(final))],
            "query_tokens": [[4]] * count,
            "context_tokens": ones,
            "logit_tokens": [[4]] * count,
            "kept_tokens": final_tokens,
            "decided_tokens": final_tokens,
            "final_tokens": final_tokens,
            "active": [[True]] * count,
            "padded_query": [4] * count,
            "padded_context": [1] * count,
        }
    )
    cases = {case.case_id for case in run.header.cases if case.label == LABEL}
    return synthetic.altered(run, lambda one: {"packed_passes": read_passes(passes)} if one.case_id in cases else {})


def test_rates_are_shares_of_passes_without_the_last() -> None:
    """Tokens 1, 3, 2, 3 and a cut pass: of 4 passes 3 accepted a draft and 2 accepted two; 2.25 tokens a pass."""
    found = forced_acceptance(run_of(1, 3, 2, 3, 9), LABEL)
    assert found.rates == (0.75, 0.5) and found.tokens_per_pass == 2.25 and found.own_draft_passes == 0
    assert 1 + sum(found.rates) == found.tokens_per_pass, "the expectation is the sum of the tail probabilities"
    told = found.engines()
    assert '"synthetic_acceptance_rates": [0.7500, 0.5000]' in told["vLLM"] and '"num_speculative_tokens": 2' in told["vLLM"]
    assert "SGLANG_SIMULATE_ACC_LEN=2.2500" in told["SGLang"] and "nextn_accepted=1.2500" in told["aiconfigurator"]


def test_passes_that_only_draft_are_told_apart() -> None:
    """As in linear self-speculation: one for each that verifies."""
    found = forced_acceptance(run_of(0, 2, 0, 4, 0, 1, roles=("draft", "verify") * 3), LABEL)
    assert found.tokens_per_pass == 3 and found.own_draft_passes == 1.5


def test_what_no_engine_can_force_is_refused() -> None:
    """A pass that decides nothing, and an arm that is not there."""
    with pytest.raises(UserError, match="make no token final"):
        forced_acceptance(run_of(2, 0, 2, 1), LABEL)
    with pytest.raises(UserError, match="there is no arm 'nothing'; it has 'NTP'"):
        forced_acceptance(run_of(2, 1), "nothing")
