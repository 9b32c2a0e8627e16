"""Chooses the widths that a scenario leaves to the machine (``auto``), before the first sample of a run.

Every width decodes prompts that are not timed, with the engine of the part, in turn with NTP and the others. So the cost of a
pass and the tokens that it makes are counted together. The least expected time of a token wins: seconds of a pass over its
tokens.

A width that does not fit or is far behind a narrower one decodes no further prompt, nor does a wider one not yet tried.
Far is twice the expected time after one batch, because a batch may be harder to draft than most, and 1.35 times after eight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from statistics import fmean, median

from harness.errors import DoesNotFitError, ScenarioError, UserError
from harness.progress import Progress
from harness.record.decode import Decoded
from harness.record.schema import TriedWidth, WidthChoice
from harness.runner.protocols import Engine, Machine
from harness.runner.sample_taking import prompt_digest
from harness.scenario.method import WIDTHS, ArmSettings
from harness.scenario.plan import Case, Plan
from harness.workloads.loader import PromptItem, prompt_items

BATCHES = 8
"""Batches of prompts that a choice is made on, at least one of every task."""


def choose_widths(cases: Iterable[Case], machine: Machine, progress: Progress) -> dict[str, WidthChoice]:
    """By case id, for the cases with ``auto``. An arm has one choice at each batch size, over all tasks of its part.

    Raises:
        UserError: a part has no prompts besides those that are timed, or no width can be tried on them.
    """
    found: dict[str, WidthChoice] = {}
    for part, of_part in groupby((case for case in cases if case.arm.auto), lambda case: case.part):
        arms: dict[tuple[int, str], list[Case]] = {}
        for case in of_part:
            arms.setdefault((case.batch_size, case.case_id.rpartition("/")[2]), []).append(case)
        with progress.step(f"part {part.name}: choosing widths on prompts that are not timed"):
            engine = machine.open_engine(part)
            for tasks in arms.values():
                found |= dict.fromkeys((case.case_id for case in tasks), _choice(tasks, engine))
        del engine  # one model is in memory at a time
    return found


def _choice(tasks: Sequence[Case], engine: Engine) -> WidthChoice:
    """Over the cases of an arm, one for each task."""
    digests: list[str] = []
    decoded: dict[int, list[Decoded]] = {width: [] for width in (1, *WIDTHS)}
    tried: dict[int, TriedWidth] = {}
    left_out: set[int] = set()
    for case, items in _spare(tasks, engine):
        digests += [prompt_digest(case.part, item) for item in items]
        ntp = ArmSettings.model_validate({"method": "ntp", "temperature": case.arm.temperature})
        for width, batches in decoded.items():
            if width in left_out:
                continue
            new = not batches
            asked = replace(case, arm=ntp if width == 1 else case.arm.at_width(width))
            with suppress(DoesNotFitError):
                for _ in range(1 + new):  # a first decode may compile and capture
                    one = engine.decode(asked, [item.ids for item in items], case.part.seed)
                if not one.generation.decode_passes:
                    break  # an answer of one token costs no pass
                batches.append(one)
                tried[width] = _tried(width, batches)
            least_s = min((tried[one].token_s for one in tried.keys() - left_out if 1 < one < width), default=math.inf)
            if width not in tried or tried[width].token_s > (1 + len(batches) ** -0.5) * least_s:
                left_out |= {one for one in decoded if one == width or (new and one > width)}
    if len(tried) < 2:
        raise UserError(
            f"part {tasks[0].part.name}: {tasks[0].label} is chosen on prompts that are not timed, and the workload has no "
            "further ones with answers of two tokens, or none fits into memory; ask for fewer prompts, or give a number"
        )
    return WidthChoice(ntp=tried.pop(1), tried=list(tried.values()), prompt_digests=digests)


def _spare(tasks: Sequence[Case], engine: Engine) -> Iterator[tuple[Case, list[PromptItem]]]:
    """Batches of the prompts that follow the timed ones in their source, each with its case."""
    for case in tasks:
        size, timed = case.batch_size, case.prompts_drawn
        more = case.workload.model_copy(update={"prompts": timed + size * -(-BATCHES // len(tasks))})
        with suppress(ScenarioError, ValueError):  # the source has not as many
            drawn = prompt_items(more, case.task, case.part.seed, engine.tokenizer, engine.shape.vocab)
            known = {one.ids for one in drawn[:timed]}
            items = [one for one in drawn if one.ids not in known]
            yield from ((case, items[start : start + size]) for start in range(0, len(items) - size + 1, size))


def _tried(width: int, decoded: Sequence[Decoded]) -> TriedWidth:
    passes = [one for batch in decoded for one in batch.generation.decode_passes]
    return TriedWidth(
        width=width,
        prompts=sum(len(one.generation.prompt_tokens) for one in decoded),
        query_tokens=fmean(max(one.query_tokens) for one in passes),
        pass_s=median(one.decode_s / len(one.generation.decode_passes) for one in decoded),
        tokens_per_pass=sum(sum(one.final_tokens) for one in passes) / len(passes),
    )


def with_widths(plan: Plan, chosen: Mapping[str, WidthChoice | None]) -> Plan:
    """The plan with these choices, by case id. In a part, an arm with ``auto`` has all widths of the cases of its method, so
    that passes of these are measured.
    """
    if not any(chosen.values()):
        return plan
    cases = [
        replace(case, arm=case.arm.at_width(choice.best.width), width=choice) if (choice := chosen.get(case.case_id)) else case
        for case in plan.cases
    ]
    parts = {}
    for part in plan.scenario.parts:
        arms = []
        for arm in part.arms:
            own = [case.arm for case in cases if case.part is part and case.arm.method == arm.method]
            keys = {one.auto for one in own if one.auto}
            arms.append(arm.model_copy(update={key: tuple(dict.fromkeys(one.values[key] for one in own)) for key in keys}))
        parts[part.name] = part.model_copy(update={"arms": tuple(arms)})
    return replace(plan, cases=tuple(replace(case, part=parts[case.part.name]) for case in cases))
