"""Keeps a calibration per machine, dtype, thread count, model size and engine, because measuring takes 15 s and more."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.hardware.profile import Calibration
from harness.meters.calibration import Progress, measure
from harness.meters.torch_bench import Stepping, TorchBench
from harness.roofline.ceilings import why_unusable


def load_or_calibrate(
    device: str,
    dtype: str,
    threads: int | None,
    model_bytes: int,
    stepping: Stepping,
    progress: Progress = lambda message: None,
) -> Calibration:
    """The cached calibration of this machine, dtype, thread count, model size and engine, or one measured now and cached.

    ``threads``: CPU threads, None for torch's default.
    """
    with TorchBench(device, dtype, threads, stepping) as bench:
        return cached_or_measured(bench, dtype, model_bytes, cache_dir(), progress)


def cached_calibration(
    device: str, dtype: str, threads: int | None, model_bytes: int, stepping: Stepping
) -> Calibration | None:
    """What ``load_or_calibrate`` would find cached, or None: no kernel runs, no buffer is made, no thread count is set."""
    return kept_at(_path(TorchBench(device, dtype, threads, stepping), dtype, model_bytes, cache_dir()), dtype)


def cache_dir() -> Path:
    """``$XDG_CACHE_HOME/sbd``, or ``~/.cache/sbd``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "sbd"


def cached_or_measured(bench: TorchBench, dtype: str, model_bytes: int, folder: Path, progress: Progress) -> Calibration:
    """As ``load_or_calibrate`` on a given bench and folder. An unreadable or outdated file is measured again and replaced."""
    path = _path(bench, dtype, model_bytes, folder)
    if (cached := kept_at(path, dtype)) is not None:
        progress(f"calibration of {cached.created_at} read from {path}")
        return cached
    calibration = measure(bench, dtype, model_bytes, progress)
    if reason := why_unusable(calibration, dtype):
        progress(f"{reason}; measured once more")
        calibration = measure(bench, dtype, model_bytes, progress)
    if why_unusable(calibration, dtype):
        return calibration  # only the record keeps it, with its reason
    try:
        _write(path, calibration)
    except OSError as error:
        progress(f"the calibration could not be cached at {path} ({error.strerror}); the next run measures again")
    return calibration


def _path(bench: TorchBench, dtype: str, model_bytes: int, folder: Path) -> Path:
    key: list[Any] = [Calibration.model_fields["version"].default, bench.device_name, bench.device, bench.engine, bench.threads]
    key += [bench.torch_version, dtype, model_bytes]
    return folder / f"calibration-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]}.json"


def kept_at(path: Path, dtype: str) -> Calibration | None:
    """What is kept there, if ceilings for ``dtype`` follow from it."""
    with suppress(OSError, ValidationError, UnicodeDecodeError):
        cached = Calibration.model_validate_json(path.read_text(encoding="utf-8"))
        if why_unusable(cached, dtype) is None:
            return cached
    return None


def _write(path: Path, calibration: Calibration) -> None:
    """Whole or not at all: a reader never sees a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text(calibration.model_dump_json(indent=1), encoding="utf-8")
    partial.replace(path)
