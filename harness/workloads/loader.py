"""From a scenario's workload to prompts in token ids, each with its own grader."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from harness.errors import ScenarioError, UnknownModelError
from harness.frozen import frozen
from harness.workloads.datasets import dataset_prompts
from harness.workloads.instructions.draw import instructions
from harness.workloads.prompts import Prompt, read_prompts
from harness.workloads.spec import Workload
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems


class Tokenizer(Protocol):
    """Text to ids and back."""

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with the special tokens the model expects in front."""

    def encode_chat(self, text: str, turns: Sequence[Mapping[str, str]] = ()) -> list[int]:
        """Ids of a user message, or of ``turns``, in the model's chat template, ready for the answer."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of output ids, special tokens left out."""

    def remark(self, ids: Sequence[int]) -> str | None:
        """What is odd about the special tokens of a prompt, in words; None: nothing."""


@frozen
class PromptItem:
    """One prompt. ``grade`` takes the output text; None with ``ungraded_reason`` if nothing can be checked.

    ``cluster``: what it shares with related prompts; None: it has no related prompts.
    """

    prompt_id: str
    ids: tuple[int, ...]
    grade: Callable[[str], bool | None] | None = None
    ungraded_reason: str | None = None
    cluster: str | None = None


def prompt_items(workload: Workload, task: str, seed: int, tokenizer: Tokenizer | None, vocab: int) -> tuple[PromptItem, ...]:
    """The prompts of one task of a workload, in a fixed order.

    Raises:
        ScenarioError: text prompts for a model that has no tokenizer; a dataset that cannot be read.
        MissingExtraError: the library that reads a dataset is not installed.
    """
    if workload.synthetic is not None:
        return _synthetic(workload.synthetic.prompt_tokens, workload.prompt_count, seed, vocab)
    if tokenizer is None:
        raise ScenarioError("text prompts need a tokenizer and this model has none; use workload: {synthetic: {...}}")
    chat = workload.chat_template is True  # not "auto": who knows the model fills it in
    encode = tokenizer.encode_chat if chat else tokenizer.encode
    prompts = given_prompts(workload)
    if prompts is not None:
        items = tuple(
            PromptItem(
                prompt_id=f"{task}/{index}",
                ids=tuple(tokenizer.encode_chat(prompt.prompt, prompt.turns) if chat else encode(prompt.prompt)),
                grade=prompt.is_correct,
                ungraded_reason="no answer to check" if prompt.answer is None or prompt.check == "none" else None,
                cluster=prompt.cluster,
            )
            for index, prompt in enumerate(prompts)
        )
        empty = next((item.prompt_id for item in items if not item.ids), None)  # only the tokenizer can find it
        if empty is not None:
            raise ScenarioError(
                f"{empty}: the tokenizer makes no token of this prompt, so there is nothing to answer; give it text"
            )
        return items
    if workload.instructions is not None:
        split = workload.instructions.split
        return tuple(
            PromptItem(
                prompt_id=f"{task}/{split}/{seed}/{index}",
                ids=tuple(encode(text)),
                ungraded_reason="an instruction has many good answers",
            )
            for index, text in enumerate(instructions(task, split, workload.prompt_count, seed))
        )
    drawn = problems(TASKS[task], workload.split, workload.prompt_count, seed)
    return tuple(
        PromptItem(
            prompt_id=f"{task}/{workload.split}/{seed}/{index}",
            ids=tuple(encode(problem.prompt)),
            grade=partial(TASKS[task].is_correct, problem),
        )
        for index, problem in enumerate(drawn)
    )


def refuse_unfit(items: Sequence[PromptItem], max_new_tokens: int, positions: int | None, vocabulary: int) -> None:
    """Refuse a prompt that, with its answer, has more tokens than the model has ``positions`` (None: it has no limit), or one
    with an id that the model has no embedding for.

    Raises:
        ScenarioError: the longest prompt, with its length. UnknownModelError: the largest id.
    """
    largest = max(items, key=lambda item: max(item.ids, default=0))
    if (token := max(largest.ids, default=0)) >= vocabulary:
        raise UnknownModelError(
            f"{largest.prompt_id}: the tokenizer writes the id {token}, the model's ids are 0 to {vocabulary - 1}; give the "
            "tokenizer.json of the model's authors"
        )
    longest = max(items, key=lambda item: len(item.ids))
    if positions is not None and len(longest.ids) + max_new_tokens > positions:
        raise ScenarioError(
            f"{longest.prompt_id}: {len(longest.ids):,} prompt + {max_new_tokens:,} new tokens; the model has {positions:,} "
            "positions; shorten one of them"
        )


def given_prompts(workload: Workload) -> tuple[Prompt, ...] | None:
    """The prompts that a workload's file or dataset holds, as many as it asks for; None where it names neither.

    Raises:
        ScenarioError, MissingExtraError: see prompt_items.
    """
    if workload.dataset is not None:
        return dataset_prompts(workload.dataset, workload.prompt_count, workload.cluster)
    if workload.prompts_file is not None:
        return read_prompts(Path(workload.prompts_file), workload.cluster)[: workload.prompt_count]
    return None


def _synthetic(tokens: int, count: int, seed: int, vocab: int) -> tuple[PromptItem, ...]:
    """Uniformly random ids, without the last id of the vocabulary, the mask of random models."""
    rng = random.Random(f"synthetic/{seed}")
    return tuple(
        PromptItem(
            prompt_id=f"synthetic/{seed}/{index}",
            ids=tuple(rng.randrange(vocab - 1) for _ in range(tokens)),
            ungraded_reason="random tokens have no answer",
        )
        for index in range(count)
    )
