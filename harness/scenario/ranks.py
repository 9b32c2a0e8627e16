"""Which of the processes that share one model this is, and whether a scenario can be run by so many.

The convention is torchrun's: RANK, LOCAL_RANK and WORLD_SIZE in the environment. `sbd run` starts the processes of a part
with tensor_parallel in the same way, and adds their rendezvous.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import gcd

from harness.errors import ScenarioError, UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.scenario.part import Part
from harness.scenario.scenario import Scenario

RENDEZVOUS = "SBD_RENDEZVOUS"
"""Where the processes meet if `sbd run` started them, an init_method of torch.distributed; torchrun has its own variables."""


@frozen
class Ranks:
    """This process among ``world`` that share every model; ``local`` numbers those of one machine, as its GPUs are numbered."""

    rank: int
    local: int
    world: int
    rendezvous: str

    @property
    def leads(self) -> bool:
        """Whether this one keeps the record and gives the commands; the others follow it."""
        return self.rank == 0

    def environment(self) -> dict[str, str]:
        """The environment variables of this process."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local),
            "WORLD_SIZE": str(self.world),
            RENDEZVOUS: self.rendezvous,
        }


def ranks_here(environment: Mapping[str, str] = os.environ) -> Ranks | None:
    """The ranks of this process, from the environment; None where it is alone.

    Raises:
        UserError: one of the three variables is no number.
    """
    given = {name: environment.get(name, "") for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")}
    if not given["RANK"] or given["WORLD_SIZE"] in ("", "1"):
        return None
    for name, value in given.items():
        if not value.isdecimal():
            raise UserError(f"{name}={value!r} in the environment: must be a number, as torchrun sets it")
    rank, local, world = map(int, given.values())
    return Ranks(rank=rank, local=local, world=world, rendezvous=environment.get(RENDEZVOUS, "env://"))


def refuse_other_world(scenario: Scenario, world: int) -> None:
    """Under torchrun the same processes run all parts, so every part must ask for as many.

    Raises:
        ScenarioError: one asks for others, or for fresh ones, which torchrun does not start.
    """
    instead = "or leave torchrun out: `sbd run` starts the processes of every part itself"
    for part in scenario.parts:
        if part.tensor_parallel != world:
            raise ScenarioError(
                f"part {part.name}: tensor_parallel is {part.tensor_parallel}, but torchrun started {world} processes; "
                f"start {part.tensor_parallel} (torchrun --nproc-per-node {part.tensor_parallel}), {instead}"
            )
        if part.processes > 1:
            raise ScenarioError(
                f"part {part.name}: processes is {part.processes}, but torchrun starts each process once; leave processes out, "
                f"{instead}"
            )


def refuse_uneven_heads(part: Part, shape: ModelShape) -> None:
    """Every process has whole attention heads and whole KV heads, as many as the others.

    Raises:
        ScenarioError: they do not divide.
    """
    wanted, common = part.tensor_parallel, gcd(shape.heads, shape.kv_heads)
    if common % wanted:
        allowed = ", ".join(str(n) for n in range(1, common + 1) if common % n == 0)
        raise ScenarioError(
            f"part {part.name}: tensor_parallel is {wanted}, but {shape.name} has {shape.heads} attention heads and "
            f"{shape.kv_heads} KV heads, which cannot be split evenly over {wanted} processes; allowed: {allowed}"
        )
