"""`sbd train`: turns a causal LM into an SBD model, or repeats the reference model's recipe stage by stage; `sbd eval`.

`sbd train --recipe FILE --plan` prints what the training will take, modelled.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from typer import Context, Option, Typer

from harness.cli.output import Amount, Number, lines_of, show
from harness.cli.progress import TerminalProgress
from harness.errors import MissingExtraError, UserError
from harness.formatting import one_line
from harness.hardware.profile import load_profile
from harness.models import KNOWN_SHAPES, ModelShape
from harness.models.choice import REMOTE_CODE, HuggingFaceModel, shape_of
from harness.models.known import KNOWN_MODELS
from harness.training.recipe import UTILISATION, TrainRecipe, load_recipe, training_cost
from harness.workloads.datasets import dataset_pairs

# Options that are allowed beside a recipe, which sets everything else.
_BESIDE_A_RECIPE = {"recipe", "out", "cpu", "plan", "hardware"}


# lm_eval reads everything after the command, --help too.
EVAL_CONTEXT = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
eval_app = Typer(add_completion=False, rich_markup_mode=None)


@eval_app.command(context_settings=EVAL_CONTEXT)
def eval_command(context: Context) -> None:
    """Run tasks of the LM Evaluation Harness with an arm of ours: `lm_eval run --model sbd` with the arguments given here.

    --trust-remote-code is ours: it lets a model whose scenario or arguments ask for it run code of its own.
    lm_eval up to 0.4.13 looks for models in its own package only; where it reads entry points the two are the same.
    """
    if importlib.util.find_spec("lm_eval") is None and set(context.args) & {"--help", "-h"}:
        show(f"{context.get_help()}\n\nlm_eval, which reads all other options, is not here: pip install 'sbd-bench[eval]'")
        return
    try:
        from lm_eval.__main__ import cli_evaluate

        from harness.integrations.lm_eval import REMOTE_CODE_GRANTED  # makes the name sbd known to lm_eval
    except ImportError as error:
        raise MissingExtraError(f"sbd eval needs {error.name}; pip install 'sbd-bench[eval]'") from error
    REMOTE_CODE_GRANTED.set(REMOTE_CODE in context.args)
    given = [one for one in context.args if one != REMOTE_CODE]
    named = [] if any(one == "--model" or one.startswith("--model=") for one in given) else ["--model", "sbd"]
    before = sys.argv
    sys.argv = ["lm_eval", "run", *named, *given]
    try:
        cli_evaluate()
    finally:
        sys.argv = before


def train_command(
    context: Context,
    out: Path | None = None,
    recipe: Path | None = None,
    plan: bool = False,
    hardware: list[str] | None = None,
    model: str | None = None,
    data: Path | None = None,
    reference: str | None = None,
    objective: Literal["sbd", "ntp"] = "sbd",
    steps: Number = 1000,
    batch_size: Number = 16,
    learning_rate: Amount = 3e-4,
    seed: Annotated[int, Option(min=0)] = 1,
    bf16: bool = True,
    cpu: Annotated[bool, Option()] = False,
) -> None:
    """Train (paper, algorithm 1 and eq. 14), or a gated adapter, on the Hugging Face Trainer; called again, it resumes.

    Args:
        out: folder for checkpoints and the trained model
        recipe: YAML with model, data and all settings, or a shipped one: qwen3_0_6b
        plan: with --recipe: time and memory, modelled; trains nothing
        hardware: with --plan: a hardware profile, or several (see sbd hardware)
        model: a Hugging Face causal LM: hub id or folder
        data: JSONL of {"prompt": ..., "solution": ...}
        reference: a stage of the reference models' recipe: base, {sbd,ntp_only}[_end, _more], draft
        objective: sbd: both losses of eq. 14; ntp: the control
        steps: optimizer steps
        batch_size: sequences a step and device
        learning_rate: peak learning rate
        bf16: bfloat16 mixed precision
        cpu: train on the CPU even where there is a GPU
    """
    if sum(one is not None for one in (reference, model, recipe)) != 1:
        raise UserError("give either --reference STAGE, or --model with --data, or --recipe FILE")
    if (plan or hardware) and recipe is None:
        raise UserError("--plan and --hardware need --recipe FILE: the recipe is what is priced")
    if model is not None and data is None:
        raise UserError(f"--model {model} needs --data: a JSONL file of prompts and solutions to train on")
    if recipe is not None:
        given = [name for name in context.params if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
        for name in sorted(set(given) - _BESIDE_A_RECIPE):  # so that the file alone repeats the training
            raise UserError(f"--{name.replace('_', '-')} beside --recipe: write it into the recipe, or leave --recipe out")
        chosen = load_recipe(recipe)
        if plan:
            show(render_plan(chosen, hardware))
            return
    if out is None:
        raise UserError("--out FOLDER is missing: where checkpoints and the trained model go")
    _need_train_extra()
    if reference is not None:
        from harness.training.reference import train_reference

        trained = train_reference(reference, out)
    elif recipe is not None:
        trained = _by_recipe(chosen, out, cpu)
    else:
        from harness.training.fine_tuning import fine_tune, read_pairs
        from harness.training.trainer import TrainingConfig

        assert model is not None and data is not None
        settings: dict[str, object] = {"output_dir": out, "objective": objective, "steps": steps, "batch_size": batch_size}
        settings |= {"seed": seed, "learning_rate": learning_rate, "bf16": bf16, "cpu": cpu}
        trained = fine_tune(model, read_pairs(data), TrainingConfig.model_validate(settings))
    show(one_line(str(trained)))


def _need_train_extra() -> None:
    try:
        import accelerate  # noqa: F401 - the Trainer needs it; fail before loading anything heavy
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(f"sbd train needs {error.name}; pip install 'sbd-bench[train]'") from error


def _by_recipe(recipe: TrainRecipe, out: Path, cpu: bool) -> Path:
    from harness.training.fine_tuning import fine_tune, read_pairs
    from harness.training.trainer import TrainingConfig

    own = set(TrainingConfig.model_fields)
    config = TrainingConfig(output_dir=out, cpu=cpu, **recipe.model_dump(include=own))
    if recipe.adapter is not None:
        from harness.training.adapter_training import train_adapter

        one_by_one = config.model_copy(update={"sampling": "sequential"})
        return train_adapter(recipe, one_by_one, TerminalProgress(sys.stderr, what="batches"))
    if recipe.dataset is not None:
        pairs = dataset_pairs(recipe.dataset, recipe.examples)
    else:
        pairs = read_pairs(Path(str(recipe.data)))[: recipe.examples]
    return fine_tune(recipe.model, pairs, config, revision=recipe.revision or "main", longest=recipe.sequence_tokens)


DEVICES = ("h100-sxm", "a100-80-sxm", "l40s", "rtx-4090")
GIGA, HOUR_S = 1e9, 3600.0


def render_plan(recipe: TrainRecipe, hardware: Sequence[str] | None = None) -> str:
    """Operations, memory, and hours on each device.

    Raises:
        UserError and its kind: an adapter is trained; the model's shape or a device is unknown.
    """
    if recipe.adapter is not None:
        raise UserError(
            "--plan prices the training of all weights, and this recipe trains an adapter on masked slots alone; leave --plan "
            "out: progress tells the time left after some steps"
        )
    shape = shape_of_recipe(recipe)
    cost = training_cost(recipe, shape)
    per_step = recipe.batch_size * recipe.accumulate  # on one device
    lines = [
        f"{recipe.name}: modelled, not measured; upper bounds for pairs shorter than {recipe.sequence_tokens} tokens",
        f"model        {recipe.model}, {shape.params:,} parameters",
        f"steps        {recipe.steps:,} of {per_step} pairs ({recipe.batch_size} at a time), "
        f"{recipe.steps * per_step:,} in all",
        f"work         {cost.total_flops:.3g} FLOP = steps x batches a step x {cost.passes_worth} forward passes' worth x "
        f"{cost.forward_flops:.3g} FLOP of {cost.positions:,} positions",
        f"memory       {cost.memory_bytes / GIGA:.1f} GB = weights, gradients, Adam {cost.state_bytes / GIGA:.1f} + bfloat16 "
        f"copy {cost.copy_bytes / GIGA:.1f} + activations {cost.activation_bytes / GIGA:.1f} "
        f"+ logits {cost.logit_bytes / GIGA:.1f}",
    ]
    for profile in map(load_profile, hardware or DEVICES):
        peak, there, price = (
            figure.value for figure in (profile.peak_flops_per_s["bfloat16"], profile.memory_bytes, profile.price_usd_per_hour)
        )
        if peak is None:
            lines.append(f"{profile.name:<12} no bfloat16 peak is known")
            continue
        hours, fits = cost.seconds(peak) / HOUR_S, ""
        if there is not None:
            fits = f", {'fits' if cost.memory_bytes < there else 'does not fit'} into {there / GIGA:.0f} GB"
        paid = "" if price is None else f", {hours * price:.0f} USD at {price:.2f} an hour"
        lines.append(f"{profile.name:<12} {hours:.1f} h{fits}{paid}")
    return lines_of(*lines, f"time         FLOP / (bfloat16 peak x {UTILISATION:g}), an assumed utilisation")


def shape_of_recipe(recipe: TrainRecipe) -> ModelShape:
    """The shape from a folder, the hub's cache or the known models.

    Raises:
        UnknownModelError: the config is not of a decoder-only transformer. UserError: the shape is found nowhere.
    """
    by_source = {known.source: name for name, known in KNOWN_MODELS.items()}
    if recipe.model in by_source:
        return KNOWN_SHAPES[by_source[recipe.model]]
    shape, reason = shape_of(HuggingFaceModel(huggingface=recipe.model, revision=recipe.revision))
    if shape is None:
        raise UserError(f"{recipe.model}: its shape is not known: {reason}; download it, or name one of {', '.join(by_source)}")
    return shape
