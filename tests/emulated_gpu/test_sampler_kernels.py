"""What Triton compiles on the emulated GPU: a kernel that is compiled within a timed window, or within a capture, spoils it."""

from __future__ import annotations

from itertools import product

import pytest

from harness.meters.host import GraphMeter
from tests.helpers.graphed_methods import SMALL, answers, cases

pytestmark = pytest.mark.emulated
FIRST = (1, 16)
"""Rows and positions of a first pass: of all numbers that a kernel is given, 1 and multiples of 16 are special to Triton."""


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("vocabulary", [1008, 128256, 1001])
def test_one_compile_serves_all_sizes(device, vocabulary, second):
    """Rows, positions and addresses that are 1, multiples of 16, or neither: only the first call loads a kernel."""
    torch = pytest.importorskip("torch")
    from harness.decoding.fused_walk import walk

    def loaded(rows, positions, first=0):
        before = len(device.compiled())
        logits = torch.empty(rows, first + positions, vocabulary, dtype=torch.bfloat16, device="cuda")
        walk(logits[:, first:], 1.0, second)
        return device.compiled()[before:]

    loaded(*FIRST)
    assert {key: found for key in product((1, 3, 4, 16), (1, 5, 16, 32), (0, 1)) if (found := loaded(*key))} == {}


def test_what_is_compiled_in_a_window_is_metered(device):
    """By the meter that makes such a window no measurement."""
    torch = pytest.importorskip("torch")
    from harness.decoding.fused_walk import walk

    meter = GraphMeter()
    meter.open()
    before = len(device.compiled())
    walk(torch.empty(1, 1, 777, dtype=torch.float16, device="cuda"), 1.0, second=False)
    loaded = len(device.compiled()) - before
    assert loaded > 0 and meter.close()["compiled_graphs"] == loaded


def test_batches_behind_the_first_load_no_kernel(device):
    """The engine's own passes, of one row and of several: what they need is there after the first decode of an arm, but for
    captures. Host code alone.
    """
    on = {"model": {"random": SMALL}, "workload": {"synthetic": {"prompt_tokens": 20}, "prompts": 4, "max_new_tokens": 24}}
    replayed = {"method": "sbd", "block_size": 8, "acceptance": {"replay": {"nfe_speedup": 3.0}}}
    arms = {"ntp": {"method": "ntp"}, "sbd": replayed}
    batches = [[(1,) * (20 + row) for row in range(rows)] for rows in (1, 1, 3, 4, 2)]
    decodes = answers(cases("cuda", "bfloat16", "graphs", arms=[*arms.values()], names=[*arms], **on), batches)
    assert [next(decodes)[0] for _ in arms] == [*arms]
    before = device.compiled()
    assert len(list(decodes)) == 8 and device.compiled() == before
