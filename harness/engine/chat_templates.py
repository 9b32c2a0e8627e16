"""Fills in a checkpoint's chat template in a process of its own, with limits of time and memory.

A template is a program in jinja that comes with the model. transformers runs it in a sandbox, which keeps it from files, but
not from loops that never end or strings that fill the memory.

Every process of a run fills in the same prompts: a template that asks for the date gets that of the run's begin (UTC), and one
that draws at random draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any, ClassVar

from transformers.utils import chat_template_utils

from harness.models.limited_process import LimitedProcess


class Renderer:
    """A chat template, ready to be filled in. ``special``: the special tokens by name; ``file``: where the template is from."""

    begun: ClassVar[datetime | None] = None
    """When the run that this process takes samples of was begun; None: no run, the date is today's."""

    def __init__(self, template: str, special: Mapping[str, Any], file: str) -> None:
        self._fixed: dict[str, Any] = {"chat_template": template, **{name: str(token) for name, token in special.items()}}
        advice = "correct it, or write chat_template: false into the scenario's workload"
        self._process = LimitedProcess(f"{file}: the chat template", advice)

    def text(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """The messages, up to where the answer begins if one is wanted.

        Raises:
            UserError: the template fails, or exceeds a limit.
        """
        asked = {"add_generation_prompt": answer, "continue_final_message": not answer}
        conversations = [[dict(one) for one in messages]]
        return str(self._process(_render, self._fixed | asked | {"conversations": conversations}, self.begun))


def _render(asked: Mapping[str, Any], begun: datetime | None) -> str:
    module: Any = chat_template_utils  # its render is said to return one text, returns several with their places
    if begun is not None:
        module.datetime = SimpleNamespace(now=lambda: begun)  # which strftime_now asks
    random.seed(0)
    ((text,), _) = module.render_jinja_template(**asked)
    text.encode()  # half of a surrogate pair is no text
    return str(text)
