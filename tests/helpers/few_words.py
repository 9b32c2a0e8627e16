"""Random models of eight words, whose masked head agrees with the next-token head often enough that drafts come out right,
wrong and half right; and the decoders that must write what greedy next-token prediction writes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import transformers

from harness.decoding.acceptance import SolverAcceptance
from harness.decoding.in_turn import InTurn
from harness.decoding.request import DecodeRequest, StopRule
from harness.decoding.self_speculation import decode_linear, decode_quadratic
from harness.decoding.verification import NextTokenCheck
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.scenario.solvers import SOLVERS as SPECS
from tests.helpers.adapters import random_bigram
from tests.helpers.solver_rules import SOLVERS
from tests.helpers.tiny_model import request

WORDS = 8
MASK_ID = WORDS
SHORT, IN_TURN = "short γ=99", "quadratic in turn"
VERIFIED = {f"verified γ={gamma:g}": ("entropy_bounded", {"gamma": gamma}) for gamma in (0.0, 1.5, 99.0)}
SURE = 0.3
"""Confidence at or below which the short form of verified decoding ends a block."""
METHODS = (*VERIFIED, "linear", "quadratic", IN_TURN, SHORT)
# Every solver at the settings it is usually tried at; of several knobs only the first is varied.
SETTINGS = {
    name: [{knob: values[min(i, len(values) - 1)] for knob, values in spec.sweep.items()} for i in range(3)]
    for name, spec in SPECS.items()
}
BY_SOLVER = {name: [f"verified {name} {setting}" for setting in settings] for name, settings in SETTINGS.items()}
VERIFIED |= {
    method: (name, setting)
    for name, settings in SETTINGS.items()
    for method, setting in zip(BY_SOLVER[name], settings, strict=True)
}


def few_words(architecture: str, seed: int):
    """A random model with a vocabulary of eight words and the mask, float64, 2 layers with grouped-query attention."""
    torch.manual_seed(seed)
    config_class, model_class = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
    }[architecture]
    config = config_class(
        vocab_size=WORDS + 1,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        attn_implementation="sdpa",
        initializer_range=0.2,
    )
    return model_class(config).to(torch.float64).eval()


@dataclass(frozen=True)
class Work:
    """Prompts with a stop and a length limit."""

    prompts: tuple[tuple[int, ...], ...]
    stop: StopRule
    max_new_tokens: int

    def over(self, output: Sequence[int]) -> bool:
        """Whether a row that wrote this has ended."""
        stopped = bool(output) and self.stop.stops_at(output, len(output) - 1) is not None
        return stopped or len(output) == self.max_new_tokens

    def request(self, row: int | None = None, temperature: float = 0.0) -> DecodeRequest:
        """For all prompts, or for one of them alone."""
        prompts = self.prompts if row is None else (self.prompts[row],)
        plain = request(prompts, (), temperature, self.max_new_tokens, (MASK_ID,))
        return replace(plain, stop=self.stop)


def some_work(seed: int, prompts: int) -> Work:
    """Prompts of 1 to 9 tokens; none, one or two ids that stop, or a pair of ids that stops as text would; 1 to 28 tokens."""
    rng = random.Random(f"few words/{seed}")
    pair = [rng.randrange(WORDS), rng.randrange(WORDS)]
    stop = rng.choice(
        [
            StopRule(),
            StopRule(token_ids=frozenset(rng.sample(range(WORDS), rng.randint(1, 2)))),
            StopRule(ends_text=lambda ids: list(ids[-2:]) == pair),
        ]
    )
    return Work(
        prompts=tuple(tuple(rng.randrange(WORDS) for _ in range(rng.randint(1, 9))) for _ in range(prompts)),
        stop=stop,
        max_new_tokens=rng.choice([1, 2, 3, 28, 28, 28, 28, 28]),
    )


def decoder(method: str, session, request: DecodeRequest, block_size: int, mask_id: int = MASK_ID):
    """One of METHODS or BY_SOLVER as a generator of passes."""
    if method == "linear":
        return decode_linear(session, request, block_size=block_size, mask_id=mask_id)
    if method == "quadratic":
        return decode_quadratic(session, request, block_size=block_size, mask_id=mask_id)
    if method == IN_TURN:
        return decode_quadratic(
            session, request, block_size=block_size, mask_id=mask_id, in_turn=InTurn(random_bigram(mask_id + 1), copies=True)
        )
    if method == SHORT:
        acceptance, check = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=99.0), NextTokenCheck(mask_id, SURE)
        return decode_verified_blocks(
            session, request, block_size=block_size, mask_id=mask_id, acceptance=acceptance, check=check
        )
    solver, knobs = VERIFIED[method]
    acceptance = SolverAcceptance(SOLVERS[solver], **knobs)
    return decode_verified_blocks(session, request, block_size=block_size, mask_id=mask_id, acceptance=acceptance)
