"""The reference model's own tokenizer: byte-level BPE over the built-in tasks' text, digits in groups of two.

A number of one or two digits is one token (as one of up to three is in Llama 3's tokenizer), so a step of arithmetic has
one shape whatever its numbers; everything else is learnt, so that any text can be written. Trained from a seeded
sample, so the same seed gives the same file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

BOS, EOS, PAD, MASK = "<bos>", "<eos>", "<pad>", "<mask>"


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
