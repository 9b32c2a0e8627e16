"""APD: what it writes and in which passes, said a second time with whole sequences and uncached forwards."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.decoding import verified_blocks
from harness.decoding.apd import MixtureCheck, decode_adaptive_parallel
from harness.decoding.sampling import PositionNoise
from harness.engine.plain_session import TransformersSession
from tests.helpers.few_words import MASK_ID, few_words, some_work
from tests.helpers.nested_drafts import BATCH, SEEDS, block_logits, solver_arm
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

    def over():
        return len(output) == work.max_new_tokens or (output and work.stop.stops_at(output, len(output) - 1) is not None)

    while not over():
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
            if (i and drawn(mixed, at + i) != word) or over():
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
            assert [p.final_tokens[row] for p in mine if p.kept_tokens[row]] == kept


def test_apd_that_never_objects_writes_whole_blocks_of_the_masked_head():
    """At R = 1 the output is that of plain SBD with one pass a block; of all drafts the first alone costs a pass of its own."""
    for seed in SEEDS:
        session, work = TransformersSession(few_words("llama", seed), "sdpa"), some_work(seed, BATCH)
        found = apd(session, work.request(), 4, 1.0)
        assert found.output_ids == solver_arm(session, work.request(), 4, "uniform", steps=1).output_ids
        assert found.decode_passes[0].role == "draft"
        assert {p.role for p in found.decode_passes[1:]} <= {"verify", "verify+draft"}


def test_the_next_token_head_alone_judges_at_r_0():
    """At R = 0 every token of a check but its first is what the next-token head says."""
    model, work = few_words("llama", 12), some_work(12, BATCH)
    found = apd(TransformersSession(model, "sdpa"), work.request(), 4, 0.0)
    for row, prompt in enumerate(work.prompts):
        at = 0
        for count in [p.final_tokens[row] for p in found.decode_passes if p.kept_tokens[row]]:
            for position in range(at + 1, at + count):
                text = [*prompt, *found.output_ids[row][:position]]
                logits = reference_logits(model, text, [False] * len(text), 1)[0, :MASK_ID]
                assert int(logits.argmax()) == found.output_ids[row][position]
            at += count


def test_a_mixture_of_the_wrong_slots_shows(monkeypatch):
    """The comparison can fail."""
    monkeypatch.setattr(
        MixtureCheck, "verdicts", lambda self, behind: self._mixture * self._of_drafts + (1 - self._mixture) * behind
    )
    with pytest.raises(AssertionError):
        test_apd_is_its_rule(0.5, 0.0, monkeypatch)
