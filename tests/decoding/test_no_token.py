"""Logits that name no token end a decode at once: NaN, infinite, or a vocabulary in which the mask is all there is."""

from __future__ import annotations

import pytest
import torch

from harness.decoding.acceptance import ReplayedAcceptance, SolverAcceptance, assumed_passes
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.block_diffusion import decode_block_diffusion
from harness.decoding.drafters import DraftModel, PromptLookup
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.next_token import answer_logprobs, decode_next_token
from harness.decoding.request import DecodeRequest
from harness.decoding.sampling import draw
from harness.decoding.self_speculation import decode_linear, decode_quadratic
from harness.decoding.session import NO_TOKEN
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import BlockView
from harness.decoding.speculative import decode_draft_and_check
from harness.decoding.verification import ReplayedCheck
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.engine.engine import drain
from harness.engine.plain_session import TransformersSession
from harness.errors import NoTokenError
from harness.models.block_families import FAMILIES
from tests.helpers.few_words import MASK_ID, SETTINGS, WORDS, few_words
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import request

BLOCK = 4
FIRST_WRONG = 3
"""The pass from which on the logits are no numbers."""


class Broken(TransformersSession):
    """A session whose logits, from pass ``since`` on, hold ``wrong`` for one word of every position, or for all."""

    def __init__(self, wrong: float, since: int = FIRST_WRONG, words: slice = slice(2, 3)) -> None:
        super().__init__(few_words("llama", 1), "sdpa")
        self.wrong, self.since, self.words, self.passes = wrong, since, words, 0

    def forward(self, segments):
        """As the parent, until it goes wrong; a decode that does not end is ended."""
        self.passes += 1
        assert self.passes < 100, "the decode goes on for ever"
        logits = super().forward(segments)
        if self.passes >= self.since:
            logits[..., self.words] = self.wrong
        return logits


def asked(temperature: float = 0.0) -> DecodeRequest:
    """Two prompts, twenty tokens."""
    return request(((1, 2, 3), (4, 5)), temperature=temperature, max_new_tokens=20, mask_ids=(MASK_ID,))


BLOCKS = {"block_size": BLOCK, "mask_id": MASK_ID}
BY_SOLVER = [(name, setting) for name, settings in SETTINGS.items() for setting in settings]
ACCEPTANCES = {
    f"{name} {knobs}": (lambda name=name, knobs=knobs: SolverAcceptance(SOLVERS[name], **knobs)) for name, knobs in BY_SOLVER
}
ACCEPTANCES["replay"] = lambda: ReplayedAcceptance(assumed_passes(BLOCK, 2.0), 1)
PUBLIC = {name: family.protocol for name, family in FAMILIES.items()}
OTHERS = {
    "ntp": decode_next_token,
    "lookup": lambda session, wanted: decode_draft_and_check(session, wanted, PromptLookup(3, 2, {MASK_ID}, ())),
    "linear": lambda session, wanted: decode_linear(session, wanted, **BLOCKS),
    "quadratic": lambda session, wanted: decode_quadratic(session, wanted, **BLOCKS),
    "apd": lambda session, wanted: decode_adaptive_parallel(session, wanted, mixture=0.5, **BLOCKS),
    "freedave": lambda session, wanted: decode_nested_drafts(session, wanted, draft_steps=2, **BLOCKS),
} | {
    f"public {name}": lambda session, wanted, protocol=protocol: decode_block_diffusion(
        session, wanted, protocol=protocol, acceptance=SolverAcceptance(SOLVERS["threshold"], tau=0.9), **BLOCKS
    )
    for name, protocol in PUBLIC.items()
}


def ends_at_once(decode, wrong: float, temperature: float = 0.0, **how) -> None:
    """It fails as a case, in the first wrong pass whose logits are read, or in the one behind it."""
    session = Broken(wrong, **how)
    with pytest.raises(NoTokenError, match="NaN or infinite"):
        drain(decode(session, asked(temperature)))
    assert session.passes <= session.since + 1


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ACCEPTANCES)
def test_every_solver_ends_at_once(name, wrong):
    """SBD and verified SBD: a solver that compares with NaN picks nothing, or anything."""
    new = ACCEPTANCES[name]
    ends_at_once(lambda session, wanted: decode_set_block(session, wanted, acceptance=new(), **BLOCKS), wrong)
    ends_at_once(lambda session, wanted: decode_verified_blocks(session, wanted, acceptance=new(), **BLOCKS), wrong)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_decoder_ends_at_once(name, wrong):
    """Next-token prediction would write the word before which the NaN stands, for ever and in silence."""
    ends_at_once(OTHERS[name], wrong)


@pytest.mark.parametrize("name", ["ntp", "lookup", "linear", "quadratic", "apd"])
def test_above_temperature_0_too(name):
    """Noise on top of NaN is NaN, and its largest is some word."""
    ends_at_once(OTHERS[name], float("nan"), temperature=1.0)


@pytest.mark.parametrize("name", OTHERS)
def test_the_prompts_own_logits_may_be_wrong(name):
    """The first token is as any other."""
    ends_at_once(OTHERS[name], float("nan"), since=1)


def test_a_draft_models_logits_may_be_wrong():
    """Its drafts decide nothing that is written, so a decode that went on would only be slow, and nobody would know why."""
    broken, target = Broken(float("nan")), TransformersSession(few_words("llama", 1), "sdpa")
    drafter = DraftModel(broken, name="draft", tokens=3, never=torch.tensor([MASK_ID]), stops=())
    with pytest.raises(NoTokenError, match="NaN or infinite"):
        drain(decode_draft_and_check(target, asked(), drafter))
    assert broken.passes == FIRST_WRONG


@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_a_replayed_check_does_not_speak_for_logits_that_say_nothing(chance):
    """Whether it would have agreed with the drafts or not."""
    check = ReplayedCheck([chance] * (BLOCK - 1), MASK_ID, seed=1)
    assert len(check.heard(0, [1, 2, 3, 4], [5] * BLOCK)) == BLOCK
    with pytest.raises(NoTokenError, match="NaN or infinite"):
        check.heard(0, [1, 2, 3, 4], [NO_TOKEN] * BLOCK)


def test_a_likelihood_of_no_number_is_none():
    """One word that no answer holds is NaN: so is every sum of probabilities."""
    with pytest.raises(NoTokenError, match="NaN or infinite"):
        answer_logprobs(Broken(float("nan"), since=1), [((1, 3), (4,))], (MASK_ID,), torch.device("cpu"))


@pytest.mark.parametrize("name", ACCEPTANCES)
def test_a_vocabulary_of_the_mask_alone(name):
    """No word may be written: every logit is minus infinity when the mask's own is."""
    new = ACCEPTANCES[name]
    alone = {"words": slice(0, WORDS), "since": 1}
    ends_at_once(lambda session, wanted: decode_set_block(session, wanted, acceptance=new(), **BLOCKS), float("-inf"), **alone)


@pytest.mark.parametrize(("name", "setting"), BY_SOLVER)
def test_every_solver_at_a_vocabulary_of_one(name, setting):
    """One word is certain: entropy 0, probability 1, and nothing comes second; every slot's word is known."""
    logits, masked = torch.zeros(1, BLOCK, 1), torch.tensor([[True, False, True, True]])
    chosen = SOLVERS[name](BlockView(logits, masked, 0.0), **setting)
    assert chosen.any() and not (chosen & ~masked).any()
    two = torch.tensor([0.0, float("-inf")]).expand(1, BLOCK, 2).clone()
    assert torch.equal(chosen, SOLVERS[name](BlockView(two, masked, 0.0), **setting))


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_what_names_a_token(temperature):
    """Impossible words are no fault; a NaN, an infinite one, or nothing but impossible words is."""
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[-inf, 3.0, -inf], [0.0, nan, 1.0], [0.0, inf, 1.0], [-inf, -inf, -inf], [3e38, -3e38, 0.0]])
    drawn = draw(logits[None], asked(temperature))
    assert drawn.tolist() == [[1, NO_TOKEN, NO_TOKEN, NO_TOKEN, 0]]
