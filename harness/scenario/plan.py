"""From a scenario to its cases: stable ids, labels and seeds, and the order in which a run takes its samples.

The same scenario gives the same plan everywhere: no model, device, clock or network is used.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from harness.errors import UserError
from harness.frozen import frozen
from harness.models import ModelShape
from harness.models.choice import model_name, shape_of
from harness.models.decodable import refuse_ids_of, refuse_undecodable
from harness.record.schema import CaseHeader, SampleKey, WidthChoice
from harness.scenario.arm_names import refuse_unknown_arms
from harness.scenario.arms import GENERATE_MODES
from harness.scenario.load import WARMING, Load
from harness.scenario.method import GREEDY, ArmSettings, ReplaySpec
from harness.scenario.methods import arm_id, arm_label
from harness.scenario.part import Part
from harness.scenario.ranks import refuse_uneven_heads
from harness.scenario.replay import replay_spec
from harness.scenario.rounds import balanced_order, sample_seed, seed_from
from harness.scenario.scenario import Scenario
from harness.scenario.servers import server_replay
from harness.scenario.speculative_arms import draft_models, draft_shapes
from harness.workloads.spec import Workload

PLAN_VERSION = 1


@frozen
class Case:
    """One part, one arm with one value on every axis, one batch size, one task.

    With a load, ``batch_size`` is how many requests are in flight at most, and a sample has ``requests`` of them.
    ``shape`` is None, with ``shape_reason``, until the model is loaded if only loading shows it. ``width``: once it is chosen.
    """

    case_id: str
    part: Part
    arm: ArmSettings
    label: str
    batch_size: int
    task: str
    shape: ModelShape | None
    shape_reason: str | None
    replay: ReplaySpec | None
    width: WidthChoice | None = None

    @property
    def workload(self) -> Workload:
        """The part's workload."""
        return self.part.workload

    @property
    def load(self) -> Load | None:
        """How its requests reach the server; None: all at once."""
        return self.part.load_at(self.batch_size)

    @property
    def requests(self) -> int:
        """Prompts of one sample."""
        return self.batch_size if self.load is None else self.load.per_sample(self.workload.prompt_count)

    @property
    def groups(self) -> int:
        """Batches of prompts, samples under a load; the last one may be smaller. A trace is one."""
        if self.load is not None and self.load.trace is not None:
            return 1
        every = -(-self.workload.prompt_count // self.requests)
        return min(every, self.part.baseline_check) if self.is_check else every

    @property
    def is_check(self) -> bool:
        """Whether this is no arm but generate(), or an engine of others, that checks the baseline: a few batches, once."""
        return self.arm.is_check

    @property
    def sample_count(self) -> int:
        """Samples of a run over all its processes, warm-ups included, at most."""
        repeats, processes = 1 if self.is_check else self.part.most_repeats, 1 if self.once else self.part.processes
        return processes * (self.groups * repeats + self.part.warmups * (self.warms == self.case_id))

    @property
    def once(self) -> bool:
        """Whether only the first process takes it: generate(), where processes have prompts of their own."""
        return self.is_check and self.arm.server is None and bool(self.part.own_prompts)

    @property
    def warms(self) -> str:
        """The case whose warm-ups count for it: its own; where processes have their own prompts, the first task's."""
        if self.is_check or not self.part.own_prompts:
            return self.case_id
        return self.case_id.replace(f"/{self.task}/", f"/{self.workload.task_names[0]}/", 1)

    @property
    def cell(self) -> tuple[str, str, int]:
        """(part, task, batch size): cases that share it are interleaved and compared."""
        return self.part.name, self.task, self.batch_size

    def prompt_range(self, group: int) -> range:
        """Indices of the prompts in batch ``group``."""
        start, count = group * self.requests, self.workload.prompt_count
        if self.load is not None and self.load.trace is not None:
            count = self.requests
        return range(start, min(start + self.requests, count))

    def warmup_range(self) -> range:
        """Indices of the prompts of a warm-up: a whole batch, or as many requests as make the server warm for the load."""
        whole = self.prompt_range(0)
        if self.load is None:
            return whole
        return whole[: self.batch_size if self.load.closed else WARMING]

    def sample_seed(self, group: int, repeat: int, process: int = 0) -> int:
        """Seed of one sample, the same for every arm of the cell and in every process that draws no requests of its own."""
        return sample_seed(self.part.seed, *self.cell, group, repeat, process if self.is_drawn else 0)

    @property
    def is_drawn(self) -> bool:
        """Whether every process draws requests of its own: its prompts, or a load's but a trace's, which says what comes."""
        return bool(self.part.own_prompts) if self.load is None else self.load.trace is None

    @property
    def prompts_drawn(self) -> int:
        """Prompts of all processes together: under a load each has its own where so many can be generated."""
        count = self.workload.prompt_count
        every = count * self.part.processes
        return every if self.is_drawn and (self.part.own_prompts or self.workload.can_generate(every)) else count

    def header(self, shape: ModelShape, execution: str) -> CaseHeader:
        """The case as the record keeps it, with the loaded model's shape and the execution of its forwards."""
        return CaseHeader(
            case_id=self.case_id,
            part=self.part.name,
            arm=self.arm.written,
            label=self.label,
            batch_size=self.batch_size,
            task=self.task,
            model=shape,
            model_source=self.part.model.model_dump(mode="json"),
            execution=self.arm.execution or execution,
            width=self.width,
            replayed=self.replay.to_dict() if self.replay else None,
            draft_models={one.name: one for one in draft_shapes(self.arm, shape) if one is not None},
            **self.part.model_dump(include={"dtype", "device", "attention", "session", "timed", "tensor_parallel"}),
        )


@frozen
class Share:
    """What one process takes of a run: the samples of one part, once; on a cluster, of one batch size alone.

    Cells of different batch sizes are never compared decode by decode, so they may be on different nodes.
    """

    part: str
    process: int
    batch_size: int | None = None

    def holds(self, slot: Slot) -> bool:
        """Whether a sample belongs to this share."""
        own = (self.part, self.process) == (slot.case.part.name, slot.process)
        return own and self.batch_size in {None, slot.case.batch_size}

    def __str__(self) -> str:
        size = f", batch {self.batch_size}" if self.batch_size else ""
        return f"part {self.part}{size}" + (f", process {self.process + 1}" if self.process else "")


@frozen
class Slot:
    """One sample that a run has to take."""

    case: Case
    group: int
    repeat: int
    warmup: bool
    process: int = 0

    @property
    def key(self) -> SampleKey:
        """The key that tells finished samples from missing ones."""
        return self.case.case_id, self.group, self.repeat, self.warmup, self.process

    @property
    def seed(self) -> int:
        """As Case.sample_seed."""
        return self.case.sample_seed(self.group, self.repeat, self.process)

    @property
    def prompt_range(self) -> Sequence[int]:
        """Indices of its prompts, in the order of its requests.

        A process has prompts of its own, or under a load those of the first process in an order of its own.
        """
        case = self.case
        planned = case.warmup_range() if self.warmup else case.prompt_range(self.group)
        if not self.process or not case.is_drawn:
            return planned
        if (count := case.workload.prompt_count) < case.prompts_drawn:
            return [self.process * count + index for index in planned]
        return random.Random(self.seed).sample(planned, len(planned))

    @property
    def share(self) -> Share:
        """Its share if a run is taken in fresh processes."""
        return Share(part=self.case.part.name, process=self.process)

    @property
    def unit(self) -> Share:
        """Its share if a run is spread over a cluster."""
        return replace(self.share, batch_size=self.case.batch_size)


@frozen
class Plan:
    """All cases of a scenario, in the order of the file."""

    scenario: Scenario
    cases: tuple[Case, ...]

    def slots(self) -> Iterator[Slot]:
        """Every sample in the order to be taken, once for every process.

        The order is cell by cell: warm-ups first (as many as allowed), then the arms interleaved. A round is one group of one
        repeat; all arms of the cell take a turn in it, in balanced_order by the part's seed. A run begun in another order
        continues in this one.
        """
        for process in range(max(part.processes for part in self.scenario.parts)):
            for cell in dict.fromkeys(case.cell for case in self.cases if process < case.part.processes):
                yield from _cell_slots([case for case in self.cases if case.cell == cell], process)


def make_plan(scenario: Scenario) -> Plan:
    """Expand the scenario's axes.

    Raises:
        UnknownModelError: a config.json that is no decoder-only transformer's, or a model that no session decodes.
        ScenarioError: heads that cannot be split as a part asks.
        UserError: drafts that do not fit the model (harness.scenario.speculative_arms); synthetic prompts that are too long;
            a claim about an arm that the scenario does not have.
    """
    cases = tuple(case for part in scenario.parts for case in _part_cases(part))
    models = ((model, case.part.dtype) for case in cases for model in (case.part.model, *draft_models(case.arm)))
    for model, dtype in {repr(one): one for one in models}.values():
        refuse_undecodable(model, dtype)
    for part in scenario.parts:
        refuse_ids_of(part.model, part.needs_mask)
    for claim in scenario.claims:
        known = dict.fromkeys(case.label for case in cases if claim.where.part in (None, case.part.name))
        refuse_unknown_arms([claim.where.arm], known, f"scenario {scenario.name}: claims")
    return Plan(scenario=scenario, cases=cases)


def _part_cases(part: Part) -> Iterator[Case]:
    shape, reason = shape_of(part.model)
    _check_length(part, shape)
    if shape is not None:
        refuse_uneven_heads(part, shape)
    for batch_size in part.batch_sizes:
        for task in part.workload.task_names:
            for variant, replay in _variants(part):
                if shape is not None:
                    draft_shapes(variant, shape)  # refused before anything runs
                yield Case(
                    case_id=f"{part.name}/{task}/b{batch_size}/{arm_id(variant, replay)}",
                    part=part,
                    arm=variant,
                    label=arm_label(variant, replay),
                    batch_size=batch_size,
                    task=task,
                    shape=shape,
                    shape_reason=reason,
                    replay=replay,
                )


def _variants(part: Part) -> Iterator[tuple[ArmSettings, ReplaySpec | None]]:
    """The arms with one value on every axis, then generate() and the engines of others that check the baseline."""
    for arm in part.arms:
        for variant in arm.variants():
            yield variant, replay_spec(arm, variant) or server_replay(variant, part.servers)
    if part.unchecked_baseline is None:
        kind = part.device.partition(":")[0]
        compiled = part.tensor_parallel == 1 and (kind == "cuda" or (part.session == "static" and part.execution != "eager"))
        for cache, execution in GENERATE_MODES[kind]:
            if execution == "eager" or compiled:
                yield _check({"cache": cache, "execution": execution}), None
        for name in part.engines_beside:
            yield _check({"server": name, "execution": "served"}), None


def _check(values: dict[str, str]) -> ArmSettings:
    return ArmSettings.model_validate({"method": "generate"} | values | {"temperature": GREEDY})


def _cell_slots(cases: list[Case], process: int) -> Iterator[Slot]:
    """One cell in one process. Its rounds continue the order of the process before, so that the whole is balanced."""
    part = cases[0].part
    groups, checked = (max((case.groups for case in cases if case.is_check is check), default=0) for check in (False, True))
    throughout = any(case.is_check and not case.once for case in cases)
    cases = [case for case in cases if not (process and case.once)]
    for repeat in range(part.warmups):
        for case in cases:
            if case.warms == case.case_id:
                yield Slot(case=case, group=0, repeat=repeat, warmup=True, process=process)
    # Rounds without a check before the first of this process; those with one have an order of their own.
    before = process * groups * part.most_repeats - checked * (process + 1 if throughout else 1)
    for repeat in range(part.most_repeats):
        for group in range(groups):
            beside = repeat == 0 and group < checked and (throughout or not process)
            turn = process * checked + group if beside else before + repeat * groups + group
            present = [case for case in cases if beside or not case.is_check]
            for case in balanced_order(present, turn, partial(seed_from, part.seed, "order", *cases[0].cell, beside)):
                yield Slot(case=case, group=group, repeat=repeat, warmup=False, process=process)


def _check_length(part: Part, shape: ModelShape | None) -> None:
    """A prompt known to be too long is refused before anything runs."""
    synthetic = part.workload.synthetic
    if synthetic is None or shape is None or shape.max_positions is None:
        return
    length = synthetic.prompt_tokens + part.workload.max_new_tokens
    if length > shape.max_positions:
        raise UserError(
            f"part {part.name}: {synthetic.prompt_tokens} prompt + {part.workload.max_new_tokens} new tokens are {length}; "
            f"{model_name(part.model)} has {shape.max_positions} positions; shorten one of them"
        )
