"""How the authors of public block models decode, each stated from their published code for one prompt at temperature 0: the
whole sequence is fed anew in every pass under one explicit mask, and there is no cache. None of it is shared with the decoder.

Two conventions of this program are stated with them: the mask token is never written, and a slot is not asked for if it lies
behind a known stop of its block or past the length limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch


@dataclass
class Decoded:
    """What was written; per deciding pass how many slots were asked for, those that became known, and their logits as read;
    commits: passes spent on writing KV alone, as the published code counts them but for the one behind the last block.
    """

    answer: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    decided: list = field(default_factory=list)
    logits: list = field(default_factory=list)
    firsts: int = 0
    commits: int = 0


class Prompted:
    """One prompt with its answer so far (None: not known)."""

    def __init__(self, model, prompt, new, mask_id, stop_ids=()):
        self.model, self.prompt, self.new, self.mask_id, self.stop_ids = model, list(prompt), new, mask_id, set(stop_ids)
        self.answer, self.length = [None] * new, len(prompt)
        self.done = Decoded()

    def sequence(self, slots):
        """Prompt and so many slots of the answer, masks where they are not known; slots past the limit are masks."""
        known = self.answer[:slots] + [None] * max(0, slots - self.new)
        return self.prompt + [self.mask_id if token is None else token for token in known]

    def open(self, start, end):
        """Slots of a block that may be asked for."""
        found = []
        for slot in range(start, min(end, self.new)):
            if self.answer[slot] is None:
                found.append(slot)
            elif self.answer[slot] in self.stop_ids:
                break
        return found

    def ended(self):
        """Whether every slot up to the first stop, or the limit, is known."""
        for token in self.answer:
            if token is None:
                return False
            if token in self.stop_ids:
                return True
        return True

    def probabilities(self, tokens, visible):
        """(n, V) of every position, the mask token impossible, and the raw logits."""
        n = len(tokens)
        bias = torch.zeros(1, 1, n, n, dtype=torch.float64).masked_fill(~visible, torch.finfo(torch.float64).min)
        with torch.no_grad():
            out = self.model(
                input_ids=torch.tensor([tokens]), position_ids=torch.arange(n)[None], attention_mask=bias, use_cache=False
            )
        logits = out.logits[0].clone()
        logits[:, self.mask_id] = float("-inf")
        return logits.softmax(dim=-1), logits

    def write(self, slots, asked, probabilities, logits, base):
        """Make ``slots`` of those ``asked`` for known by the likeliest token at position ``base + slot``."""
        self.done.asked.append(len(asked))
        for slot in slots:
            self.answer[slot] = int(probabilities[base + slot].argmax())
        self.done.decided.append(sorted(slots))
        self.done.logits.append({slot: logits[base + slot] for slot in slots})

    def decide(self, slots, end, visible, choose, shift=0):
        """A pass over ``end`` slots, of whose n tokens ``visible(n)`` says who sees whom: ``choose`` gets the confidences of
        those asked for, each read ``shift`` positions to the left.
        """
        tokens, base = self.sequence(end), self.length - shift
        p, logits = self.probabilities(tokens, visible(len(tokens)))
        self.write(choose({slot: float(p[base + slot].max()) for slot in slots}), slots, p, logits, base)

    def first(self, slot, visible):
        """The likeliest token behind everything before a slot, which is complete."""
        tokens = self.sequence(slot)
        p, _ = self.probabilities(tokens, visible(len(tokens)))
        self.answer[slot] = int(p[-1].argmax())
        self.done.firsts += 1

    def result(self):
        """The answer up to its stop."""
        for token in self.answer:
            self.done.answer.append(token)
            if token in self.stop_ids:
                break
        return self.done


def by_blocks(k, pad=0):
    """Visible: every token of its own block of k, the first of which has ``pad`` less, and of those before."""

    def visible(n):
        number = (torch.arange(n) + pad) // k
        return number[None, :] <= number[:, None]

    return visible


def all_seen(n):
    """Visible: everything."""
    return torch.ones(n, n, dtype=torch.bool)


def causal(n, behind=None):
    """Visible: what stands before; what lies ``behind`` a place sees all of itself."""
    visible = all_seen(n).tril()
    if behind is not None:
        visible[behind:, behind:] = True
    return visible


def dynamic(confidence, tau, count):
    """SDAR's and LLaDA2's rule on {slot: confidence}: all above tau, if those are ``count``; else the ``count`` likeliest."""
    above = [slot for slot, value in confidence.items() if value > tau]
    return above if len(above) >= count else likeliest(confidence, count)


def even_split(slots, steps):
    """LLaDA's slots per step: as many each, the remainder one by one in the first steps."""
    return [slots // steps + (step < slots % steps) for step in range(steps)]


def rounded_split(slots, steps):
    """dllm's slots per step (core/samplers/utils.py, linear schedule): what is left by 1 - s/t, rounded; no empty steps."""
    counts, left = [], slots
    for step in range(steps):
        counts.append(min(left, round(left * (1 - ((steps - step - 1) / steps) / ((steps - step) / steps)))))
        left -= counts[-1]
    return [count for count in counts if count]


def likeliest(confidence, count):
    """The ``count`` likeliest slots, the earlier one of two alike."""
    return sorted(confidence, key=lambda slot: (-confidence[slot], slot))[:count]


def sure(confidence, enough):
    """Whatever is sure enough, and the likeliest in any case."""
    return {slot for slot, value in confidence.items() if enough(value)} | set(likeliest(confidence, 1))


def sdar(one, k, tau):
    """JetAstra/SDAR generate.py, block_diffusion_generate with low_confidence_dynamic and as many steps as slots; LLaDA2's
    sampler is the same rule. Blocks lie at multiples of k from the first token, the prompt's rest is in the first of them.
    """
    for number in range(one.length // k, -(-(one.length + one.new) // k)):
        start, end = number * k - one.length, (number + 1) * k - one.length
        while slots := one.open(max(start, 0), end):
            one.decide(slots, end, by_blocks(k), lambda confidence: dynamic(confidence, tau, 1))
        if one.ended():
            break
        one.done.commits += 1


def bd3lm(one, k, steps):
    """dllm core/samplers/bd3lm.py: the prompt is padded on its left to whole blocks, so that blocks end where it ends; a fixed
    number of the likeliest slots a step; the last block is as short as what is left. Each block's prefix is read anew: one
    pass, which writes the KV of the block before.
    """
    for start in range(0, one.new, k):
        end = min(start + k, one.new)
        for count in rounded_split(end - start, steps):
            if slots := one.open(start, end):
                one.decide(slots, end, by_blocks(k, -one.length % k), partial(likeliest, count=count))
        if one.ended():
            break
        one.done.commits += 1


def fast_dllm_v2(one, k, tau, run):
    """Fast-dLLM v2 generation_functions.py: blocks at multiples of k; slot i of a block is read one position to the left, so
    its first slot is the likeliest token behind the block before, once that is complete; runs of ``run`` slots from left to
    right; all above tau and the likeliest one of the run.
    """
    for number in range(one.length // k, -(-(one.length + one.new) // k)):
        start, end = number * k - one.length, (number + 1) * k - one.length
        if start >= 0 and start < one.new:
            one.first(start, by_blocks(k))
        for left in range(start, end, run):
            while slots := [slot for slot in one.open(max(start, 0), end) if left <= slot < left + run]:
                one.decide(slots, end, by_blocks(k), lambda confidence: sure(confidence, tau.__lt__), shift=1)
        if one.ended():
            break
        one.done.commits += 1


def nemotron(one, k, tau):
    """Nemotron-Labs-Diffusion's generate as kept in dllm nemotron_diffusion/sampler.py: a causal past, a block right behind the
    prompt that sees all of itself, its first slot from the next-token head; all of tau or more, and the likeliest one.
    """
    for start in range(0, one.new, k):
        one.first(start, causal)
        while slots := one.open(start, start + k):
            visible = partial(causal, behind=one.length + start)
            one.decide(slots, start + k, visible, lambda confidence: sure(confidence, tau.__le__))
        if one.ended():
            break
        one.done.commits += 1


def sdlm(one, k, tau):
    """OpenGVLab/SDLM sdlm_generator.py, conf_generate: the text so far and k - 1 masks, causal but for the last k tokens, which
    see each other; they predict the next k, of which the leading ones above tau stay, at least one.
    """

    def leading(confidence):
        doubtful = [slot for slot, value in confidence.items() if value <= tau]
        return [slot for slot in confidence if slot < max(min(doubtful, default=one.new), min(confidence) + 1)]

    while not one.ended():
        known = sum(token is not None for token in one.answer)
        one.decide(one.open(known, known + k), known + k - 1, lambda n: causal(n, behind=n - k), leading, shift=1)


def whole_sequence(one, k, steps, shift=0, split=even_split):
    """ML-GSAI/LLaDA generate.py: prompt and all slots see each other; block after block, a fixed number of its likeliest slots
    a step. dllm's mdlm splits otherwise. shift 1: Dream's forward, whose logits are moved by one position; its own schedule,
    which floors shares of what is left, is not stated, one slot a step stands for it.
    """
    for start in range(0, one.new, k):
        end = min(start + k, one.new)
        for count in filter(None, split(end - start, steps)):
            if slots := one.open(start, end):
                one.decide(slots, one.new, all_seen, partial(likeliest, count=count), shift)
        if one.ended():
            break
