"""The sampler as few kernels, on a CPU: the figures of one walk, as they are or compiled by inductor, against the reference."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from harness.decoding.acceptance import EverySlot, ReplayedAcceptance, SolverAcceptance, assumed_passes
from harness.decoding.greedy_sample import FusibleFigures, block_sample, next_tokens
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import DecodeRequest, StopRule
from harness.decoding.sampling import TorchFigures, likeliest_token
from harness.decoding.session import NO_TOKEN
from harness.decoding.set_block import decode_set_block
from harness.decoding.solvers import SOLVERS
from harness.engine import compiling
from harness.engine.compiling import CompiledWork, called, can_compile, fuse_of
from harness.engine.engine import drain
from harness.engine.static_session import StaticSession
from harness.meters.host import CAPTURES
from harness.models.choice import REFERENCE_DIR
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems
from tests.helpers.drawn_logits import decide_alike, defined, random_rows, some_logits
from tests.helpers.few_words import MASK_ID, SETTINGS, few_words, some_work

BLOCK = 8
COMPILES = pytest.mark.skipif(not can_compile(), reason="torch.compile does not work here")
BY_SOLVER = [(name, settings[1]) for name, settings in SETTINGS.items()]


@pytest.mark.parametrize("vocabulary", [1, 2, 7, 896, 50_257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_figures_are_those_of_float64(vocabulary, dtype):
    """Every figure within 1e-5 of the definitions, tokens exactly; NaN and impossible words among the logits."""
    for seed in range(4):
        logits = some_logits(3, 5, vocabulary, seed).to(dtype)
        found, (wanted, *others) = FusibleFigures(logits, 0.0), defined(logits, 1.0)
        assert torch.equal(found.tokens, wanted.long())
        for figure, other in zip((found.entropy, found.confidence, found.margin), others, strict=True):
            torch.testing.assert_close(figure.double(), other, rtol=0, atol=1e-5, equal_nan=True)


def test_decisions_are_those_of_the_reference():
    """100,000 slots with ties: the same tokens, and the same set by every solver."""
    decide_alike(FusibleFigures, 2_500)


@COMPILES
def test_what_is_compiled_says_the_same():
    """NTP's sampler and SBD's, in both types: some slots are decided, some name no token, and some words are impossible."""
    fuse = CompiledWork()
    choose, tensors = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=2.0).rule(6)
    for dtype in (torch.float32, torch.bfloat16):
        logits, masked = random_rows(6, 896, 1)
        logits, block = (logits / 3).to(dtype), torch.arange(6 * BLOCK).view(6, BLOCK)
        logits[0, 0], logits[:, :, 5:9] = float("nan"), float("-inf")
        [found] = fuse(next_tokens, logits)
        assert torch.equal(found, likeliest_token(logits)) and found[0, 0] == NO_TOKEN
        sample = block_sample(choose)
        wanted, made = sample(logits, masked, block, *tensors), fuse(sample, logits, masked, block, *tensors)
        assert all(torch.equal(one, other) for one, other in zip(wanted, made, strict=True))
        assert 0 < (made[0] != -1).sum() < masked.sum() and not torch.equal(made[1], block)


@COMPILES
@pytest.mark.full
@pytest.mark.parametrize(("name", "setting"), BY_SOLVER)
def test_every_solver_compiles(name, setting):
    """And says the same."""
    choose, tensors = SolverAcceptance(SOLVERS[name], **setting).rule(40)
    logits, masked = random_rows(40, 17, 1)
    given = (logits, masked, torch.zeros(40, BLOCK, dtype=torch.long), *tensors)
    wanted, made = block_sample(choose)(*given), CompiledWork()(block_sample(choose), *given)
    assert all(torch.equal(one, other) for one, other in zip(wanted, made, strict=True))


def test_a_kind_is_compiled_once_and_counted(monkeypatch):
    """Another bound of the same solver compiles nothing; another width, type or rule does, and a sample with it is void."""
    made = []

    def compiled(work, tensors):
        made.append(work)
        CAPTURES.made += 1
        return lambda given: work(*given)

    monkeypatch.setattr(compiling, "compiled_work", compiled)
    fuse, before = CompiledWork(), CAPTURES.made
    logits, masked = random_rows(3, 10, 0)
    block = torch.zeros(3, BLOCK, dtype=torch.long)

    def sample(acceptance, logits):
        choose, tensors = acceptance.rule(3)
        return fuse(block_sample(choose), logits, masked, block, *tensors)[0]

    tight, wide = (SolverAcceptance(SOLVERS["entropy_bounded"], gamma=gamma) for gamma in (0.0, 9.0))
    assert (sample(tight, logits) != -1).sum() < (sample(wide, logits) != -1).sum()
    assert len(made) == 1
    for other in (SolverAcceptance(SOLVERS["top_k"], tokens=2), SolverAcceptance(SOLVERS["top_k"], tokens=3), EverySlot()):
        sample(other, logits)
    sample(wide, logits.bfloat16())
    sample(wide, logits[:, :, :9].contiguous())
    sample(wide, logits[:, :, :9])
    assert len(made) == len(set(made)) + 3 == 7 and CAPTURES.made == before + 7


@pytest.mark.parametrize("batching", ["lockstep", "ragged"])
@pytest.mark.parametrize("name", [*SETTINGS, "replay", "ntp"])
def test_decodes_are_those_of_the_reference(name, batching):
    """The same outputs in the same passes, slot for slot, in batches that stop early and late."""
    for seed in (1, 4):
        work, found = some_work(seed, 3), []
        for fuse in (None, called):
            session = StaticSession(few_words("llama", seed))
            request = work.request()
            request = DecodeRequest(**{key: getattr(request, key) for key in request.__slots__} | {"fuse": fuse})
            if name == "ntp":
                found.append(drain(decode_next_token(session, request)))
                continue
            replay = name == "replay"
            acceptance = ReplayedAcceptance(assumed_passes(4, 2.0), 1) if replay else SolverAcceptance(
                SOLVERS[name], **SETTINGS[name][1]
            )  # fmt: skip
            found.append(drain(decode_set_block(
                session, request, block_size=4, mask_id=MASK_ID, acceptance=acceptance, batching=batching,
            )))  # fmt: skip
        assert found[0] == found[1]


@COMPILES
def test_a_real_decode_is_that_of_the_reference():
    """The shipped model in float32, whose entropies another order of summation rounds otherwise: the same tokens in the same
    passes, by NTP and by SBD.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    model = transformers.AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float32).eval()
    mask_id, compiled = tokenizer.mask_token_id, CompiledWork()
    for problem in problems(TASKS["word_problems"], "validation", 4, 1):
        found = []
        for fuse in (None, compiled):
            request = DecodeRequest(
                prompts=(tuple(tokenizer(problem.prompt)["input_ids"]),), max_new_tokens=48, stop=StopRule(),
                suppressed_ids=(mask_id,), temperature=0.0, generator=torch.Generator(), device=torch.device("cpu"), fuse=fuse,
            )  # fmt: skip
            acceptance = SolverAcceptance(SOLVERS["entropy_bounded"], gamma=0.003)
            ntp = drain(decode_next_token(StaticSession(model), request))
            sbd = decode_set_block(StaticSession(model), request, block_size=16, mask_id=mask_id, acceptance=acceptance)
            found.append((ntp, drain(sbd)))
        assert found[0] == found[1]


def test_who_is_fused(monkeypatch):
    """Where forwards are compiled on a CPU, and on CUDA where there is Triton; a split model's ranks are cuda:N."""
    assert isinstance(fuse_of("compiled", "cpu"), CompiledWork) and fuse_of("eager", "cpu") is None
    monkeypatch.setattr(compiling, "sampler_of", lambda kind: {"cuda": FusibleFigures}[kind])
    assert fuse_of("graphs", "cuda:1") is fuse_of("eager", "cuda") is called
    monkeypatch.setattr(compiling, "sampler_of", lambda kind: TorchFigures)
    assert fuse_of("graphs", "cuda") is None
