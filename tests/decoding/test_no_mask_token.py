"""A checkpoint without a mask token: next-token prediction and prompt lookup have no use for one."""

from __future__ import annotations

import pytest
import torch

from harness.decoding.drafters import PromptLookup
from harness.decoding.next_token import decode_next_token
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.engine import drain
from harness.engine.plain_session import TransformersSession
from tests.helpers.few_words import few_words
from tests.helpers.tiny_model import request


@pytest.mark.parametrize("method", ["ntp", "prompt lookup"])
def test_what_generate_writes(method):
    """Greedy, row by row, with no id forbidden."""
    model, prompts = few_words("llama", 2), ((1, 2, 3, 1, 2), (4, 5))
    asked = request(prompts, max_new_tokens=12, mask_ids=())
    session = TransformersSession(model, "sdpa")
    written = drain(
        decode_next_token(session, asked)
        if method == "ntp"
        else decode_draft_and_check(session, asked, PromptLookup(3, 2, (), ()))
    ).output_ids
    for prompt, output in zip(prompts, written, strict=True):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            for _ in range(12):
                ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        assert output == tuple(ids[0, len(prompt) :].tolist())
