"""The reference model that ships with the package: its shape, its tokenizer and its training data.

A model of the Llama architecture that trains on two cores, so that every run shows real acceptance and accuracy without a
download. The draft model is a tenth of its size and writes the same language. harness.training.reference trains both.

The tokenizer is byte-level BPE over the built-in tasks' text, digits in groups of two. A number of one or two digits is one
token (in Llama 3's tokenizer up to three). So a step of arithmetic has one shape for all numbers. Everything else is learnt, so
that any text can be written. Its training sample is seeded: the same seed gives the same file.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.training.noising import Example, example_of
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problem_at

BOS, EOS, PAD, MASK = "<bos>", "<eos>", "<pad>", "<mask>"


VOCAB_SIZE = 1024
TOKENIZER_PROBLEMS_PER_TASK = 4000
TRAINING_TASKS = ("word_problems", "record_to_json", "variable_trace")
Mixture = tuple[str, ...]
"""Tasks that training problems are taken from in turn."""
# Multi-step stories must come out right, so they get half of the practice; looking variables up is learnt last of all, so
# it gets half once the stories sit.
STORIES: Mixture = ("word_problems", "record_to_json", "word_problems", "variable_trace")
VARIABLES: Mixture = (
    "variable_trace",
    "word_problems",
    "variable_trace",
    "record_to_json",
    "variable_trace",
    "word_problems",
    "variable_trace",
    "word_problems",
)
# A masked head gets rare sums wrong long after the next-token head has them right, and only practice mends it.
MOSTLY_STORIES: Mixture = (
    "word_problems",
    "variable_trace",
    "word_problems",
    "word_problems",
    "record_to_json",
    "word_problems",
    "variable_trace",
    "word_problems",
)
WINDOW_BATCHES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a model is to be built; every one has twice as many query heads as KV heads."""

    layers: int
    hidden: int
    intermediate: int
    heads: int


REFERENCE = Size(layers=6, hidden=256, intermediate=704, heads=4)
# Two layers are the fewest that can copy what stands elsewhere; a draft pass should cost little, so there are no more.
DRAFT = Size(layers=2, hidden=128, intermediate=352, heads=4)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer on training problems of the tasks that the model is trained on."""
    problems = (
        problem_at(TASKS[name], "train", 1, index) for name in TRAINING_TASKS for index in range(TOKENIZER_PROBLEMS_PER_TASK)
    )
    return train_tokenizer((problem.prompt + problem.solution for problem in problems), VOCAB_SIZE)


def build_model(tokenizer: PreTrainedTokenizerFast, size: Size) -> LlamaForCausalLM:
    """A fresh model with random weights."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=-(-len(tokenizer) // 64) * 64,
            hidden_size=size.hidden,
            intermediate_size=size.intermediate,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads // 2,
            head_dim=size.hidden // size.heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            initializer_range=0.06,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


@dataclass
class TaskExamples(Dataset[Example]):
    """A seeded stream of training problems, to be read in order; example i depends on (seed, i) alone, so any run resumes.

    ``phases`` are (first batch, mixture), the first of them at batch 0. Problems are sorted by length inside windows, and the
    batches of a window are shuffled: a batch holds sequences of like length, because padding costs as much as text.
    """

    tokenizer: PreTrainedTokenizerFast
    seed: int
    batch_size: int
    batches: int
    phases: Sequence[tuple[int, Mixture]] = ((0, STORIES),)
    _window: tuple[int, list[Example]] = field(default=(-1, []), init=False)

    def __len__(self) -> int:
        return self.batch_size * self.batches

    def __getitem__(self, index: int) -> Example:
        number, place = divmod(index, self.batch_size * WINDOW_BATCHES)
        if number != self._window[0]:
            self._window = (number, self._sorted_window(number))
        return self._window[1][place]

    def _sorted_window(self, number: int) -> list[Example]:
        size = self.batch_size * WINDOW_BATCHES
        examples = sorted((self._example(number * size + i) for i in range(size)), key=lambda e: len(e["input_ids"]))
        batches = [examples[i : i + self.batch_size] for i in range(0, size, self.batch_size)]
        random.Random(f"{self.seed}/{number}").shuffle(batches)
        return [example for batch in batches for example in batch]

    def _example(self, number: int) -> Example:
        name, index = self._problem(number)
        problem = problem_at(TASKS[name], "train", self.seed, index)
        return example_of(self.tokenizer, problem.prompt, problem.solution)

    def _problem(self, number: int) -> tuple[str, int]:
        """Task and index of the stream's problem: the index counts the task's problems before it, so none comes twice."""
        begun = [(self.batch_size * first, mixture) for first, mixture in self.phases if self.batch_size * first <= number]
        first, mixture = begun[-1]
        name, before = mixture[(number - first) % len(mixture)], 0
        for (first, mixture), end in zip(begun, [first for first, _ in begun[1:]] + [number], strict=True):
            turns, rest = divmod(end - first, len(mixture))
            before += turns * mixture.count(name) + mixture[:rest].count(name)
        return name, before


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Fit a tokenizer of at most ``vocab_size`` entries; every prompt is given a leading <bos>."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d{1,2}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS, PAD, MASK],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    wrap: Any = PreTrainedTokenizerFast  # its constructor carries no types
    wrapped: PreTrainedTokenizerFast = wrap(
        tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, pad_token=PAD, mask_token=MASK, model_max_length=1024
    )
    return wrapped
