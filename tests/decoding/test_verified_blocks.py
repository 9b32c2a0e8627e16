"""What verified SBD and self-speculation feed and keep, against the same module run uncached; what they write on the reference
model; and their rows by hand.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
import transformers

from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER, StopRule
from harness.engine.static_session import StaticSession
from harness.models.choice import REFERENCE_DIR
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems
from tests.helpers.few_words import BY_SOLVER, MASK_ID, METHODS, WORDS, Work, decoder, few_words
from tests.helpers.pass_spy import PassSpy
from tests.helpers.sessions import SESSIONS
from tests.helpers.tiny_model import TOLERANCE, check_kv, drain, reference_logits


@cache
def reference_work(prompts_of_each_task, max_new_tokens):
    """The shipped model in float64, its mask, and what greedy NTP writes for prompts of three tasks in one batch."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    model = transformers.AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float64).eval()
    tasks = ("word_problems", "record_to_json", "short_trace")
    texts = [problem.prompt for task in tasks for problem in problems(TASKS[task], "test", prompts_of_each_task, 5)]
    request = replace(
        Work(tuple(tuple(tokenizer(text)["input_ids"]) for text in texts), NEVER, max_new_tokens).request(),
        stop=StopRule(token_ids=frozenset({tokenizer.eos_token_id})),
        suppressed_ids=(tokenizer.mask_token_id,),
    )
    session = StaticSession(model)
    return session, request, tokenizer.mask_token_id, drain(decode_next_token(session, request)).output_ids


@pytest.mark.parametrize("drafts", [*BY_SOLVER, "self-speculation"])
@pytest.mark.parametrize(
    ("prompts", "max_new_tokens"), [pytest.param(1, 20, id="few"), pytest.param(67, 24, id="201", marks=pytest.mark.full)]
)
def test_the_reference_model_writes_greedy_ntps_tokens_whatever_drafts(drafts, prompts, max_new_tokens):
    """Every solver at three settings, linear and quadratic, in blocks of 8 on 3 or on 201 prompts."""
    session, request, mask_id, expected = reference_work(prompts, max_new_tokens)
    for method in BY_SOLVER.get(drafts, ("linear", "quadratic")):
        assert drain(decoder(method, session, request, 8, mask_id=mask_id)).output_ids == expected, method


def expected_logits(model, committed, fed, block_size):
    """Per kind of segment the logits that uncached forwards give: each draft behind its prefix, each group of masks alone."""
    checked = fed["causal"][0] if "causal" in fed else []
    if "causal" in fed:
        yield "causal", reference_logits(model, committed + checked, [False] * len(committed + checked), len(checked))
    if "bidirectional" in fed:
        block = fed["bidirectional"][0]
        before = committed + checked
        yield "bidirectional", reference_logits(model, before + block, [False] * len(before) + [True] * len(block), len(block))
    if "explicit" in fed:
        drafts = fed["explicit"][0][: len(fed["explicit"][0]) // (block_size + 1)]
        assert fed["explicit"][0][len(drafts) :] == [MASK_ID] * block_size * len(drafts)
        logits = [reference_logits(model, committed + drafts, [False] * len(committed + drafts), len(drafts))]
        for end in range(1, len(drafts) + 1):
            before = committed + drafts[:end]
            sequence, in_block = before + [MASK_ID] * block_size, [False] * len(before) + [True] * block_size
            logits.append(reference_logits(model, sequence, in_block, block_size))
        yield "explicit", torch.cat(logits)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("rows", [1, 3])
def test_every_logit_equals_the_uncached_forward(architecture, kind, method, rows):
    """Catches a wrong mask, position, slot or padding in any pass, checked, drafted or both; and after every pass the KV of
    each row is that of a causal prefill of its prompt and its output but the newest token.
    """
    model, spy = few_words(architecture, 12), PassSpy(SESSIONS[kind](few_words(architecture, 12)))
    work = Work(prompts=((1, 5, 3, 3, 2, 0, 7), (1, 2), (4, 4, 6))[:rows], stop=NEVER, max_new_tokens=11)
    passes = []
    for one in decoder(method, spy, work.request(), 4):
        passes.append(one)
        for row, committed in enumerate(spy.committed):
            check_kv(spy.inner, row, model, committed, TOLERANCE[kind])
    outputs = drain(decoder(method, spy.inner, work.request(), 4)).output_ids
    assert [list(p + o[:-1]) for p, o in zip(work.prompts, outputs, strict=True)] == spy.committed
    assert len(spy.calls) == rows * len(passes)
    allowed = torch.arange(WORDS + 1) != MASK_ID  # the decoder suppresses the mask token in place
    for index, (row, committed, fed) in enumerate(spy.calls):
        one = passes[index // rows]
        assert one.active[row] == bool(fed), "a row that has ended feeds padding only"
        assert one.context_tokens[row] == len(committed) or not fed
        assert one.query_tokens[row] == sum(len(tokens) for tokens, _ in fed.values())
        for visibility, expected in expected_logits(model, committed, fed, 4):
            expected = expected[-len(fed[visibility][1]) :]  # of a prompt only the last is wanted
            assert (fed[visibility][1][:, allowed] - expected[:, allowed]).abs().max() < TOLERANCE[kind], visibility
