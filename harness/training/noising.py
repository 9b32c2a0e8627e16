"""From token sequences to SBD training batches: algorithm 1 of the paper, without its printed errors.

The paper's listing draws block sizes of 0, labels the unmasked positions and halves a length not yet doubled. Here the block
size is uniform in 2..16, labels stand where the mask stands, and the noisy copy x̂ is built explicitly. x̂ starts at the first
answer token: decoding opens its first block there, and prompt tokens carry no loss. Knows no model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Generic, TypedDict, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from harness.frozen import frozen

IGNORE = -100
MIN_BLOCK, MAX_BLOCK = 2, 16
WINDOW_BATCHES = 16
T = TypeVar("T")


class Example(TypedDict):
    """One training sequence: prompt + solution + end-of-sequence, and where the solution starts."""

    input_ids: list[int]
    prompt_tokens: int


def example_of(tokenizer: Any, prompt_text: str, solution_text: str) -> Example:
    """Tokenise a pair; the solution gets no special token but the end of sequence."""
    prompt = tokenizer(prompt_text)["input_ids"]
    solution = tokenizer(solution_text, add_special_tokens=False)["input_ids"]
    return {"input_ids": [*prompt, *solution, tokenizer.eos_token_id], "prompt_tokens": len(prompt)}


@frozen
class SpecialIds:
    """Token ids with a role in training."""

    pad: int
    eos: int
    mask: int


def clean_batch(examples: Sequence[Example], ids: SpecialIds) -> dict[str, Tensor]:
    """Right-padded x (B, L) with its causal visibility and next-token labels on the solution (eq. 14, first sum). ``labels[:,
    i]`` is the target of the logits at position i, IGNORE where they have none.
    """
    tokens = pad_sequence([torch.tensor(e["input_ids"]) for e in examples], batch_first=True, padding_value=ids.pad)
    index, rows = torch.arange(tokens.shape[1]), len(examples)
    last = torch.tensor([[len(e["input_ids"]) - 1] for e in examples])
    charged = (index < last) & (index >= torch.tensor([[e["prompt_tokens"] - 1] for e in examples]))
    return {
        "input_ids": tokens,
        "position_ids": index.expand(rows, -1),
        "visible": (index <= index[:, None]).expand(rows, -1, -1),
        "labels": tokens.roll(-1, dims=1).masked_fill(~charged, IGNORE),
        "noisy_labels": torch.empty(rows, 0, dtype=torch.long),
    }


def doubled_batch(examples: Sequence[Example], ids: SpecialIds, generator: torch.Generator) -> dict[str, Tensor]:
    """[x ; x̂] with one block size for the batch and one masking rate a row (eq. 13, 14; Fig. 8).

    After the end of a sequence x̂ and its targets are end-of-sequence up to the end of the block. So a model that decodes past
    its answer knows what to write there.

    Returns:
        input_ids, position_ids (B, L+N); labels (B, L); noisy_labels (B, N), the token at its own position where x̂ is masked;
            visible (B, L+N, L+N).
    """
    clean = clean_batch(examples, ids)
    block_size = int(torch.randint(MIN_BLOCK, MAX_BLOCK + 1, (1,), generator=generator))
    starts = [e["prompt_tokens"] for e in examples]
    blocks = [-(-(len(e["input_ids"]) - s) // block_size) for e, s in zip(examples, starts, strict=True)]
    rows, width = len(examples), max(blocks) * block_size
    targets = torch.full((rows, width), ids.eos)
    block_of = torch.full((rows, width), -1)
    for row, (example, start) in enumerate(zip(examples, starts, strict=True)):
        tail = torch.tensor(example["input_ids"][start:])
        targets[row, : len(tail)] = tail
        block_of[row, : blocks[row] * block_size] = torch.arange(blocks[row]).repeat_interleave(block_size)
    rate = torch.rand(rows, 1, generator=generator)
    masked = (torch.rand(rows, width, generator=generator) < rate) & (block_of >= 0)
    noisy_start, lengths = torch.tensor(starts), torch.tensor([len(e["input_ids"]) for e in examples])
    clean_valid = torch.arange(clean["input_ids"].shape[1])[None, :] < lengths[:, None]
    return {
        "input_ids": torch.cat([clean["input_ids"], targets.masked_fill(masked, ids.mask)], dim=1),
        "position_ids": torch.cat([clean["position_ids"], noisy_start[:, None] + torch.arange(width)], dim=1),
        "labels": clean["labels"],
        "noisy_labels": targets.masked_fill(~masked, IGNORE),
        "visible": doubled_sequence(clean_valid, block_of, noisy_start, block_size),
    }


def doubled_sequence(clean_valid: Tensor, noisy_block: Tensor, noisy_start: Tensor, block_size: int) -> Tensor:
    """The mask of the paper's Fig. 8/9 over [x ; x̂] (arXiv 2509.04185, section 3.2).

    x→x causal; x̂→x̂ inside the same block, both directions; x̂→x only to tokens before the first of its own block;
    x→x̂ never.

    Args:
        clean_valid: (B, L) bool, False on right padding of x.
        noisy_block: (B, N) int, index of the block each token of x̂ belongs to; -1 on padding (a block of its own kind).
        noisy_start: (B,) int, position in x of the first token of x̂ (0 doubles the whole sequence).
        block_size: tokens per block.

    Returns:
        (B, L+N, L+N) bool, True where the query (first axis) may attend to the key.
    """
    rows, clean = clean_valid.shape
    noisy = noisy_block.shape[1]
    index = torch.arange(clean, device=clean_valid.device)
    visible = torch.zeros(rows, clean + noisy, clean + noisy, dtype=torch.bool, device=clean_valid.device)
    visible[:, :clean, :clean] = index[None, :] <= index[:, None]
    block_start = noisy_start[:, None] + noisy_block.clamp(min=0) * block_size  # (B, N)
    visible[:, clean:, :clean] = (index[None, None, :] < block_start[:, :, None]) & clean_valid[:, None, :]
    visible[:, clean:, clean:] = noisy_block[:, :, None] == noisy_block[:, None, :]
    return visible


class OrderedStream(Dataset[T], Generic[T]):
    """A seeded stream of examples, to be read in order. Those of like length stand together, batch by batch, because padding
    costs as much as text; the batches of a window are shuffled. Example i depends on (seed, i) alone, so a training that is
    resumed reads what an unbroken one would.
    """

    batch_size: int
    batches: int
    seed: int
    _window: tuple[int, list[T]] = (-1, [])

    def example_at(self, place: int) -> T:
        """The example of a place of the stream, before any sorting."""
        raise NotImplementedError

    def order_of(self, example: T) -> Any:
        """What examples are sorted by: their length first."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.batch_size * self.batches

    def __getitem__(self, index: int) -> T:
        size = self.batch_size * WINDOW_BATCHES
        number, place = divmod(index, size)
        if number != self._window[0]:
            examples = sorted((self.example_at(number * size + i) for i in range(size)), key=self.order_of)
            batches = [examples[i : i + self.batch_size] for i in range(0, size, self.batch_size)]
            random.Random(f"{self.seed}/{number}").shuffle(batches)
            self._window = number, [example for batch in batches for example in batch]
        return self._window[1][place]
