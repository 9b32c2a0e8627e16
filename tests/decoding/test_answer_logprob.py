"""Likelihoods of given answers on both sessions, against the plain module fed one growing sequence after another."""

from __future__ import annotations

import math

import pytest
import torch

from harness.decoding.next_token import answer_logprobs
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from tests.helpers.few_words import MASK_ID, few_words

PAIRS = [((1, 2, 3, 4), (5,)), ((6,), (0, 1, 2, 3)), ((1, 1), (7, 7)), ((3, 2, 1), (4,))]


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("session", ["plain", "static"])
def test_sums_and_greedy_are_those_of_the_module(architecture, session):
    """Rows of unlike lengths in one batch, in float64. The mask token has no probability, as for every arm: on a random model
    it would else take a ninth of it. One answer is made greedy, so that both outcomes are seen.
    """
    module = few_words(architecture, seed=4)

    def by_hand(context, answer):
        total, behind, fed, greedy = 0.0, 0.0, list(context), []
        for token in answer:
            logits = module(torch.tensor([fed])).logits[0, -1]
            logits[MASK_ID] = -math.inf
            total += float(logits[token] - logits.logsumexp(0))
            behind += float(logits.max() - logits[token])
            greedy.append(int(logits.argmax()))
            fed.append(token)
        return total, greedy, behind

    with torch.no_grad():
        first = by_hand((2, 5), (0,))[1]
        pairs = [*PAIRS, ((2, 5), tuple(first))]
        expected = [by_hand(*pair) for pair in pairs]
        opened = StaticSession(few_words(architecture, seed=4)) if session == "static" else TransformersSession(module, "sdpa")
        found = answer_logprobs(opened, pairs, (MASK_ID,), torch.device("cpu"))
        again = answer_logprobs(opened, pairs[1:2], (MASK_ID,), torch.device("cpu"))
    for (total, greedy, behind), (sum_, tokens, nats), (_, answer) in zip(found, expected, pairs, strict=True):
        assert total == pytest.approx(sum_, abs=1e-9) and greedy == (tokens == list(answer))
        assert behind == pytest.approx(nats, abs=1e-9) and (behind == 0) == greedy
    assert {one.greedy for one in found} == {True, False}
    assert again[0][0] == pytest.approx(found[1][0], abs=1e-9), "nothing is left of the batch before"
