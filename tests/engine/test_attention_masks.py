"""What masks cost: none is as long and as wide as a prompt, and one is made for all layers of a forward."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from harness.decoding.request import prefill
from harness.decoding.session import Segment
from harness.engine.static_session import StaticSession, visible_slots
from tests.helpers.tiny_model import tiny_config

HEADS, GROUPS = 4, 2


class Made(TorchDispatchMode):
    """Numbers of elements of every tensor that an operation makes, by the operation."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run it and look at what comes."""
        out = func(*args, **(kwargs or {}))
        held = {one.untyped_storage().data_ptr() for one in args if isinstance(one, torch.Tensor)}
        for one in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in held:
                self.sizes.append((one.numel(), str(func)))
        return out


def session(layers=2):
    """A static one over a random model."""
    torch.manual_seed(1)
    config = tiny_config(num_hidden_layers=layers, num_attention_heads=HEADS, num_key_value_heads=GROUPS)
    return StaticSession(transformers.LlamaForCausalLM(config).eval())


def run(tokens, start, visibility, rows=2):
    """A segment of every row."""
    return Segment(
        tokens=torch.ones(rows, tokens, dtype=torch.long),
        positions=torch.arange(start, start + tokens).expand(rows, -1),
        visibility=visibility,
        logits=1,
    )


@pytest.mark.parametrize("lengths", [(400, 400), (400, 251)])
@pytest.mark.parametrize("block", [0, 4])
def test_reading_prompts_makes_nothing_of_their_length_squared(lengths, block):
    """Of one length or of several, alone or with a block behind them that sees all of each."""
    opened, width = session(), max(lengths)
    prompts = [[1 + i % 7 for i in range(length)] for length in lengths]
    with Made() as made:
        if block:
            opened.reset(2, width + block)
            real = torch.arange(width) >= width - torch.tensor(lengths)[:, None]
            prompt = run(width, 0, "causal")
            prompt.valid = None if min(lengths) == width else real
            opened.forward([prompt, run(block, width, "bidirectional")])
        else:
            prefill(opened, prompts, torch.device("cpu"), room=4)
    largest = max(made.sizes)
    assert largest[0] < width * width / 4, largest


def test_a_mask_is_made_once_for_all_layers():
    """A pass that commits a block and opens the next one, behind 300 and 290 tokens: as many large tensors with six layers as
    with two, and of a number for every slot and shared query one.
    """
    counts = []
    for layers in (2, 6):
        opened = session(layers)
        prefill(opened, [[1] * 300, [1] * 290], torch.device("cpu"), room=20)
        with Made() as made:
            opened.forward([run(4, 300, "causal"), run(4, 304, "bidirectional")])
        counts.append([size for size, _ in made.sizes if size >= 2 * 8 * 300])
    assert counts[0] == counts[1] and sum(size >= 2 * 8 * HEADS // GROUPS * 300 for size in counts[0]) == 1


@pytest.mark.parametrize("fed", [None, [[0, 1, 1, 1, 1, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]]])
@pytest.mark.parametrize("lengths", [[3, 3], [0, 2]])
@pytest.mark.parametrize("first", [1, 3, 5])
def test_the_last_lines_of_a_mask_are_those_of_the_whole_one(lengths, fed, first):
    """Made without the others: three segments of which one brings who sees whom."""
    seen = torch.tensor([[1, 0], [1, 1]], dtype=torch.bool)
    segments = [run(3, 0, "causal"), run(3, 3, "bidirectional"), run(2, 6, "causal")]
    segments[2].visibility, segments[2].seen = "explicit", seen
    real = None if fed is None else torch.tensor(fed, dtype=torch.bool)
    whole = visible_slots(lengths, real, segments, 11)
    assert torch.equal(visible_slots(lengths, real, segments, 11, first), whole[:, first:])
