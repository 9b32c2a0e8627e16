"""Graphs in bfloat16 against float32, as `sbd check` and the first minutes on a GPU compare them, on an emulated GPU: a flash
attention that says +inf of a run without keys, and CUDA graphs that record, replay and assert.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from harness.check import half_precision as module  # noqa: E402 - after the import guards
from harness.check.half_precision import half_precision, main  # noqa: E402
from harness.modeling import flash_attention, graphed_session, used_kv  # noqa: E402
from harness.modeling.capturing import CudaGraphs  # noqa: E402
from tests.emulated_gpu import FakeCuda, emulated_flash  # noqa: E402

BATCHES = ((1, 200), (1, 900), (3, 900))
"""One piece; four of which three hold nothing; three rows. Each but the first drops the graphs and captures anew."""


def probe(batches=BATCHES):
    """Every pass of the check on the emulated GPU."""
    cuda = FakeCuda()
    with emulated_flash():
        return half_precision("cpu", CudaGraphs(cuda), batches), cuda


def test_graphs_in_half_precision_compute_what_float32_computes():
    """Captured and replayed, over empty pieces and behind growth; a pool is left behind with every buffer that grew."""
    found, cuda = probe()
    assert [str(one) for one in found if not one.right] == []
    kinds = [(one.rows, one.tokens, one.run) for one in found]
    assert len(kinds) == 2 * (3 + 3 + 4) and len(set(kinds)) == 2 * (3 + 4)
    assert list(cuda.pools.values()) == [0, 0, 0] and cuda.log.count("replay") == len(found)


def test_an_empty_piece_that_counts_is_found(monkeypatch):
    """Undo the mend of flash attention's +inf: no pass over an empty piece has a number, and every other pass is right."""
    real = used_kv.Sequences

    def forgetful(**given):
        return real(**given | {"empty": None})

    monkeypatch.setattr(used_kv, "Sequences", forgetful)
    found, _ = probe(BATCHES[:2])
    assert [one.right for one in found] == [True] * 6 + [False] * 6
    assert {one.error for one in found if not one.right} == {None}


def test_a_pool_that_is_used_again_is_found(monkeypatch):
    """Undo the mend of the recapture: at the first growth torch asserts."""
    monkeypatch.setattr(CudaGraphs, "release", lambda self: None)
    probe(BATCHES[:1])
    with pytest.raises(AssertionError, match="use_count > 0"):
        probe(BATCHES[:2])


def without_its_own(outs, lses, merge=used_kv.merge):
    """A block that is committed does not see itself."""
    return (outs[0], lses[0]) if outs.shape[0] == 2 else merge(outs, lses)


def one_less(width, causal, used, groups, slots, used_part=used_kv.used_part):
    """The newest token is not seen."""
    return used_part(width, causal, used - 1, groups, slots)


def seeing_all(*arguments, attend=flash_attention.attend):
    """A block that is committed sees what comes behind each of its tokens."""
    query, keys, values, starts, used, longest, _, scaling = arguments
    return attend(query, keys, values, starts, used, longest, False, scaling)


@pytest.mark.parametrize(
    ("where", "fault", "wrong"),
    [
        (used_kv, {"merge": without_its_own}, {"16+16"}),
        (graphed_session, {"used_part": one_less}, {"1", "16", "16+16"}),
        (flash_attention, {"attend": seeing_all}, {"16+16"}),
    ],
)
def test_a_fault_that_leaves_numbers_is_found(monkeypatch, where, fault, wrong):
    """One token or block seen wrongly is far from rounding, and the passes that it does not touch are right."""
    for name, planted in fault.items():
        monkeypatch.setattr(where, name, planted)
    found, _ = probe(BATCHES[:1])
    assert {one.tokens for one in found if not one.right} == wrong
    assert all(one.error > 2 * module.MOST_ERROR for one in found if not one.right)


@pytest.mark.parametrize(("wrong", "word"), [(False, "right"), (True, "WRONG")])
def test_the_command_says_so_and_ends_with_it(monkeypatch, capsys, wrong, word):
    """Its last line, and exit code 0 or 1."""
    held = module.HalfPrecisionPass(rows=1, capacity=200, tokens="1", run="captured", error=None if wrong else 0.01)
    monkeypatch.setattr(module, "half_precision", lambda device: [held])
    assert main("cpu") == int(wrong)
    assert capsys.readouterr().out.splitlines() == [str(held), word]
