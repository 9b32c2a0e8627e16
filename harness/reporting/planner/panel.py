"""Capacity plans for a run's page: every answer of a small grid, computed beforehand, so that the page only looks them up.

The axes: the run's models and the paper's, some devices, batches, contexts, and the tokens that a pass makes final. The last
are this run's measured values and those of Table 1. Every figure is harness.capacity.plan's; knows no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

from harness import formatting
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.capacity.acceptance import TABLE1_BLOCK_SIZE, AssumedAcceptance, from_table1
from harness.capacity.figures import gpus_needed
from harness.capacity.plan import Question, plan
from harness.capacity.results import DevicePlan, Goal, Workload
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import Deployment
from harness.record.schema import Run

DTYPE = "bfloat16"
DEVICES = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-80-sxm", "l40s", "rtx-4090")
"""Data-centre and desktop GPUs, each with a price."""
BATCHES = (1, 8, 32, 128)
CONTEXTS = (1024, 8192, 32_768)
PAPER_MODEL = "llama-3.1-8b"
SMALLEST_PARAMS = 1e9
"""In smaller models launches take most of the time, and no datasheet has that; a page does not start with them."""
TABLE1_CELLS = ("llama-3.1-8b/GSM8K/low", "llama-3.1-8b/MATH500/low", "llama-3.1-8b/LiveCodeBench-v6/high")
"""The least, a medium and the most tokens per pass of this model in Table 1."""
OUTPUT_TOKENS = 500
LOADS = (None, 10.0, 100.0)
"""Requests per second of OUTPUT_TOKENS each; None: one replica."""
MOST_MODELS = 2
MOST_ARMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One acceptance to choose; ``basis``: the run measured it, was given it, or the paper published it.

    ``model``      whose acceptance it is; for another model it is an assumption
    ``remark``     the accuracy that it costs
    ``arguments``  its arguments for `sbd capacity`
    """

    label: str
    basis: Literal["measured", "replayed", "published"]
    model: str
    acceptance: AssumedAcceptance
    remark: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The plan of one device for one model, context, batch and acceptance (indices in the panel), with its notes.

    ``gpus``: by load, (NTP, SBD), each as expected and with nothing overlapped; None where the arm has no plan.
    """

    model: int
    device: int
    context: int
    batch: int
    choice: int
    plan: DevicePlan
    notes: tuple[str, ...]
    gpus: tuple[tuple[tuple[int, int] | None, tuple[int, int] | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Every answer of the grid, in the order of its axes: model, device (DEVICES), context, batch, choice."""

    models: tuple[ModelShape, ...]
    choices: tuple[Choice, ...]
    points: tuple[Point, ...]


def panel_of(run: Run, comparison: Comparison) -> Panel:
    """The panel of a run; where no SBD arm has its own acceptance, it uses Table 1's."""
    return _panel(_models(run), (*_measured(comparison), *_published()))


@lru_cache(maxsize=4)
def _panel(models: tuple[ModelShape, ...], choices: tuple[Choice, ...]) -> Panel:
    axes = [range(len(axis)) for axis in (models, CONTEXTS, DEVICES, BATCHES, choices)]
    points = {
        (model, device, context, batch, choice): _point(models, choices, model, device, context, batch, choice)
        for model, context, device, batch, choice in product(*axes)  # the acceptance varies fastest, because it shares prices
    }
    return Panel(models=models, choices=choices, points=tuple(points[place] for place in sorted(points)))


def _point(
    models: tuple[ModelShape, ...], choices: tuple[Choice, ...], model: int, device: int, context: int, batch: int, choice: int
) -> Point:
    workload = Workload(context_tokens=CONTEXTS[context], longest_tokens=CONTEXTS[context], output_tokens=OUTPUT_TOKENS)
    question = Question(
        shape=models[model], deployment=Deployment(dtype=DTYPE), acceptance=choices[choice].acceptance, workload=workload,
        goal=Goal(batch=BATCHES[batch]),
    )  # fmt: skip
    found = plan(question, [load_profile(DEVICES[device])])
    (planned,) = found.devices
    goals = [Goal(batch=BATCHES[batch], requests_per_s=load) for load in LOADS]
    return Point(
        model=model, device=device, context=context, batch=batch, choice=choice, plan=planned, notes=found.notes,
        gpus=tuple((gpus_needed(planned.ntp, goal, workload), gpus_needed(planned.sbd, goal, workload)) for goal in goals),
    )  # fmt: skip


def _models(run: Run) -> tuple[ModelShape, ...]:
    """The run's own, the largest first, and the paper's; models below SMALLEST_PARAMS come last."""
    known = {case.model for case in run.header.cases if case.model is not None}
    own = sorted(known, key=lambda shape: (-shape.params, shape.name))[:MOST_MODELS]
    return tuple(sorted(dict.fromkeys((*own, KNOWN_SHAPES[PAPER_MODEL])), key=lambda shape: shape.params < SMALLEST_PARAMS))


def _measured(comparison: Comparison) -> tuple[Choice, ...]:
    """The SBD arms of the run, highlighted ones first; replayed ones where no other has an acceptance."""
    arms = [
        (cell, arm, arm.label == highlight.label)
        for highlight in comparison.answers
        for cell in [comparison.summary(highlight.part, highlight.batch_size)]
        for arm in cell.arms
        if _has_acceptance(arm)
    ]
    real = [one for one in arms if one[1].replayed is None] or arms
    smallest: dict[tuple[str, str], tuple[Cell, ArmResult, bool]] = {}
    for cell, arm, is_highlight in sorted(real, key=lambda one: one[0].batch_size):
        smallest.setdefault((cell.part, arm.label), (cell, arm, is_highlight))
    highlight_first = sorted(smallest.values(), key=lambda one: not one[2])
    return tuple(_choice(*one) for one in highlight_first[:MOST_ARMS])


def _has_acceptance(arm: ArmResult) -> bool:
    """Whether the arm has an acceptance that a plan can use: passes per block, at most one pass per token."""
    tokens, size = arm.nfe_speedup.value, arm.block_size
    return arm.method == "sbd" and size is not None and tokens is not None and 1 <= tokens <= size


def _choice(cell: Cell, arm: ArmResult, is_highlight: bool) -> Choice:
    tokens = arm.nfe_speedup.value
    assert arm.block_size is not None and tokens is not None
    basis: Literal["measured", "replayed"] = "measured" if arm.replayed is None else "replayed"
    return Choice(
        label=f"{arm.label}: {formatting.ratio(tokens)} fewer passes",
        basis=basis,
        model=cell.model,
        acceptance=AssumedAcceptance(
            block_size=arm.block_size, passes_per_block=arm.block_size / tokens,
            source=f"NFE speedup {tokens:g} of {arm.label} in this run (part {cell.part}, batch {cell.batch_size}), {basis}",
        ),
        remark=f"{basis} on {cell.model}, {_accuracy(arm)}{'; the arm that answers this run' * is_highlight}",
        arguments=("--nfe-speedup", repr(tokens), "--block-size", str(arm.block_size)),
    )  # fmt: skip


def _accuracy(arm: ArmResult) -> str:
    if arm.replayed is not None:
        return "which says nothing about accuracy"
    lost = arm.accuracy_difference
    if lost.value is None:
        return f"accuracy not known: {lost.reason}"
    return f"accuracy against NTP {formatting.points(lost.value)}, observed"


def _published() -> tuple[Choice, ...]:
    found = []
    for cell in TABLE1_CELLS:
        acceptance = from_table1(TABLE1_BLOCK_SIZE, cell)
        model, task, level = cell.split("/")
        found.append(
            Choice(
                label=f"Table 1, {task}, γ {level}: {formatting.ratio(acceptance.nfe_speedup)} fewer passes", basis="published",
                model=model, acceptance=acceptance, remark=f"published for {model} on {task}, not measured in this run",
                arguments=("--table1", cell),
            )
        )  # fmt: skip
    return tuple(found)
