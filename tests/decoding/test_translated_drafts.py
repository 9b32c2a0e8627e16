"""Drafts of a model with another tokenizer: from text to text, and what the target writes with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import transformers

from harness.decoding.drafters import DraftModel, TranslatedDrafts
from harness.decoding.next_token import decode_next_token
from harness.decoding.request import StopRule
from harness.decoding.speculative import decode_draft_and_check
from harness.engine.drafters import TextTranslation
from harness.engine.static_session import StaticSession
from harness.engine.text_tokenizer import TextTokenizer
from harness.models.choice import REFERENCE_DIR
from harness.training.reference import train_tokenizer
from harness.workloads.tasks import TASKS
from harness.workloads.tasks.problem import problems
from tests.helpers.few_words import Work
from tests.helpers.tiny_model import drain, tiny_config

EOS = 1


@pytest.fixture(scope="module")
def tokenizers():
    """The reference model's, and one of 300 entries that cuts the same text into more and other tokens."""
    ours = transformers.AutoTokenizer.from_pretrained(REFERENCE_DIR / "sbd")
    texts = [one.prompt + one.solution for one in problems(TASKS["word_problems"], "train", 200, 3)]
    return TextTokenizer(ours), TextTokenizer(train_tokenizer(texts, 300))


def both(tokenizers, stop=None):
    """The translation between them."""
    return TextTranslation(*tokenizers, [EOS], stop)


def test_a_row_is_spelt_in_the_drafts_tokens_and_back(tokenizers):
    """Text there and back, behind a prompt and an output; more tokens on the way, for the other vocabulary is smaller."""
    ours, other = tokenizers
    problem = problems(TASKS["word_problems"], "test", 1, 5)[0]
    prompt, written = ours.encode(problem.prompt), ours.encode_more(problem.solution)
    half = len(written) // 2
    translation = both(tokenizers)
    before = translation.to_draft([*prompt, *written[:half]])
    assert other.decode(before) == ours.decode([*prompt, *written[:half]]) and len(before) > len(prompt) + half
    rest = other.encode_more(ours.decode(written)[len(ours.decode(written[:half])) :])
    assert translation.to_target(written[:half], before, rest) == written[half:]


def test_an_output_that_no_tokenizer_would_cut_so_still_gets_the_new_text(tokenizers):
    """Letter by letter: the new text is then cut by itself."""
    ours, other = tokenizers
    letters = [token for letter in "has 12" for token in ours.encode_more(letter)]
    assert letters != ours.encode_more("has 12")
    before = other.encode("has 12")
    added = other.encode_more(" apples.")
    assert ours.decode(both(tokenizers).to_target(letters, before, added)) == " apples."


def test_half_a_letter_is_no_draft(tokenizers):
    """A letter of two bytes, of which the first is drafted."""
    _, other = tokenizers
    before, pair = other.encode("caf"), other.encode_more("é")
    assert len(pair) == 2, "the small vocabulary spells it in bytes"
    translation = both(tokenizers)
    assert other.decode([*before, pair[0]]) != "caf"
    assert tokenizers[0].decode(translation.to_target([], before, pair)) == "é"
    later = translation.to_target([], [*before, pair[0]], pair[1:])
    assert later == []


def test_where_the_draft_stops_the_target_is_told_to(tokenizers):
    """A stop has no text: the target's own stop stands for it, where it has just one."""
    _, other = tokenizers
    before, added = other.encode("It is "), other.encode_more("7.")
    with_stop = both(tokenizers, stop=9).to_target([], before, [*added, EOS])
    assert with_stop[-1] == 9 and with_stop[:-1] == both(tokenizers).to_target([], before, [*added, EOS])
    assert 9 not in both(tokenizers, stop=9).to_target([], before, added)


class Countless(TextTranslation):
    """One that spells every drafted token wrong."""

    def to_target(self, output, before, drafted):
        """Any tokens at all."""
        return [7] * len(drafted)


@pytest.mark.parametrize("kind", [TextTranslation, Countless])
def test_the_target_writes_greedy_ntps_tokens_whatever_the_translation_says(tokenizers, kind):
    """The shipped model in float64, drafts of a random model with the small vocabulary, three prompts in a batch."""
    ours, other = tokenizers
    target = transformers.AutoModelForCausalLM.from_pretrained(REFERENCE_DIR / "sbd", dtype=torch.float64).eval()
    torch.manual_seed(3)
    draft = transformers.LlamaForCausalLM(tiny_config(vocab_size=320)).to(torch.float64).eval()
    texts = [one.prompt for one in problems(TASKS["word_problems"], "test", 3, 5)]
    request = replace(
        Work(tuple(tuple(ours.encode(text)) for text in texts), None, 30).request(),
        suppressed_ids=(3,),
        stop=StopRule(token_ids=frozenset({EOS})),
    )
    never = torch.arange(300, 320)
    who = DraftModel(StaticSession(draft), name="other", tokens=4, never=never, stops=[EOS])
    found = drain(decode_draft_and_check(StaticSession(target), request, TranslatedDrafts(who, kind(ours, other, [EOS], EOS))))
    assert found.output_ids == drain(decode_next_token(StaticSession(target), request)).output_ids
    assert len(found.draft_passes) > 3 * 8, "it drafted"
