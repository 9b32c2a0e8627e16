"""transformers' generate() as the yardstick of our NTP arm: the same tokens, the same trace, and its model left as it was."""

from __future__ import annotations

import pytest

from harness.decoding.next_token import decode_next_token
from harness.engine.hf_generate import generate
from harness.engine.static_session import StaticSession
from tests.helpers.tiny_model import PROMPTS, drain, request, tiny_model


@pytest.mark.parametrize("stop_ids", [(), (11, 20)])
@pytest.mark.parametrize("batch", PROMPTS)
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generate_writes_what_our_baseline_writes(cache, batch, stop_ids):
    """Two implementations of greedy decoding agree token for token in float64, rows that stop early among them.

    Catches a yardstick that is asked for something else: other stops, other lengths, the mask token allowed.
    """
    model = tiny_model("llama")
    session = StaticSession(model)
    marks = []
    theirs = generate(
        model, request(PROMPTS[batch], stop_ids), cache=cache, attention="sdpa", mark=lambda: marks.append(len(marks))
    )
    ours = drain(decode_next_token(session, request(PROMPTS[batch], stop_ids)))
    theirs.check_conservation()
    assert theirs.output_ids == ours.output_ids
    assert theirs.stop_reasons == ours.stop_reasons
    assert [p.active for p in theirs.passes] == [p.active for p in ours.passes]
    assert marks == [0, 1]
    if cache == "dynamic":
        assert theirs.passes == ours.passes
    else:  # a static cache is read to its end, and made as long as this prompt needs
        slots = {p.padded_context for p in theirs.passes[1:]}
        assert len(slots) == 1 and 0 <= max(map(len, PROMPTS[batch])) + 21 - slots.pop() <= 1


def test_the_model_is_given_back_as_it_was():
    """Our attention and the checkpoint's settings are back; while generate() ran, a penalty of the checkpoint did nothing."""
    model = tiny_model("llama")
    session = StaticSession(model)
    model.generation_config.repetition_penalty = 5.0
    ours = drain(decode_next_token(session, request(PROMPTS["one"])))
    theirs = generate(model, request(PROMPTS["one"]), cache="dynamic", attention="sdpa", mark=list)
    assert theirs.output_ids == ours.output_ids
    assert model.generation_config.repetition_penalty == 5.0
    assert drain(decode_next_token(session, request(PROMPTS["one"]))).output_ids == ours.output_ids


def test_what_generate_does_not_do_here_is_refused():
    """Sampling would not be comparable token for token."""
    with pytest.raises(ValueError, match="greedy"):
        generate(tiny_model("llama"), request(PROMPTS["one"], temperature=0.5), cache="dynamic", attention="sdpa", mark=list)
