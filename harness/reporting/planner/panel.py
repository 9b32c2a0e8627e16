"""Capacity plans for a run's page: every answer of a grid, priced beforehand, so that the page only looks them up.

The axes: the run's largest model and Llama 8B and 70B, formats of weights and KV cache, requests, devices, GPUs of a replica
(TP), batches, and arms. Arms are NTP, those of the run that have an acceptance, and Table 1's. Every figure is what
`sbd capacity` says of the same question (harness.capacity.grid). Knows no page.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from math import inf
from typing import Literal

from harness import formatting
from harness.analysis.results import ArmResult, Cell, Comparison
from harness.capacity.acceptance import TABLE1_BLOCK_SIZE, AssumedAcceptance, from_table1
from harness.capacity.grid import Grid, Place, PricedColumn, price_grid
from harness.errors import UserError
from harness.frozen import frozen
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.deployment import WEIGHT_FORMATS
from harness.record.schema import Run

DTYPE = "bfloat16"
WEIGHTS = {"16 bits (bfloat16)": None, "8 bits (fp8)": "float8", "4 bits (int4-g128)": "int4-g128"}
"""Of the linear layers, by what the page calls them."""
KV_DTYPES = {"16 bits (bfloat16)": None, "8 bits (fp8)": "float8"}
DEVICES = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-80-sxm", "l40s", "rtx-4090")
"""Data-centre and desktop GPUs, each with a price."""
REQUESTS = ((2000, 300), (500, 1000), (16_000, 500))
"""(prompt, output) tokens: a question with its material, a long answer, a document."""
CHUNK_TOKENS = 2048
"""Prompt tokens in a step, as vLLM's default for servers has it."""
BATCHES = (1, 4, 8, 16, 32, 64, 128)
REQUESTS_PER_S = 10.0
"""The load for which GPUs are counted."""
MODELS = ("llama-3.1-8b", "llama-3.1-70b")
"""The paper's, and a large one of its family."""
SMALLEST_PARAMS = 1e9
"""Nobody plans GPUs for a smaller model; a page has 180 kB for each."""
TABLE1_CELLS = ("llama-3.1-8b/GSM8K/low", "llama-3.1-8b/LiveCodeBench-v6/high")
"""The least and the most tokens per pass of this model in Table 1."""
MOST_ARMS = {"SBD": 2, "SBD verified": 1}
"""Of a run, by what their rows are called."""
METHODS = {"sbd": False, "sbd_verified": True}
"""Methods with blocks, and whether these are checked, so that a part of each may be final."""


@frozen
class Choice:
    """One acceptance to choose; ``basis``: the run measured it, was given it, or the paper published it.

    ``arm``        what its rows are called
    ``model``      whose acceptance it is; for another model it is an assumption
    ``remark``     the accuracy that it costs
    ``arguments``  its arguments for `sbd capacity`
    ``rank``       of a run's arm: the least stands first
    """

    label: str
    basis: Literal["measured", "replayed", "published"]
    model: str
    acceptance: AssumedAcceptance
    remark: str
    arguments: tuple[str, ...]
    rank: tuple[float, ...] = ()

    @property
    def arm(self) -> str:
        """SBD, or its verified form."""
        return "SBD" if self.acceptance.tokens_per_check is None else "SBD verified"


@frozen
class Panel:
    """Every column of the grid, by its place and in the order of places."""

    models: tuple[ModelShape, ...]
    choices: tuple[Choice, ...]
    columns: dict[Place, PricedColumn]


def panel_of(run: Run, comparison: Comparison) -> Panel:
    """The panel of a run: its largest model where that is large enough, then MODELS; its own acceptances, then Table 1's."""
    known = {case.model for case in run.header.cases if case.model is not None and case.model.params >= SMALLEST_PARAMS}
    own = sorted(known, key=lambda shape: (-shape.params, shape.name))[:1]
    models = dict.fromkeys((*own, *(KNOWN_SHAPES[name] for name in MODELS)))
    choices = _measured(comparison)
    for of_table in TABLE1_CELLS:
        acceptance = from_table1(TABLE1_BLOCK_SIZE, of_table)
        model, task, level = of_table.split("/")
        choices.append(
            Choice(
                label=f"Table 1, {task}, γ {level}: {formatting.ratio(acceptance.nfe_speedup)} fewer passes",
                basis="published",
                model=model,
                acceptance=acceptance,
                remark=f"published for {model} on {task}, not measured in this run",
                arguments=("--table1", of_table),
            )
        )
    return _panel(tuple(models), tuple(choices))


@lru_cache(maxsize=4)
def _panel(models: tuple[ModelShape, ...], choices: tuple[Choice, ...]) -> Panel:
    grid = Grid(
        models=models,
        dtype=DTYPE,
        weights=tuple(None if stored is None else WEIGHT_FORMATS[stored] for stored in WEIGHTS.values()),
        kv_dtypes=tuple(KV_DTYPES.values()),
        requests=REQUESTS,
        devices=tuple(map(load_profile, DEVICES)),
        acceptances=tuple(one.acceptance for one in choices),
        batches=BATCHES,
        chunk_tokens=CHUNK_TOKENS,
        requests_per_s=REQUESTS_PER_S,
    )
    return Panel(models=models, choices=choices, columns=price_grid(grid))


def _measured(comparison: Comparison) -> list[Choice]:
    """The arms of the run with blocks, SBD before its verified form; replayed ones where no other has an acceptance.

    Of either form the first by rank, each with the acceptance of its smallest batch.
    """
    choices: dict[tuple[str, str], Choice] = {}
    for highlight in sorted(comparison.answers, key=lambda answer: answer.batch_size):
        cell = comparison.summary(highlight.part, highlight.batch_size)
        for arm in cell.arms:
            choice = _choice(cell, arm, arm.label == highlight.label)
            if choice is not None:
                choices.setdefault((cell.part, arm.label), choice)
    real = [choice for choice in choices.values() if choice.basis != "replayed"] or list(choices.values())
    real.sort(key=lambda choice: choice.rank)
    of_form = ([choice for choice in real if choice.arm == name][:most] for name, most in MOST_ARMS.items())
    return list(chain.from_iterable(of_form))


def _choice(cell: Cell, arm: ArmResult, is_highlight: bool) -> Choice | None:
    """What a plan can use of an arm: with blocks, and between one pass per block and one per token; else None.

    Highlighted arms come first, then those that lose least accuracy.
    """
    tokens, size, lost = arm.nfe_speedup.value, arm.block_size, arm.accuracy_difference.value
    if arm.method not in METHODS or size is None or not tokens:
        return None
    per_check = None
    if METHODS[arm.method]:  # the passes that made any token final are the checks
        counts = arm.final_tokens_histogram
        per_check = sum(made * count for made, count in enumerate(counts)) / (sum(counts[1:]) or 1)
    basis: Literal["measured", "replayed"] = "measured" if arm.replayed is None else "replayed"
    try:
        acceptance = AssumedAcceptance(
            block_size=size,
            passes_per_block=(per_check or size) / tokens,
            tokens_per_check=per_check,
            source=f"NFE speedup {tokens:g} of {arm.label} in this run (part {cell.part}, batch {cell.batch_size}), {basis}",
        )
    except UserError:
        return None
    accuracy = f"accuracy not known: {arm.accuracy_difference.reason}"
    if arm.replayed is not None:
        accuracy = "which says nothing about accuracy"
    elif lost is not None:
        accuracy = f"accuracy against NTP {formatting.points(lost)}, observed"
    checked = () if per_check is None else ("--tokens-per-check", repr(per_check))
    return Choice(
        label=f"{arm.label}: {formatting.ratio(acceptance.nfe_speedup)} fewer passes",
        basis=basis,
        model=cell.model,
        acceptance=acceptance,
        remark=f"{basis} on {cell.model}, {accuracy}{'; the arm that answers this run' * is_highlight}",
        arguments=("--nfe-speedup", repr(tokens), *checked, "--block-size", str(size)),
        rank=(not is_highlight, inf if lost is None else -lost, -acceptance.nfe_speedup),
    )
