"""Which decoder an arm of a case stands for, with the acceptance it asks for. The one place that knows every method by name."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

from harness.decoding.acceptance import Acceptance, ReplayedAcceptance, SolverAcceptance, assumed_passes, recorded_passes
from harness.decoding.apd import decode_adaptive_parallel
from harness.decoding.block_diffusion import decode_block_diffusion
from harness.decoding.drafters import Drafter
from harness.decoding.freedave import decode_nested_drafts
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest
from harness.decoding.self_speculation import decode_linear, decode_quadratic
from harness.decoding.session import ModelSession
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import SOLVERS
from harness.decoding.speculative import decode_draft_and_check
from harness.decoding.verification import DraftCheck, NextTokenCheck, ReplayedCheck
from harness.decoding.verified_blocks import decode_verified_blocks
from harness.engine.loading import LoadedModel
from harness.errors import ScenarioError
from harness.models.block_families import misuse, same_config
from harness.record.trace import ForwardPass, Generation
from harness.roofline.recorded_acceptance import RecordedChecks, passes_per_block, recorded_checks
from harness.scenario.arms_public import protocol_of
from harness.scenario.plan import Case
from harness.scenario.solvers import knobs_of
from harness.scenario.speculative_arms import RIVALS

FORMS = {"linear": decode_linear, "quadratic": decode_quadratic}


def decoder_of(
    case: Case,
    model: LoadedModel,
    session: ModelSession,
    request: DecodeRequest,
    seed: int,
    drafter: Callable[[], Drafter],
) -> Generator[ForwardPass, None, Generation]:
    """The decoder of the case's arm, not yet begun; ``seed`` is for what a replayed arm draws, ``drafter`` makes a rival's.

    Raises:
        ScenarioError: the model has no mask token, which every arm but NTP needs; or it is of a public family whose weights
            are not trained for the arm.
        RecordError: the run to be replayed cannot be.
    """
    arm, mask_id = case.arm, model.mask_id
    _check_family(case, model)
    if arm["method"] == "ntp":
        return decode_next_token(session, request)
    if arm["method"] in RIVALS:
        return decode_draft_and_check(session, request, drafter())
    if mask_id is None:
        raise ScenarioError(
            f"{case.case_id}: the tokenizer of {model.shape.name} has no mask token; "
            "an SBD checkpoint has one: name it with mask_token_id in the model"
        )
    size = arm["block_size"]
    if arm["method"] == "self_speculation":
        return FORMS[arm["form"]](session, request, block_size=size, mask_id=mask_id)
    if arm["method"] == "freedave":
        return decode_nested_drafts(session, request, block_size=size, mask_id=mask_id, draft_steps=arm["draft_steps"])
    if arm["method"] == "apd":
        return decode_adaptive_parallel(session, request, block_size=size, mask_id=mask_id, mixture=arm["mixture"])
    acceptance = _acceptance(case, seed)
    if arm["method"] == "block_diffusion":
        return decode_block_diffusion(
            session, request, protocol=protocol_of(arm), block_size=size, mask_id=mask_id, acceptance=acceptance
        )
    if arm["method"] == "sbd_verified":
        check = _check(case, mask_id, seed)
        return decode_verified_blocks(session, request, block_size=size, mask_id=mask_id, acceptance=acceptance, check=check)
    return decode_set_block(session, request, block_size=size, mask_id=mask_id, acceptance=acceptance, batching=arm["batching"])


def _check_family(case: Case, model: LoadedModel) -> None:
    """An arm decodes as the weights were trained to; what no family claims is taken at the scenario's word."""
    family, wanted = model.family, case.arm.get("family")
    reason = misuse(family, case.arm["method"])
    if family is not None and wanted is not None and not same_config(family.name, wanted):
        reason = f"the checkpoint is of family {family.name}, the arm says family: {wanted}; write family: {family.name}"
    if reason:
        raise ScenarioError(f"{case.case_id}: {reason}")


def _check(case: Case, mask_id: int, seed: int) -> DraftCheck:
    if case.replay is None:
        return NextTokenCheck(mask_id, case.arm.get("least_confidence", 0.0))
    return ReplayedCheck(_recorded_checks(*_trace(case)).misses, mask_id, seed)


def _acceptance(case: Case, seed: int) -> Acceptance:
    if case.replay is None:
        return SolverAcceptance(SOLVERS[case.arm["solver"]], **knobs_of(case.arm))
    size = case.arm["block_size"]
    if case.replay.mean_passes_per_block is not None:
        return ReplayedAcceptance(assumed_passes(size, case.replay.mean_passes_per_block), seed)
    if case.arm["method"] == "sbd_verified":
        return ReplayedAcceptance(recorded_passes(_recorded_checks(*_trace(case)).draft_passes), seed)
    return ReplayedAcceptance(recorded_passes(_recorded_passes(*_trace(case))), seed)


def _trace(case: Case) -> tuple[Path, int, str | None]:
    """The run that a case replays, the block size, and the label of the arm there."""
    assert case.replay is not None, "only a replayed case has a trace"
    source = case.replay.source
    return Path(source["trace"]), case.arm["block_size"], source.get("arm")


@cache
def _recorded_passes(run_dir: Path, block_size: int, label: str | None) -> list[int]:
    """Read once a process: a run that is replayed does not change."""
    return passes_per_block(run_dir, block_size, label)


@cache
def _recorded_checks(run_dir: Path, block_size: int, label: str | None) -> RecordedChecks:
    """As _recorded_passes."""
    return recorded_checks(run_dir, block_size, label)
