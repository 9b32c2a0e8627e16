"""The first command on a GPU: captured passes in half precision against float32 without graphs, by torch's own CUDA code."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.emulated


def test_captured_passes_compute_what_float32_computes(values):
    """One to four rows, buffers that grow, a row that waits: each kind of pass captured, then replayed. Red where a graph
    outlives what it reads.
    """
    from harness.check.half_precision import BATCHES, half_precision

    passes = half_precision("cuda")
    assert [str(one) for one in passes if not one.right] == []
    assert {(one.rows, one.capacity) for one in passes} == {*BATCHES}
    assert all(one.error for one in passes), "bfloat16 rounds: an error of 0 says that nothing was computed"


def test_a_device_that_computes_nothing_is_not_right(emulated):
    """Host code alone: no kernel writes anything, so there is nothing to be right about."""
    done = emulated("-m", "harness.check.half_precision", "cuda", values=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, "WRONG"), done.stderr[-2000:]
