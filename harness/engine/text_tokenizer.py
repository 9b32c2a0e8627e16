"""A transformers tokenizer as workloads and decoders ask it, and its chat template.

A chat template is a program in jinja that comes with the model. transformers runs it in a sandbox, which keeps it from files,
but not from loops that never end or strings that fill the memory. So it is filled in by a process of its own, with limits.
That process imports this module, so nothing here may load torch.

Every process of a run fills in the same prompts: a template that asks for the date gets that of the run's begin (UTC), and one
that draws at random draws the same.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from transformers.utils import chat_template_utils

from harness.errors import UserError
from harness.models.limited_process import LimitedProcess, encode, load


def _render(asked: Mapping[str, object], begun: datetime | None) -> str:
    module: Any = chat_template_utils  # its render is said to return one text, returns several with their places
    if begun is not None:
        module.datetime = SimpleNamespace(now=lambda: begun)  # which strftime_now asks
    random.seed(0)
    ((text,), _) = module.render_jinja_template(**asked)
    text.encode()  # half of a surrogate pair is no text
    return str(text)


class TextTokenizer:
    """A transformers tokenizer as a harness.workloads.loader.Tokenizer."""

    begun: ClassVar[datetime | None] = None
    """When the run that this process takes samples of was begun; None: no run, the date is today's."""

    def __init__(self, tokenizer: Any, template_file: str = "tokenizer_config.json", ends: Collection[int] = ()) -> None:
        """``template_file``: where the chat template is from, for messages. ``has_template``: whether there is one.
        ``ends``: what ends an answer.
        """
        self._tokenizer, self._template_file = tokenizer, template_file
        self.has_template = bool(getattr(tokenizer, "chat_template", None))
        self._ends = ends

    @cached_property
    def vocabulary(self) -> dict[str, int]:
        """Every token with its id."""
        return dict(self._tokenizer.get_vocab())

    @property
    def digest(self) -> str | None:
        """SHA-256 of the tokenizer's own JSON form; None for one without (a slow tokenizer)."""
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return None if backend is None else hashlib.sha256(backend.to_str().encode()).hexdigest()

    @cached_property
    def _process(self) -> LimitedProcess | None:
        """Where the library tokenizers splits texts as the model's files say; None: other code does, here."""
        if not getattr(self._tokenizer, "is_fast", False):
            return None
        text, folder = self._tokenizer.backend_tokenizer.to_str(), Path(self._template_file).parent
        process = LimitedProcess(f"{folder}: the tokenizer", "give the tokenizer.json of its authors", len(text))
        process(load, text, self._tokenizer.split_special_tokens)
        return process

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Ids with the model's special tokens, or without. Raises UserError: it takes too much time or memory."""
        if self._process is None:
            return list(self._tokenizer(text, add_special_tokens=special)["input_ids"])
        return list(self._process(encode, text, special))

    def encode_more(self, text: str) -> list[int]:
        """Ids of text after other text: no special tokens."""
        return self.encode(text, special=False)

    def encode_chat(self, text: str, turns: Sequence[Mapping[str, str]] = ()) -> list[int]:
        """Ids of one user message, or of ``turns``, in the chat template; of a text that is rendered already, as it is."""
        rendered = self.chat_text(turns or [{"role": "user", "content": text}], answer=True)
        rest = rendered.rpartition(text.strip() or text)[2].strip()
        return self.encode(text) if rest and rest in text else self.encode_more(rendered)

    @cached_property
    def _chat_template(self) -> dict[str, object]:
        """The template, and the special tokens by name."""
        try:
            template = self._tokenizer.get_chat_template()
        except ValueError as error:
            raise UserError(f"{self._template_file}: holds no chat template that can be used ({error})") from error
        return {"chat_template": template, **{name: str(token) for name, token in self._tokenizer.special_tokens_map.items()}}

    @cached_property
    def _template_process(self) -> LimitedProcess:
        advice = "correct it, or write chat_template: false into the scenario's workload"
        return LimitedProcess(f"{self._template_file}: the chat template", advice)

    def chat_text(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """Messages of ``role`` and ``content`` in the chat template, up to where the answer begins if one is wanted.

        Raises:
            UserError: there is no template, it fails, or it takes too long or too much memory.
        """
        asked = self._chat_template | {
            "add_generation_prompt": answer,
            "continue_final_message": not answer,
            "conversations": [[dict(message) for message in messages]],
        }
        return str(self._template_process(_render, asked, self.begun))

    def remark(self, ids: Sequence[int]) -> str | None:
        """What the special tokens of a prompt are hardly meant to be, in words; None: nothing. UserError: it has no token."""
        if not ids:
            raise UserError(f"{self._template_file}: the tokenizer or the chat template makes no token of a prompt; correct it")
        if ids[-1] in (*self._ends, self._tokenizer.eos_token_id):
            return (
                f"prompts end with {self._tokenizer.decode(ids[-1:])}, which ends an answer, so nothing is left to say; change "
                "the tokenizer (add_eos_token, post_processor) or the chat template"
            )
        if ids[:1] == ids[1:2] and ids[0] in self._tokenizer.all_special_ids:
            return (
                f"prompts begin with {self._tokenizer.decode(ids[:1])} twice: the text holds what the tokenizer adds; take it "
                "out of the text, or set add_bos_token: false"
            )
        return None

    @property
    def prefix_id(self) -> int | None:
        """The token before a text without a context: the one that begins a sequence, else the one that ends it."""
        begin: int | None = self._tokenizer.bos_token_id
        end: int | None = self._tokenizer.eos_token_id
        return end if begin is None else begin

    def decode(self, ids: Sequence[int]) -> str:
        """Text without special tokens, made in this process, because stops are looked for within the clock."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
