"""Drafts that the target checks: what every rival feeds, keeps and counts, against the same modules run uncached, against hooks
on the modules, and against transformers' own assisted generation.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from harness.decoding.drafters import DraftModel
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import NEVER
from harness.decoding.sampling import TorchFigures
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.drafters import first_layers
from harness.engine.static_session import StaticSession
from harness.meters.clock import HostClock, MeteredSession
from tests.helpers.few_rivals import DOUBTED, DRAFTERS, decode, draft_modules, drafter, nearly
from tests.helpers.few_words import MASK_ID, Work, few_words, some_work
from tests.helpers.sessions import SESSIONS
from tests.helpers.tiny_model import TOLERANCE, check_kv, drain

WORK = Work(prompts=((1, 5, 3, 3, 2, 0, 7), (1, 2), (4, 4, 6)), stop=NEVER, max_new_tokens=19)


def check_every_kv(kind, name):
    """After every pass each session holds exactly the KV of a causal forward: the target of all but the newest token, a draft
    model of what it takes the row to say; returns how often a draft model went back.
    """
    sessions, dropped = [], []

    def open_session(model):
        sessions.append((model, SESSIONS[kind](model)))
        drop = sessions[-1][1].drop
        sessions[-1][1].drop = lambda tokens: (dropped.append(sum(tokens)), drop(tokens))[1]
        return sessions[-1][1]

    generator, who, _ = decode(name, few_words("llama", 12), "llama", 12, open_session, WORK.request())
    (_, target), drafts = sessions[-1], sessions[:-1]
    own = few_words("llama", 12)
    references = [reference_of(model, name) for model, _ in drafts]
    stages = []
    while isinstance(who, DraftModel):
        stages.insert(0, who)  # sessions are opened from the bottom of the stack upwards
        who = who._below
    outputs = [list(out) for out in drain(decode_next_token(StaticSession(few_words("llama", 12)), WORK.request())).output_ids]
    written = [1] * len(WORK.prompts)
    for one in generator:
        if one.role != "prefill" and one.model is None:
            written = [count + final for count, final in zip(written, one.final_tokens, strict=True)]
        held = [[*prompt, *out[: count - 1]] for prompt, out, count in zip(WORK.prompts, outputs, written, strict=True)]
        pairs = [(references[i], session, stages[i]._held) for i, (_, session) in enumerate(drafts)]
        for reference, session, rows in [(own, target, held), *pairs]:
            assert session.context_tokens == tuple(map(len, rows))
            for row, tokens in enumerate(rows):
                if tokens:  # else a draft model has not read its prompt yet
                    check_kv(session, row, reference, tokens, TOLERANCE[kind])
    return sum(dropped)


def reference_of(model, name):
    """A draft's module with attention of its own, for the static session's reads its buffers."""
    fresh = draft_modules(name, few_words("llama", 12), "llama", 12)
    for module in fresh.values():
        if module is not None and same_weights(module, model):
            return module
    raise AssertionError("no such draft model")


def same_weights(one, other):
    """Whether two modules are the same model."""
    mine, others = one.state_dict(), other.state_dict()
    return mine.keys() == others.keys() and all(torch.equal(mine[key], others[key]) for key in mine)


@pytest.mark.parametrize("kind", SESSIONS)
@pytest.mark.parametrize("name", ["bad", "good", "exit", "good on lookup", "good on bad on lookup", "doubting on lookup"])
def test_the_kv_of_every_model_is_that_of_a_causal_forward(kind, name):
    """Catches KV of refused drafts that stays, of the target's as of the drafts' own, in a batch of rows of unlike lengths."""
    assert check_every_kv(kind, name) > 0, "drafts were refused"


@pytest.mark.parametrize("kind", SESSIONS)
def test_kv_that_a_draft_model_should_have_forgotten_shows(kind, monkeypatch):
    """The comparison can fail, although the output would be the same: the target checks every token."""
    monkeypatch.setattr(DraftModel, "_go_back", lambda self, sequences, wanted: None)
    with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)):
        check_every_kv(kind, "bad")


@pytest.mark.parametrize("kind", SESSIONS)
def test_a_session_goes_on_from_where_it_was_dropped_back_to(kind):
    """Rows fed and dropped by different counts, then fed again: the logits are those of rows that never held more."""
    model, session = few_words("qwen3", 3), SESSIONS[kind](few_words("qwen3", 3))
    whoever = DraftModel(session, name="m", tokens=1, never=torch.tensor([MASK_ID]), stops=())
    rows = [[1, 2, 3, 4, 5], [6, 7], [0, 0, 1]]
    whoever.begin(rows, 20)
    whoever._pass(rows, [[], [], []])
    for drops, more in (((2, 1, 0), [[3, 3], [4], [2, 5, 7]]), ((1, 0, 4), [[6], [1, 1], [2]]), ((0, 0, 0), [[1], [2], [3]])):
        session.drop(drops)
        rows = [row[: len(row) - count] + tokens for row, count, tokens in zip(rows, drops, more, strict=True)]
        whoever._held = [row[: len(row) - len(tokens)] for row, tokens in zip(rows, more, strict=True)]
        gained, _, _ = whoever._pass(more, [[], [], []])
        for row, [token] in zip(rows, gained, strict=True):
            with torch.no_grad():
                assert token == int(model(input_ids=torch.tensor([row])).logits[0, -1, :MASK_ID].argmax())
        assert session.context_tokens == tuple(map(len, rows))


def test_drafts_are_read_as_the_request_says():
    """By the reader of the target's logits: another one would make a rival slower, or faster, than NTP."""
    read = []

    def reader(logits, temperature):
        read.append(logits.shape[1])
        return TorchFigures(logits, temperature)

    gained = []
    for figures in (None, reader):
        session = StaticSession(few_words("qwen3", 3))
        drafter = DraftModel(
            session, name="m", tokens=3, never=torch.tensor([MASK_ID]), stops=(), least_confidence=0.1, figures=figures
        )
        drafter.begin([[1, 2, 3]], 8)
        gained.append(drafter._pass([[1, 2, 3]], [[]])[:2])
    assert read == [1] and gained[0] == gained[1]


class Forwards:
    """Counts the calls of modules and the widths of what they are fed, with hooks of its own."""

    def __init__(self, modules):
        self.widths = {name: [] for name in modules}
        self.layers = dict.fromkeys(modules, 0)
        for name, module in modules.items():
            module.register_forward_pre_hook(self._fed(name), with_kwargs=True)
            module.model.layers[-1].register_forward_hook(self._ran(name))

    def _fed(self, name):
        return lambda module, args, options: self.widths[name].append(options["input_ids"].shape[1])

    def _ran(self, name):
        def ran(*_):
            self.layers[name] += 1

        return ran


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("rows", [1, 3])
def test_the_trace_says_which_model_made_every_pass(name, rows):
    """Calls of each module and the tokens they were fed, counted by hooks; the NFE is the target's alone."""
    request = replace(WORK, prompts=WORK.prompts[:rows]).request()
    target = few_words("llama", 12)
    generator, _, modules = decode(name, target, "llama", 12, StaticSession, request)
    forwards = Forwards({None: target, **{stage: module for stage, module in modules.items() if module is not None}})
    generation = drain(generator)
    for model, widths in forwards.widths.items():
        mine = [one for one in generation.passes if one.model == model]
        assert [one.padded_query for one in mine] == widths, model
        assert [one.role == "prefill" for one in mine] == [model is None, *[False] * (len(mine) - 1)]
    assert len(generation.decode_passes) == len(forwards.widths[None]) - 1
    assert forwards.layers[None] == len(forwards.widths[None]), "an early exit never gets to the last layer"
    assert len(generation.draft_passes) == sum(len(widths) for model, widths in forwards.widths.items() if model)
    assert max(generation.nfe(row) for row in range(rows)) == len(generation.decode_passes)


def assisted(target, prompt, work, **options):
    """transformers' assisted generation behind a prompt and its first token; greedy, and never the mask."""
    stops = sorted(work.stop.token_ids)
    settings = transformers.GenerationConfig(
        max_new_tokens=work.max_new_tokens - 1,
        do_sample=False,
        eos_token_id=stops or None,
        pad_token_id=MASK_ID,
        suppress_tokens=[MASK_ID],
        **{name: value for name, value in options.items() if name != "assistant_model"},
    )
    model = {name: value for name, value in options.items() if name == "assistant_model"}
    ids = torch.tensor([prompt])
    out = target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings, **model)
    return out[0, len(prompt) :].tolist()


def oracle(name, target, draft):
    """What transformers is told for one of DRAFTERS."""
    for model in filter(None, (target, draft)):
        model.generation_config = transformers.GenerationConfig()  # or the stop of another vocabulary would be ours
    if name == "exit":
        target.generation_config.num_assistant_tokens = 3
        target.generation_config.num_assistant_tokens_schedule = "constant"
        target.generation_config.assistant_confidence_threshold = 0.0
        return {"assistant_early_exit": 1}
    draft.generation_config.num_assistant_tokens = 5
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = DOUBTED if name == "doubting" else 0.0
    return {"assistant_model": draft}


@pytest.mark.parametrize("name", ["bad", "good", "itself", "exit", "doubting"])
@pytest.mark.filterwarnings("ignore")
def test_transformers_assisted_generation_takes_the_same_passes(name, monkeypatch):
    """Prompt by prompt the same output in as many forwards of the target, and of the draft model. transformers drafts before it
    has read the prompt, we behind the prompt's first token, so that is where it is asked to begin. Its threshold stays.
    """
    monkeypatch.setattr(transformers.generation.candidate_generator, "is_sklearn_available", lambda: False)
    written = 0
    for seed in range(6):
        work = some_work(seed, 4)
        if work.stop.ends_text is not None or work.max_new_tokens < 3:
            continue
        for row in range(4):
            ours, _, _ = decode(name, few_words("llama", seed), "llama", seed, StaticSession, work.request(row))
            generation = drain(ours)
            first, *rest = generation.output_ids[0]
            if not rest:
                continue
            target = few_words("llama", seed)
            draft = draft_modules(name, few_words("llama", seed), "llama", seed)[name]
            options = oracle(name, target, draft)
            forwards = Forwards({"target": target, **({"draft": draft} if "assistant_model" in options else {})})
            assert assisted(target, [*work.prompts[row], first], work, **options) == rest, name
            assert forwards.layers["target"] == generation.nfe(0), name
            if name == "exit":
                drafted = len(forwards.widths["target"]) - forwards.layers["target"]
            else:
                drafted = len(forwards.widths.get("draft", ()))
            assert drafted == len(generation.draft_passes), name
            written += len(rest)
    assert written > 100


def test_the_first_layers_are_a_model_of_their_own_with_the_targets_weights():
    """No weight is copied; that they give the early exit's logits shows in the passes that transformers takes, too."""
    model = few_words("qwen3", 2)
    view = first_layers(model, 1)
    owners = {weight.data_ptr() for weight in model.parameters()}
    assert {weight.data_ptr() for weight in view.parameters()} < owners
    assert view.config.num_hidden_layers == 1 and model.config.num_hidden_layers == 2


def test_the_passes_of_all_models_are_metered_in_one_list():
    """As many durations as passes in the trace, in its order; a second decode begins a new list."""
    request = WORK.request()
    target = few_words("llama", 12)
    metered = MeteredSession(StaticSession(target), HostClock())

    module = {"good": nearly(target)}
    who = drafter("good", module, lambda model: metered.beside(StaticSession(model)), request)
    for _ in range(2):
        passes = drain(decode_draft_and_check(metered, request, who)).passes
        assert len(metered.forward_s()) == len(metered.sampler_s()) == len(passes)
        assert [one.model for one in passes[:3]] == [None, "good", "good"]
        assert min(metered.sampler_s()) > 0, "a draft model draws a token in the pass that reads the prompt too"
