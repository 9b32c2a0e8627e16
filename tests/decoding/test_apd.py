"""APD: what it writes and in which passes, said a second time with whole sequences and uncached forwards."""

from __future__ import annotations

import pytest
import torch

from harness.decoding import verified_blocks
from harness.decoding.apd import MixtureCheck, decode_adaptive_parallel
from harness.decoding.sampling import PositionNoise
from harness.engine.plain_session import TransformersSession
from tests.helpers.few_words import MASK_ID, few_words, some_work
from tests.helpers.nested_drafts import BATCH, SEEDS, block_logits
from tests.helpers.recorded_noise import Recorded
from tests.helpers.tiny_model import drain, reference_logits


def apd(session, request, block_size, mixture):
    """APD."""
    return drain(decode_adaptive_parallel(session, request, block_size=block_size, mask_id=MASK_ID, mixture=mixture))


def apd_by_hand(model, prompt, work, block_size, mixture, temperature=0.0, noise=None):
    """(output, tokens kept by every check, number of passes) of APD from its rule, by whole sequences."""
    output, kept, passes, ahead = [], [], 0, False

    def drawn(logits, position):
        return int((logits / temperature + noise[position] if temperature else logits).argmax())

    while not work.over(output):
        text, at = [*prompt, *output], len(output)
        masked = block_logits(model, text, [MASK_ID] * block_size)
        draft = [drawn(masked[i], at + i) for i in range(min(block_size, work.max_new_tokens - at))]
        stop = next((i + 1 for i, word in enumerate(draft) if word in work.stop.token_ids), None)
        draft = draft[:stop]
        passes += 1 if ahead else 2
        causal = reference_logits(model, text + draft, [False] * len(text + draft), len(draft))
        causal[:, MASK_ID] = -torch.inf
        count = 0
        for i, word in enumerate(draft):
            mixed = mixture * masked[i] + (1 - mixture) * causal[i - 1]
            mixed[MASK_ID] = -torch.inf
            if (i and drawn(mixed, at + i) != word) or work.over(output):
                break
            output.append(word)
            count += 1
        kept.append(count)
        ahead = count == block_size
    return tuple(output), kept, passes


@pytest.mark.parametrize("mixture", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_apd_is_its_rule(mixture, temperature, monkeypatch):
    """Output, tokens of every check and passes of fifteen prompts in batches; at temperature 0 and above, where the noise is
    looked up.
    """
    monkeypatch.setattr(verified_blocks, "PositionNoise", Recorded if temperature else PositionNoise)
    for seed in SEEDS:
        monkeypatch.setattr(Recorded, "every", {})
        model, work = few_words("qwen3", seed), some_work(seed, BATCH)
        found = apd(TransformersSession(model, "sdpa"), work.request(temperature=temperature), 4, mixture)
        for row, prompt in enumerate(work.prompts):
            noise = {position: one for (of, position), one in Recorded.every.items() if of == row}
            output, kept, passes = apd_by_hand(model, prompt, work, 4, mixture, temperature, noise)
            mine = [p for p in found.decode_passes if p.active[row]]
            assert (found.output_ids[row], len(mine)) == (output, passes)
            assert mine[0].role == "draft" and {p.role for p in mine[1:]} <= {"draft", "verify", "verify+draft"}
            assert [p.final_tokens[row] for p in mine if p.kept_tokens[row]] == kept


def test_a_mixture_of_the_wrong_slots_shows(monkeypatch):
    """The comparison can fail."""
    monkeypatch.setattr(
        MixtureCheck, "verdicts", lambda self, behind: self._mixture * self._of_drafts + (1 - self._mixture) * behind
    )
    with pytest.raises(AssertionError):
        test_apd_is_its_rule(0.5, 0.0, monkeypatch)
