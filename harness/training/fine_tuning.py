"""Fine-tune any Hugging Face causal LM on a file of prompts and solutions: the model, the file and the mask token."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset
from transformers import set_seed

from harness.config_file import read_text
from harness.engine.checkpoints import open_for_training
from harness.engine.loading import stop_ids_of
from harness.errors import UnknownModelError, UserError
from harness.models.decodable import refuse_ids
from harness.training.noising import Example, SpecialIds, example_of
from harness.training.trainer import TrainingConfig, train

MASK_TOKEN = "<mask>"


@dataclass
class PairExamples(Dataset[Example]):
    """Prompt and solution pairs, tokenised on demand."""

    pairs: list[tuple[str, str]]
    tokenizer: Any

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> Example:
        return example_of(self.tokenizer, *self.pairs[index])


def read_pairs(file: Path) -> list[tuple[str, str]]:
    """Read a JSONL file of {"prompt": ..., "solution": ...}.

    Raises:
        UserError: the file cannot be read, is empty, or a line (named) is not of that form.
    """
    lines = read_text(file, "training data", UserError).split("\n")  # U+2028 and its like are text
    pairs = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            prompt, solution = record["prompt"], record["solution"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f'{file}:{number}: not of the form {{"prompt": ..., "solution": ...}} ({error})') from error
        pairs.append((str(prompt), str(solution)))
    if not pairs:
        raise UserError(f"{file}: holds no training pair; write at least one line")
    return pairs


def special_ids(name: str, model: Any, tokenizer: Any, mask: int | None = None) -> SpecialIds:
    """``mask``: None for the tokenizer's. Raises UnknownModelError where there is no end of sequence, or no mask of use."""
    end, mask = tokenizer.eos_token_id, tokenizer.mask_token_id if mask is None else mask
    if end is None:
        raise UnknownModelError(f"{name}: its tokenizer has no end-of-sequence token, so no answer could end; give another")
    refuse_ids(name, mask, stop_ids_of(model.generation_config, end), model.get_input_embeddings().num_embeddings)
    return SpecialIds(pad=end if tokenizer.pad_token_id is None else tokenizer.pad_token_id, eos=end, mask=mask)


def fine_tune(
    name: str, pairs: list[tuple[str, str]], config: TrainingConfig, *, revision: str = "main", longest: int | None = None
) -> Path:
    """Train ``name`` on prompts with their solutions; the result, with its tokenizer, is in ``config.output_dir``.

    A tokenizer without a mask token is given one, and the embedding grows by a row where the vocabulary has no spare.
    ``longest``: pairs of more tokens, end of sequence included, are left out, and their number is printed.

    Raises:
        UnknownModelError: the model cannot be loaded. UserError: every pair is too long.
    """
    set_seed(config.seed)
    model, tokenizer = open_for_training(name, revision)
    if tokenizer.mask_token_id is None:
        tokenizer.add_special_tokens({"mask_token": MASK_TOKEN})
        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(len(tokenizer))
    ids = special_ids(name, model, tokenizer)
    if longest is not None:
        lengths = [len(example_of(tokenizer, *pair)["input_ids"]) for pair in pairs]
        pairs = [pair for pair, length in zip(pairs, lengths, strict=True) if length <= longest]
        if not pairs:
            raise UserError(f"every pair has more than {longest} tokens, the shortest {min(lengths)}; raise sequence_tokens")
        print(f"{len(pairs)} of {len(lengths)} pairs have at most {longest} tokens; the others are left out")
    train(config, model, PairExamples(pairs, tokenizer), ids)
    model.config.mask_token_id = ids.mask  # for those who have the model without its tokenizer
    model.save_pretrained(config.output_dir)
    tokenizer.save_pretrained(config.output_dir)
    return config.output_dir
