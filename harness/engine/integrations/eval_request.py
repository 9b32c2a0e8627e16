"""What a task of an evaluation program asks of a generated answer, as far as an arm can honour it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import ScenarioError


@dataclass(frozen=True, slots=True)
class Asked:
    """What a task wants of an answer: at most so many tokens, and to end before any of these texts."""

    max_new_tokens: int
    until: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, Any], most: int, temperature: float) -> Asked:
        """Read a task's generation_kwargs.

        Raises:
            ScenarioError: they ask for another sampling than the arm's.
        """
        options = dict(options)
        until = options.pop("until", None) or ()
        sampled = options.pop("do_sample", None)
        wanted = float(options.pop("temperature", None) or 0.0)
        if sampled is None:
            sampled = wanted > 0
        if (wanted or 1.0 if sampled else 0.0) != temperature:
            raise ScenarioError(
                f"the task samples at temperature {wanted if sampled else 0:g}, the arm at {temperature:g}; "
                "give the arm that temperature, or --gen_kwargs do_sample=False,temperature=0 for a greedy arm"
            )
        length = options.pop("max_gen_toks", None) or options.pop("max_new_tokens", None) or most
        idle = () if sampled else ("top_p", "top_k")
        unknown = ", ".join(name for name, value in options.items() if value is not None and name not in idle)
        if unknown:
            raise ScenarioError(f"generation_kwargs: {unknown} cannot be honoured; allowed: until, max_gen_toks, temperature")
        return cls(int(length), tuple([until] if isinstance(until, str) else until))

    def before_stop(self, text: str) -> str:
        """The text up to the first of ``until``."""
        for stop in self.until:
            text = text.split(stop)[0] if stop else text
        return text
