"""How good the small reference model is at drafting for the large one: the share of the large one's greedy tokens that it would
have written behind the same text, and what it gets right by itself. Writes draft_model.md beside this file.

    python -m benchmarks.draft_model [PROMPTS]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.results_file import write_results
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest, StopRule
from harness.engine.engine import drain
from harness.engine.loading import LoadedModel, load_model
from harness.engine.static_session import StaticSession
from harness.scenario.part import Part
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import Problem, problems

HERE = Path(__file__).parent
TASK_NAMES = ("word_problems", "record_to_json", "variable_trace", "short_trace")
BATCH, MAX_NEW_TOKENS, SEED, PROMPTS = 64, 80, 2, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One task: right answers of both models decoding greedily, the large one's tokens, and how many of them the draft says."""

    task: str
    prompts: int
    right: int
    draft_right: int
    tokens: int
    agreed: int


def model_of(name: str) -> LoadedModel:
    """A shipped model in float32."""
    part = {
        "name": "p", "model": {"reference": name}, "dtype": "float32", "arms": [{"method": "ntp"}],
        "workload": {"tasks": ["word_problems"], "prompts": 1, "max_new_tokens": 1},
    }  # fmt: skip
    return load_model(Part.model_validate(part))


def greedy(model: LoadedModel, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What next-token prediction writes, in batches."""
    session, found = StaticSession(model.module), []
    for start in range(0, len(prompts), BATCH):
        request = DecodeRequest(
            prompts=tuple(prompts[start : start + BATCH]), max_new_tokens=MAX_NEW_TOKENS,
            stop=StopRule(token_ids=model.stop_ids), suppressed_ids=() if model.mask_id is None else (model.mask_id,),
            temperature=0.0, generator=torch.Generator(), device=torch.device("cpu"),
        )  # fmt: skip
        found += drain(decode_next_token(session, request)).output_ids
    return found


def agreed(draft: torch.nn.Module, prompt: Sequence[int], output: Sequence[int], never: int | None) -> int:
    """Tokens of ``output`` that the draft model finds likeliest behind all before them."""
    logits = draft(input_ids=torch.tensor([[*prompt, *output]])).logits[0, len(prompt) - 1 : -1]
    if never is not None:
        logits[:, never] = -torch.inf
    return int((logits.argmax(dim=-1) == torch.tensor(output)).sum())


def graded(model: LoadedModel, some: Sequence[Problem], outputs: Sequence[Sequence[int]]) -> int:
    """Right answers."""
    assert model.tokenizer is not None
    return sum(TASKS[one.task].is_correct(one, model.tokenizer.decode(out)) for one, out in zip(some, outputs, strict=True))


def measure(task: str, count: int) -> Row:
    """One task."""
    large, draft, alone = model_of("sbd"), model_of("draft"), model_of("draft")
    assert large.tokenizer is not None
    some = problems(TASKS[task], "test", count, SEED)
    prompts = [tuple(large.tokenizer.encode(one.prompt)) for one in some]
    outputs, own = greedy(large, prompts), greedy(draft, prompts)
    return Row(
        task=task, prompts=count, right=graded(large, some, outputs), draft_right=graded(draft, some, own),
        tokens=sum(map(len, outputs)),
        agreed=sum(agreed(alone.module, prompt, out, draft.mask_id) for prompt, out in zip(prompts, outputs, strict=True)),
    )  # fmt: skip


def card(rows: Sequence[Row], params: tuple[int, int]) -> str:
    """The whole file."""
    large, small = params
    lines = [
        f"| {one.task} | {one.prompts} | {100 * one.right / one.prompts:.2f} | {100 * one.draft_right / one.prompts:.2f} | "
        f"{one.tokens} | {100 * one.agreed / one.tokens:.2f} |"
        for one in rows
    ]
    return "\n".join([
        "# The draft model", "",
        f"{small / 1e6:.2f}M parameters beside the reference model's {large / 1e6:.2f}M, same tokenizer, next-token training",
        "only (`sbd train --reference draft --out DIR`; settings and loss in [reference_model.md](reference_model.md)).",
        "Figures of the stored weights, greedy, in float32, on held-out problems. Agreement: the share of the reference",
        "model's own greedy tokens that the draft model finds likeliest behind the same text. Written by",
        "`python -m benchmarks.draft_model`.", "",
        "| task | prompts | reference model right, % | draft model right, % | tokens | agreement, % |", "|---" * 6 + "|",
        *lines, "",
    ])  # fmt: skip


def main() -> None:
    """Measure, print, write."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PROMPTS
    rows = [measure(task, count) for task in TASK_NAMES]
    text = card(rows, (model_of("sbd").shape.params, model_of("draft").shape.params))
    (HERE / "draft_model.md").write_text(text)
    print(text)
    figures = {f"{one.task}_agreement_pct": round(100 * one.agreed / one.tokens, 2) for one in rows}
    figures |= {f"{one.task}_draft_accuracy_pct": round(100 * one.draft_right / one.prompts, 2) for one in rows}
    print(write_results("draft_model", figures))


if __name__ == "__main__":
    main()
