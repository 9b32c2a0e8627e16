"""In bfloat16 no two kernels give the same bits; what must agree is the token, wherever the logits can tell two apart."""

from __future__ import annotations

import pytest
import torch
import transformers

from harness.decoding.request import prefill
from harness.decoding.session import Segment
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.models.choice import REFERENCE_DIR
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems

BLOCK = 8


def reference_model():
    """The shipped SBD model in bfloat16."""
    return transformers.AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.bfloat16).eval()


def teacher_forced_logits(session, prompt, solution, mask_id):
    """(n, V) float32: the next-token and the masked logits of every step, the right tokens being fed whatever is predicted."""
    device = torch.device("cpu")
    first, _ = prefill(session, [prompt], device, room=len(solution) + 3 * BLOCK)
    found = [first]
    known = len(prompt)
    for start in range(0, len(solution) - BLOCK, BLOCK):
        tokens = torch.tensor([solution[start : start + BLOCK]])
        here = torch.arange(known, known + BLOCK)[None]
        masks = torch.full_like(tokens, mask_id)
        segments = [
            Segment(tokens=tokens, positions=here, visibility="causal", logits=BLOCK),
            Segment(tokens=masks, positions=here + BLOCK, visibility="bidirectional", logits=BLOCK),
        ]
        found.append(session.forward(segments)[0])
        session.keep([BLOCK])
        known += BLOCK
    return torch.cat(found).float()


@pytest.mark.parametrize("execution", ["eager", "native"])
def test_the_engine_chooses_the_tokens_of_the_plain_session(execution, record_property):
    """Teacher-forced against eager bfloat16: of the positions whose two best logits differ by more than their rounding,
    99 % have the same best token. The others are counted, not hidden.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    plain, engine = TransformersSession(reference_model(), "sdpa"), StaticSession(reference_model(), execution)
    agreed = clear = every = 0
    for problem in problems(TASKS["word_problems"], "validation", 24, 1):
        prompt = tokenizer(problem.prompt)["input_ids"]
        solution = tokenizer(problem.solution, add_special_tokens=False)["input_ids"]
        ours, theirs = (teacher_forced_logits(s, prompt, solution, tokenizer.mask_token_id) for s in (engine, plain))
        best = theirs.topk(2, dim=-1).values
        rounding = torch.exp2(best[:, 0].abs().log2().floor() - 7)  # bfloat16 keeps 8 bits of the larger logit
        is_clear = best[:, 0] - best[:, 1] > rounding
        agreed += int((ours.argmax(-1) == theirs.argmax(-1))[is_clear].sum())
        clear, every = clear + int(is_clear.sum()), every + len(best)
    record_property("share_of_positions_too_close_to_tell", 1 - clear / every)
    assert clear > 500
    assert agreed >= 0.99 * clear, f"{agreed} of {clear} clear positions agree; {every - clear} of {every} are too close"
