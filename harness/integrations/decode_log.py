"""What an evaluation program asks of an answer, and the counts and times of the decodes that gave it: a line each, and sums.

For other programs that decode with an arm of ours. Speed is read from a run (`sbd run`): here nothing is warmed up, interleaved
with a baseline or repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import ScenarioError, StorageError
from harness.frozen import positional
from harness.record.regular_file import open_regular
from harness.record.trace import Generation

NO_MEASUREMENT = "decoded once, without warm-up or a baseline: counts are exact, times are no measurement (sbd run makes one)"


Answer = dict[str, Any]
"""The counts of one row of a batch, and its batch's times."""


def answers(generation: Generation, batch: int, prefill_s: float, decode_s: float) -> list[Answer]:
    """Every row of a decode; ``batch`` counts decodes. ``passes``: forward passes after prefill in which the row was active;
    ``query_tokens``: what it fed in them. ``prefill_s`` and ``decode_s`` are its batch's: rows of a batch share their passes.
    """
    return [
        {
            "prompt_tokens": generation.prompt_tokens[row],
            "output_tokens": len(generation.output_ids[row]),
            "decode_tokens": generation.decode_tokens(row),
            "passes": generation.nfe(row),
            "query_tokens": sum(each.query_tokens[row] for each in generation.decode_passes if each.active[row]),
            "stop_reason": generation.stop_reasons[row],
            "batch": batch,
            "batch_rows": len(generation.prompt_tokens),
            "prefill_s": prefill_s,
            "decode_s": decode_s,
        }
        for row in range(len(generation.prompt_tokens))
    ]


def summary(given: Sequence[Answer]) -> dict[str, object]:
    """Sums over all answers; a ratio without a divisor is None. NFE speedup: decode tokens ÷ passes."""
    tokens, passes, fed = (sum(answer[name] for answer in given) for name in ("decode_tokens", "passes", "query_tokens"))
    batches = {answer["batch"]: answer for answer in given}.values()
    decode_s = sum(batch["decode_s"] for batch in batches)
    return {
        "answers": len(given),
        "decode_tokens": tokens,
        "passes": passes,
        "nfe_speedup": tokens / passes if passes else None,
        "query_tokens": fed,
        "query_tokens_per_decode_token": fed / tokens if tokens else None,
        "prefill_s": sum(batch["prefill_s"] for batch in batches),
        "decode_s": decode_s,
        "decode_s_per_token": decode_s / tokens if tokens else None,
        "note": NO_MEASUREMENT,
    }


class DecodeLog:
    """Answers as they come; with a ``file``, one JSON object a line: {"event": "begin" | "answer" | "summary", ...}."""

    def __init__(self, file: Path | None, about: Mapping[str, object]) -> None:
        self._file = file
        self._found: list[Answer] = []
        self._write({"event": "begin", **about}, os.O_TRUNC)

    def add(self, answer: Answer, about: Mapping[str, object]) -> None:
        """Keep one answer, with what it answers."""
        self._found.append(answer)
        self._write({"event": "answer", **about, **answer})

    def summarise(self) -> dict[str, object]:
        """The sums so far, also written to the file."""
        sums = summary(self._found)
        self._write({"event": "summary", **sums})
        return sums

    def _write(self, line: Mapping[str, object], flags: int = os.O_APPEND) -> None:
        if self._file is None:
            return
        try:
            with os.fdopen(open_regular(self._file, flags | os.O_WRONLY | os.O_CREAT), "wb") as out:
                out.write(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
        except OSError as error:
            raise StorageError(f"{self._file}: cannot write the log: {error.strerror}; give log= a file in a folder") from error


@positional
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
