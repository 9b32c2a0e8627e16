"""FreeDave: what it writes and in which passes, said a second time with whole sequences and uncached forwards."""

from __future__ import annotations

import pytest

from harness.decoding.freedave import decode_nested_drafts
from harness.engine.plain_session import TransformersSession
from tests.helpers.few_words import MASK_ID, few_words, some_work
from tests.helpers.nested_drafts import SEEDS, block_logits
from tests.helpers.tiny_model import drain


def nested(session, request, block_size, draft_steps):
    """FreeDave."""
    return drain(decode_nested_drafts(session, request, block_size=block_size, mask_id=MASK_ID, draft_steps=draft_steps))


class Chain:
    """One prompt by nested drafts; ``passes`` holds (role, query tokens, context, kept, decided and final tokens)."""

    def __init__(self, model, prompt, work, block_size, draft_steps):
        self.model, self.text, self.output, self.work = model, list(prompt), [], work
        self.size, self.most, self.passes = block_size, draft_steps, []
        committed = 0
        while not self.work.over(self.output):
            self.block(committed)
            committed = block_size

    def written(self, block):
        """The output that is final with this block behind it, up to the first stop."""
        output = list(self.output)
        for word in block:
            if word == MASK_ID or self.work.over(output):
                break
            output.append(word)
        return output

    def wanted(self, block):
        """Slots that are still to be decided."""
        if self.work.over(self.written(block)):
            return []
        stops = [slot + 1 for slot, word in enumerate(block) if word in self.work.stop.token_ids]
        end = min([*stops, self.size, self.work.max_new_tokens - len(self.output)])
        return [slot for slot in range(end) if block[slot] == MASK_ID]

    def surest(self, block):
        """Masked slots and their words, by the probability of the word, from one uncached forward."""
        p = block_logits(self.model, self.text, block).softmax(dim=-1).max(dim=-1)
        ranked = sorted(self.wanted(block), key=lambda slot: (-float(p.values[slot]), slot))
        return [(slot, int(p.indices[slot])) for slot in ranked]

    def with_word(self, block, slot, word):
        """One slot more."""
        return [word if one == slot else known for one, known in enumerate(block)]

    def block(self, committed):
        """One block, from all masks to the end of it or of the text."""
        held, block, order = len(self.text) - committed, [MASK_ID] * self.size, None
        while self.wanted(block):
            states = [block]
            for slot, word in (order or [])[1:]:
                guess = self.with_word(states[-1], slot, word)
                if len(states) < self.most and slot in self.wanted(states[-1]):
                    if not self.wanted(guess):
                        break
                    states.append(guess)
            before, steps = self.written(block), 0
            while True:
                order = self.surest(block)
                block, steps = self.with_word(block, *order[0]), steps + 1
                if steps == len(states) or block != states[steps]:
                    break
            role = "verify+draft" if len(states) > 1 else "commit+decide" if committed else "decide"
            final = len(self.written(block)) - len(before)
            self.passes.append((role, committed + len(states) * self.size, held, committed, steps, final))
            held, committed = held + committed, 0
        self.output = self.written(block)
        self.text = [*self.text, *block]


@pytest.mark.parametrize("draft_steps", [1, 2, 5])
@pytest.mark.parametrize("block_size", [3, 6])
def test_every_pass_of_nested_drafts_is_the_one_a_simulation_makes(block_size, draft_steps):
    """Role, query tokens, context, kept, decided and final tokens, prompt by prompt."""
    for seed in SEEDS:
        model, work = few_words("qwen3", seed), some_work(seed, 3)
        for row, prompt in enumerate(work.prompts):
            found = nested(TransformersSession(model, "sdpa"), work.request(row), block_size, draft_steps)
            expected = Chain(model, prompt, work, block_size, draft_steps)
            assert list(found.output_ids[0]) == expected.output
            assert [
                (p.role, p.query_tokens[0], p.context_tokens[0], p.kept_tokens[0], p.decided_tokens[0], p.final_tokens[0])
                for p in found.decode_passes
            ] == expected.passes
            for one in found.decode_passes:
                assert one.logit_tokens[0] + one.kept_tokens[0] == one.query_tokens[0] == one.padded_query


def test_nested_drafts_are_greedy():
    """Above temperature 0 they would not be exact."""
    work = some_work(1, 1)
    with pytest.raises(ValueError, match="temperature 1"):
        nested(TransformersSession(few_words("llama", 1), "sdpa"), work.request(temperature=1.0), 4, 2)
