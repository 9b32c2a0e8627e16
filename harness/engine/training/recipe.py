"""A training recipe: which model becomes an SBD model, on what, with which settings. The one input of ``sbd train --recipe``.

Loading touches no model, data, device or network; a mistake is refused with its file, line and remedy.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from harness.config_file import Count, CountOrZero, Flag, Name, NonNegative, StrictModel, Text, read_yaml
from harness.errors import ScenarioError
from harness.paths import data_dir
from harness.workloads.spec import DatasetChoice


class TrainRecipe(StrictModel):
    """The whole file.

    ``model``            a Hugging Face causal LM: hub id (with ``revision``) or folder
    ``data``, ``dataset``  one of them: a JSONL file of {"prompt": ..., "solution": ...}, or a dataset whose ``answer`` is the
                         solution, all of it or its first ``examples`` rows
    ``sequence_tokens``  pairs that are longer, end of sequence included, are left out
    ``batch_size``       sequences that a forward pass reads; an optimizer step reads ``accumulate`` times as many
    ``checkpoint_activations``  keep the inputs of the layers only, and compute the rest a second time in the backward pass
    """

    version: Literal[1]
    name: Name
    model: Text
    revision: Text | None = None
    data: Text | None = None
    dataset: DatasetChoice | None = None
    examples: Count | None = None
    sequence_tokens: Annotated[int, Field(strict=True, ge=2)]
    objective: Literal["sbd", "ntp"] = "sbd"
    steps: Count
    batch_size: Count
    accumulate: Count = 1
    learning_rate: NonNegative
    warmup_steps: CountOrZero = 200
    weight_decay: NonNegative = 0.1
    adam_beta2: NonNegative = 0.999
    schedule: Text = "cosine"
    seed: CountOrZero = 1
    bf16: Flag = True
    checkpoint_activations: Flag = False
    save_steps: Count = 500

    @field_validator("model", "data")
    @classmethod
    def _from_the_files_folder(cls, path: str | None, info: ValidationInfo) -> str | None:
        """A path that exists beside the recipe is meant from there; a model may also be a hub id."""
        base = (info.context or {}).get("base")
        if path is None or base is None:
            return path
        local = Path(base, os.path.expanduser(path))
        if local.exists():
            return str(local.resolve())
        if info.field_name == "data" or path.startswith((".", "/", "~")):
            raise ValueError(f"there is no {local}; give a path that exists, from the folder of this file")
        return path

    @model_validator(mode="after")
    def _one_source(self) -> TrainRecipe:
        if (self.data is None) == (self.dataset is None):
            raise ValueError("exactly one of data, dataset is needed: what is trained on")
        if self.dataset is not None and self.dataset.answer is None:
            raise ValueError("dataset: answer is missing: it is the solution that is learnt")
        return self


def load_recipe(given: Path) -> TrainRecipe:
    """Read a recipe, or a shipped one by its bare name; paths in it are resolved against its folder.

    Raises:
        ScenarioError: with ``file:line: key: given, allowed, what to do`` per mistake.
    """
    folder = data_dir("scenarios") / "train"
    file = given if given.exists() or len(given.parts) > 1 else folder / f"{given}.yaml"
    if not file.is_file():
        shipped = ", ".join(sorted(one.stem for one in folder.glob("*.yaml")))
        raise ScenarioError(f"{given}: there is no such recipe; give a path, or a shipped name: {shipped}")
    document = read_yaml(file, when_empty="write a training recipe (start from scenarios/train/qwen3_0_6b.yaml)")
    try:
        return TrainRecipe.model_validate(document.data, context={"base": file.parent.resolve()})
    except ValidationError as error:
        raise ScenarioError(*document.describe(error)) from error
