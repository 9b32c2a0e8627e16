"""A file of claims: YAML with the one key ``claims``, given by path, or one that travels with the program by its name."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from harness.config_file import Frozen
from harness.errors import ScenarioError
from harness.paths import data_dir
from harness.scenario.claims import Claim, Claims
from harness.yaml_lines import read_yaml

PAPER = "paper"
"""The shipped file that restates the figures that the paper claims (arXiv 2509.04185)."""
OURS = "ours"
"""The shipped file with limits of ours for what the paper claims without a figure."""


class ClaimFile(Frozen):
    """The whole file."""

    claims: tuple[Claim, ...] = Field(min_length=1)


def load_claims(given: Path | str) -> Claims:
    """The claims of a file, or of a shipped one by its bare name.

    Raises:
        ScenarioError: there is no such file, or it is refused; ``file:line: key: given, allowed, what to do`` per mistake.
    """
    document = read_yaml(_find(given), when_empty="write claims: [...] (see `sbd verify --help`)")
    try:
        return ClaimFile.model_validate(document.data).claims
    except ValidationError as error:
        raise ScenarioError(document.describe(error)) from error


def shipped_claims() -> tuple[str, ...]:
    """Names of the files of claims that travel with the program."""
    return tuple(sorted(file.stem for file in _folder().glob("*.yaml")))


def _folder() -> Path:
    return data_dir("scenarios") / "claims"


def _find(given: Path | str) -> Path:
    path = Path(given)
    if path.is_file():
        return path
    shipped = _folder() / f"{path}.yaml"
    if len(path.parts) == 1 and shipped.is_file():
        return shipped
    names = ", ".join(shipped_claims())
    raise ScenarioError(f"{path}: there is no such file of claims; give a path, or a shipped name: {names}")
