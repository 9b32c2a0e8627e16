"""Fills in a checkpoint's chat template in a process of its own, with limits of time and memory.

A template is a program in jinja that comes with the model. transformers runs it in a sandbox, which keeps it from files, but
not from loops that never end or strings that fill the memory. One C call of it cannot be interrupted from within the process.

Every process of a run fills in the same prompts: a template that asks for the date gets that of the run's begin (UTC), and one
that draws at random draws the same.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
from collections.abc import Mapping, Sequence
from datetime import datetime
from multiprocessing.pool import Pool
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import finalize

from harness.errors import UserError

TIME_LIMIT_S = 5.0
"""For one prompt; published templates take milliseconds."""
MEMORY_LIMIT_BYTES = 2 * 1024**3
"""Of the process's address space, of which Python and transformers take half a gigabyte."""
START_S = 120.0


class Renderer:
    """A chat template, ready to be filled in. ``special``: the special tokens by name; ``file``: where the template is from."""

    begun: ClassVar[datetime | None] = None
    """When the run that this process takes samples of was begun; None: no run, the date is today's."""

    def __init__(self, template: str, special: Mapping[str, Any], file: str) -> None:
        self._fixed: dict[str, Any] = {"chat_template": template, **{name: str(token) for name, token in special.items()}}
        self._file = file
        self._pool: Pool | None = None

    def text(self, messages: Sequence[Mapping[str, str]], *, answer: bool) -> str:
        """The messages, up to where the answer begins if one is wanted.

        Raises:
            UserError: the template fails, or exceeds a limit.
        """
        asked: dict[str, Any] = self._fixed | {"conversations": [[dict(one) for one in messages]]}
        asked |= {"add_generation_prompt": answer, "continue_final_message": not answer}
        pool = self._started()
        try:
            return str(pool.apply_async(_render, (asked, self.begun)).get(TIME_LIMIT_S))
        except multiprocessing.TimeoutError as error:
            raise self._refused(f"takes more than {TIME_LIMIT_S:g} s for one prompt") from error
        except MemoryError as error:
            raise self._refused(f"needs more than {MEMORY_LIMIT_BYTES // 1024**3} GiB for one prompt") from error
        except ValueError as error:
            raise self._refused(f"fails ({str(error).partition(chr(10))[0][:200]})") from error

    def _refused(self, why: str) -> UserError:
        """The error, after the process that may still compute has ended."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None
        return UserError(
            f"{self._file}: the chat template {why}; correct it, or write chat_template: false into the scenario's workload"
        )

    def _started(self) -> Pool:
        """The process, begun by the first prompt; it ends with this object."""
        if self._pool is None:
            self._pool = multiprocessing.get_context("spawn").Pool(1, _limit)
            finalize(self, self._pool.terminate)
            try:
                self._pool.apply_async(_ready).get(START_S)
            except multiprocessing.TimeoutError as error:
                raise UserError(
                    f"the process that fills in chat templates has not started within {START_S:g} s; try again when the "
                    'machine does less. In a script of your own, keep what it does under `if __name__ == "__main__":`'
                ) from error
        return self._pool


def _limit() -> None:
    from transformers.utils.chat_template_utils import render_jinja_template  # noqa: F401 - loaded off the limits

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))


def _ready() -> None:
    """Answered as soon as the process is."""


def _render(asked: Mapping[str, Any], begun: datetime | None) -> str:
    from transformers.utils import chat_template_utils

    module: Any = chat_template_utils  # its render is said to return one text, returns several with their places
    if begun is not None:
        module.datetime = SimpleNamespace(now=lambda: begun)  # which strftime_now asks
    random.seed(0)
    try:
        texts, _ = module.render_jinja_template(**asked)
    except MemoryError:
        raise
    except Exception as error:  # jinja's own errors do not survive the way to another process
        raise ValueError(f"{type(error).__name__}: {error}") from None
    return str(texts[0])
