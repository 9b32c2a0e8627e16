"""The fused walk in Triton's interpreter, on a CPU: against float64 from the definitions, and against the torch sampler."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.helpers import ROOT

pytest.importorskip("triton")

from harness.decoding import fused_walk, sampling
from harness.decoding.fused_walk import walk
from harness.decoding.sampling import FusedFigures, TorchFigures, sampler_of
from harness.decoding.solvers import BlockView
from tests.helpers.drawn_logits import INF, NAN, decide_alike, defined, some_logits
from tests.helpers.solver_rules import SOLVERS

# The interpreter computes with numpy, which remarks on arithmetic with NaN and infinities.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|divide by zero) encountered:RuntimeWarning")
TOLERANCE = 1e-5
# Rows, positions, vocabulary, logits of a program: positions that share one, of one tile, of several, of one token more.
SHAPES = [
    (1, 1, 1, 4096),
    (16, 1, 2, 4096),
    (2, 32, 7, 4096),
    (2, 3, 3, 2),
    (16, 32, 40, 4096),
    (3, 4, 896, 256),
    (1, 2, 4096, 4096),
    (1, 2, 4097, 4096),
    (1, 1, 50_257, 4096),
    (1, 1, 128_256, 8192),
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_figures_are_those_of_float64(shape, dtype):
    """Every figure within 1e-5 of the definitions, tokens exactly, at both temperatures."""
    rows, positions, vocabulary, block = shape
    for seed, temperature in ((0, 1.0), (2, 0.7)):
        logits = some_logits(rows, positions, vocabulary, seed + vocabulary % 2).to(dtype)
        tokens, *figures = walk(logits, temperature, second=True, block=block)
        wanted, *others = defined(logits, temperature)
        assert torch.equal(tokens, wanted.long())
        for figure, other in zip(figures, others, strict=True):
            torch.testing.assert_close(figure.double(), other, rtol=0, atol=TOLERANCE, equal_nan=True)
    assert tokens.shape == (rows, positions) and figures[1].dtype == figures[2].dtype == torch.float64


def test_one_walk_without_the_runner_up_says_the_same():
    """Tokens, entropy and confidence do not depend on whether the margin is asked for."""
    logits = some_logits(2, 5, 300, 1)
    with_it, without = walk(logits, 1.0, second=True, block=64), walk(logits, 1.0, second=False, block=64)
    for one, other in zip(with_it[:3], without[:3], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


def test_a_slice_of_wider_logits_is_read_where_it_lies():
    """Positions and words beside those of the view are not looked at, whatever their strides."""
    wide = torch.full((3, 6, 40), NAN)
    wide[:, 2:5, :33] = some_logits(3, 3, 33, 2).nan_to_num(0.0, 1.0, -INF)
    view = wide[:, 2:5, :33]
    assert not view.is_contiguous()
    for one, other in zip(walk(view, 1.0, True, block=8), walk(view.clone(), 1.0, True, block=8), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert (walk(wide[:, 2:5, :33].transpose(0, 1), 1.0, True)[0] == walk(view, 1.0, True)[0].T).all()
    columns = some_logits(3, 33, 3, 2).transpose(1, 2)
    assert torch.equal(walk(columns, 1.0, False)[0], TorchFigures(columns, 0.0).tokens)


def many_a_program(logits, temperature):
    """The fused figures, thousands of positions a program: one takes the interpreter milliseconds."""
    figures = FusedFigures(logits, temperature)
    figures._walked, figures._has_second = walk(logits, 1.0, second=True, block=1 << 16), True
    return figures


def test_decisions_are_those_of_the_torch_sampler():
    """100,000 slots: the same tokens, and the same set by every solver."""
    decide_alike(many_a_program, 2_500)


def test_a_decision_that_differs_shows(monkeypatch):
    """The comparison can fail: ties that go to the last word instead of the first."""
    tokens = FusedFigures.tokens.fget
    monkeypatch.setattr(FusedFigures, "tokens", property(lambda self: tokens(self).clamp(max=1)))
    with pytest.raises(AssertionError):
        decide_alike(FusedFigures, 10)


def test_figures_are_walked_for_once(monkeypatch):
    """The default solver and its tokens are one walk; the margin brings the others with it, and is not computed unasked."""
    seconds = []
    monkeypatch.setattr(fused_walk, "walk", lambda *given: seconds.append(given[2]) or walk(*given))
    logits, masked = some_logits(1, 4, 20, 1).nan_to_num(0.0), torch.ones(1, 4, dtype=torch.bool)
    view = BlockView(logits, masked, 0.0, FusedFigures)
    SOLVERS["entropy_bounded"](view, gamma=0.1)
    assert view.tokens.shape == (1, 4) and seconds == [False]
    SOLVERS["entropy_bounded_margin"](BlockView(logits, masked, 0.0, FusedFigures), gamma=0.1)
    assert seconds == [False, True]


def test_the_entropy_of_a_greedy_decode_is_at_temperature_1():
    """As the torch sampler has it."""
    logits = some_logits(1, 3, 9, 1)
    for temperature in (0.0, 0.5):
        fused, plain = FusedFigures(logits, temperature), TorchFigures(logits, temperature)
        torch.testing.assert_close(fused.entropy, plain.entropy, rtol=0, atol=TOLERANCE, equal_nan=True)
        torch.testing.assert_close(fused.margin, plain.margin, rtol=0, atol=TOLERANCE, equal_nan=True)


def test_who_samples_where(monkeypatch):
    """CUDA with Triton: the fused walk. Without Triton, and on a CPU: the reference."""
    sampler_of.cache_clear()
    assert sampler_of("cuda") is FusedFigures and sampler_of("cpu") is TorchFigures
    sampler_of.cache_clear()
    monkeypatch.setattr(sampling, "find_spec", lambda name: None)
    assert sampler_of("cuda") is TorchFigures
    sampler_of.cache_clear()


def test_nothing_waits_for_the_device(monkeypatch):
    """Between the launches no number is read back, and every launch is told shapes and addresses alone: it can be captured."""
    launched = []

    class Kernel:
        """Remembers its launches."""

        def __getitem__(self, grid):
            return lambda *given, **fixed: launched.append((grid, given, fixed))

    monkeypatch.setattr(fused_walk, "_tile", Kernel())
    monkeypatch.setattr(fused_walk, "_merge", Kernel())
    with torch.device("meta"):  # a tensor without numbers: reading one raises
        tokens, entropy, confidence, margin = walk(torch.empty(2, 16, 128_256, dtype=torch.bfloat16), 1.0, second=True)
    assert [grid for grid, _, _ in launched] == [(32, math.ceil(128_256 / fused_walk.TILE)), (16,)]
    assert {one.shape for one in (tokens, entropy, confidence, margin)} == {(2, 16)}
    assert SimpleNamespace(**launched[1][2]).TILES == 32


def test_the_kernels_compile_for_a_gpu():
    """To machine code of an H100, in every type: the interpreter cannot tell. In one type and one tile each compiles
    once, whatever the sizes and addresses, and the meter of a timed window sees it.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.compiled_walk"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"TRITON_INTERPRET": "0"},
    )
    assert done.returncode == 0 and done.stdout.split() == ["24", "2.0", "1.0"], done.stdout + done.stderr
