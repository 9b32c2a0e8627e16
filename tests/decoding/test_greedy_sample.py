"""The sampler of native forwards: the figures of one walk against the definitions, and decodes by it against the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from harness.decoding.acceptance import ReplayedAcceptance, SolverAcceptance, assumed_passes
from harness.decoding.next_token import decode_next_token
from harness.decoding.sampling import FusedFigures, NativeFigures
from harness.decoding.set_block import decode_set_block
from harness.engine.engine import drain, open_engine
from harness.engine.static_session import StaticSession
from harness.kernels.library import why_not_built
from harness.models.choice import REFERENCE_DIR
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems
from tests.helpers.drawn_logits import decide_alike, defined, some_logits
from tests.helpers.few_words import MASK_ID, SETTINGS, few_words, some_work
from tests.helpers.plans import plan_of
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import request

pytestmark = pytest.mark.skipif(why_not_built() is not None, reason="no C++ compiler")


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 896, 50_257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_figures_are_those_of_float64(vocabulary, dtype):
    """Every figure within 1e-5 of the definitions, tokens exactly; NaN and impossible words among the logits."""
    for seed, temperature in enumerate((0.0, 1.0, 0.5, 2.0)):
        logits = some_logits(3, 5, vocabulary, seed).to(dtype)
        found, (wanted, *others) = NativeFigures(logits, temperature), defined(logits, temperature or 1.0)
        assert torch.equal(found.tokens, wanted.long())
        for figure, other in zip((found.entropy, found.confidence, found.margin), others, strict=True):
            torch.testing.assert_close(figure.double(), other, rtol=0, atol=1e-5, equal_nan=True)


def test_decisions_are_those_of_the_reference():
    """100,000 slots with ties: the same tokens, and the same set by every solver."""
    decide_alike(NativeFigures, 2_500)


@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
@pytest.mark.parametrize("name", [*SETTINGS, "replay", "ntp"])
def test_decodes_are_those_of_the_reference(name, batching):
    """The same outputs in the same passes, slot for slot, in batches that stop early and late."""
    for seed in (1, 4):
        work, found = some_work(seed, 3), []
        for figures in (None, NativeFigures):
            session = StaticSession(few_words("llama", seed).float())
            asked = replace(work.request(), figures=figures)
            if name == "ntp":
                found.append(drain(decode_next_token(session, asked)))
                continue
            replay = name == "replay"
            acceptance = (
                ReplayedAcceptance(assumed_passes(4, 2.0), 1)
                if replay
                else SolverAcceptance(SOLVERS[name], **SETTINGS[name][1])
            )
            found.append(
                drain(decode_set_block(session, asked, block_size=4, mask_id=MASK_ID, acceptance=acceptance, batching=batching))
            )
        assert found[0] == found[1]


def test_a_real_decode_is_that_of_the_reference():
    """The shipped model in float32, whose entropies another order of summation rounds otherwise: the same tokens in the same
    passes, by NTP and by SBD.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    model = transformers.AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float32).eval()
    mask_id = tokenizer.mask_token_id
    for problem in problems(TASKS["word_problems"], "validation", 4, 1):
        found = []
        for figures in (None, NativeFigures):
            asked = request(
                [tuple(tokenizer(problem.prompt)["input_ids"])], max_new_tokens=48, mask_ids=(mask_id,), figures=figures
            )
            acceptance = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=0.003)
            ntp = drain(decode_next_token(StaticSession(model), asked))
            sbd = decode_set_block(StaticSession(model), asked, block_size=16, mask_id=mask_id, acceptance=acceptance)
            found.append((ntp, drain(sbd)))
        assert found[0] == found[1]


@pytest.mark.parametrize(("execution", "kind"), [("native", NativeFigures), ("auto", NativeFigures), ("eager", None)])
def test_who_reads_logits_by_the_kernels(execution, kind):
    """Every arm of a part whose forwards are native, and nobody else: eager is the reference."""
    plan = plan_of(
        model={"reference": "sbd"},
        dtype="float32",
        execution=execution,
        timed=False,
        arms=[{"method": "ntp"}, {"method": "sbd_verified", "block_size": 4, "gamma": 99}],
        workload={"tasks": ["word_problems"], "prompts": 1, "max_new_tokens": 4},
    )
    engine, seen = open_engine(plan.cases[0].part), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeFigures, "tokens", property(lambda self: seen.append(kind) or FusedFigures.tokens.fget(self)))
        for case in plan.cases:
            engine.decode(case, [(5, 6, 7)], seed=1)
    assert bool(seen) == (kind is not None)
