"""`sbd train`: turn a causal LM into an SBD model, or repeat the reference model's recipe stage by stage."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.errors import MissingExtraError, UserError

if TYPE_CHECKING:
    from harness.engine.training.recipe import TrainRecipe

# Options that mean something beside a recipe; everything else it says itself.
_BESIDE_A_RECIPE = {"recipe", "out", "cpu", "plan", "hardware"}


class Objective(StrEnum):
    """What is trained."""

    sbd = "sbd"
    ntp = "ntp"


def train_command(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="folder for checkpoints and the trained model")] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="YAML with model, data and all settings, or a shipped one: qwen3_0_6b")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="with --recipe: time and memory, modelled; trains nothing")] = False,
    hardware: Annotated[
        list[str] | None, typer.Option(help="with --plan: a hardware profile, or several (see sbd hardware)")
    ] = None,
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
    if sum(one is not None for one in (reference, model, recipe)) != 1:
        raise UserError("give either --reference STAGE, or --model with --data, or --recipe FILE")
    if (plan or hardware) and recipe is None:
        raise UserError("--plan and --hardware need --recipe FILE: the recipe is what is priced")
    if model is not None and data is None:
        raise UserError(f"--model {model} needs --data: a JSONL file of prompts and solutions to train on")
    if recipe is not None:
        from harness.engine.training.recipe import load_recipe

        _nothing_twice(context)
        chosen = load_recipe(recipe)
        if plan:
            from harness.cli.cli_train_plan import render_plan

            print(render_plan(chosen, hardware))
            return
    if out is None:
        raise UserError("--out FOLDER is missing: where checkpoints and the trained model go")
    _need_train_extra()
    if reference is not None:
        from harness.engine.training.reference import train_reference

        print(train_reference(reference, out))
    elif recipe is not None:
        print(_by_recipe(chosen, out, cpu))
    else:
        assert model is not None and data is not None
        settings = {"objective": objective.value, "steps": steps, "batch_size": batch_size, "learning_rate": learning_rate}
        print(_by_options(model, data, settings | {"output_dir": out, "seed": seed, "bf16": bf16, "cpu": cpu}))


def _nothing_twice(context: typer.Context) -> None:
    """A recipe says everything that decides what is trained, so that the file alone repeats it."""
    given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    for name in sorted(set(given) - _BESIDE_A_RECIPE):
        raise UserError(f"--{name.replace('_', '-')} beside --recipe: write it into the recipe, or leave --recipe out")


def _need_train_extra() -> None:
    try:
        import accelerate  # noqa: F401 - the Trainer needs it; say so before loading anything heavy
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"sbd train needs {error.name}; pip install 'sbd-bench[train]'") from error


def _by_options(model: str, data: Path, settings: dict[str, Any]) -> Path:
    from harness.engine.training.fine_tuning import fine_tune, read_pairs
    from harness.engine.training.trainer import TrainingConfig

    return fine_tune(model, read_pairs(data), TrainingConfig(**settings))


def _by_recipe(recipe: TrainRecipe, out: Path, cpu: bool) -> Path:
    from harness.engine.training.fine_tuning import fine_tune, read_pairs
    from harness.engine.training.trainer import TrainingConfig
    from harness.workloads.datasets import dataset_pairs

    if recipe.dataset is not None:
        pairs = dataset_pairs(recipe.dataset, recipe.examples)
    else:
        pairs = read_pairs(Path(str(recipe.data)))[: recipe.examples]
    about = {"version", "name", "model", "revision", "data", "dataset", "examples", "sequence_tokens"}
    config = TrainingConfig(output_dir=out, cpu=cpu, **recipe.model_dump(exclude=about))
    return fine_tune(recipe.model, pairs, config, revision=recipe.revision or "main", longest=recipe.sequence_tokens)
