"""A tokenizer of letters."""

from __future__ import annotations


class Letters:
    """One id per letter."""

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt."""
        return [ord(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        """Text of an answer."""
        return "".join(map(chr, ids))

    def remark(self, ids: list[int]) -> None:
        """Nothing is odd."""
