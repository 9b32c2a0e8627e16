"""A scenario: which models, which arms, which work, how often. The one input of a run, written by a person as YAML.

Loading touches no model, network, device or environment; a mistake is refused with its file, line and remedy.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from harness.config_file import Count, Name, StrictModel, Younger
from harness.scenario.claims import Claims, misplaced
from harness.scenario.method import refuse_many
from harness.scenario.part import Part
from harness.workloads.spec import SOURCES

ATTEMPTS = 2
NOT_MEASURED = ("claims", "attempts", "deadline_s")
"""Keys of a scenario that no sample depends on."""


class Scenario(StrictModel):
    """The whole file."""

    version: Literal[1]
    """Version of the format of this file; 1 is the only one."""
    name: Name
    """Name of the scenario; the folders of its runs begin with it."""
    question: str = ""
    """What its run is to answer, in a sentence; the report shows it."""
    parts: tuple[Part, ...] = Field(min_length=1)
    """One model on one device each, with the arms to be compared on it."""
    claims: Claims = ()
    """What its run is checked against, recorded before the first sample. Empty: the paper's claims."""
    # Not measured, and added after version 1: not in the digest, and left out at their defaults.
    attempts: Annotated[Count, Field(exclude_if=lambda count: count == ATTEMPTS)] = ATTEMPTS
    """Tries in all, over this run and later ones, of a case whose process died, hung or ran out of memory; then it is left out,
    with its reason. If so many processes of a share are lost outside any case, the run ends.
    """
    deadline_s: Annotated[Annotated[float, Field(gt=0, allow_inf_nan=False)] | None, Younger] = None
    """Seconds that one step (loading a model, calibrating, one decode) may take before its process counts as hung and is ended.
    Samples are then taken in processes of their own. Left out: no limit.
    """

    @property
    def in_fresh_processes(self) -> bool:
        """Whether processes of its own take every part: some part asks for several, or a deadline may end a hung one."""
        many = any(part.processes > 1 or part.tensor_parallel > 1 for part in self.parts)
        return many or self.deadline_s is not None

    @model_validator(mode="after")
    def _parts_agree(self) -> Scenario:
        refuse_many(sum(part.case_count for part in self.parts), "cases in all parts")
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"two parts have the same name (got {', '.join(names)}); give each its own")
        by_name = {part.name: part for part in self.parts}
        for part in self.parts:
            if part.baseline is not None:
                _check_baseline(part, by_name)
        primary = [claim.name or claim.bounds[0].metric for claim in self.claims if claim.primary]
        wrong = [
            f"a claim is about {key} {given!r}, which is not here; allowed: {', '.join(map(str, allowed))}"
            for key, given, allowed in misplaced(self.claims, {part.name: part.batch_sizes for part in self.parts})
        ]
        if len(primary) > 1:
            wrong.append(f"{len(primary)} claims are primary ({'; '.join(primary)}); at most one is: keep one")
        for message in wrong:
            raise PydanticCustomError("unknown_key", "{message}", {"key": "claims", "message": message})
        return self


def _check_baseline(part: Part, by_name: dict[str, Part]) -> None:
    other = by_name.get(part.baseline or "")
    if other is None or other is part or not other.has_ntp:
        allowed = [name for name, candidate in by_name.items() if candidate is not part and candidate.has_ntp]
        raise ValueError(
            f"part {part.name}: baseline {part.baseline!r} is not another part with an ntp arm; "
            f"allowed: {', '.join(allowed) or 'none in this file'}"
        )
    differing = [key for key in (*SOURCES, "split", "prompts") if getattr(part.workload, key) != getattr(other.workload, key)]
    drawn = ("seed", "own_prompts", "processes") if part.own_prompts else ("seed", "own_prompts")
    differing += [key for key in drawn if getattr(part, key) != getattr(other, key)]
    if differing:
        raise ValueError(
            f"part {part.name}: its baseline {other.name} decodes other prompts ({', '.join(differing)} differ); "
            "give both the same workload and seed"
        )
