"""Keeps the bars and the remarks of transformers off the terminal while it loads; its bars feed ours instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import huggingface_hub.utils as hub
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


def _told_bar(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> ToldBar:
    return ToldBar(*args, **kwargs)


@contextmanager
def libraries_silent() -> Iterator[None]:
    """Within it transformers says errors only, draws no bar of its own and tells ours; the hub's bars are off."""
    said, hubs_off = logging.get_verbosity(), hub.are_progress_bars_disabled()
    before = logging.set_tqdm_hook(_told_bar)
    logging.set_verbosity_error()
    hub.disable_progress_bars()
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)
        logging.set_verbosity(said)
        if not hubs_off:
            hub.enable_progress_bars()
