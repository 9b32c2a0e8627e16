"""How the authors of public block models decode, each stated from their published code for one prompt at temperature 0: the
whole sequence is fed anew in every pass under one explicit mask, and there is no cache. None of it is shared with the decoder.

Two conventions of this program are stated with them: the mask token is never written, and a slot is not asked for if it lies
behind a known stop of its block or past the length limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

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
        self.answer = [None] * new
        self.done = Decoded()

    def sequence(self, slots, extra=0):
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

    def result(self):
        """The answer up to its stop."""
        for token in self.answer:
            self.done.answer.append(token)
            if token in self.stop_ids:
                break
        return self.done


def by_blocks(n, block):
    """Visible: every token of its own block (of ``block(position)``) and of those before."""
    number = torch.tensor([block(i) for i in range(n)])
    return number[None, :] <= number[:, None]


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


def sdar(model, prompt, new, k, mask_id, tau, stop_ids=()):
    """JetAstra/SDAR generate.py, block_diffusion_generate with low_confidence_dynamic and as many steps as slots; LLaDA2's
    sampler is the same rule. Blocks lie at multiples of k from the first token, the prompt's rest is in the first of them.
    """
    one, length = Prompted(model, prompt, new, mask_id, stop_ids), len(prompt)
    for number in range(length // k, -(-(length + new) // k)):
        start, end = number * k - length, (number + 1) * k - length
        while slots := one.open(max(start, 0), end):
            tokens = one.sequence(end)
            p, logits = one.probabilities(tokens, by_blocks(len(tokens), lambda i: i // k))
            confidence = {slot: float(p[length + slot].max()) for slot in slots}
            one.write(dynamic(confidence, tau, 1), slots, p, logits, length)
        if one.ended():
            break
        one.done.commits += 1
    return one.result()


def bd3lm(model, prompt, new, k, mask_id, steps, stop_ids=()):
    """dllm core/samplers/bd3lm.py: the prompt is padded on its left to whole blocks, so that blocks end where it ends; a fixed
    number of the likeliest slots a step; the last block is as short as what is left. Each block's prefix is read anew: one
    pass, which writes the KV of the block before.
    """
    one, length = Prompted(model, prompt, new, mask_id, stop_ids), len(prompt)
    pad = -length % k
    for start in range(0, new, k):
        width = min(k, new - start)
        for count in rounded_split(width, steps):
            slots = one.open(start, start + width)
            if not slots:
                break
            tokens = one.sequence(start + width)
            p, logits = one.probabilities(tokens, by_blocks(len(tokens), lambda i: (i + pad) // k))
            confidence = {slot: float(p[length + slot].max()) for slot in slots}
            one.write(likeliest(confidence, count), slots, p, logits, length)
        if one.ended():
            break
        one.done.commits += 1
    return one.result()


def fast_dllm_v2(model, prompt, new, k, mask_id, tau, run, stop_ids=()):
    """Fast-dLLM v2 generation_functions.py: blocks at multiples of k; slot i of a block is read one position to the left, so
    its first slot is the likeliest token behind the block before, once that is complete; runs of ``run`` slots from left to
    right; all above tau and the likeliest one of the run.
    """
    one, length = Prompted(model, prompt, new, mask_id, stop_ids), len(prompt)
    for number in range(length // k, -(-(length + new) // k)):
        start, end = number * k - length, (number + 1) * k - length
        if start >= 0 and start < new:
            tokens = one.sequence(start)
            p, _ = one.probabilities(tokens, by_blocks(len(tokens), lambda i: i // k))
            one.answer[start] = int(p[-1].argmax())
            one.done.firsts += 1
        for left in range(start, end, run):
            while slots := [slot for slot in one.open(max(start, 0), end) if left <= slot < left + run]:
                tokens = one.sequence(end)
                p, logits = one.probabilities(tokens, by_blocks(len(tokens), lambda i: i // k))
                confidence = {slot: float(p[length + slot - 1].max()) for slot in slots}
                above = {slot for slot, value in confidence.items() if value > tau}
                one.write(above | set(likeliest(confidence, 1)), slots, p, logits, length - 1)
        if one.ended():
            break
        one.done.commits += 1
    return one.result()


def nemotron(model, prompt, new, k, mask_id, tau, stop_ids=()):
    """Nemotron-Labs-Diffusion's generate as kept in dllm nemotron_diffusion/sampler.py: a causal past, a block right behind the
    prompt that sees all of itself, its first slot from the next-token head; all of tau or more, and the likeliest one.
    """
    one, length = Prompted(model, prompt, new, mask_id, stop_ids), len(prompt)
    for start in range(0, new, k):
        tokens = one.sequence(start)
        p, _ = one.probabilities(tokens, torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril())
        one.answer[start] = int(p[-1].argmax())
        one.done.firsts += 1
        while slots := one.open(start, start + k):
            tokens = one.sequence(start + k)
            visible = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
            visible[length + start :, length + start :] = True
            p, logits = one.probabilities(tokens, visible)
            confidence = {slot: float(p[length + slot].max()) for slot in slots}
            sure = {slot for slot, value in confidence.items() if value >= tau}
            one.write(sure | set(likeliest(confidence, 1)), slots, p, logits, length)
        if one.ended():
            break
        one.done.commits += 1
    return one.result()


def sdlm(model, prompt, new, k, mask_id, tau, stop_ids=()):
    """OpenGVLab/SDLM sdlm_generator.py, conf_generate: the text so far and k - 1 masks, causal but for the last k tokens, which
    see each other; they predict the next k, of which the leading ones above tau stay, at least one.
    """
    one = Prompted(model, prompt, new, mask_id, stop_ids)
    while not one.ended():
        known = sum(token is not None for token in one.answer)
        tokens = one.prompt + one.answer[:known] + [mask_id] * (k - 1)
        visible = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
        visible[-k:, -k:] = True
        p, logits = one.probabilities(tokens, visible)
        first = len(tokens) - k
        slots = one.open(known, known + k)
        sure = [float(p[first + slot - known].max()) > tau for slot in slots]
        count = max(1, sure.index(False) if False in sure else len(sure))
        one.write(slots[:count], slots, p, logits, first - known)
    return one.result()


def whole_sequence(model, prompt, new, k, mask_id, steps, shift=0, split=even_split, stop_ids=()):
    """ML-GSAI/LLaDA generate.py: prompt and all slots see each other; block after block, a fixed number of its likeliest slots
    a step. dllm's mdlm splits otherwise. shift 1: Dream's forward, whose logits are moved by one position; its own schedule,
    which floors shares of what is left, is not stated, one slot a step stands for it.
    """
    one, length = Prompted(model, prompt, new, mask_id, stop_ids), len(prompt)
    for start in range(0, new, k):
        width = min(k, new - start)
        for count in filter(None, split(width, steps)):
            slots = one.open(start, start + width)
            if not slots:
                break
            tokens = one.sequence(new)
            p, logits = one.probabilities(tokens, torch.ones(len(tokens), len(tokens), dtype=torch.bool))
            confidence = {slot: float(p[length + slot - shift].max()) for slot in slots}
            one.write(likeliest(confidence, count), slots, p, logits, length - shift)
        if one.ended():
            break
    return one.result()
