"""The answers of every method, captured into graphs on the emulated GPU, against eager decoding on the CPU in step with it.

One engine decodes everything, so a graph serves later arms and batches, and buffers are made anew where a batch needs larger
ones.
"""

from __future__ import annotations

from itertools import product

import pytest

from tests.emulated_gpu.in_step import in_step
from tests.helpers.graphed_methods import ARMS, GREEDY_ONLY, adapted, cases, prompts_of

pytestmark = pytest.mark.emulated
FEW = ("ntp", "ragged", "verified", "quadratic", "exit")
"""An arm of every kind of pass: one token, blocks that commit or wait, drafts that are checked, many drafts side by side."""


@pytest.fixture(autouse=True)
def nothing_refused(device):
    """No capture is invalidated, and nothing is asked that a GPU refuses."""
    before = device.faults()
    yield
    assert device.faults() == before


def parted(names, batches, dtype="bfloat16", execution="graphs", **more):
    """(arm, batch, what is wrong) of every decode that is not that of eager decoding on the CPU."""
    first, second = cases("cuda", dtype, execution, names, **more), cases("cpu", dtype, "eager", names, **more)
    found = list(in_step(first, second, batches))
    assert [one[:2] for one in found] == [(name, batch) for batch, name in product(range(len(batches)), names)]
    assert all(max(map(len, generation.output_ids)) > 1 for _, _, generation, _ in found)
    return [(name, batch, wrong) for name, batch, _, wrong in found if wrong]


@pytest.mark.parametrize(("dtype", "names"), [("bfloat16", tuple(ARMS)), ("float32", FEW)])
def test_methods_write_what_they_write_on_the_cpu(values, dtype, names):
    """One row, then three of unequal length: other buffers, other graphs."""
    one, *three = prompts_of(4)
    assert len({*map(len, three)}) > 1
    assert parted(names, [[one], three], dtype, tokens=8) == []


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_method_in_batches_that_grow_and_shrink(values, dtype):
    """One to four rows, up and down again, with answers of up to 40 tokens."""
    prompts = [*prompts_of(5), *prompts_of(5, "record_to_json")]
    batches = [prompts[:1], prompts[1:3], prompts[2:5], prompts[6:10], prompts[5:6], [prompts[0], prompts[7]]]
    assert parted(tuple(ARMS), batches, dtype, tokens=40) == []


def test_sampled_answers_are_drawn_alike(values):
    """The same seed draws the same tokens, at a temperature that leaves a choice."""
    one, *others = prompts_of(3)
    assert parted(FEW, [[one], others], tokens=8, temperature=1.3) == []


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_method_that_samples(values, dtype):
    """Wherever a temperature is taken."""
    names = [name for name in ARMS if name not in GREEDY_ONLY]
    assert parted(names, [prompts_of(1), prompts_of(4)], dtype, tokens=24, temperature=1.3) == []


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.full)])
def test_an_adapter_acts_on_the_same_tokens(values, tmp_path, dtype):
    """Its columns are fixed in a graph: those of blocks and of drafts, none of next-token prediction."""
    names = ("ntp", "ragged", "linear", "copies")
    one, *others = prompts_of(3)
    assert parted(names, [[one], others], dtype, tokens=8, model=adapted(tmp_path / "adapter")) == []
