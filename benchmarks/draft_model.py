"""How good the small reference model is at drafting for the large one: the share of the large one's greedy tokens that it would
have written behind the same text, what it gets right by itself, and the passes of drafting DRAFT_TOKENS at a time. Writes
draft_model.md beside this file.

    python -m benchmarks.draft_model [PROMPTS]

Of the same greedy tokens, with drafts that end behind a doubted one (DRAFT_CONFIDENCE) and with every draft made, all prompts:

draft_passes_saved_pct      passes of the draft model fewer
target_passes_added_pct     passes of the target more
identical_pct               prompts of which both write what next-token prediction writes
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.results_file import write_results
from harness.decoding.drafters import DraftModel
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest, StopRule
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.engine import drain
from harness.engine.loading import LoadedModel, load_model
from harness.engine.static_session import StaticSession
from harness.record.trace import ForwardPass
from harness.scenario.part import Part
from harness.scenario.speculative_arms import DRAFT_CONFIDENCE, DRAFT_TOKENS
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import Problem, problems

HERE = Path(__file__).parent
TASK_NAMES = ("word_problems", "record_to_json", "variable_trace", "short_trace")
BATCH, MAX_NEW_TOKENS, SEED, PROMPTS = 64, 80, 2, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One task: right answers of both models decoding greedily, the large one's tokens, and how many of them the draft says.

    ``every``, ``doubting``: (passes of the target, of the draft model) with every draft made, and none behind a doubted one;
    ``identical``: prompts of which both write what next-token prediction writes.
    """

    task: str
    prompts: int
    right: int
    draft_right: int
    tokens: int
    agreed: int
    every: tuple[int, int]
    doubting: tuple[int, int]
    identical: int


def model_of(name: str) -> LoadedModel:
    """A shipped model in float32."""
    part = {
        "name": "p",
        "model": {"reference": name},
        "dtype": "float32",
        "arms": [{"method": "ntp"}],
        "workload": {"tasks": ["word_problems"], "prompts": 1, "max_new_tokens": 1},
    }
    return load_model(Part.model_validate(part))


def requests(model: LoadedModel, prompts: Sequence[tuple[int, ...]]) -> Iterator[DecodeRequest]:
    """Greedy, in batches."""
    for start in range(0, len(prompts), BATCH):
        yield DecodeRequest(
            prompts=tuple(prompts[start : start + BATCH]),
            max_new_tokens=MAX_NEW_TOKENS,
            stop=StopRule(token_ids=model.stop_ids),
            suppressed_ids=() if model.mask_id is None else (model.mask_id,),
            temperature=0.0,
            generator=torch.Generator(),
            device=torch.device("cpu"),
        )


def greedy(model: LoadedModel, prompts: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """What next-token prediction writes."""
    session = StaticSession(model.module)
    return [out for request in requests(model, prompts) for out in drain(decode_next_token(session, request)).output_ids]


def drafted(
    large: LoadedModel, draft: LoadedModel, prompts: Sequence[tuple[int, ...]], least_confidence: float
) -> tuple[int, int, list[tuple[int, ...]]]:
    """(passes of the target, of the draft model, what is written). A row counts the passes that it feeds anything in, so its
    prompt alone would make as many.
    """
    session = StaticSession(large.module)
    outputs: list[tuple[int, ...]] = []
    passes: list[ForwardPass] = []
    for request in requests(large, prompts):
        never = torch.tensor(request.suppressed_ids, dtype=torch.long)
        drafter = DraftModel(
            StaticSession(draft.module),
            name="draft",
            tokens=DRAFT_TOKENS,
            never=never,
            stops=request.stop.token_ids,
            least_confidence=least_confidence,
        )
        made = drain(decode_draft_and_check(session, request, drafter))
        passes += made.passes
        outputs += made.output_ids
    target, drafts = (
        sum(sum(one.active) for one in passes if one.role != "prefill" and (one.model is None) is own) for own in (True, False)
    )
    return target, drafts, outputs


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
    *every, by_every = drafted(large, draft, prompts, 0.0)
    *doubting, by_doubting = drafted(large, draft, prompts, DRAFT_CONFIDENCE)
    return Row(
        task=task,
        prompts=count,
        right=graded(large, some, outputs),
        draft_right=graded(draft, some, own),
        tokens=sum(map(len, outputs)),
        every=(every[0], every[1]),
        doubting=(doubting[0], doubting[1]),
        identical=sum(a == b == c for a, b, c in zip(outputs, by_every, by_doubting, strict=True)),
        agreed=sum(agreed(alone.module, prompt, out, draft.mask_id) for prompt, out in zip(prompts, outputs, strict=True)),
    )


def card(rows: Sequence[Row], params: tuple[int, int]) -> str:
    """The whole file."""
    large, small = params
    lines = [
        f"| {one.task} | {one.prompts} | {100 * one.right / one.prompts:.2f} | {100 * one.draft_right / one.prompts:.2f} | "
        f"{one.tokens} | {100 * one.agreed / one.tokens:.2f} | {' | '.join(map(str, (*one.every, *one.doubting)))} |"
        for one in rows
    ]
    return "\n".join(
        [
            "# The draft model",
            "",
            f"{small / 1e6:.2f}M parameters beside the reference model's {large / 1e6:.2f}M, same tokenizer, next-token",
            "training only (`sbd train --reference draft --out DIR`; settings and loss in",
            "[reference_model.md](reference_model.md)).",
            "Figures of the stored weights, greedy, in float32, on held-out problems. Agreement: the share of the reference",
            "model's own greedy tokens that the draft model finds likeliest behind the same text. Passes: of the target and of",
            f"the draft model where it drafts {DRAFT_TOKENS} tokens at a time, and where it stops behind a draft of confidence",
            f"{DRAFT_CONFIDENCE} or less. Written by `python -m benchmarks.draft_model`.",
            "",
            "| task | prompts | reference model right, % | draft model right, % | tokens | agreement, % | target's passes | "
            "draft's | target's, doubting | draft's, doubting |",
            "|---" * 10 + "|",
            *lines,
            "",
        ]
    )


def main() -> None:
    """Measure, print, write."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PROMPTS
    rows = [measure(task, count) for task in TASK_NAMES]
    text = card(rows, (model_of("sbd").shape.params, model_of("draft").shape.params))
    (HERE / "draft_model.md").write_text(text)
    print(text)
    figures = {f"{one.task}_agreement_pct": round(100 * one.agreed / one.tokens, 2) for one in rows}
    figures |= {f"{one.task}_draft_accuracy_pct": round(100 * one.draft_right / one.prompts, 2) for one in rows}
    every, doubting = (
        [sum(counts) for counts in zip(*some, strict=True)]
        for some in ([one.every for one in rows], [one.doubting for one in rows])
    )
    figures |= {
        "draft_passes_saved_pct": round(100 * (1 - doubting[1] / every[1]), 2),
        "target_passes_added_pct": round(100 * (doubting[0] / every[0] - 1), 2),
        "identical_pct": round(100 * sum(one.identical for one in rows) / sum(one.prompts for one in rows), 2),
    }
    print(write_results("draft_model", figures))


if __name__ == "__main__":
    main()
