"""Drafters over the random models of few_words.py: good ones, bad ones, stacks of them, and one with other tokens."""

from __future__ import annotations

import copy

import torch

from harness.decoding.drafters import DraftModel, PromptLookup, TranslatedDrafts
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.drafters import first_layers
from tests.helpers.few_words import MASK_ID, few_words

BITS = 3
STOP_BIT = 7
DRAFTERS = (
    "lookup",
    "bad",
    "good",
    "itself",
    "long",
    "exit",
    "good on lookup",
    "good on bad on lookup",
    "exit on bad",
    "bits",
    "doubting",
    "doubting on lookup",
)
DOUBTED = 0.3


def nearly(model, noise=0.05):
    """The model with a little noise on every weight: it agrees with it more often than not."""
    torch.manual_seed(5)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight += noise * weight.std() * torch.randn_like(weight) if weight.dim() > 1 else 0
    return other


class Bits:
    """A tokenizer that spells every word in three bits, the highest first, and the first word that stops in one token."""

    def __init__(self, stops):
        self.stops = sorted(stops)

    def to_draft(self, sequence):
        """Words to bits."""
        return [word >> place & 1 for word in sequence for place in reversed(range(BITS))]

    def to_target(self, output, before, drafted):
        """Bits to words; what is no whole word is left out."""
        bits = [bit for bit in drafted if bit < 2]
        words = [4 * bits[i] + 2 * bits[i + 1] + bits[i + 2] for i in range(0, len(bits) - BITS + 1, BITS)]
        return words + (self.stops[:1] if drafted[-1] == STOP_BIT else [])


def draft_modules(name, target, architecture, seed):
    """The modules of the stages of one of DRAFTERS, by stage; lookup has none."""
    made = {
        "bad": lambda: few_words(architecture, seed + 1000),
        "long": lambda: nearly(target),
        "good": lambda: nearly(target),
        "doubting": lambda: nearly(target),
        "itself": lambda: copy.deepcopy(target),
        "exit": lambda: first_layers(target, 1),
        "bits": lambda: few_words(architecture, seed + 1000),
        "lookup": lambda: None,
    }
    return {stage: made[stage]() for stage in name.split(" on ")}


def drafter(name, modules, open_session, request):
    """One of DRAFTERS over its modules; 5 tokens at a time, long: more than ever fit, doubting: none behind a doubted one."""
    below = None
    stops = request.stop.token_ids
    for stage in reversed(name.split(" on ")):
        tokens = {"long": 40, "exit": 3}.get(stage, 5)
        if stage == "lookup":
            below = PromptLookup(tokens, 2, request.suppressed_ids, stops)
            continue
        never = [MASK_ID] if stage != "bits" else [2, 3, 4, 5, 6, MASK_ID]
        below = DraftModel(
            open_session(modules[stage]),
            name=stage,
            tokens=tokens,
            never=torch.tensor(never),
            below=below,
            stops=stops if stage != "bits" else {STOP_BIT} if stops else (),
            least_confidence=DOUBTED if stage == "doubting" else 0.0,
        )
    return TranslatedDrafts(below, Bits(stops)) if name == "bits" else below


def decode(name, target, architecture, seed, open_session, request):
    """The generator of passes of one of DRAFTERS, and who drafts in it."""
    modules = draft_modules(name, target, architecture, seed)
    who = drafter(name, modules, open_session, request)
    return decode_draft_and_check(open_session(target), request, who), who, modules
