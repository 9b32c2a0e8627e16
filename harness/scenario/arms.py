"""The main arms: next-token prediction, Set Block Decoding (real, replayed or verified), and self-speculation.

A list on block_size, solver, a knob of it, temperature or batching is an axis; ``variants`` is the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.config_file import Flag, Name, Numbers, Shares, Younger, one_or_several
from harness.scenario.method import (
    GREEDY,
    ArmKeys,
    ArmSettings,
    BlockSettings,
    Method,
    PassesOfBlock,
    PlannedPass,
    Widths,
    confidence_bound,
    number,
    per_token,
    widths,
)
from harness.scenario.replay import AcceptanceChoice, RecordedAcceptance, choice_id, replay_id, with_choice
from harness.scenario.solvers import SolverChoice, SolverSettings

Batching = Literal["lockstep", "ragged"]
Form = Literal["linear", "quadratic"]
GENERATE_MODES = {
    "cpu": (("dynamic", "eager"), ("static", "eager"), ("dynamic", "compiled")),
    "cuda": (("dynamic", "eager"), ("static", "compiled")),
}
"""Cache and execution of the transformers generate() beside the NTP arm, by kind of device. On a CPU the harness compiles its
forwards, unless the part runs eagerly; on a GPU transformers itself compiles those with a static cache.
"""
Batchings = Annotated[tuple[Batching, ...], *one_or_several(Batching)]
Forms = Annotated[tuple[Form, ...], *one_or_several(Form)]
Flags = Annotated[tuple[bool, ...], *one_or_several(Flag)]
RealOrRecorded = Annotated[RecordedAcceptance, Field(exclude_if=lambda value: value == "real")]


class NtpArm(ArmKeys):
    """Next-token prediction: the baseline."""

    axes = ("temperature", "server")
    method: Literal["ntp"]
    """Next-token prediction."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""
    server: Annotated[Name | None, Younger] = None
    """The server of the part that decodes it, one token a pass. Left out: this program does."""


class SbdSettings(SolverSettings):
    """Of Set Block Decoding."""

    batching: Batching


class SbdArm(SolverChoice):
    """Set Block Decoding: the knobs of a solver decide what becomes final, or a replay does."""

    settings = SbdSettings
    axes = ("acceptance", "block_size", "settings", "temperature", "solver", "batching")
    method: Literal["sbd"]
    """Set Block Decoding."""
    block_size: Widths = (16,)
    """Block size k: slots that are decided together; `auto`: as many as are fastest on this machine."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""
    batching: Batchings = ("lockstep",)
    """When the rows of a batch open their blocks: `lockstep`, all together; `ragged`, each as soon as it can."""
    acceptance: AcceptanceChoice = "real"
    """Who decides what becomes final: `real`, the solver; or a replay of published or recorded figures, which has no knobs."""

    @model_validator(mode="after")
    def _solver_decides_real_acceptance(self) -> SbdArm:
        if self.acceptance == "real":
            self.check_knobs()
            return self
        self.check_replayed()
        speedup = self.acceptance.replay.nfe_speedup
        least = min(widths(self, "block_size"))
        if speedup is not None and speedup > least:
            raise ValueError(
                f"an NFE speedup of {speedup:g} cannot be had with block size {least}: a block takes at least one pass; use a "
                "larger block_size or a smaller nfe_speedup"
            )
        return self


class VerifiedSbdArm(SolverChoice):
    """Set Block Decoding whose blocks the next-token head checks in the pass that commits them; the solver only drafts.

    The rows of a batch progress independently.
    """

    axes = ("acceptance", "block_size", "settings", "temperature", "solver", "least_confidence")
    lossless = True
    method: Literal["sbd_verified"]
    """Verified Set Block Decoding."""
    block_size: Widths = (16,)
    """Block size k: slots that are decided together; `auto`: as many as are fastest on this machine."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""
    least_confidence: Annotated[Shares | None, Younger] = None
    """A block is checked, and the next one opened, before its first draft of this confidence or less. Left out: whole."""
    acceptance: RealOrRecorded = "real"
    """`real`; or a recorded run: it gives the passes that draft a block, and how many drafts the next-token head keeps."""

    @model_validator(mode="after")
    def _solver_has_its_knobs(self) -> VerifiedSbdArm:
        if self.acceptance == "real":
            self.check_knobs(otherwise="")
        else:
            self.check_replayed("least_confidence")
        return self


class SelfSpeculationSettings(BlockSettings):
    """Of self-speculation."""

    form: Form


class SelfSpeculationArm(ArmKeys):
    """One-step drafts of the masked head, checked by the next-token head."""

    settings = SelfSpeculationSettings
    axes = ("acceptance", "form", "block_size", "copies", "temperature")
    lossless = True
    method: Literal["self_speculation"]
    """Self-speculation."""
    form: Forms
    """`linear` takes two passes an iteration, `quadratic` one of block_size x (block_size + 1) query tokens."""
    block_size: Widths = (16,)
    """Tokens that one draft has; `auto`: as many as are fastest on this machine."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""
    copies: Annotated[Flags | None, Younger] = None
    """Slots of a draft are drawn in turn, and favour what followed the last tokens earlier in the row. A bigram term of the
    model's adapter does so in any case (harness.decoding.in_turn).
    """
    acceptance: RealOrRecorded = "real"
    """`real`; or a recorded run: it says how many drafts the next-token head keeps."""

    @model_validator(mode="after")
    def _copies_in_one_pass(self) -> SelfSpeculationArm:
        if self.copies is not None and "linear" in self.form:
            raise ValueError("copies are for form: quadratic; give the linear form as an arm of its own")
        return self


def _sbd_passes(arm: SbdSettings, prompt_tokens: int, new_tokens: int, passes_of: PassesOfBlock) -> Iterator[PlannedPass]:
    """Every block at its own context; the first pass of a block feeds the block before it again."""
    block = arm.block_size
    for start in range(0, new_tokens, block):
        committed = block if start else 0
        yield PlannedPass(
            role="commit+decide" if start else "decide",
            query_tokens=committed + block,
            context_tokens=prompt_tokens + start - committed,
            logits=block,
            kept=committed,
        )
        later = passes_of(min(block, new_tokens - start)) - 1
        yield PlannedPass(role="decide", query_tokens=block, context_tokens=prompt_tokens + start, logits=block, count=later)


def _self_speculation_passes(arm: SelfSpeculationSettings, prompt_tokens: int, steps: int) -> Iterator[PlannedPass]:
    block = arm.block_size
    if arm.form == "linear":
        yield from per_token(prompt_tokens, steps, ("draft", block, 0, 1), ("verify", block, 1, 1))
    else:
        yield from per_token(prompt_tokens, steps, ("verify+draft", block * (block + 1), 1, 1))


NTP: Method[ArmSettings] = Method(
    name="ntp",
    arm=NtpArm,
    decoder="harness.engine.decoders:next_token",
    label=lambda arm, replay: "NTP",
    arm_id=lambda arm, replay: "ntp" if arm.temperature == GREEDY else f"ntp-t{number(arm.temperature)}",
    passes=lambda arm, prompt, new, passes_of: per_token(prompt, new - 1, ("decide", 1, 1, 1)),
)
SBD: Method[SbdSettings] = Method(
    name="sbd",
    arm=SbdArm,
    decoder="harness.engine.decoders:set_block",
    arm_id=lambda arm, replay: f"sbd-{choice_id(arm, replay)}" + ("-ragged" if arm.batching == "ragged" else ""),
    label=lambda arm, replay: with_choice(f"SBD k={arm.k}", arm, replay),
    widest=lambda arm, prompt, new: (2 * arm.block_size, arm.block_size) if arm.block_size > 1 else (1, 1),
    passes=_sbd_passes,
)
VERIFIED_SBD: Method[SolverSettings] = Method(
    name="sbd_verified",
    arm=VerifiedSbdArm,
    decoder="harness.engine.decoders:verified_blocks",
    arm_id=lambda arm, replay: f"sbd-verified-{choice_id(arm, replay)}{confidence_bound(arm.least_confidence, '-c')}",
    label=lambda arm, replay: (
        with_choice(f"SBD verified k={arm.k}", arm, replay) + confidence_bound(arm.least_confidence, " c>")
    ),
    passes=lambda arm, prompt, new, passes_of: per_token(
        prompt, new - 1, ("draft", arm.block_size, 0, arm.block_size - 1), ("verify+draft", 2 * arm.block_size, 1, 1)
    ),
)
SELF_SPECULATION: Method[SelfSpeculationSettings] = Method(
    name="self_speculation",
    arm=SelfSpeculationArm,
    decoder="harness.engine.decoders:self_speculation",
    arm_id=lambda arm, replay: (
        f"{arm.form}-k{arm.k}{replay_id(replay)}-t{number(arm.temperature)}" + "-copies" * bool(arm.copies)
    ),
    label=lambda arm, replay: (
        f"{arm.form} self-speculation k={arm.k}" + " with copies" * bool(arm.copies) + " replayed" * bool(replay)
    ),
    passes=lambda arm, prompt, new, passes_of: _self_speculation_passes(arm, prompt, new - 1),
)
