"""Nodes of captured passes of Llama-3.1-8B, as CUDA has them: kernels of graphs that inductor and cuBLAS really launch."""

from __future__ import annotations

import pytest

from harness.models import KNOWN_SHAPES

pytestmark = pytest.mark.emulated
torch = pytest.importorskip("torch")
SHAPE = KNOWN_SHAPES["llama-3.1-8b"]
MOST = {"ntp": 430, "decide": 520, "commit": 530}
"""Nodes of a compiled pass; 581, 613 and 619 when each projection was a product of its own and no single token was tuned."""


def test_a_compiled_pass_keeps_to_its_nodes() -> None:
    """Counted with one layer and with two, as all layers are alike."""
    from benchmarks.launches import CUDA, NODE, count_passes

    one, two = (
        {name: counts[NODE] for name, counts in count_passes(shape, compiled=True, device=CUDA).items()}
        for shape in (SHAPE.model_copy(update={"layers": layers}) for layers in (1, 2))
    )
    found = {name: one[name] + (SHAPE.layers - 1) * (two[name] - one[name]) for name in MOST}
    assert all(found[name] <= most for name, most in MOST.items()), found


def test_what_is_captured_as_it_is_has_the_nodes_of_all_layers() -> None:
    """The whole shape: some 50 nodes a layer, as another program counted."""
    from benchmarks.launches import CUDA, NODE, count_passes

    found = count_passes(SHAPE, device=CUDA)
    assert 1200 < found["ntp"][NODE] <= 1605 and found["commit"][NODE] - found["decide"][NODE] <= 10
