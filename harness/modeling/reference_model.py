"""The reference model that ships with the package: its shape, its tokenizer's text and its training data.

Small enough to train on two cores, Llama-architecture, so that every run can show real acceptance and real accuracy
without a download. The recipe has two stages, as in the paper: one next-token base, then from that same base an
SBD fine-tuning and a next-token control with the same data order and optimizer steps.
"""

from __future__ import annotations

from pathlib import Path

from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.modeling.noising import Example, SpecialIds
from harness.modeling.tokenizer import train_tokenizer
from harness.tasks import TASKS
from harness.tasks.splits import problem_at

WEIGHTS_DIR = Path(__file__).parent / "reference"
VOCAB_SIZE = 1024
TOKENIZER_PROBLEMS_PER_TASK = 4000


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer on training problems of all tasks."""
    texts = []
    for task in TASKS.values():
        for index in range(TOKENIZER_PROBLEMS_PER_TASK):
            problem = problem_at(task, "train", seed, index)
            texts.append(problem.prompt + problem.solution)
    return train_tokenizer(texts, VOCAB_SIZE)


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A fresh model of the reference shape with random weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=256,
            intermediate_size=704,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def special_ids(tokenizer: PreTrainedTokenizerFast) -> SpecialIds:
    """The ids that training gives a meaning to."""
    return SpecialIds(pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id, mask=tokenizer.mask_token_id)


class TaskExamples(Dataset[Example]):
    """Training problems of all built-in tasks in turn; example i depends on (seed, i) alone, so any run can resume."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, seed: int, length: int) -> None:
        self._tokenizer = tokenizer
        self._seed = seed
        self._length = length
        self._tasks = list(TASKS.values())

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Example:
        task = self._tasks[index % len(self._tasks)]
        problem = problem_at(task, "train", self._seed, index // len(self._tasks))
        prompt = self._tokenizer(problem.prompt)["input_ids"]
        solution = self._tokenizer(problem.solution, add_special_tokens=False)["input_ids"]
        return {"input_ids": [*prompt, *solution, self._tokenizer.eos_token_id], "prompt_tokens": len(prompt)}
