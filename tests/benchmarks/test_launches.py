"""Launches and host waits of a pass, counted on the meta device: the counter against counts by hand and by another program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from benchmarks.launches import LAUNCH, WAIT, Counted, Uploads, count_passes, figures_of
from harness.engine import kv_cache
from harness.engine.captured_attention import OPTIONS
from harness.models import KNOWN_SHAPES
from harness.roofline import storage

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


@dataclass(frozen=True, slots=True)
class FormerReading:
    """Attention as it was when another program counted it: per part, and for what causal tokens see of themselves apart."""

    fed: kv_cache.Fed

    def attend(self, query: Any, keys: Any, values: Any, scaling: float | None) -> Any:
        """Values are of no account."""
        rows, heads, _, size = query.shape
        groups, shared = self.fed.groups, self.fed.shared
        count = storage.pieces_of(rows * groups, self.fed.slots)
        outs, start = [], 0
        torch.arange(rows, device=query.device)  # each layer made the rows' numbers anew
        for width, causal in self.fed.parts:
            asked = query[:, :, start : start + width].transpose(1, 2)
            folded = asked.reshape(rows, width, groups, shared, size).transpose(2, 3).reshape(rows, 1, -1, groups, size)
            folded = folded.expand(-1, count, -1, -1, -1).flatten(0, 1)
            out, lse = self._kernel(folded, keys, values)
            out = out.reshape(rows, count, width, shared, groups, size).transpose(3, 4)
            lse = lse.reshape(rows, count, width, shared, groups).transpose(3, 4)
            out, lse = self._merged(out.transpose(0, 1), lse.transpose(0, 1))
            out, lse = out.reshape(asked.shape), lse.reshape(rows, width, heads)
            if causal:
                own, own_lse = self._kernel(asked, keys, values)
                out, lse = self._merged(torch.stack([out, own]), torch.stack([lse, own_lse]))
            outs.append(out)
            start += width
        return torch.cat(outs, dim=1).to(query.dtype)

    @staticmethod
    def _kernel(query: Any, keys: Any, values: Any) -> tuple[Any, Any]:
        many, width, heads, _ = query.shape
        of_query = torch.arange(0, many * width + 1, width, dtype=torch.int32, device=query.device)
        found, lse, *_ = torch.ops.aten._flash_attention_forward(
            query.flatten(0, 1).contiguous(), keys, values, of_query, of_query, width, width, 0.0, False, False
        )
        torch.zeros((2,), dtype=torch.uint64, device=query.device)  # varlen_attn makes a random state that nobody asks for
        return found.float().reshape(query.shape), lse.transpose(0, 1).reshape(many, width, heads)

    @staticmethod
    def _merged(outs: Any, lses: Any) -> tuple[Any, Any]:
        whole = lses.logsumexp(dim=0)
        weights = (lses - whole.clamp(min=torch.finfo(lses.dtype).min)).exp()
        return (weights[..., None] * outs).sum(dim=0), whole


class Former:
    """Makes FormerReadings, and what it made for each forward: three tensors a part, two more where it is causal."""

    def __init__(self, fed: kv_cache.Fed) -> None:
        self._fed = fed

    def read(self, used: Any) -> FormerReading:
        """See CapturedAttention."""
        for _, causal in self._fed.parts:
            for _ in range(6 if causal else 4):
                torch.arange(3, device=used.device)
        return FormerReading(self._fed)


def test_the_counter_finds_what_another_program_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,764 launches of a pass of one token, 2,635 of one that commits, before attention became one call."""
    monkeypatch.setitem(OPTIONS, "flash", Former)
    found = count_passes(SHAPE)
    assert found["ntp"][LAUNCH] == pytest.approx(1764, rel=0.05)
    assert found["commit"][LAUNCH] == pytest.approx(2635, rel=0.05)


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
