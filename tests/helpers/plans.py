"""Plans of one-part scenarios."""

from __future__ import annotations

from harness.models import KNOWN_SHAPES
from harness.models.block_families import FAMILIES
from harness.roofline.ceilings import Ceilings
from harness.scenario.plan import Case, Plan, make_plan
from harness.scenario.scenario import Scenario

PART = {
    "name": "p",
    "model": {"random": "llama-250m"},
    "dtype": "bfloat16",
    "arms": [{"method": "ntp"}, {"method": "sbd", "acceptance": {"replay": {"nfe_speedup": 4.0}}}],
    "workload": {"synthetic": {"prompt_tokens": 64}, "prompts": 4, "max_new_tokens": 33},
}
CEILINGS = Ceilings(
    rung="datasheet", device_name="toy", dtype="bfloat16", bandwidth_bytes_per_s=1e10, matrix_rates=((1, 1e12),), overlap=1.0
)


def plan_of(**changes: object) -> Plan:
    """A plan of one part."""
    return make_plan(Scenario.model_validate({"version": 1, "name": "s", "parts": [PART | changes]}))


def case_of(method: str, **changes: object) -> Case:
    """The first case of an arm."""
    return next(case for case in plan_of(**changes).cases if case.arm.method == method)


TARGET = KNOWN_SHAPES["llama-250m"]
SMALL = TARGET.model_copy(update={"name": "small", "layers": 2, "hidden": 256, "intermediate": 512})
DRAFT = {"random": SMALL.model_dump(mode="json")}
SDAR = {"method": "block_diffusion", "family": "sdar", "block_size": 4, "solver": "threshold", "tau": 0.9}


def published_arm(family: str, block_size: int, **changes: object) -> dict[str, object]:
    """The family's published rule."""
    spec = FAMILIES[family]
    how = {"solver": spec.solver, **spec.knobs}
    return {"method": "block_diffusion", "family": family, "block_size": block_size, **how, **changes}
