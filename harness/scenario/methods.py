"""The table of decoding methods: those of the program, then those of installed packages (entry point group ``sbd.methods``).

An entry point names a harness.scenario.method.Method. `docs/extending.md` walks through one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from harness.record.schema import is_check
from harness.scenario.arms import NTP, SBD, SELF_SPECULATION, VERIFIED_SBD
from harness.scenario.masked_arms import APD, BLOCK_DIFFUSION, FREEDAVE
from harness.scenario.method import AUTO, GREEDY, Method, ReplaySpec, number, with_plugins
from harness.scenario.servers import BESIDE, SERVED
from harness.scenario.solvers import SOLVERS, SolverSpec
from harness.scenario.speculative_arms import DRAFT_MODEL, EARLY_EXIT, HIERARCHICAL, PROMPT_LOOKUP, UNIVERSAL_DRAFT

_OWN = (
    NTP,
    SBD,
    VERIFIED_SBD,
    SELF_SPECULATION,
    FREEDAVE,
    APD,
    BLOCK_DIFFUSION,
    PROMPT_LOOKUP,
    DRAFT_MODEL,
    UNIVERSAL_DRAFT,
    EARLY_EXIT,
    HIERARCHICAL,
    SERVED,
)


# Here, and not beside each table: a package may import any module of arms.
SOLVERS.update(with_plugins(SOLVERS, "sbd.solvers", SolverSpec))
METHODS = with_plugins({method.name: method for method in _OWN}, "sbd.methods", Method)
if TYPE_CHECKING:
    Arm = Any
else:
    Arm = Annotated[Union[tuple(method.arm for method in METHODS.values())], Field(discriminator="method")]  # noqa: UP007 - made of a table


def method_of(arm: dict[str, Any]) -> Method:
    """The descriptor of an arm; generate(), which checks the baseline, decodes as NTP does."""
    return NTP if is_check(arm) else METHODS[arm["method"]]


def arm_id(arm: dict[str, Any], replay: ReplaySpec | None) -> str:
    """The arm's part of a case id; ``auto`` stands in it before and after the choice of a width."""
    if is_check(arm) and "server" in arm:
        return f"engine-{arm['server']}"
    if is_check(arm):
        return f"generate-{arm['cache']}" + ("-compiled" if arm["execution"] == "compiled" else "")
    return METHODS[arm["method"]].arm_id(_as_written(arm), replay)


def _as_written(arm: dict[str, Any]) -> dict[str, Any]:
    """With ``auto`` in place of a width that is left to the machine, chosen or not."""
    return arm | {arm[AUTO]: AUTO} if AUTO in arm else arm


def arm_label(arm: dict[str, Any], replay: ReplaySpec | None) -> str:
    """The arm's name in tables and figures, with a temperature above 0; ``auto`` as in ids."""
    if is_check(arm) and "server" in arm:
        return BESIDE[arm["server"]]
    if is_check(arm):
        by_whom = {"static": "transformers", "dynamic": "us"}[arm["cache"]]
        return f"generate(), {arm['cache']} cache" + (f", compiled by {by_whom}" if arm["execution"] == "compiled" else "")
    warm = f" T={number(arm['temperature'])}" if arm["temperature"] != GREEDY else ""
    ragged = " ragged" if arm.get("batching") == "ragged" else ""
    return f"{METHODS[arm['method']].label(_as_written(arm), replay)}{warm}{ragged}"
