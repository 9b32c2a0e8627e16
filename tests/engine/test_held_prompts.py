"""A session that was just given the same prompts: every decoder writes the same behind any other, and reads none anew."""

from __future__ import annotations

import random

import pytest
import torch

from harness.decoding.next_token import decode_next_token
from harness.decoding.session import Segment
from harness.engine.static_session import StaticSession
from tests.helpers import few_words
from tests.helpers.some_decodes import ARMS, some_decode
from tests.helpers.tiny_model import drain

ROWS = 6


def widths_of(model):
    """A list that every forward of the model adds its width to; copies of it, which drafts are made of, add nothing."""
    widths = []

    def note(module, arguments, inputs):
        if module is model:
            widths.append(inputs["input_ids"].shape[1])

    model.register_forward_pre_hook(note, with_kwargs=True)
    return widths


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3))])
def test_decoding_behind_another_writes_the_same_and_reads_no_prompt(seed):
    """All arms on one session, each behind another, twice in random order: tokens, passes and what was computed."""
    work, target = few_words.some_work(seed, ROWS), few_words.few_words("llama", seed)
    alone = {arm: drain(some_decode(arm, target, seed, StaticSession, work.request())) for arm in ARMS}
    widths, session = widths_of(target), StaticSession(target, leaves_out=True)
    session.reset(ROWS, 256)  # no arm needs more, so the buffers stay
    assert drain(decode_next_token(session, work.request())) == alone["ntp"]

    drafts = {}

    def opened(model):
        """The target's session, or that of all equal draft models."""
        if model is target:
            return session
        weights = tuple(float(weight.detach().sum()) for weight in model.parameters())
        return drafts.setdefault(weights, StaticSession(model, leaves_out=True))

    longest, held = max(map(len, work.prompts)), True
    for arm in random.Random(seed).sample(ARMS * 2, 2 * len(ARMS)):
        widths.clear()
        found = drain(some_decode(arm, target, seed, opened, work.request()))
        assert found == alone[arm], arm
        first, *others = [one.padded_query for one in found.passes if one.model is None]
        fused = first > longest  # some feed their first block in the prompts' own pass: they take nothing and leave nothing
        assert widths == (others if held and not fused else [first, *others]), arm
        held = not fused


def test_what_is_given_back_is_what_was_computed_to_the_last_bit():
    """In bfloat16: logits, though somebody has written to them, and the keys and values that the next forward sees."""
    model = few_words.few_words("llama", 0).to(torch.bfloat16)
    session = StaticSession(model, leaves_out=True)
    prompts, behind = causal(torch.arange(24).reshape(4, 6) % 8), causal(torch.tensor([[1], [2], [3], [4]]))

    def read():
        session.reset(4, 12)
        first = session.forward([prompts])
        session.keep([6] * 4)
        return first, session.forward([behind])

    first, second = read()
    computed = first.clone()
    first.fill_(-1.0)
    again, third = read()
    assert torch.equal(again, computed) and torch.equal(third, second)
    again.fill_(-1.0)
    assert torch.equal(read()[0], computed)


@pytest.mark.parametrize("also", [[], ["behind"]], ids=["alone", "with a block"])
def test_prompts_that_were_written_over_are_read_anew(also):
    """By other prompts with tokens behind them, and by a forward behind fewer tokens than a prompt has."""
    model = few_words.few_words("llama", 0)
    session, fresh = (StaticSession(model, leaves_out=leaves_out) for leaves_out in (True, False))
    prompts, other = causal(torch.arange(24).reshape(4, 6) % 8), causal(torch.ones(4, 4, dtype=torch.long))
    behind = causal(torch.tensor([[1], [2], [3], [4]]))

    def read(one):
        one.reset(4, 12)
        one.forward([prompts])
        one.keep([6] * 4)
        return one.forward([behind])

    expected = read(fresh)
    assert torch.equal(read(session), expected)
    if also:
        session.reset(4, 12)
        session.forward([other, behind])
    else:
        session.drop([0, 3, 0, 0])
        session.forward([behind])
    assert torch.equal(read(session), expected)


def test_prompts_are_read_anew_where_they_are_not_what_is_held():
    """Another token, other padding, another batch size; buffers made anew."""
    model = few_words.few_words("llama", 0)
    widths, session = widths_of(model), StaticSession(model, leaves_out=True)

    def read(prompts, limit=4):
        work = few_words.Work(prompts, few_words.StopRule(), limit)
        fresh = drain(decode_next_token(StaticSession(model), work.request()))
        widths.clear()
        assert drain(decode_next_token(session, work.request())) == fresh
        return len(widths) == limit  # the prompt's pass and one a token behind its own

    first = ((1, 2, 3), (4, 5, 6))
    assert read(first)
    assert not read(first)
    assert read(((1, 2, 3), (4, 5, 7)))
    assert read(((1, 2, 3), (4, 5)))
    assert read(((1, 2, 3),))
    assert read(((1, 2, 3),), limit=20), "the buffers were too small and are new"
    assert not read(((1, 2, 3),))


def causal(tokens):
    """A causal segment at the start of its rows; the logits of its last token are wanted."""
    positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
    return Segment(tokens=tokens, positions=positions, visibility="causal", logits=1)


def test_what_a_failed_forward_leaves_is_given_to_nobody():
    """The first layer of the second batch was written when memory ran out; the first batch comes again."""
    model = few_words.few_words("llama", 0)
    session = StaticSession(model, leaves_out=True)
    prompts, other = causal(torch.arange(24).reshape(4, 6) % 8), causal(torch.ones(4, 6, dtype=torch.long))

    def read(segment, one):
        one.reset(4, 12)
        return one.forward([segment])

    expected = read(prompts, StaticSession(model))
    assert torch.equal(read(prompts, session), expected)
    widths = widths_of(model)
    fails = model.model.layers[1].register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        read(other, session)
    fails.remove()
    assert torch.equal(read(prompts, session), expected) and widths == [6, 6]
    session.reset(0, 0)
    assert not session._keys, "no buffer is left"  # no session says how much memory it holds
