"""Logits drawn at random, with ties, impossible words and numbers that are none; what is defined to follow from them."""

from __future__ import annotations

import torch

from harness.decoding.sampling import TorchFigures, usable
from harness.decoding.session import NO_TOKEN
from harness.decoding.solvers import BlockView
from harness.scenario.solvers import SOLVERS as SPECS
from tests.helpers.solver_rules import SOLVERS

INF, NAN = float("inf"), float("nan")


def defined(logits, temperature: float):
    """(tokens, entropy, confidence, margin) of (..., V) logits by the definitions, in float64 and position by position."""
    found = []
    for row in logits.double().reshape(-1, logits.shape[-1]):
        largest = row.max()
        if not largest.abs() < INF:
            found.append((NO_TOKEN, NAN, NAN, NAN))
            continue
        p = ((row - largest) / temperature).exp()
        p = p / p.sum()
        first, *others = p.sort(descending=True).values[:2].tolist()
        terms = p[p > 0]
        found.append((int((row == largest).nonzero()[0]), -float((terms * terms.log()).sum()), first, first - sum(others)))
    return [torch.tensor(column, dtype=torch.float64).view(logits.shape[:-1]) for column in zip(*found, strict=True)]


def some_logits(rows: int, positions: int, vocabulary: int, seed: int):
    """Flat and peaked positions; some with impossible words, with equals, with a NaN or an infinity, with nothing possible."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, positions, vocabulary, generator=generator) * torch.tensor([0.1, 1.0, 8.0, 30.0])[seed % 4]
    flat = logits.view(-1, vocabulary)
    for at, row in enumerate(flat):
        words = torch.randint(vocabulary, (2,), generator=generator)
        if at % 7 == 1:
            row[torch.rand(vocabulary, generator=generator) < 0.5] = -INF
        if at % 3 == 2:
            row[words] = row.max()
        if at % 11 == 5:
            row[words[0]] = (NAN, INF)[at % 2]
        if at % 13 == 12:
            row.fill_(-INF)
    return logits


def random_rows(blocks: int, vocabulary: int, seed: int):
    """(blocks, 8, V) logits of which many words of a slot are equal, and slots of a block; a few name no token."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.rand(blocks, 8, vocabulary, generator=generator) * 8  # none so far ahead that probabilities round to 1
    twice = torch.randint(vocabulary, (blocks, 8, 2), generator=generator)
    largest = logits.amax(dim=-1, keepdim=True).expand(-1, -1, 2)
    logits = torch.where(torch.rand(blocks, 8, 1, generator=generator) < 0.4, logits.scatter(-1, twice, largest), logits)
    from_slot = torch.randint(8, (blocks, 8, 1), generator=generator).expand_as(logits)
    logits = torch.where(torch.rand(blocks, 8, 1, generator=generator) < 0.3, logits.gather(1, from_slot), logits)
    logits[torch.rand(blocks, 8, generator=generator) < 0.01] = NAN
    return logits, torch.rand(blocks, 8, generator=generator) < 0.8


def decide_alike(sampler, blocks: int) -> None:
    """Assert that random slots, 8 in each of 5 times ``blocks`` blocks, with ties among words and among slots, in bfloat16 and
    float32, get the same tokens of the ``sampler`` as of the reference, and of every solver at three settings the same set.
    """
    for seed, vocabulary in enumerate((2, 3, 5, 17, 64)):
        logits, masked = random_rows(blocks, vocabulary, seed)
        usable(logits, torch.tensor([vocabulary - 1]))
        logits = logits if seed % 2 else logits.bfloat16()
        found, wanted = BlockView(logits, masked, 0.0, sampler), BlockView(logits, masked, 0.0, TorchFigures)
        assert torch.equal(found.tokens, wanted.tokens)
        for name, spec in SPECS.items():
            for at in range(3):
                knobs = {knob: values[min(at, len(values) - 1)] for knob, values in spec.sweep.items()}
                chosen = [SOLVERS[name](view, **knobs) for view in (found, wanted)]
                assert torch.equal(*chosen), (name, knobs)
