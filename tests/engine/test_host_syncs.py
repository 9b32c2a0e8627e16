"""How often a pass makes the host wait for the device: once, for its readback. The device is meta, which computes nothing, so
what is read back is what the test says.
"""

from __future__ import annotations

import pytest
import torch
import transformers
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from harness.decoding import session
from harness.decoding.acceptance import ReplayedAcceptance, SolverAcceptance
from harness.decoding.next_token import decode_next_token
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import entropy_bounded
from harness.engine import cuda_graphs
from harness.engine.cuda_graphs import GraphedSession, by_calling_again
from tests.helpers.tiny_model import request, tiny_config

BLOCK, MASK_ID, META = 4, 15, torch.device("meta")


class Waits(TorchDispatchMode):
    """Counts what would make the host wait for a GPU: every copy to the host, every number or shape that is asked of a tensor
    there, and every copy to it that is not from page-locked memory, or that is asked to be waited for.
    """

    ASKS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero")

    def __init__(self):
        super().__init__()
        self.seen, self.locked, self._made = [], [], Made(self)

    def __enter__(self):
        """Look at what is made from the host's numbers too, which no dispatch shows."""
        self._made.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        """Look no more."""
        super().__exit__(*error)
        self._made.__exit__(*error)

    def page_locked(self, held, device):
        """Takes the place of uploading's own."""
        self.locked.append(held)
        return held

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Nothing that waits runs: the device has no numbers, so the host is told 0."""
        kwargs = kwargs or {}
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        on_device = [one for one in tensors if one.device == META]
        name = func._schema.name
        if name in self.ASKS and on_device:
            self.seen.append(name)
            return torch.zeros(0, on_device[0].dim(), dtype=torch.long) if name == "aten::nonzero" else 0
        if name == "aten::_to_copy" and on_device and torch.device(kwargs.get("device") or META) != META:
            self.seen.append("to the host")
            return torch.zeros(tensors[0].shape, dtype=kwargs.get("dtype") or tensors[0].dtype)
        if name == "aten::_to_copy" and not on_device and kwargs.get("device") == META:
            self._note_upload(tensors[0], kwargs.get("non_blocking", False))
        elif name == "aten::copy_" and len(on_device) == 1 and tensors[0] is on_device[0]:
            self._note_upload(tensors[1], kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
        return func(*args, **kwargs)

    def _note_upload(self, held, non_blocking):
        if not (non_blocking and any(held is one for one in self.locked)):
            self.seen.append("an upload that waits")


class Made(TorchFunctionMode):
    """torch.tensor on the device: a copy from memory that is not page-locked."""

    def __init__(self, waits):
        super().__init__()
        self._waits = waits

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Note it and let it be made."""
        on_device = torch.device((kwargs or {}).get("device") or "cpu") == META
        if func in (torch.tensor, torch.as_tensor) and on_device and not isinstance(args[0], torch.Tensor):
            self._waits.seen.append("torch.tensor on the device")
        return func(*args, **(kwargs or {}))


class Told(ReplayedAcceptance):
    """A replay that also knows what its choice will be: (token or -1) of each slot of each row, leading slots first."""

    def __init__(self, passes):
        super().__init__(lambda rng: passes, seed=1)
        self.left, self.chosen, self.real = {}, [], None

    def begin_block(self, row, masked):
        """As the replay."""
        super().begin_block(row, masked)
        if row == 1 and self._quotas[row]:  # it is faster than the others
            self._quotas[row] = [masked]
        self.left[row] = list(range(masked))

    def choose(self, view):
        """As the replay."""
        counts = [(self._quotas.get(row) or [0])[0] for row in range(view.masked.shape[0])]
        taken = {row: [self.left[row].pop(0) for _ in range(count)] for row, count in enumerate(counts)}
        self.chosen = [[1 if slot in taken[row] else -1 for slot in range(BLOCK)] for row in range(len(counts))]
        if self.real is None:
            return super().choose(view)
        for quota in self._quotas.values():
            del quota[:1]
        return self.real.choose(view)


class Session(GraphedSession):
    """A graphed session on meta; what it reads is ``said``, or 1 everywhere."""

    said = None

    def read(self, tokens):
        """Wait, once."""
        tokens.cpu()
        return [[1] * tokens.shape[1] for _ in tokens] if self.said is None else self.said.chosen


def asked(rows):
    """Prompts of one length; three blocks and a bit of each row."""
    return request(((1, 2, 3),) * rows, max_new_tokens=3 * BLOCK + 1, mask_ids=(MASK_ID,), device=META)


def waits_of_passes(monkeypatch, decoder, rows):
    """For every pass behind the prompt's, what the host waited for."""
    waits = Waits()
    for module in (session, cuda_graphs):
        monkeypatch.setattr(module, "page_locked", waits.page_locked)
    found = []
    with waits:
        next(decoder)
        waits.seen.clear()
        for _ in decoder:
            found.append(list(waits.seen))
            waits.seen.clear()
    return found


def opened():
    """A small model without numbers."""
    with META:
        model = transformers.LlamaForCausalLM(tiny_config(num_hidden_layers=2)).eval()
    return Session(model, by_calling_again)


@pytest.mark.parametrize("rows", [1, 3])
def test_next_token_prediction_waits_once_a_pass(monkeypatch, rows):
    """For the token that it reads."""
    found = waits_of_passes(monkeypatch, decode_next_token(opened(), asked(rows)), rows)
    assert len(found) == 3 * BLOCK and all(one == ["to the host"] for one in found), found


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
@pytest.mark.parametrize("solver", [True, False])
def test_set_block_decoding_waits_once_a_pass(monkeypatch, rows, batching, solver):
    """Deciding and committing, rows that open blocks together or each by itself, with a solver or a replay of one."""
    session = opened()
    acceptance = session.said = Told(passes=2)
    if solver:
        acceptance.real = SolverAcceptance(entropy_bounded, gamma=0.1)
    decoder = decode_set_block(
        session, asked(rows), block_size=BLOCK, mask_id=MASK_ID, acceptance=acceptance, batching=batching
    )
    found = waits_of_passes(monkeypatch, decoder, rows)
    assert len(found) >= 2 * 3 and all(one == ["to the host"] for one in found), found


def test_a_wait_is_seen():
    """Each kind, and none where there is none."""
    there = torch.zeros(3, device=META)
    kinds = {
        "torch.tensor on the device": lambda: torch.tensor([1, 2, 3], device=META),
        "an upload that waits": lambda: torch.zeros(3).to(META),
        "to the host": lambda: there.cpu(),
        "aten::_local_scalar_dense": lambda: bool(there.any()),
    }
    for kind, work in kinds.items():
        with Waits() as waits:
            work()
        assert waits.seen == [kind]
    for work in (lambda: there.copy_(torch.zeros(3), non_blocking=True), lambda: there.copy_(torch.zeros(3))):
        with Waits() as waits:
            work()
        assert waits.seen == ["an upload that waits"]
    with Waits() as waits:
        torch.arange(3, device=META) + there.clone()
        there.copy_(there + 1)
        there.copy_(waits.page_locked(torch.zeros(3), META), non_blocking=True)
    assert waits.seen == []


@pytest.mark.parametrize("values", [[1, 2], [[True, False]], torch.tensor([3.0])])
def test_an_upload_is_from_page_locked_memory_and_not_waited_for(monkeypatch, values):
    """On a CPU it is the tensor itself; elsewhere a copy of a page-locked one."""
    plain = values if isinstance(values, torch.Tensor) else torch.tensor(values)
    assert torch.equal(session.upload(values, torch.device("cpu")), plain)
    waits = Waits()
    monkeypatch.setattr(session, "page_locked", waits.page_locked)
    with waits:
        found = session.upload(values, META)
    assert (found.device, found.shape, found.dtype, waits.seen) == (META, plain.shape, plain.dtype, [])
