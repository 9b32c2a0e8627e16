"""Which claims a run is held against: those that were asked for, else those of its scenario, else the paper's
figures and our limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from harness.errors import RecordError
from harness.record.schema import RunHeader
from harness.scenario.claim_text import read_claim
from harness.scenario.claims import Claim, Claims
from harness.scenario.claims_file import OURS, PAPER, load_claims


def claims_for(header: RunHeader, texts: Sequence[str], files: Sequence[Path | str]) -> Claims:
    """Claims in text and in files, in this order; the recorded ones of the scenario where neither is given.

    Raises:
        UserError, ScenarioError: a claim or a file that cannot be read.
        RecordError: the record's own claims cannot be read.
    """
    asked = tuple(read_claim(text) for text in texts) + tuple(claim for file in files for claim in load_claims(file))
    return asked or _recorded(header) or load_claims(PAPER) + load_claims(OURS)


def _recorded(header: RunHeader) -> Claims:
    try:
        return TypeAdapter(tuple[Claim, ...]).validate_python(header.scenario.get("claims") or ())
    except ValidationError as error:
        mistakes = error.error_count()
        raise RecordError(f"{header.run_id}: the claims of the record cannot be read ({mistakes} mistakes)") from error
