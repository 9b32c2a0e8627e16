"""A model's own answers to the prompts of a recipe, kept in a file as they come: what its adapter is trained on.

Answers are decoded by next-token prediction. A batch is of one task and one temperature. Tasks take turns, so that any
beginning of the file has as many answers of each. A later call goes on after the last whole batch. An answer depends on the
recipe, its batch's number and the machine's arithmetic alone.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest, StopRule
from harness.engine.engine import drain
from harness.engine.loading import OpenedModel, stop_ids_of
from harness.engine.static_session import StaticSession
from harness.engine.text_tokenizer import TextTokenizer
from harness.errors import UserError
from harness.frozen import frozen, positional
from harness.progress import Progress
from harness.training.recipe import Distillation
from harness.workloads.loader import PromptItem, prompt_items

VERSION = 1


@frozen
class OwnAnswer:
    """One line of the file. ``prompt``: the prompt's id. ``stopped``: it ends in a stop token of the model, otherwise it was
    cut at the most tokens that an answer may have.
    """

    prompt: str
    temperature: float
    prompt_ids: list[int]
    answer_ids: list[int]
    stopped: bool


@positional
class Batch:
    """Prompts that are answered together."""

    number: int
    task: str
    items: Sequence[PromptItem]
    temperature: float


def batches_of(distill: Distillation, tokenizer: TextTokenizer | None, vocab: int) -> list[Batch]:
    """All batches in their order: round by round, in each of them one batch of every task, all at one temperature.

    Raises:
        ScenarioError, MissingExtraError: see harness.workloads.loader.prompt_items.
    """
    size, work = distill.batch_size, distill.workload
    if tokenizer is not None and work.chat_template == "auto":
        work = work.model_copy(update={"chat_template": tokenizer.has_template})
    by_task = {task: prompt_items(work, task, distill.seed, tokenizer, vocab) for task in work.task_names}
    rounds = -(-max(map(len, by_task.values())) // size)
    asked = ((turn, task, items[turn * size : (turn + 1) * size]) for turn in range(rounds) for task, items in by_task.items())
    kinds = distill.temperatures
    return [
        Batch(number, task, items, kinds[turn % len(kinds)])
        for number, (turn, task, items) in enumerate(each for each in asked if each[2])
    ]


def distil(model: OpenedModel, distill: Distillation, about: dict[str, Any], file: Path, progress: Progress) -> list[OwnAnswer]:
    """Answer what ``file`` does not hold yet, and return all of it. ``about``: what the answers depend on besides the recipe,
    as JSON values; a file of others is refused. Its ``mask`` is the token that no answer has.

    Raises:
        UserError: the file is of another recipe or model, or a line of it is none of ours.
        ScenarioError, MissingExtraError: the prompts cannot be had.
    """
    tokenizer = TextTokenizer(model.tokenizer, model.template_file)
    batches = batches_of(distill, tokenizer, model.module.config.vocab_size)
    header = {"version": VERSION, "distill": distill.model_dump(mode="json"), **about}
    answers = _held(file, header)
    ends = [0, *accumulate(len(batch.items) for batch in batches)]
    whole = bisect_right(ends, len(answers)) - 1
    answers, missing = answers[: ends[whole]], batches[whole:]
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in (header, *map(asdict, answers))), encoding="utf-8")
    partial.replace(file)  # exactly these whole lines
    progress.start([batch.task for batch in missing])
    session = StaticSession(model.module, leaves_out=True)
    stop = StopRule(token_ids=stop_ids_of(model.module.generation_config, model.tokenizer.eos_token_id))
    with file.open("a", encoding="utf-8") as lines:
        for batch in missing:
            new = list(_answered(session, distill, batch, stop, about["mask"], model.module.device))
            lines.write("".join(json.dumps(asdict(answer)) + "\n" for answer in new))
            lines.flush()
            answers += new
            progress.advance(batch.task)
    return answers


def _answered(
    session: StaticSession, distill: Distillation, batch: Batch, stop: StopRule, mask: int, device: torch.device
) -> Iterator[OwnAnswer]:
    """One batch by next-token prediction."""
    request = DecodeRequest(
        prompts=tuple(item.ids for item in batch.items),
        max_new_tokens=distill.workload.max_new_tokens,
        stop=stop,
        suppressed_ids=(mask,),
        temperature=batch.temperature,
        device=device,
        generator=torch.Generator(device).manual_seed(hash((distill.seed, batch.number)) & (2**63 - 1)),
    )
    generation = drain(decode_next_token(session, request))
    for item, ids, reason in zip(batch.items, generation.output_ids, generation.stop_reasons, strict=True):
        yield OwnAnswer(
            prompt=item.prompt_id,
            temperature=batch.temperature,
            prompt_ids=list(item.ids),
            answer_ids=list(ids),
            stopped=reason == "stop",
        )


def finished_lines(file: Path) -> list[Any]:
    """The values of a file of JSON lines, without a last one that an interruption cut; none where there is no file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n")[:-1]] if file.exists() else []


def _held(file: Path, header: dict[str, object]) -> list[OwnAnswer]:
    """The answers of ``file``, whose first line is the ``header``."""
    try:
        first, *lines = finished_lines(file) or [header]
        answers = [OwnAnswer(**line) for line in lines]
    except (ValueError, TypeError) as error:
        raise UserError(f"{file}: is no file of answers ({error}); give another --out, or remove it") from error
    if first != header:
        other = next(key for key in header | first if first.get(key) != header.get(key))
        raise UserError(f"{file}: was made with another {other}; give another --out, or remove it to make the answers again")
    return answers
