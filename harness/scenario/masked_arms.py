"""Arms that write with the masked head: FreeDave, APD, and a public family of block models by its protocol and any solver.

None of them is lossless against next-token prediction. The families and their protocols are data of
harness.models.block_families.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from harness.config_file import Count, Counts, Numbers, Shares
from harness.models.block_families import FAMILIES, BlockProtocol, Commit
from harness.scenario.method import GREEDY, ArmKeys, BlockSettings, Method, PlannedPass, ReplaySpec, number, per_token
from harness.scenario.solvers import SolverChoice, SolverSettings

MASKED_CHAIN = "greedy decoding of the masked head, one token a pass, same weights and block size"
"""What nested drafts are lossless against."""


class FreeDaveSettings(BlockSettings):
    """Of nested drafts."""

    draft_steps: int


class FreeDaveArm(ArmKeys):
    """Nested drafts on the masked chain (arXiv 2510.00294)."""

    settings = FreeDaveSettings
    axes = ("block_size", "draft_steps", "temperature")
    lossless = MASKED_CHAIN
    method: Literal["freedave"]
    """FreeDave, nested drafts on the masked chain."""
    block_size: Counts = (16,)
    """Block size k: slots that are decided together."""
    draft_steps: Counts = (4,)
    """States of a block that are fed side by side; each may save a pass and costs block_size query tokens."""
    temperature: Numbers = (GREEDY,)
    """Always 0: nested drafts are exact there only."""

    @field_validator("temperature")
    @classmethod
    def _greedy(cls, temperature: tuple[float, ...]) -> tuple[float, ...]:
        if any(temperature):
            raise ValueError(f"got {max(temperature):g}; nested drafts are exact at temperature 0 only, remove temperature")
        return temperature


class ApdSettings(BlockSettings):
    """Of adaptive parallel decoding."""

    mixture: float


class ApdArm(ArmKeys):
    """Adaptive parallel decoding (arXiv 2506.00413), the model's own next-token head as auxiliary model; lossy."""

    settings = ApdSettings
    axes = ("block_size", "mixture", "temperature")
    method: Literal["apd"]
    """Adaptive parallel decoding."""
    block_size: Counts = (16,)
    """Block size k: slots that are decided together."""
    mixture: Shares = (0.7,)
    """R, the weight of the masked head where a draft is checked; a larger weight accepts more."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""


FREEDAVE: Method[FreeDaveSettings] = Method(
    name="freedave",
    arm=FreeDaveArm,
    decoder="harness.engine.decoders:freedave",
    arm_id=lambda arm, replay: f"freedave-k{arm.block_size}-d{arm.draft_steps}-t{number(arm.temperature)}",
    label=lambda arm, replay: f"FreeDave k={arm.block_size} d={arm.draft_steps}",
    widest=lambda arm, prompt, new: ((arm.draft_steps + 1) * arm.block_size, arm.draft_steps * arm.block_size),
    passes=lambda arm, prompt, new, passes_of: per_token(
        prompt, new, ("verify+draft", (arm.draft_steps + 1) * arm.block_size, 1, 1)
    ),
)
APD: Method[ApdSettings] = Method(
    name="apd",
    arm=ApdArm,
    decoder="harness.engine.decoders:apd",
    arm_id=lambda arm, replay: f"apd-k{arm.block_size}-r{number(arm.mixture)}-t{number(arm.temperature)}",
    label=lambda arm, replay: f"APD k={arm.block_size} R={number(arm.mixture)}",
    passes=lambda arm, prompt, new, passes_of: per_token(
        prompt, new, ("draft", arm.block_size, 0, 1), ("verify+draft", 2 * arm.block_size, 1, 1)
    ),
)


PREFIX_SOLVERS = ("longest_prefix", "longest_prefix_entropy")


def _known(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; allowed: {', '.join(FAMILIES)}; sbd doctor --model PATH says which it is")
    return name


FamilyName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(FAMILIES)})]


class BlockDiffusionSettings(SolverSettings):
    """Of a public block model."""

    family: str
    commit: Commit | None = None
    sub_block: int | None = None

    @property
    def protocol(self) -> BlockProtocol:
        """The family's, with what the arm changes."""
        return replace(FAMILIES[self.family].protocol, commit=self.commit, sub_block=self.sub_block)

    @property
    def departures(self) -> list[str]:
        """The differences between the arm and the published code."""
        published = FAMILIES[self.family].protocol
        commit = ["merged"] if self.commit != published.commit else []
        return commit + ([f"sub{self.sub_block}"] if self.sub_block != published.sub_block else [])


class BlockDiffusionArm(SolverChoice):
    """Decoding as the family's authors do: what a block sees, when its KV is kept, which slots may be decided."""

    settings = BlockDiffusionSettings
    axes = ("family", "block_size", "settings", "temperature", "solver")
    method: Literal["block_diffusion"]
    """A public block model, as its authors decode it."""
    family: FamilyName
    """The family of the checkpoint; `sbd doctor --model FOLDER` says which."""
    block_size: Counts
    """Block size k: slots that are decided together."""
    commit: Commit | None = None
    """`merged` writes a block's KV in the first pass of the next one, with the same output; `own_pass` spends one on it.
    Left out: as published.
    """
    sub_block: Count | None = None
    """Slots of a block are decided in runs of so many. Left out: as published."""
    temperature: Numbers = (GREEDY,)
    """Sampling temperature; 0 takes the likeliest token."""

    @model_validator(mode="after")
    def _can_be_decoded(self) -> BlockDiffusionArm:
        self.check_knobs(otherwise="")
        published = FAMILIES[self.family].protocol
        if self.commit not in (None, published.commit) and not published.may_merge:
            raise ValueError(f"commit: {self.commit} is not possible with family {self.family}; remove commit")
        sub_block = self.sub_block or published.sub_block
        uneven = [size for size in self.block_size if sub_block and size % sub_block]
        if uneven:
            raise ValueError(
                f"block_size {uneven[0]} is no multiple of the family's sub_block {sub_block}; give one that is, or sub_block"
            )
        other = [name for name in self.solver if name not in PREFIX_SOLVERS]
        if published.layout == "window" and other:
            raise ValueError(
                f"family {self.family} keeps the front of its window, which solver {other[0]} does not promise to decide; "
                f"use {' or '.join(PREFIX_SOLVERS)}"
            )
        return self

    def points(self) -> list[dict[str, Any]]:
        """The product of the axes, then the protocol, as published where the arm does not say."""
        published = FAMILIES[self.family].protocol
        how = {"commit": self.commit or published.commit, "sub_block": self.sub_block or published.sub_block}
        return [point | how for point in super().points()]


def _arm_id(arm: BlockDiffusionSettings, replay: ReplaySpec | None) -> str:
    block, warm = f"{arm.family}-k{arm.block_size}", f"t{number(arm.temperature)}"
    return "-".join([block, arm.setting_id, warm, arm.solver, *arm.departures])


def _label(arm: BlockDiffusionSettings, replay: ReplaySpec | None) -> str:
    return " ".join([arm.family, f"k={arm.block_size}", arm.setting_in_words, *arm.departures])


def _widest(arm: BlockDiffusionSettings, prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
    protocol, block = arm.protocol, arm.block_size
    if protocol.layout == "canvas":
        return prompt_tokens + new_tokens, new_tokens + (protocol.prediction == "shifted")
    wider = protocol.layout == "window" or protocol.commit == "merged"
    return (2 * block if wider else block), block


def _passes(arm: BlockDiffusionSettings, prompt_tokens: int, new_tokens: int) -> Iterator[PlannedPass]:
    """The kinds of pass of one decode, one slot decided a pass, at the context in its middle."""
    protocol, block = arm.protocol, arm.block_size
    context, blocks = prompt_tokens + new_tokens // 2, new_tokens / block
    planned = partial(PlannedPass, context_tokens=context, logits=block)
    if protocol.layout == "canvas":
        query, logits = _widest(arm, prompt_tokens, new_tokens)
        yield PlannedPass(role="decide", query_tokens=query, context_tokens=0, logits=logits, count=new_tokens)
    elif protocol.layout == "window":
        yield planned(role="commit+decide", query_tokens=1 + block, kept=1, count=new_tokens)
    elif protocol.commit == "merged":
        yield planned(role="decide", query_tokens=block, count=new_tokens - blocks)
        yield planned(role="commit+decide", query_tokens=2 * block, kept=block, count=blocks)
    else:
        yield planned(role="decide", query_tokens=block, count=new_tokens)
        logits = int(protocol.first_slot == "committed")
        yield planned(role="commit+decide", query_tokens=block, kept=block, count=blocks, logits=logits)


BLOCK_DIFFUSION: Method[BlockDiffusionSettings] = Method(
    name="block_diffusion",
    arm=BlockDiffusionArm,
    decoder="harness.engine.decoders:block_diffusion",
    arm_id=_arm_id,
    label=_label,
    widest=_widest,
    passes=lambda arm, prompt, new, passes_of: _passes(arm, prompt, new),
)
