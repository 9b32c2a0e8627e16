"""Launches and host waits of a pass, counted on the meta device: the counter against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.launches import LAUNCH, WAIT, Counted, Uploads, figures_of
from harness.models import KNOWN_SHAPES

SHAPE = KNOWN_SHAPES["llama-3.1-8b"]


def counted(work: Any) -> tuple[int, int]:
    """(launches, waits) of what ``work`` does to a (4, 6) tensor on the device."""
    with Counted() as counter, Uploads(counter):
        work(torch.empty(4, 6, device="meta"))
    return counter.counts[LAUNCH], counter.counts[WAIT]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda x: x.view(6, 4).transpose(0, 1)[1:].expand(2, -1, -1), (0, 0)),
        (lambda x: (x.unflatten(0, (2, 2)).detach(), torch.empty_like(x), x.new_empty(3)), (0, 0)),
        (lambda x: torch.nn.functional.linear(x[None], torch.empty(5, 6, device="meta")), (1, 0)),
        (lambda x: (x + 1).mul_(2), (2, 0)),
        (lambda x: x.transpose(0, 1).contiguous(), (1, 0)),
        (lambda x: x.contiguous(), (0, 0)),
        (lambda x: torch.arange(3, device="meta"), (1, 0)),
        (lambda x: x.index_put_((torch.empty(2, dtype=torch.long, device="meta"),), x[:2]), (1, 0)),
        (lambda x: x.copy_(torch.zeros(4, 6)), (1, 1)),
        (lambda x: x.copy_(torch.zeros(4, 6), non_blocking=True), (1, 0)),
        (lambda x: torch.zeros(3).to("meta"), (1, 1)),
        (lambda x: torch.tensor([1, 2], device="meta"), (1, 1)),
        (lambda x: torch.where(x > 0, x, torch.tensor(1.0)), (2, 0)),
        (lambda x: torch.zeros(3) + 1, (0, 0)),
    ],
)
def test_an_operation_is_a_launch_and_a_view_is_none(work: Any, expected: tuple[int, int]) -> None:
    """By hand: (launches, waits)."""
    assert counted(work) == expected


def test_without_a_gpu_nodes_are_unknown_and_a_pass_waits_once() -> None:
    """The figures of a machine without one; kept to few layers. A layer of a pass that commits has no more than another: it had
    27.
    """
    figures, reasons = figures_of(SHAPE.model_copy(update={"layers": 2}))
    if not torch.cuda.is_available():
        unknown = {f"{name}{ending}" for name in ("ntp", "decide", "commit") for ending in ("", "_not_compiled")}
        assert {name for name, value in figures.items() if value is None} == unknown == set(reasons)
        assert all("make test-gpu-emulated" in reason for reason in reasons.values())
    assert figures["ntp_host_syncs"] <= 1 and figures["sbd_host_syncs"] <= 1
    assert 0 <= figures["commit_operations"] - figures["decide_operations"] <= 10
    assert figures["ntp_operations"] > 2 * 15, "a layer has seven products and what lies between them"
