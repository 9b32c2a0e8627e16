"""Options of commands that judge records: whether a signature is demanded, and whose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from typer import Option

from harness.analysis.trust.integrity import Integrity
from harness.errors import UserError
from harness.record.seal import SEAL
from harness.record.signature import signer
from harness.record.store import SIGNATURE, kept

RequireOption = Annotated[
    bool, Option("--require-signature", help="void unless the record is sealed and signed, by one of --signers if given")
]
SignersOption = Annotated[
    Path | None,
    Option(metavar="FILE", help="whose signatures count: allowed signers as in ssh-keygen(1); needs --require-signature"),
]


class Demand(NamedTuple):
    """Whether records have to be signed; ``signers``: by whom, None for any key."""

    demanded: bool
    signers: Path | None


def demanding(integrity: Integrity, run: Path, demand: Demand) -> Integrity:
    """What a record proves where a signature is demanded.

    Raises:
        UserError: signers without the demand; a file of signers that is not there.
    """
    if not demand.demanded:
        if demand.signers is not None:
            raise UserError(f"--signers {demand.signers} says whose signatures count; add --require-signature")
        return integrity
    return replace(integrity, demanded=_lacking(integrity, run if run.is_dir() else run.parent, demand.signers))


def _lacking(integrity: Integrity, run: Path, signers: Path | None) -> str | None:
    """Why the demand is not met."""
    head, signature = kept(run / SEAL), kept(run / SIGNATURE)
    if head is None or signature is None or not integrity.signed:
        return f"the record is {integrity.seal_words}"
    if signers is not None and signer(head, signature, signers) is None:
        return f"the record is {integrity.seal_words}, which is none of {signers}"
    return None
