"""The decoders of the program's own methods, which harness.scenario.method names, and what a decoder gets of an arm.

A method outside the program is one such function too. Knows no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar, cast

from harness.decoding.acceptance import Acceptance, ReplayedAcceptance, SolverAcceptance, assumed_passes, recorded_passes
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.block_diffusion import decode_block_diffusion
from harness.decoding.drafters import Drafter, OneDraft
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.in_turn import InTurn
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import Decoder, DecodeRequest
from harness.decoding.self_speculation import decode_linear, decode_quadratic
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.speculative import decode_draft_and_check
from harness.decoding.verification import NextTokenCheck, ReplayedCheck
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.engine.loading import LoadedModel
from harness.errors import ScenarioError
from harness.models.block_families import misuse, same_config
from harness.models.decodable import refuse_ids
from harness.roofline.recorded_acceptance import RecordedChecks, passes_per_block, recorded_checks, way_of
from harness.scenario.arms import SbdSettings, SelfSpeculationSettings
from harness.scenario.masked_arms import ApdSettings, BlockDiffusionSettings, FreeDaveSettings
from harness.scenario.method import ArmSettings, BlockSettings
from harness.scenario.methods import METHODS
from harness.scenario.plan import Case
from harness.scenario.solvers import SOLVERS, SolverSettings

FORMS: dict[str, Callable[..., Decoder]] = {"linear": decode_linear, "quadratic": decode_quadratic}
# Cached in the process: a replayed run does not change.
_passes_per_block, _recorded_checks = cache(passes_per_block), cache(recorded_checks)


S = TypeVar("S", bound=ArmSettings, covariant=True)


@dataclass(frozen=True)
class Decoding(Generic[S]):
    """One batch to be decoded as the arm of a case, with settings of the type ``S``, says. ``seed`` is for what a replayed arm
    draws; ``drafter`` makes the drafter of an arm that has stages.
    """

    case: Case
    model: LoadedModel
    session: ModelSession
    request: DecodeRequest
    seed: int
    drafter: Callable[[], Drafter]

    @property
    def arm(self) -> S:
        """The arm's settings."""
        return cast("S", self.case.arm)

    @property
    def mask_id(self) -> int:
        """The token that stands for an undecided position; where acceptance is replayed, nobody reads what it says.

        Raises:
            UnknownModelError: the model has no mask token.
        """
        if self.model.mask_id is None:
            refuse_ids(self.case.case_id, None, (), self.model.shape.vocab, self.case.replay is None)
        return self.model.filler_id

    @property
    def blocks(self: Decoding[BlockSettings]) -> dict[str, Any]:
        """What every decoder of blocks takes by these names."""
        return {"block_size": self.arm.block_size, "mask_id": self.mask_id}

    @cached_property
    def acceptance(self: Decoding[SolverSettings]) -> Acceptance:
        """The rule by which a pass decides slots of a block: the arm's solver, or what it replays.

        Raises:
            RecordError: the run to be replayed cannot be.
        """
        replay = self.case.replay
        if replay is None:
            return SolverAcceptance(resolve_name(SOLVERS[self.arm.solver].rule), **self.arm.knobs)
        if replay.mean_passes_per_block is not None:
            return ReplayedAcceptance(assumed_passes(self.arm.block_size, replay.mean_passes_per_block), self.seed)
        return ReplayedAcceptance(recorded_passes(_passes_per_block(*self.trace)), self.seed)

    @property
    def trace(self: Decoding[BlockSettings]) -> tuple[Path, int, str | None]:
        """The run that the case replays, the block size, and the label of the arm there."""
        assert self.case.replay is not None, "only a replayed case has a trace"
        source = self.case.replay.source
        return Path(source["trace"]), self.arm.block_size, source.get("arm")

    @cached_property
    def checks(self: Decoding[BlockSettings]) -> RecordedChecks:
        """What the case replays of a run whose drafts were checked. Raises RecordError: that run cannot be replayed."""
        return _recorded_checks(*self.trace, way_of(self.arm))


def decoder_of(asked: Decoding[ArmSettings]) -> Decoder:
    """The decoder of the case's arm, not yet started.

    Raises:
        UnknownModelError: the arm needs a mask token and the model has none.
        ScenarioError: the model's public family is not trained for the arm.
        RecordError: the run to be replayed cannot be.
    """
    _check_family(asked.case, asked.model)
    decoder: Decoder = resolve_name(METHODS[asked.arm.method].decoder)(asked)
    return decoder


def _check_family(case: Case, model: LoadedModel) -> None:
    """An arm decodes as the weights are trained to; for weights of no public family the scenario decides."""
    family, wanted = model.family, case.arm.family if isinstance(case.arm, BlockDiffusionSettings) else None
    reason = misuse(family, case.arm.method)
    if family is not None and wanted is not None and not same_config(family.name, wanted):
        reason = f"the checkpoint is of family {family.name}, the arm says family: {wanted}; write family: {family.name}"
    if reason:
        raise ScenarioError(f"{case.case_id}: {reason}")


def next_token(asked: Decoding[ArmSettings]) -> Decoder:
    """Next-token prediction."""
    return decode_next_token(asked.session, asked.request)


def set_block(asked: Decoding[SbdSettings]) -> Decoder:
    """Set Block Decoding."""
    return decode_set_block(
        asked.session, asked.request, **asked.blocks, acceptance=asked.acceptance, batching=asked.arm.batching
    )


def verified_blocks(asked: Decoding[SolverSettings]) -> Decoder:
    """Set Block Decoding whose blocks the next-token head checks; replayed, a recorded run says how the checks went."""
    acceptance: Acceptance
    check: NextTokenCheck
    if asked.case.replay is None:
        acceptance, check = asked.acceptance, NextTokenCheck(asked.mask_id, asked.arm.least_confidence or 0.0)
    else:
        acceptance = ReplayedAcceptance(recorded_passes(asked.checks.draft_passes), asked.seed)
        check = ReplayedCheck(asked.checks.misses, asked.mask_id, asked.seed)
    return decode_verified_blocks(asked.session, asked.request, **asked.blocks, acceptance=acceptance, check=check)


def self_speculation(asked: Decoding[SelfSpeculationSettings]) -> Decoder:
    """One-step drafts of the masked head, in either form."""
    more: dict[str, Any] = {}
    if asked.case.replay is not None:
        more["check"] = ReplayedCheck(asked.checks.misses, asked.mask_id, asked.seed)
    if asked.arm.form == "quadratic":
        more["in_turn"] = InTurn(getattr(asked.model.module, "bigram_of_adapter", None), bool(asked.arm.copies))
    return FORMS[asked.arm.form](asked.session, asked.request, **asked.blocks, **more)


def freedave(asked: Decoding[FreeDaveSettings]) -> Decoder:
    """Nested drafts on the masked chain."""
    return decode_nested_drafts(asked.session, asked.request, **asked.blocks, draft_steps=asked.arm.draft_steps)


def apd(asked: Decoding[ApdSettings]) -> Decoder:
    """Adaptive parallel decoding."""
    return decode_adaptive_parallel(asked.session, asked.request, **asked.blocks, mixture=asked.arm.mixture)


def block_diffusion(asked: Decoding[BlockDiffusionSettings]) -> Decoder:
    """As a public family of block models decodes."""
    return decode_block_diffusion(
        asked.session, asked.request, **asked.blocks, protocol=asked.arm.protocol, acceptance=asked.acceptance
    )


def draft_and_check(asked: Decoding[ArmSettings]) -> Decoder:
    """A drafter proposes, the target checks."""
    return decode_draft_and_check(asked.session, asked.request, asked.drafter())


PASSES_PER_BLOCK = 2


def measured_decoder(kind: str, session: ModelSession, request: DecodeRequest, width: int, mask_id: int) -> Decoder:
    """What decodes the passes of an engine that are measured, by their kind. ``width``: tokens of a pass; ``mask_id``: what
    stands for an undecided one.
    """
    match kind:
        case "ntp":
            return decode_next_token(session, request)
        case "blocks":  # each takes a pass that commits the block before it, and one that does not
            acceptance = ReplayedAcceptance(lambda rng: PASSES_PER_BLOCK, seed=0)
            return decode_set_block(session, request, block_size=width, mask_id=mask_id, acceptance=acceptance)
        case "causal":
            return decode_draft_and_check(session, request, OneDraft(width - 1))
        case _:
            return decode_quadratic(session, request, block_size=width, mask_id=mask_id)
