"""The table of decoding methods: those of the program, then those of installed packages (entry point group ``sbd.methods``).

An entry point names a harness.scenario.method.Method. `docs/extending.md` walks through one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from harness.scenario.arms import NTP, SBD, SELF_SPECULATION, VERIFIED_SBD
from harness.scenario.masked_arms import APD, BLOCK_DIFFUSION, FREEDAVE
from harness.scenario.method import GREEDY, ArmSettings, Method, ReplaySpec, number, with_plugins
from harness.scenario.servers import BESIDE, SERVED
from harness.scenario.solvers import SOLVERS, SolverSpec
from harness.scenario.speculative_arms import DRAFT_MODEL, EARLY_EXIT, HIERARCHICAL, PROMPT_LOOKUP, UNIVERSAL_DRAFT

_OWN: tuple[Method[Any], ...] = (
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
_BY_NAME: dict[str, Method[Any]] = {method.name: method for method in _OWN}
METHODS = with_plugins(_BY_NAME, "sbd.methods", Method)
if TYPE_CHECKING:
    Arm = Any
else:
    Arm = Annotated[Union[tuple(method.arm for method in METHODS.values())], Field(discriminator="method")]  # noqa: UP007 - made of a table


def method_of(arm: ArmSettings) -> Method[Any]:
    """The descriptor of an arm; generate(), which checks the baseline, decodes as NTP does."""
    return NTP if arm.is_check else METHODS[arm.method]


def arm_id(arm: ArmSettings, replay: ReplaySpec | None) -> str:
    """The arm's part of a case id; ``auto`` stands in it before and after the choice of a width."""
    if not arm.is_check:
        return METHODS[arm.method].arm_id(arm, replay)
    if arm.server:
        return f"engine-{arm.server}"
    return f"generate-{arm.cache}" + ("-compiled" if arm.execution == "compiled" else "")


def arm_label(arm: ArmSettings, replay: ReplaySpec | None) -> str:
    """The arm's name in tables and figures, with a temperature above 0; ``auto`` as in ids."""
    if not arm.is_check:
        warm = f" T={number(arm.temperature)}" if arm.temperature != GREEDY else ""
        ragged = " ragged" if arm.batching == "ragged" else ""
        return f"{METHODS[arm.method].label(arm, replay)}{warm}{ragged}"
    if arm.server:
        return next(words for engine, words in BESIDE.items() if engine == arm.server)
    by_whom = "transformers" if arm.cache == "static" else "us"
    return f"generate(), {arm.cache} cache" + (f", compiled by {by_whom}" if arm.execution == "compiled" else "")
