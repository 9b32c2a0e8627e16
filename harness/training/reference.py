"""The reference models that ship with the package: their shape, tokenizer and training data, and the recipe of their training.

A model of the Llama architecture that trains on two cores, so that every run shows real acceptance and accuracy without a
download: one next-token base, then an SBD model and its next-token control in three stages each. Both start from the same base
weights and see the same examples in the same order for the same number of optimizer steps. They differ in the loss and in the
attention kernel that computes it (see trainer). The draft model is a tenth of their size and writes the same language. What
ships are the weights rounded to bfloat16; all published figures are those of the stored weights.

The tokenizer is byte-level BPE over the built-in tasks' text, digits in groups of two. A number of one or two digits is one
token (in Llama 3's tokenizer up to three). So a step of arithmetic has one shape for all numbers. Everything else is learnt, so
that any text can be written. Its training sample is seeded: the same seed gives the same file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

from harness.config_file import Count, CountOrZero, Flag, StrictModel, Text, read_yaml
from harness.engine.checkpoints import open_for_training
from harness.errors import InvariantError, UserError
from harness.record.regular_file import write_whole
from harness.training.noising import Example, OrderedStream, SpecialIds, example_of
from harness.training.recipe import TrainingSettings
from harness.training.trainer import FLOAT32_ATTENTION, TrainingConfig, train
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problem_at

BOS, EOS, PAD, MASK = "<bos>", "<eos>", "<pad>", "<mask>"


VOCAB_SIZE = 1024
TOKENIZER_PROBLEMS_PER_TASK = 4000
TRAINING_TASKS = ("word_problems", "record_to_json", "variable_trace")
Mixture = tuple[str, ...]
"""Tasks that training problems are taken from in turn."""


class Size(StrictModel):
    """How large a model is to be built; every one has twice as many query heads as KV heads."""

    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count


class TrainingStage(TrainingSettings):
    """One training run; ``starts_from``: the stage whose weights it continues from, None: random ones of this ``size``.

    ``phases``: each mixture of tasks with its first batch.
    """

    starts_from: Text | None = None
    size: Size
    phases: tuple[tuple[CountOrZero, Mixture], ...]
    compile: Flag = True


STAGES = read_yaml(Path(__file__).with_name("reference_stages.yaml"), InvariantError).value(dict[str, TrainingStage])
STORIES, VARIABLES = (mixture for _, mixture in STAGES["sbd"].phases)


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
class TaskExamples(OrderedStream[Example]):
    """Training problems. ``phases`` are (first batch, mixture), the first of them at batch 0."""

    tokenizer: PreTrainedTokenizerFast
    seed: int
    batch_size: int
    batches: int
    phases: Sequence[tuple[int, Mixture]] = ((0, STORIES),)

    def example_at(self, place: int) -> Example:
        """See OrderedStream."""
        name, index = self._problem(place)
        problem = problem_at(TASKS[name], "train", self.seed, index)
        return example_of(self.tokenizer, problem.prompt, problem.solution)

    def order_of(self, example: Example) -> int:
        """By its tokens."""
        return len(example["input_ids"])

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


def train_reference(stage: str, root: Path) -> Path:
    """Train one stage under ``root`` (resuming from its last checkpoint) and export it; returns the exported folder.

    Raises:
        UserError: no such stage exists, or the stage it starts from is not finished under ``root``.
    """
    if stage not in STAGES:
        raise UserError(f"no stage {stage!r}; the recipe has, in this order: {', '.join(STAGES)}")
    before = STAGES[stage].starts_from
    if before is not None and not (root / before / "export").is_dir():
        raise UserError(f"stage {stage} starts from {before}, which is not finished under {root}; train {before} there first")
    started = time.monotonic()
    settings = STAGES[stage].model_dump(include={*TrainingSettings.model_fields, "compile"})
    config = TrainingConfig(output_dir=root / stage, cpu=True, sampling="sequential", **settings)
    set_seed(config.seed)
    if before is None:
        tokenizer: Any = build_tokenizer()
        model: Any = build_model(tokenizer, STAGES[stage].size)
    else:
        model, tokenizer = open_for_training(str(root / before / "export"))
    model.set_attn_implementation(FLOAT32_ATTENTION if config.objective == "sbd" else "eager")
    examples = TaskExamples(
        tokenizer, seed=config.seed, batch_size=config.batch_size, batches=config.steps, phases=STAGES[stage].phases
    )
    ids = SpecialIds(pad=tokenizer.pad_token_id, eos=tokenizer.eos_token_id, mask=tokenizer.mask_token_id)
    train(config, model, examples, ids)
    return _export(stage, model, tokenizer, config, time.monotonic() - started)


def _export(stage: str, model: Any, tokenizer: PreTrainedTokenizerFast, config: TrainingConfig, seconds: float) -> Path:
    """Write weights and tokenizer; float32 where another stage starts from them, else bfloat16, which is what ships."""
    target = config.output_dir / "export"
    if all(other.starts_from != stage for other in STAGES.values()):
        model = model.to(torch.bfloat16)
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    settings = config.model_dump(mode="json", exclude={"output_dir"}) | {"last_session_s": round(seconds, 1)}
    write_whole(target / "training.json", json.dumps(settings, indent=1).encode())
    last = max(config.output_dir.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
    write_whole(target / "trainer_state.json", (last / "trainer_state.json").read_bytes())
    return target
