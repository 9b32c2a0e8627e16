"""Our decoding inside transformers' generate(): the arm's own tokens, generate()'s own contract, and what is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
import transformers

from harness.engine.decoders import Decoding, decoder_of
from harness.engine.engine import drain, open_engine
from harness.engine.loading import LoadedModel
from harness.engine.plain_session import TransformersSession
from harness.errors import ScenarioError, UserError
from harness.integrations.custom_generate import DIRECTORY, sbd
from harness.integrations.single_arm import single_case, with_lengths
from harness.models.choice import REFERENCE_DIR
from harness.workloads.tasks import TASKS, problems
from tests.helpers.few_words import MASK_ID, WORDS, few_words, some_work
from tests.helpers.tiny_model import request

PAD = 3
ARMS = {
    "sbd": {"method": "sbd", "block_size": 4, "gamma": 1.5},
    "ragged": {"method": "sbd", "block_size": 4, "solver": "threshold", "tau": 0.4, "batching": "ragged"},
    "verified": {"method": "sbd_verified", "block_size": 4, "gamma": 1.5},
    "linear": {"method": "self_speculation", "form": "linear", "block_size": 4},
    "ntp": {"method": "ntp"},
}


def left_padded(prompts):
    """ids and attention_mask as a tokenizer with left padding makes them."""
    width = max(map(len, prompts))
    ids = [[PAD] * (width - len(one)) + list(one) for one in prompts]
    mask = [[0] * (width - len(one)) + [1] * len(one) for one in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def no_drafter():
    """None of these arms drafts with another model."""
    raise AssertionError


def by_the_arm(model, arm, prompts, new_tokens, stop_ids, temperature=0.0):
    """What the arm's decoder writes on the plain session, which shares no KV code with the loop under test."""
    case = single_case({**arm, "temperature": temperature}, {"model": {"huggingface": "a/b"}, "dtype": "float64"})
    loaded = LoadedModel(module=model, shape=None, tokenizer=None, mask_id=MASK_ID, stop_ids=frozenset(stop_ids))
    asked = request(prompts, loaded.stop_ids, temperature, new_tokens, (MASK_ID,))
    return drain(decoder_of(Decoding(case, loaded, TransformersSession(model, "sdpa"), asked, 0, no_drafter))).output_ids


def cut(rows, width, stop_ids):
    """Each row's new tokens up to its first stop, and what stands behind it."""
    found = []
    for row in rows.tolist():
        new = row[width:]
        ends = [index for index, token in enumerate(new) if token in stop_ids]
        found.append((tuple(new[: ends[0] + 1] if ends else new), set(new[ends[0] + 1 :] if ends else ())))
    return found


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("name", ARMS)
def test_it_writes_what_the_arm_writes(name, architecture):
    """Rows of different lengths, padded on the left; eos ends a row and the pad token fills it up; max_new_tokens is kept.

    Would catch: padding taken for prompt, max_length taken for new tokens, stops not handed on, fill-up with another token.
    """
    model = few_words(architecture, seed=5)
    for seed in range(6):
        work = some_work(seed, prompts=3)
        stop_ids = sorted({seed % WORDS, 5})
        inputs = left_padded(work.prompts)
        out = model.generate(
            **inputs,
            custom_generate=sbd,
            arm=ARMS[name],
            mask_token_id=MASK_ID,
            max_new_tokens=work.max_new_tokens,
            eos_token_id=stop_ids,
            pad_token_id=PAD,
        )
        width = inputs["input_ids"].shape[1]
        assert torch.equal(out[:, :width], inputs["input_ids"])
        rows = cut(out, width, stop_ids)
        assert tuple(tokens for tokens, _ in rows) == by_the_arm(model, ARMS[name], work.prompts, work.max_new_tokens, stop_ids)
        assert all(behind <= {PAD} for _, behind in rows)
        assert out.shape[1] - width == max(len(tokens) for tokens, _ in rows)


def test_by_default_generate_writes_what_it_would_have_written():
    """Without an arm the loop is the verified one: the same tensor as generate() alone, mask forbidden there too."""
    model = few_words("qwen3", seed=2)
    for seed in range(8):
        inputs = left_padded(some_work(seed, prompts=3).prompts)
        settings = {"max_new_tokens": 25, "eos_token_id": [seed % WORDS], "pad_token_id": PAD, "do_sample": False}
        alone = model.generate(**inputs, suppress_tokens=[MASK_ID], **settings)
        ours = model.generate(**inputs, custom_generate=sbd, mask_token_id=MASK_ID, **settings)
        assert torch.equal(alone, ours)


@pytest.mark.parametrize("given", [torch.tensor([2, 5]), torch.tensor(5), np.array([2, 5]), (2, 5), [[2], [5]]])
def test_ids_are_given_as_generate_takes_them(given):
    """Tensors and arrays, for the ends, the pad token and the mask."""
    model = few_words("qwen3", seed=2)
    inputs = left_padded(some_work(1, prompts=3).prompts)
    settings = {"max_new_tokens": 25, "eos_token_id": given, "pad_token_id": torch.tensor(PAD), "do_sample": False}
    alone = model.generate(**inputs, suppress_tokens=[MASK_ID], **settings)
    assert torch.equal(alone, model.generate(**inputs, custom_generate=sbd, mask_token_id=torch.tensor(MASK_ID), **settings))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mask_token_id": 5}, r"mask token is 5, answers end with \[5\]"),
        ({"mask_token_id": 99}, "mask token is 99"),
        ({"mask_token_id": -1}, "mask token is -1"),
        ({"eos_token_id": [99, 98]}, r"answers end with \[98, 99\]"),
    ],
)
def test_a_mask_that_ends_an_answer_or_is_no_row_is_refused(given, words):
    """And ends that no answer could reach; by the message of a scenario's model."""
    settings = {"mask_token_id": MASK_ID, "eos_token_id": 5, "max_new_tokens": 5, "custom_generate": sbd} | given
    with pytest.raises(UserError, match=words):
        few_words("llama", seed=1).generate(torch.tensor([[1, 2, 3]]), **settings)


def gemma(**config):
    """A tiny Gemma 2 without sliding windows, of its own attention."""
    torch.manual_seed(4)
    settings = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "layer_types": ["full_attention"] * 2,
        "initializer_range": 0.8,
        "query_pre_attn_scalar": 1,
        "tie_word_embeddings": False,
        **config,
    }
    whole = transformers.AutoConfig.for_model("gemma2", **settings)
    return transformers.AutoModelForCausalLM.from_config(whole, attn_implementation="eager").double().eval()


def test_a_soft_cap_is_refused_and_its_absence_is_not():
    """Gemma 2 caps the scores of its attention; left out without a word, other tokens would be written."""
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
    ids = torch.tensor([[5, 6, 7, 8, 9, 3, 4]])
    uncapped, capped = gemma(attn_logit_softcapping=None), gemma(attn_logit_softcapping=0.05)
    alone = [one.generate(ids, suppress_tokens=[31], **options) for one in (uncapped, capped)]
    assert not torch.equal(*alone), "the cap changes the tokens"
    assert torch.equal(alone[0], uncapped.generate(ids, custom_generate=sbd, mask_token_id=31, **options))
    with pytest.raises(UserError, match="attention asks for softcap"):
        capped.generate(ids, custom_generate=sbd, mask_token_id=31, **options)
    assert capped.config._attn_implementation == "eager"


@pytest.fixture
def modules_here(tmp_path, monkeypatch):
    """Where transformers copies the code of a repository to before it runs it."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path / "modules"


@pytest.mark.parametrize("form", ["callable", "directory"])
def test_the_reference_model_answers_as_its_arm_does(form, modules_here):
    """Word problems in text, batch of 4 with the tokenizer's own padding, both forms of custom_generate; float64, since two
    sessions may round a near-tie differently below it. The passes come with return_dict_in_generate.
    """
    folder = REFERENCE_DIR / "sbd"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    texts = [one.prompt for one in problems(TASKS["word_problems"], "test", 4, 2)]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    trusted = {"custom_generate": DIRECTORY, "trust_remote_code": True} if form == "directory" else {"custom_generate": sbd}
    arm = {"method": "sbd", "block_size": 16, "gamma": 0.1}
    out = model.generate(
        **inputs, **trusted, arm=arm, mask_token_id=tokenizer.mask_token_id, max_new_tokens=60, return_dict_in_generate=True
    )
    case = single_case(arm, {"model": {"reference": "sbd"}, "dtype": "float64", "timed": False})

    engine = open_engine(case.part)
    expected = engine.decode(with_lengths(case, 60), [tuple(engine.tokenizer.encode(text)) for text in texts], 0).generation
    assert [tokens for tokens, _ in cut(out.sequences, inputs["input_ids"].shape[1], engine._model.stop_ids)] == list(
        expected.output_ids
    )
    assert out.generation.passes == expected.passes
    answers = tokenizer.batch_decode(out.sequences[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert all("Answer:" in answer for answer in answers)
    assert modules_here.exists() == (form == "directory")


def test_the_model_is_given_back_as_it_was():
    """Its attention is its own again, after a refusal in the middle too, and generate() alone works on."""
    model = few_words("llama", seed=1)
    inputs = {"input_ids": torch.tensor([[1, 2, 3]])}
    before = model.generate(**inputs, max_new_tokens=5, eos_token_id=None)
    model.generate(**inputs, custom_generate=sbd, mask_token_id=MASK_ID, max_new_tokens=5)
    assert model.config._attn_implementation == "sdpa"
    assert torch.equal(model.generate(**inputs, max_new_tokens=5, eos_token_id=None), before)


def test_sampling_repeats_with_torchs_seed_and_is_the_arms():
    """do_sample with a temperature and no truncation is decoded by the arm at that temperature."""
    model = few_words("llama", seed=1)
    options = {
        "custom_generate": sbd,
        "mask_token_id": MASK_ID,
        "max_new_tokens": 20,
        "eos_token_id": None,
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 0,
    }
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(model.generate(torch.tensor([[1, 2, 3]]), **options))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


class _Forbid(transformers.LogitsProcessor):
    """Somebody's own processor."""

    def __call__(self, input_ids, scores):
        """Nothing."""
        return scores


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_beams": 3}, "num_beams=1"),
        ({"do_sample": True}, "top_k=0"),
        ({"do_sample": True, "top_k": 0, "top_p": 0.9}, "TopPLogitsWarper"),
        ({"repetition_penalty": 1.3}, "RepetitionPenaltyLogitsProcessor"),
        ({"min_new_tokens": 3}, "MinNewTokensLengthLogitsProcessor"),
        ({"logits_processor": [_Forbid()]}, "_Forbid"),
        ({"prompt_lookup_num_tokens": 3}, "greedy decoding and sampling"),
        ({"max_time": 10.0}, "MaxTimeCriteria"),
        ({"output_scores": True, "return_dict_in_generate": True}, "output_scores"),
        ({"attention_mask": torch.tensor([[1, 1, 0]])}, "pad on the left"),
        ({"position_ids": torch.tensor([[4, 5, 6]])}, "position_ids"),
        ({"arm": {"method": "sbd"}}, "gamma is missing"),
        ({"arm": {"method": "sbd", "gamma": [0.1, 0.2]}}, "2 settings"),
        ({"arm": {"method": "sbd", "gamma": 0.1, "temperature": 0.5}}, "do_sample"),
        ({"arm": {"method": "sdb", "gamma": 0.1}}, "'sdb'"),
        ({"mask_token_id": None}, "mask_token_id=tokenizer.mask_token_id"),
    ],
)
def test_what_it_does_not_do_is_refused(options, words):
    """Nothing that would change the tokens is ignored; the message names it and says what is allowed."""
    model = few_words("llama", seed=1)
    given = {"mask_token_id": MASK_ID, "max_new_tokens": 5, **options}
    with pytest.raises((UserError, ScenarioError)) as caught:
        model.generate(torch.tensor([[1, 2, 3]]), custom_generate=sbd, **given)
    assert words in str(caught.value)


def test_a_cache_with_tokens_is_refused():
    """Going on from somebody's cache would answer another prompt."""
    model = few_words("llama", seed=1)
    past = model(torch.tensor([[1, 2]]), use_cache=True).past_key_values
    with pytest.raises(UserError, match="whole prompt"):
        model.generate(
            torch.tensor([[1, 2, 3]]), custom_generate=sbd, mask_token_id=MASK_ID, past_key_values=past, max_new_tokens=4
        )


def test_the_directory_needs_trust_and_sees_a_streamer(modules_here):
    """transformers runs a folder's code only where it is trusted; a streamer reaches it, and is refused by name."""
    model = few_words("llama", seed=1)
    ids = torch.tensor([[1, 2, 3]])
    with pytest.raises((ValueError, OSError), match="trust_remote_code"):
        model.generate(ids, custom_generate=DIRECTORY, trust_remote_code=False, mask_token_id=MASK_ID, max_new_tokens=4)
    with pytest.raises(UserError, match="streamer"):
        model.generate(
            ids, custom_generate=DIRECTORY, trust_remote_code=True, mask_token_id=MASK_ID, max_new_tokens=4, streamer=object()
        )
