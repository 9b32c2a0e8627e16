"""A gated adapter in the one model call: its rows as brute force says, every other row the base model's to the last bit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.decoding.next_token import decode_next_token
from harness.decoding.request import prefill
from harness.decoding.session import Segment
from harness.engine.compiling import with_compiled_layers
from harness.engine.cuda_graphs import GraphedSession
from harness.engine.gated_adapter import adapted_columns, attach
from harness.engine.plain_session import TransformersSession
from harness.engine.static_session import StaticSession
from harness.errors import UnknownModelError
from tests.helpers.adapters import adapted_by_hand, random_adapter
from tests.helpers.emulated_gpu import emulated_flash, emulated_graphs
from tests.helpers.few_words import MASK_ID as MASK_OF_FEW
from tests.helpers.few_words import METHODS, decoder, few_words, some_work
from tests.helpers.sessions import SESSIONS as OF_ALL
from tests.helpers.tiny_model import MASK_ID, TOLERANCE, VOCAB, committed_kv, drain, reference_logits, tiny_model

AS_TRACED = partial(torch.compile, backend="aot_eager", dynamic=False)
SESSIONS = OF_ALL | {
    "plain-eager": lambda model: TransformersSession(model, "eager"),
    "static, leaves out": lambda model: StaticSession(model, leaves_out=True),
    "graphed, compiled layers": lambda model: GraphedSession(
        model, emulated_graphs(compiled=True), with_compiled_layers(model, AS_TRACED), attention="flex"
    ),
}
QUICK = [name for name in SESSIONS if "compiled" not in name]
CPU = torch.device("cpu")


@cache
def models(kind, dtype=torch.float64):
    """The session of a plain model, that of the same model with an adapter, and the adapter."""
    made = [tiny_model("llama", "eager" if kind == "plain-eager" else "sdpa").to(dtype) for _ in range(2)]
    adapter = random_adapter(made[0], MASK_ID)
    attach(made[1], adapter)
    return *map(SESSIONS[kind], made), adapter


class Call:
    """Prompts of these ``lengths``; then one pass of ``clean`` causal tokens and ``block`` bidirectional ones, some masks."""

    def __init__(self, lengths, clean, block, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.clean = clean
        drawn = torch.randint(VOCAB, (len(lengths), max(lengths) + clean + block), generator=generator)
        self.prompts = tuple(tuple(row[:length].tolist()) for row, length in zip(drawn, lengths, strict=True))
        self.fed = drawn[:, -clean - block :].clone()
        self.fed[:, clean:][torch.rand(len(lengths), block, generator=generator) < 0.6] = MASK_ID
        self.starts = torch.tensor(lengths)[:, None]

    def segments(self, **changes):
        """Of the pass behind the prompts; ``changes`` of the block."""
        positions, clean = self.starts + torch.arange(self.fed.shape[1]), self.clean
        block = Segment(
            tokens=self.fed[:, clean:],
            positions=positions[:, clean:],
            visibility="bidirectional",
            logits=self.fed.shape[1] - clean,
            **changes,
        )
        first = Segment(tokens=self.fed[:, :clean], positions=positions[:, :clean], visibility="causal", logits=clean)
        return [first, block] if clean else [block]

    def passes(self, session, **changes):
        """Logits of the prompts and of the pass, and the KV that is committed then."""
        first, _ = prefill(session, self.prompts, CPU, room=40)
        first, logits = first.clone(), session.forward(self.segments(**changes)).clone()
        session.keep([self.clean] * len(self.prompts))
        return first, logits, [one for row in range(len(self.prompts)) for pair in committed_kv(session, row) for one in pair]


def check_causal_half(call, base, gated):
    """Bit for bit: prompt, causal half and KV with the adapter on the other half are those without an adapter."""
    (first, logits, kv), (same, found, held) = call.passes(base), call.passes(gated)
    assert torch.equal(first, same) and torch.equal(logits[:, : call.clean], found[:, : call.clean])
    assert all(torch.equal(one, other) for one, other in zip(kv, held, strict=True))
    assert not torch.equal(logits[:, call.clean :], found[:, call.clean :])
    return logits, found


CALLS = st.builds(
    Call, st.lists(st.integers(1, 6), min_size=1, max_size=2), st.integers(0, 4), st.integers(1, 4), st.integers(0, 99)
)


@pytest.mark.parametrize("kind", QUICK)
@given(call=CALLS)
@settings(max_examples=12, deadline=None)
def test_the_block_is_adapted_and_nothing_else(kind, call):
    """Against an uncached forward of a plain model whose layers get the term of the block's rows by hand."""
    base, gated, adapter = models(kind)
    _, found = check_causal_half(call, base, gated)
    plain, count = tiny_model("llama"), call.fed.shape[1]
    for row, prompt in enumerate(call.prompts):
        sequence = [*prompt, *call.fed[row].tolist()]
        in_block = torch.arange(len(sequence)) >= len(prompt) + call.clean
        with adapted_by_hand(plain, adapter, torch.tensor(sequence), in_block):
            expected = reference_logits(plain, sequence, in_block.tolist(), count)
        assert (found[row] - expected).abs().max() < TOLERANCE.get(kind, 1e-9)


HALF = Call([5, 5], 4, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [*QUICK, "graphed, flash"])
def test_causal_tokens_are_the_bases_in_every_precision(kind, dtype):
    """The same bits in the plain, the static and the captured session, with flash attention's runs too; ragged and padded."""
    flash = kind.endswith("flash")
    with emulated_flash() if flash else nullcontext():
        base, gated, _ = models.__wrapped__(kind.removesuffix(", flash"), dtype) if flash else models(kind, dtype)
        for call in (HALF, Call([5, 2, 7], 3, 5, seed=1)):
            check_causal_half(call, base, gated)


def test_compiled_layers_keep_the_causal_half():
    """Dynamo and functionalisation leave the base's operations alone; the adapter's are one operation each."""
    torch.compiler.reset()
    base, gated, _ = models.__wrapped__("graphed, compiled layers", torch.bfloat16)
    logits, _ = check_causal_half(HALF, base, gated)
    *_, (_, off, _) = HALF.passes(base), HALF.passes(gated, adapted=0)
    assert torch.equal(logits, off)
    torch.compiler.reset()


@pytest.mark.parametrize("kind", QUICK)
def test_a_segment_can_leave_the_adapter_out(kind):
    """Asked for none, the block is the base's to the last bit; before and after passes that had it, in the same graphs."""
    base, gated, _ = models(kind)
    _, expected, _ = HALF.passes(base)
    _, adapted, _ = HALF.passes(gated)
    _, found, _ = HALF.passes(gated, adapted=0)
    assert torch.equal(found, expected) and not torch.equal(adapted, expected)
    assert torch.equal(HALF.passes(gated)[1], adapted)


def test_who_asks_for_the_adapter():
    """Bidirectional segments do, by their last tokens; causal and explicit ones only where they say so."""
    first, block = HALF.segments()
    explicit = replace(block, visibility="explicit", seen=torch.ones(4, 4, dtype=torch.bool), adapted=-1)
    assert [one.adapted for one in (first, block, explicit)] == [0, 4, 0]
    assert adapted_columns([first, block]) == ((4, 8),) and adapted_columns([first]) == ()
    assert adapted_columns([block, first, replace(explicit, adapted=3)]) == ((0, 4), (9, 12))


@pytest.mark.parametrize("kind", ["plain-sdpa", "static", "graphed"])
@pytest.mark.parametrize("seed", [4, 12])
def test_verified_decoding_with_an_adapter_writes_the_bases_answer(kind, seed):
    """In float32 and greedily, whatever the adapter drafts; it does draft otherwise than the base."""
    bare, other = (few_words("llama", seed).float() for _ in range(2))
    attach(other, random_adapter(bare, MASK_OF_FEW, seed=seed))
    base, gated, work = SESSIONS[kind](bare), SESSIONS[kind](other), some_work(seed, 4)
    expected = [drain(decode_next_token(base, work.request(row))).output_ids[0] for row in range(4)]
    assert [drain(decode_next_token(gated, work.request(row))).output_ids[0] for row in range(4)] == expected
    otherwise = False
    for method in METHODS:
        found = drain(decoder(method, gated, work.request(), 4))
        assert list(found.output_ids) == expected, method
        otherwise |= found.passes != drain(decoder(method, base, work.request(), 4)).passes
    assert otherwise


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: {"model.layers.9.mlp.up_proj": one}, "no such layer"),
        (lambda one: {"lm_head": one}, "plain linear layers within a block"),
        (lambda one: {"model.layers.0.mlp": one}, "a LlamaMLP there"),
        (lambda one: {"model.layers.0.mlp.down_proj": one}, r"goes from 48 to 32; give the adapter of this model"),
    ],
)
def test_an_adapter_of_another_model_is_refused(change, words):
    """Before anything is decoded, with the layer."""
    model = tiny_model("llama")
    adapter = random_adapter(model)
    with pytest.raises(UnknownModelError, match=words):
        attach(model, replace(adapter, terms=change(adapter.terms["model.layers.0.mlp.up_proj"])))
    with pytest.raises(UnknownModelError, match="37 embeddings of width 32"):
        attach(tiny_model("llama"), replace(adapter, mask_id=3, mask_embedding=torch.zeros(31)))


def test_tied_output_embeddings_stay_one_tensor_with_the_inputs():
    """The mask's row lies behind the table; the head sees the table alone and gives the base's logits."""
    config = tiny_model("llama").config
    config.tie_word_embeddings = True
    made = []
    for _ in range(2):
        torch.manual_seed(7)
        made.append(transformers.LlamaForCausalLM(config).double().eval())
    attach(made[1], random_adapter(made[0], MASK_ID))
    check_causal_half(HALF, *map(StaticSession, made))
    table, head = made[1].get_input_embeddings().weight, made[1].lm_head.weight
    assert head.data_ptr() == table.data_ptr() and (len(table), len(head)) == (VOCAB + 1, VOCAB)
