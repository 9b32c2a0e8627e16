"""Graphs in bfloat16 against float32, as `sbd check` and the first minutes on a GPU compare them, on an emulated GPU: a flash
attention that says +inf of a run without keys, and CUDA graphs that record, replay and assert.
"""

from __future__ import annotations

import pytest
import torch

from harness.check import half_precision as module
from harness.check.half_precision import half_precision, main
from harness.engine import flash_attention
from harness.engine.cuda_graphs import CudaGraphs
from harness.engine.flash_attention import FlashRuns
from tests.helpers.emulated_gpu import FakeCuda, emulated_flash, emulated_graphs

BATCHES = ((1, 200), (1, 900), (3, 900))
"""One piece; four of which three hold nothing; three rows. Each but the first drops the graphs and captures anew."""


def probe(batches=BATCHES):
    """Every pass of the check on the emulated GPU."""
    cuda = FakeCuda()
    with emulated_flash():
        return half_precision("cpu", emulated_graphs(cuda), batches), cuda


def test_graphs_in_half_precision_compute_what_float32_computes():
    """Captured and replayed, over empty pieces and behind growth; a pool is left behind with every buffer that grew."""
    found, cuda = probe()
    assert [str(one) for one in found if not one.right] == []
    kinds = [(one.rows, one.tokens, one.run) for one in found]
    assert len(kinds) == 2 * (3 + 3 + 4) and len(set(kinds)) == 2 * (3 + 4)
    assert list(cuda.pools.values()) == [0, 0, 0] and cuda.log.count("replay") == len(found)


def test_an_empty_piece_that_counts_is_found(monkeypatch):
    """Undo the mend of flash attention's +inf: no pass with a run without keys has a number, every other pass is right. In one
    piece that is the pass that commits alone: the block behind sees nothing where committed tokens see one another.
    """
    real = flash_attention.Runs

    def forgetful(**given):
        empty = given["empty"]
        return real(**given | {"empty": None if empty is None else torch.zeros_like(empty)})

    monkeypatch.setattr(flash_attention, "Runs", forgetful)
    found, _ = probe(BATCHES[:2])
    assert [one.right for one in found] == [True] * 4 + [False] * 8
    assert {one.error for one in found if not one.right} == {None}


def test_a_pool_that_is_used_again_is_found(monkeypatch):
    """Undo the mend of the recapture: at the first growth torch asserts."""
    monkeypatch.setattr(CudaGraphs, "release", lambda self: None)
    probe(BATCHES[:1])
    with pytest.raises(AssertionError, match="use_count > 0"):
        probe(BATCHES[:2])


def without_its_own(fed, own=flash_attention._own):
    """A block that is committed does not see itself."""
    return (run._replace(least=0, most=0) for run in own(fed))


def one_less(self, used, read=FlashRuns.read):
    """The newest token is not seen."""
    return read(self, used - 1)


def seeing_all(fed, own=flash_attention._own):
    """A block that is committed sees what comes behind each of its tokens."""
    width = fed.parts[0][0]
    return (run._replace(least=width, most=width) if run.least else run for run in own(fed))


@pytest.mark.parametrize(
    ("where", "fault", "wrong"),
    [
        (flash_attention, {"_own": without_its_own}, {"16+16"}),
        (FlashRuns, {"read": one_less}, {"1", "16", "16+16"}),
        (flash_attention, {"_own": seeing_all}, {"16+16"}),
    ],
)
def test_a_fault_that_leaves_numbers_is_found(monkeypatch, where, fault, wrong):
    """One token or block seen wrongly is far from rounding, and the passes that it does not touch are right."""
    for name, planted in fault.items():
        monkeypatch.setattr(where, name, planted)
    found, _ = probe(BATCHES[:1])
    assert {one.tokens for one in found if not one.right} == wrong
    assert all(one.error > 2 * module.MOST_ERROR for one in found if not one.right)


@pytest.mark.parametrize(("error", "right"), [(0.01, True), (0.0, False), (-0.01, False), (float("nan"), False), (None, False)])
def test_only_an_error_of_rounding_is_right(error, right):
    """A device that computes nothing leaves both answers as they were: no difference, or whatever stood there."""
    one = module.HalfPrecisionPass(rows=1, capacity=200, tokens="1", run="captured", error=error)
    assert one.right is right


@pytest.mark.parametrize(("wrong", "word"), [(False, "right"), (True, "WRONG")])
def test_the_command_says_so_and_ends_with_it(monkeypatch, capsys, wrong, word):
    """Its last line, and exit code 0 or 1."""
    held = module.HalfPrecisionPass(rows=1, capacity=200, tokens="1", run="captured", error=None if wrong else 0.01)
    monkeypatch.setattr(module, "half_precision", lambda device: [held])
    assert main("cpu") == int(wrong)
    assert capsys.readouterr().out.splitlines() == [str(held), word]
