"""The texts of tokens in the record: of the first decodes only, each token once, special tokens without text."""

from __future__ import annotations

from collections.abc import Sequence

from harness.runner.sample_taking import TokenTexts
from tests.helpers.block_run import sample


class Letters:
    """Spells token 11 as k, 12 as l, ...; 9 is special."""

    def encode(self, text: str) -> list[int]:
        """Not asked for."""
        raise AssertionError(text)

    encode_chat = encode

    def decode(self, ids: Sequence[int]) -> str:
        """One letter a token."""
        return "".join("" if token == 9 else chr(ord("a") + token - 1) for token in ids)


def test_every_token_of_the_first_decodes_is_spelt_once() -> None:
    """Nine distinct ids in the hand-made decode; its second decode has nothing new; a later group, a repeat, another process
    and a warm-up are not spelt; without a tokenizer nothing is.
    """
    later = (sample(group=2), sample(repeat=1), sample(process=1), sample(warmup=True))
    texts = TokenTexts(Letters())
    assert [texts.new_in(one) for one in later] == [{}, {}, {}, {}]
    found = texts.new_in(sample())
    assert found == {"9": "", "11": "k", "12": "l", "13": "m", "14": "n", "15": "o", "21": "u", "22": "v", "23": "w"}
    assert texts.new_in(sample(group=1)) == {}
    assert TokenTexts(None).new_in(sample()) == {}
