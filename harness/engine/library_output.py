"""Keeps the bars and the remarks of transformers off the terminal while it loads; its bars feed ours instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging import ERROR
from typing import Any

from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import modeling_gguf_pytorch_utils
from transformers.utils import logging

from harness.progress import tell_share


class ToldBar:
    """Stands in for a tqdm bar (its interface as transformers uses it) and tells the share that is done."""

    def __init__(self, iterable: Any = None, *_: Any, total: float | None = None, **__: Any) -> None:
        self._iterable = iterable
        known = total if total is not None else len(iterable) if hasattr(iterable, "__len__") else None
        self.total, self.n = known, 0.0

    def __iter__(self) -> Iterator[Any]:
        for one in self._iterable:
            yield one
            self.update()

    def __enter__(self) -> ToldBar:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def update(self, n: float = 1) -> None:
        """So many steps more are done."""
        self.n += n
        if self.total:
            tell_share(self.n / self.total)

    def __getattr__(self, name: str) -> Callable[..., None]:
        """set_description, set_postfix, refresh, close and the like change only what a bar shows."""
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: None


@contextmanager
def libraries_silent() -> Iterator[None]:
    """Within it transformers says errors only, draws no bar of its own and tells ours; the hub's bars are off."""
    said, hubs_off = logging.get_verbosity(), are_progress_bars_disabled()
    before = logging.set_tqdm_hook(lambda _, args, kwargs: ToldBar(*args, **kwargs))
    gguf: Any = modeling_gguf_pytorch_utils
    gguf.tqdm = logging.tqdm  # the library's own, which asks the hook
    logging.set_verbosity(ERROR)
    disable_progress_bars()
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
        logging.set_verbosity(said)
        if not hubs_off:
            enable_progress_bars()
