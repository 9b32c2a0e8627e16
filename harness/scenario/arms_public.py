"""The arm that decodes as a public family of block models does: its protocol, any solver.

The families and their protocols are data of harness.models.block_families.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from harness.config_file import Count
from harness.models.block_families import FAMILIES, BlockProtocol, Commit
from harness.scenario.axes import Counts, Numbers
from harness.scenario.method import ArmValues, Method, PassesOfBlock, PlannedPass, ReplaySpec, number
from harness.scenario.solvers import SolverChoice, setting_id, setting_in_words

GREEDY = 0.0
PREFIX_SOLVERS = ("longest_prefix", "longest_prefix_entropy")


def _known(name: str) -> str:
    if name not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; allowed: {', '.join(FAMILIES)}; sbd doctor --model PATH says which it is")
    return name


FamilyName = Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(FAMILIES)})]


class BlockDiffusionArm(SolverChoice):
    """Decoding as the family's authors do: what a block sees, when its KV is kept, which slots may be decided.

    ``commit``: merged writes a block's KV in the first pass of the next one, which saves a pass of the published code; the
    output is the same. ``sub_block``: slots decided in runs of so many. The default of both is the published protocol.
    """

    method: Literal["block_diffusion"]
    family: FamilyName
    block_size: Counts
    commit: Commit | None = None
    sub_block: Count | None = None
    temperature: Numbers = (GREEDY,)

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

    def variants(self) -> list[dict[str, Any]]:
        """One mapping per point of the product of the axes, every key with a single value."""
        published = FAMILIES[self.family].protocol
        how = {"commit": self.commit or published.commit, "sub_block": self.sub_block or published.sub_block}
        axes = product(self.block_size, self.settings(), self.temperature, self.solver)
        return [
            {"method": "block_diffusion", "family": self.family, "block_size": size, **setting, "temperature": temperature,
             "solver": solver, **how}
            for size, setting, temperature, solver in axes
        ]  # fmt: skip


def protocol_of(arm: ArmValues) -> BlockProtocol:
    """The protocol of an arm with one value on every axis."""
    return replace(FAMILIES[arm["family"]].protocol, commit=arm["commit"], sub_block=arm["sub_block"])


def _departures(arm: ArmValues) -> list[str]:
    """The differences between the arm and the published code."""
    published = FAMILIES[arm["family"]].protocol
    commit = ["merged"] if arm["commit"] != published.commit else []
    return commit + ([f"sub{arm['sub_block']}"] if arm["sub_block"] != published.sub_block else [])


def _arm_id(arm: ArmValues, replay: ReplaySpec | None) -> str:
    block, warm = f"{arm['family']}-k{arm['block_size']}", f"t{number(arm['temperature'])}"
    return "-".join([block, setting_id(arm), warm, arm["solver"], *_departures(arm)])


def _label(arm: ArmValues, replay: ReplaySpec | None) -> str:
    return " ".join([arm["family"], f"k={arm['block_size']}", setting_in_words(arm), *_departures(arm)])


def _widest(arm: ArmValues, prompt_tokens: int, new_tokens: int) -> tuple[int, int]:
    protocol, block = protocol_of(arm), int(arm["block_size"])
    if protocol.layout == "canvas":
        return prompt_tokens + new_tokens, new_tokens + (protocol.prediction == "shifted")
    wider = protocol.layout == "window" or protocol.commit == "merged"
    return (2 * block if wider else block), block


def _passes(arm: ArmValues, prompt_tokens: int, new_tokens: int, passes_of: PassesOfBlock) -> Iterator[PlannedPass]:
    """The kinds of pass of one decode, one slot decided a pass, at the context in its middle."""
    protocol, block = protocol_of(arm), int(arm["block_size"])
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


BLOCK_DIFFUSION = Method(
    name="block_diffusion", arm=BlockDiffusionArm, decoder="harness.engine.decoders:block_diffusion",
    arm_id=_arm_id, label=_label, widest=_widest, passes=_passes,
)  # fmt: skip
