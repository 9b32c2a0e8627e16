"""`sbd train`: turn a causal LM into an SBD model, or repeat the reference model's recipe stage by stage."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.errors import MissingExtraError, UserError


class Objective(StrEnum):
    """What is trained."""

    sbd = "sbd"
    ntp = "ntp"


def train_command(
    out: Annotated[Path, typer.Option(help="folder for checkpoints and the trained model")],
    model: Annotated[str | None, typer.Option(help="a Hugging Face causal LM: hub id or folder")] = None,
    data: Annotated[Path | None, typer.Option(help='JSONL of {"prompt": ..., "solution": ...}')] = None,
    reference: Annotated[
        str | None, typer.Option(help="a stage of the reference models' recipe: base, {sbd,ntp_only}[_end, _more], draft")
    ] = None,
    objective: Annotated[Objective, typer.Option(help="sbd: both losses of eq. 14; ntp: the control")] = Objective.sbd,
    steps: Annotated[int, typer.Option(min=1, help="optimizer steps")] = 1000,
    batch_size: Annotated[int, typer.Option(min=1, help="sequences a step and device")] = 16,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="peak learning rate")] = 3e-4,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    bf16: Annotated[bool, typer.Option(help="bfloat16 mixed precision")] = True,
    cpu: Annotated[bool, typer.Option(help="train on the CPU even where there is a GPU")] = False,
) -> None:
    """Train (paper, algorithm 1 and eq. 14) on the Hugging Face Trainer; called again, it resumes from its last checkpoint."""
    if (reference is None) == (model is None):
        raise UserError("give either --reference STAGE, or --model with --data")
    if model is not None and data is None:
        raise UserError(f"--model {model} needs --data: a JSONL file of prompts and solutions to train on")
    try:
        import accelerate  # noqa: F401 - the Trainer needs it; say so before loading anything heavy
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"sbd train needs {error.name}; pip install 'sbd-bench[train]'") from error
    if reference is not None:
        from harness.modeling.reference_training import train_reference

        print(train_reference(reference, out))
        return
    from harness.modeling.fine_tuning import fine_tune
    from harness.modeling.training import TrainingConfig

    assert model is not None and data is not None
    config = TrainingConfig(
        output_dir=out, objective=objective.value, steps=steps, batch_size=batch_size, learning_rate=learning_rate, seed=seed,
        bf16=bf16, cpu=cpu,
    )  # fmt: skip
    print(fine_tune(model, data, config))
