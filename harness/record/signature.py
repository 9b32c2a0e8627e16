"""SSH signatures of a record's seal, made and checked by OpenSSH's ssh-keygen (its format: PROTOCOL.sshsig).

Any SSH key signs, one held by an agent or a hardware token too. Who may sign is a file of allowed signers (ssh-keygen(1),
ALLOWED SIGNERS): one line for each, ``name namespaces="sbd-record" ssh-ed25519 AAAA...``.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from harness.errors import UserError
from harness.frozen import frozen

NAMESPACE = "sbd-record"
TOOL = "ssh-keygen"
LONGEST_S = 60.0
"""Limit of one call; a key with a passphrase asks for it meanwhile."""
_KEY = re.compile(rb"with (\S+) key (SHA256:[A-Za-z0-9+/=]+)")


@frozen
class Signature:
    """A signature beside a seal. ``valid`` None: it could not be checked. ``words``: by which key, or why not."""

    valid: bool | None
    words: str


def sign(data: bytes, key: Path) -> bytes:
    """The signature of ``data`` by a private key, or by the agent's key of a public one.

    Raises:
        UserError: the tool is missing, or refuses the key.
    """
    done = _called(["sign", "-f", str(key), "-n", NAMESPACE], data)
    if done is None:
        raise UserError(f"--sign {key}: {TOOL} is not there; install OpenSSH's client")
    if done.returncode:
        raise UserError(f"--sign {key}: {TOOL} refused: {_said(done)}; give an SSH key (make one: ssh-keygen -t ed25519)")
    return done.stdout


def check(data: bytes, signature: bytes) -> Signature:
    """Whether the signature is of these bytes, and by which key; whose key it is stays open."""
    with _file(signature) as file:
        done = _called(["check-novalidate", "-n", NAMESPACE, "-s", file.name], data)
    if done is None:
        return Signature(valid=None, words=f"signed, not checked: {TOOL} is not there")
    found = _KEY.search(done.stdout)
    if done.returncode or found is None:
        return Signature(valid=False, words=_said(done))
    return Signature(valid=True, words=f"signed by {found[1].decode()} key {found[2].decode()}")


def signer(data: bytes, signature: bytes, allowed: Path) -> str | None:
    """The name of the allowed signer whose signature of these bytes it is; None for any other.

    Raises:
        UserError: the tool, or the file of allowed signers, is missing.
    """
    if not allowed.is_file():
        raise UserError(f"--signers {allowed}: there is no such file; give one of allowed signers, as ssh-keygen(1) has it")
    with _file(signature) as file:
        found = _called(["find-principals", "-f", str(allowed), "-s", file.name], b"")
        if found is None:
            raise UserError(f"--require-signature: {TOOL} is not there; install OpenSSH's client")
        for name in found.stdout.decode(errors="replace").split():
            done = _called(["verify", "-f", str(allowed), "-I", name, "-n", NAMESPACE, "-s", file.name], data)
            if done is not None and done.returncode == 0:
                return name
    return None


def _file(content: bytes) -> tempfile._TemporaryFileWrapper[bytes]:
    """A file with these bytes, until it is closed: the tool reads a signature by its name."""
    file = tempfile.NamedTemporaryFile(prefix="sbd-signature-")  # noqa: SIM115  the caller closes it
    file.write(content)
    file.flush()
    return file


def _called(arguments: list[str], data: bytes) -> subprocess.CompletedProcess[bytes] | None:
    """One call of the tool with ``data`` as its input; None where it is not installed."""
    try:
        return subprocess.run([TOOL, "-Y", *arguments], input=data, capture_output=True, timeout=LONGEST_S, check=False)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{TOOL} did not answer within {LONGEST_S:g} s; is it waiting for a passphrase?") from error


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = (done.stderr or done.stdout).decode(errors="replace").split("\n")
    return next((line for line in lines if line.strip()), "no reason given")[:200]
