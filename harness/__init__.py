"""sbd: does Set Block Decoding really make this model 3-5x faster on this hardware?

Importing the package loads no torch, transformers or pandas; docs/house.md describes the modules. For notebooks:

    import harness
    run = harness.load_run("reports/quickstart")   # samples, rows, passes, arms and predictions as frames
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.analysis.frames import RunFrames, load_run

__version__ = "0.1.0"
"""Version of the program; a record has that of the one that took it, and the version of its own format."""
__all__ = ["RunFrames", "__version__", "load_run"]

_LAZY = {"load_run": "harness.analysis.frames", "RunFrames": "harness.analysis.frames"}


def __getattr__(name: str) -> Any:
    """Load the Python interface on first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
