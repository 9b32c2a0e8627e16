"""At temperature above 0 a draft and its check share the noise of their position: what that noise is, and what follows."""

from __future__ import annotations

import pytest

from harness.decoding import self_speculation, verified_blocks
from harness.decoding.sampling import PositionNoise
from harness.engine.plain_session import TransformersSession
from tests.helpers.few_words import MASK_ID, METHODS, Work, decoder, few_words, some_work
from tests.helpers.recorded_noise import Recorded, torch
from tests.helpers.tiny_model import drain, reference_logits

ROWS = Work(prompts=((1,), (2,), (3,)), stop=some_work(1, 1).stop, max_new_tokens=9)


def sampled_by_hand(model, prompt, work, row, temperature):
    """Next-token prediction with the recorded noise: every word the argmax of logits / temperature + noise of its position."""
    output = []
    while not work.over(output):
        text = [*prompt, *output]
        logits = reference_logits(model, text, [False] * len(text), 1)[0]
        logits[MASK_ID] = -torch.inf
        output.append(int((logits / temperature + Recorded.every[row, len(output)]).argmax()))
    return tuple(output)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_sampled_outputs_are_next_token_predictions_with_the_same_noise(method, temperature, monkeypatch):
    """Token for token, in batches whose rows go on at their own pace: catches noise of another row or position, noise that
    moves on too early or too late, and a draft that decides what is written.
    """
    for module in (verified_blocks, self_speculation):
        monkeypatch.setattr(module, "PositionNoise", Recorded)
    for seed in (1, 4, 12):
        monkeypatch.setattr(Recorded, "every", {})
        model, work = few_words("llama", seed), some_work(seed, 4)
        found = drain(decoder(method, TransformersSession(model, "sdpa"), work.request(temperature=temperature), 4))
        for row, prompt in enumerate(work.prompts):
            assert found.output_ids[row] == sampled_by_hand(model, prompt, work, row, temperature)


def test_a_fault_in_moving_on_shows(monkeypatch):
    """The comparison can fail."""
    advance = PositionNoise.advance
    monkeypatch.setattr(PositionNoise, "advance", lambda self, counts: advance(self, [max(0, count - 1) for count in counts]))
    with pytest.raises((AssertionError, KeyError)):
        test_sampled_outputs_are_next_token_predictions_with_the_same_noise("linear", 1.0, monkeypatch)


def test_noise_moves_on_with_its_row():
    """What lies at offset 3 before a row wrote two tokens lies at offset 1 behind it; other rows stay where they are."""
    noise, flat = PositionNoise(ROWS.request(temperature=1.0), 6), torch.zeros(3, 6, 50, dtype=torch.float64)
    before = noise.draw(flat, 0)
    noise.advance([2, 0, 5])
    after = noise.draw(flat, 0)
    assert after[0, :4].tolist() == before[0, 2:].tolist() and after[1].tolist() == before[1].tolist()
    assert after[2, :1].tolist() == before[2, 5:].tolist() and after[2, 1:].tolist() != before[2, :5].tolist()
    assert noise.draw(flat[:, :2], [1, 4, 0]).tolist() == [after[0, 1:3].tolist(), after[1, 4:].tolist(), after[2, :2].tolist()]


def test_a_word_comes_up_as_often_as_its_chance():
    """40,000 positions of one distribution: within four standard deviations of a binomial, all rows and positions together."""
    p = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    noise, logits = PositionNoise(ROWS.request(temperature=0.5), 4), (p.log() * 0.5).expand(3, 4, 4)
    counts, draws = torch.zeros(4, dtype=torch.float64), 0
    for _ in range(40_000 // 12):
        counts += noise.draw(logits, 0).flatten().bincount(minlength=4)
        draws += 12
        noise.advance([4, 4, 4])
    assert ((counts / draws - p).abs() < 4 * (p * (1 - p) / draws).sqrt()).all()


def test_at_temperature_0_there_is_no_noise():
    """The likeliest word, and the generator is not touched."""
    request = ROWS.request()
    before = request.generator.get_state()
    noise = PositionNoise(request, 4)
    assert noise.draw(torch.tensor([[[0.0, 2.0, 1.0]]]), 0).tolist() == [[1]]
    noise.advance([1, 1, 1])
    assert torch.equal(request.generator.get_state(), before)
