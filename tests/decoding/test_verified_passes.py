"""What verified SBD would do, pass by pass, said a second time with whole sequences and uncached forwards.

The simulation knows no segment, no cache and no batch; it recomputes every distribution from the text so far.
"""

from __future__ import annotations

import pytest

from harness.decoding.verification import VerifiedRow
from harness.engine.plain_session import TransformersSession
from tests.helpers.adapters import copies, random_bigram
from tests.helpers.few_words import IN_TURN, MASK_ID, METHODS, SHORT, SURE, decoder, few_words, some_work
from tests.helpers.prefixes import largest_prefix
from tests.helpers.tiny_model import drain, reference_logits

END = -7
"""Stands where a block ends before its last slot."""


class Simulation:
    """One prompt decoded by one method; ``passes`` holds (role, query tokens, context, tokens kept, final tokens)."""

    def __init__(self, model, prompt, work, block_size):
        self.model, self.text, self.start, self.work = model, list(prompt), len(prompt), work
        self.block_size, self.passes, self.least = block_size, [], 0.0
        self.add(self.next_word(self.text))

    def next_word(self, text):
        """The likeliest next word of the causal model."""
        logits = reference_logits(self.model, text, [False] * len(text), 1)[0]
        return int(logits[:MASK_ID].argmax())

    def block(self, text, block):
        """(likeliest word, entropy) of every slot of a block of words and masks behind ``text``."""
        known = [False] * len(text) + [True] * len(block)
        logits = reference_logits(self.model, text + block, known, len(block))[:, :MASK_ID]
        self.logits, log_p = logits, logits.log_softmax(dim=-1)
        self.sure = log_p.max(dim=-1).values.exp().tolist()
        return logits.argmax(dim=-1).tolist(), (-(log_p.exp() * log_p).sum(dim=-1)).tolist()

    def add(self, word):
        """One more word of output."""
        self.text.append(word)

    @property
    def output(self):
        """What was written."""
        return self.text[self.start :]

    @property
    def over(self):
        """Whether the row has ended."""
        return self.work.over(self.output)

    def wanted(self, block, left):
        """Slots still to be drafted: masked, before the first drafted stop, and not the last word that fits or behind it."""
        stops = [slot for slot in range(1, len(block)) if block[slot] in self.work.stop.token_ids]
        end = min([*stops, left, len(block)])
        return [slot for slot in range(1, end) if block[slot] == MASK_ID]

    def fill(self, text, block, left, gamma):
        """One drafting pass by equation 8, by brute force; in the short form a doubtful draft ends the block."""
        words, entropy = self.block(text, block)
        wanted = self.wanted(block, left)
        chosen = largest_prefix(entropy, [slot in wanted for slot in range(len(block))], gamma)
        for slot in chosen:
            block[slot] = words[slot]
        end = min([slot for slot in chosen if self.sure[slot] <= self.least], default=len(block))
        block[end:] = [END] * len(block[end:])

    def accept(self, block):
        """Append what the causal model says as long as the block says the same; returns how many words that were."""
        for count in range(1, len(block) + 1):
            word = self.next_word(self.text)
            self.add(word)
            if self.over or count == len(block) or block[count] != word:
                return count
        raise AssertionError("a block has at least one slot")

    def empty(self):
        """A fresh block behind the newest word."""
        return [self.text[-1]] + [MASK_ID] * (self.block_size - 1)

    def verified(self, gamma, opens_ahead=True):
        """Verified SBD; linear self-speculation is the same with γ without bound and nothing opened ahead."""
        block, size = self.empty(), self.block_size
        while not self.over:
            held, left = len(self.text) - 1, self.work.max_new_tokens - len(self.output)
            if self.wanted(block, left):
                self.fill(self.text[:-1], block, left, gamma)
                self.passes.append(("draft", size, held, 0, 0))
                continue
            ahead, block = [MASK_ID] * size, block[: block.index(END)] if END in block else block
            opens = (
                opens_ahead and not self.work.stop.token_ids & set(block[1:]) and bool(self.wanted(ahead, left - len(block)))
            )
            if opens:
                self.fill(self.text[:-1] + block, ahead, left - len(block), gamma)
            count, fed = self.accept(block), len(block)
            self.passes.append(("verify+draft" if opens else "verify", fed + size * opens, held, count, count))
            block = [self.text[-1], *ahead[1:]] if opens and count == fed and not self.over else self.empty()
        return self

    def quadratic(self, term=None):
        """One pass an iteration, the first of which has nothing to check; with a bigram term slot by slot."""
        block, size = self.empty(), self.block_size
        while not self.over:
            held, fed = len(self.text) - 1, len(block) * (size + 1)
            count = self.accept(block)
            self.passes.append(("verify+draft", fed, held, count, count))
            words, _ = self.block(self.text[:-1], [MASK_ID] * size)
            block = [self.text[-1], *words[1:]]
            for slot in range(1, size * (term is not None)):
                told = term.head[:MASK_ID] @ term.up @ term.down @ term.before[block[slot - 1]]
                block[slot] = int((self.logits[slot] + told + copies(self.text[:-1] + block[:slot], MASK_ID)).argmax())
        return self


def simulate(method, model, prompt, work, block_size):
    """The passes of one method."""
    simulation = Simulation(model, prompt, work, block_size)
    if method in ("quadratic", IN_TURN):
        return simulation.quadratic(random_bigram(MASK_ID + 1) if method == IN_TURN else None)
    simulation.least = SURE if method == SHORT else 0.0
    return simulation.verified(99.0, False) if method == "linear" else simulation.verified(float(method.rpartition("=")[2]))


def check_passes(seed, method, block_size, prompts=3):
    """Each prompt alone, role by role and count by count."""
    model, work = few_words("qwen3", seed), some_work(seed, prompts)
    session = TransformersSession(model, "sdpa")
    for row, prompt in enumerate(work.prompts):
        generation = drain(decoder(method, session, work.request(row), block_size))
        expected = simulate(method, model, prompt, work, block_size)
        assert list(generation.output_ids[0]) == expected.output
        assert [
            (p.role, p.query_tokens[0], p.context_tokens[0], p.kept_tokens[0], p.final_tokens[0])
            for p in generation.decode_passes
        ] == expected.passes
        for one in generation.decode_passes:
            assert one.logit_tokens == (one.padded_query,) and (one.query_tokens == one.logit_tokens or method == SHORT)
            assert one.active == (True,) and one.padded_context == one.context_tokens[0]
        assert generation.nfe(0) == len(expected.passes)
        first, fed = generation.passes[0], len(prompt)
        assert (first.query_tokens, first.logit_tokens, first.padded_query) == ((fed,), (1,), fed)
        assert first.final_tokens == (1,) and first.kept_tokens == generation.prompt_tokens == (len(prompt),)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("block_size", "seeds", "prompts"),
    [(2, (1, 12), 3), (4, (1, 12), 3), *(pytest.param(size, range(10), 30, marks=pytest.mark.full) for size in (1, 2, 3, 8))],
)
def test_every_pass_is_the_one_a_simulation_makes(method, block_size, seeds, prompts):
    """Role, query tokens, context, kept and final tokens; catches a wasted pass, a missing one, and one not counted."""
    for seed in seeds:
        check_passes(seed, method, block_size, prompts)


def test_a_right_draft_that_is_not_believed_shows(monkeypatch):
    """The output stays that of NTP, but it takes more passes: only the count can tell."""
    check = VerifiedRow.check
    monkeypatch.setattr(VerifiedRow, "check", lambda self, verdicts: check(self, verdicts[: max(1, len(verdicts) - 1)]))
    with pytest.raises(AssertionError, match="verify"):
        check_passes(12, METHODS[1], 2)
