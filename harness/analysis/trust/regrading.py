"""Answers graded again from the recorded output, where the tokenizer and the task are on this machine.

Nothing is fetched, no code of a model runs, and a tokenizer counts only if it has the digest that the run recorded.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from harness.models.choice import ModelChoice, RandomModel, model_folder
from harness.models.config import read_bounded
from harness.models.limited_process import LimitedProcess, decode, facts
from harness.record.schema import CaseHeader, Run, Sample
from harness.record.written import WrittenPart
from harness.scenario.load import recorded_load
from harness.workloads.loader import PromptItem, prompt_items
from harness.workloads.spec import Workload

WRONG = "an answer is graded otherwise than its text deserves"
OTHER_PROMPT = "a prompt is not the one of its place"


@dataclass(slots=True)
class Regraded:
    """``again``: answers graded again; ``wrong``: places of each contradiction; ``reasons``: why others were not graded."""

    again: int = 0
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    reasons: set[str] = field(default_factory=set)


class _Encoded:
    """Stands for the tokenizer while prompts are drawn: grading needs the answers, not the prompts' ids."""

    def encode(self, text: str, turns: object = ()) -> list[int]:
        return [len(text)]

    encode_chat = encode

    def decode(self, ids: Sequence[int]) -> str:
        raise NotImplementedError

    remark = decode


def regrade(run: Run) -> Regraded:
    """Grade every graded answer of the model's own again; equal answers to one prompt once."""
    found = Regraded()
    by_case: dict[str, list[Sample]] = defaultdict(list)
    for sample in run.samples:
        by_case[sample.case_id].append(sample)
    graders: dict[str, _Grader | str] = {}
    for case in run.cases:
        samples = [one for one in by_case[case.case_id] if any(row.correct is not None for row in one.rows)]
        if not samples or case.replayed is not None:
            continue
        part = run.header.written(case.part)
        told = json.dumps([part.workload.values, part.seed, case.model_source, case.task], sort_keys=True)
        if told not in graders:
            graders[told] = _grader(run, part, case)
        grader = graders[told]
        if isinstance(grader, str):
            found.reasons.add(grader)
            continue
        load = recorded_load(part, case.batch_size)
        each = case.batch_size if load is None else load.per_sample(part.workload.prompts)
        for sample in samples:
            for place, row in enumerate(sample.rows, start=sample.group * each):
                where = f"{case.case_id}, group {sample.group}, process {sample.process}"
                index = grader.found(row.prompt_id, place, place + sample.process * part.workload.prompts)
                if index is None:
                    found.wrong[OTHER_PROMPT].append(where)
                elif row.correct is not None and (grade := grader.grade(index, tuple(row.ids))) is not None:
                    found.again += 1
                    if grade != row.correct:
                        found.wrong[WRONG].append(where)
    return found


@dataclass(slots=True)
class _Grader:
    """The prompts of one task, and the tokenizer of the model that answered them."""

    items: tuple[PromptItem, ...]
    tokenizer: LimitedProcess
    known: dict[tuple[int, tuple[int, ...]], bool | None] = field(default_factory=dict)

    def found(self, prompt_id: str, *places: int) -> int | None:
        """The one of these places that the prompt has: under a drawn load a process has prompts of its own."""
        return next((at for at in places if at < len(self.items) and self.items[at].prompt_id == prompt_id), None)

    def grade(self, index: int, output_ids: tuple[int, ...]) -> bool | None:
        """Whether the answer is right; None where the prompt has nothing to check."""
        key = index, output_ids
        if key not in self.known:
            checked = self.items[index].grade
            self.known[key] = checked(self.tokenizer(decode, output_ids)) if checked else None
        return self.known[key]


def _grader(run: Run, part: WrittenPart, case: CaseHeader) -> _Grader | str:
    tokenizer = _tokenizer(run, case)
    if isinstance(tokenizer, str):
        return tokenizer
    items = _items(part, case, len({one.process for one in run.samples}))
    return items if isinstance(items, str) else _Grader(items, tokenizer)


def _items(part: WrittenPart, case: CaseHeader, processes: int) -> tuple[PromptItem, ...] | str:
    """The prompts of a built-in task, those of all processes where each has its own; in words why there are none."""
    try:
        workload = Workload.model_validate(part.workload.values)
    except ValidationError:
        return "the workload cannot be read"
    if workload.prompts_file is not None or workload.dataset is not None:
        return "the answers are in a file that is no part of the record"
    seed = part.seed
    if workload.tasks is None or seed is None or case.task not in workload.task_names:
        return "the workload has no built-in task"
    if part.values.get("load") or part.own_prompts:
        workload = workload.model_copy(update={"prompts": workload.prompt_count * processes})
    return prompt_items(workload, case.task, seed, _Encoded(), case.shape.vocab)


def _tokenizer(run: Run, case: CaseHeader) -> LimitedProcess | str:
    """A process that holds the tokenizer of a part's model; in words why there is none."""
    recorded = {one.get("tokenizer_sha256") for one in run.events("engine", case.part)} - {None}
    if not recorded:
        return "the record does not name its tokenizer"
    try:
        model = TypeAdapter(ModelChoice).validate_python(case.model_source)
        folder = None if isinstance(model, RandomModel) else model_folder(model)
        if folder is None:
            return "the tokenizer is not on this machine"
        text = read_bounded(folder / "tokenizer.json").decode()
        tokenizer = LimitedProcess(f"{folder}: the tokenizer", "the answers are not graded again", len(text))
        same = recorded == {tokenizer(facts, text)[0]}
    except Exception as error:
        return f"the tokenizer cannot be read ({error!s:.200})"
    return tokenizer if same else "the tokenizer on this machine is another one"
