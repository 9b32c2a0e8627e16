"""Masked tokens per second of training: the doubled sequence of SBD training, and blocks over a clean half that is kept.

    python -m benchmarks.adapter_training RUN [STEPS]

RUN: a folder of `sbd train` with answers of scenarios/train/smollm2_135m_adapter.yaml. Both ways read the same batches of the
model's answers, in turns, forward and backward, without the optimizer's step. The doubled sequence trains all weights.

doubled_masked_tokens_per_s  [x ; x̂], everything back-propagated (harness.training.noising)
adapter_masked_tokens_per_s  masked slots of a gated adapter, which alone are back-propagated
adapter_speedup              the median over steps of the two rates' ratio
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.results_file import write_results
from harness.engine.attention_masks import attention_input
from harness.engine.loading import keep_what_is_freed, open_stored
from harness.training.adapter_module import TrainedAdapter
from harness.training.adapter_training import ANSWERS, choice_of
from harness.training.distillation import OwnAnswer
from harness.training.fine_tuning import special_ids
from harness.training.masked_blocks import AnswerStream, BlockCollator
from harness.training.noising import IGNORE, Example, doubled_batch
from harness.training.recipe import load_recipe
from harness.training.trainer import FLOAT32_ATTENTION, objective_loss

RECIPE = "smollm2_135m_adapter"
STEPS = 6


def doubled_step(model: Any, batch: dict[str, torch.Tensor]) -> int:
    """Forward and backward; the masked tokens that were charged."""
    mask = attention_input(batch["visible"], FLOAT32_ATTENTION, model.dtype)
    out = model(input_ids=batch["input_ids"], position_ids=batch["position_ids"], attention_mask=mask, use_cache=False)
    torch.autograd.backward(objective_loss(out.logits, batch["labels"], batch["noisy_labels"]))
    return int((batch["noisy_labels"] != IGNORE).sum())


def timed(work: Any) -> float:
    """Masked tokens per second of one call."""
    began = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16):
        count = work()
    return float(count) / (time.perf_counter() - began)


def main() -> None:
    """Take both in turns and write the figures."""
    run, steps = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    recipe = load_recipe(Path(RECIPE))
    assert recipe.adapter is not None
    keep_what_is_freed()
    held = open_stored(choice_of(recipe), "bfloat16", "sdpa")
    ids = special_ids(recipe.model, held.module, held.tokenizer, recipe.adapter.mask_token_id)
    torch.set_grad_enabled(True)
    whole = copy.deepcopy(held.module).float()
    whole.set_attn_implementation(FLOAT32_ATTENTION)
    trained = TrainedAdapter(held.module, recipe.adapter, ids.mask)
    _, *lines = (run / ANSWERS).read_text(encoding="utf-8").splitlines()
    answers = [OwnAnswer(**json.loads(line)) for line in lines]
    stream = AnswerStream(answers, recipe.batch_size, steps + 1, recipe.seed)
    blocks, generator = BlockCollator(recipe.adapter, ids, recipe.seed), torch.Generator().manual_seed(recipe.seed)
    rates: list[tuple[float, float]] = []
    for step in range(steps + 1):
        batch = [stream[recipe.batch_size * step + place] for place in range(recipe.batch_size)]
        examples = [Example(input_ids=[*one.prompt_ids, *one.answer_ids], prompt_tokens=len(one.prompt_ids)) for one in batch]
        doubled, masked = doubled_batch(examples, ids, generator), blocks(batch)

        def adapter_step(masked: dict[str, torch.Tensor] = masked) -> int:
            before = int(trained.charged)
            trained(**masked)["loss"].backward()
            return int(trained.charged) - before

        rates.append((timed(lambda doubled=doubled: doubled_step(whole, doubled)), timed(adapter_step)))
        print(f"{step}: {rates[-1][0]:.0f} and {rates[-1][1]:.0f} masked tokens/s", flush=True)
    kept = rates[1:]  # the first one warms up
    figures = {
        "doubled_masked_tokens_per_s": statistics.median(before for before, _ in kept),
        "adapter_masked_tokens_per_s": statistics.median(after for _, after in kept),
        "adapter_speedup": statistics.median(after / before for before, after in kept),
        "steps": len(kept),
    }
    print(write_results("adapter_training", figures))


if __name__ == "__main__":
    main()
