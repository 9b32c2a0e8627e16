"""What a part decodes, as a scenario says it: built-in tasks, a file of prompts, a dataset, or random tokens."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from harness.config_file import Count, Flag, Frozen, Text
from harness.errors import ScenarioError
from harness.workloads.dataset_choice import DatasetChoice
from harness.workloads.prompts import digest, read_prompts
from harness.workloads.tasks import TASKS

SOURCES = ("tasks", "prompts_file", "dataset", "synthetic")
"""Keys of a workload that say where its prompts come from."""


class Synthetic(Frozen):
    """Random prompt tokens of one length; there is nothing to check in what is written."""

    prompt_tokens: Count


class Workload(Frozen):
    """What is decoded: exactly one of tasks, prompts_file, dataset and synthetic.

    ``prompts`` counts per task; for a file it may be left out and is then all of them. ``prompts_sha256`` is filled in.
    ``cluster``: the field of a file's line, or of a dataset's row, that says which prompts are related (one document, one
    table): related prompts count as fewer in intervals of accuracy. None: every prompt stands by itself.
    """

    tasks: tuple[Text, ...] | None = None
    split: Literal["test", "validation"] = "test"
    # Before the file, which is read with it. As the dataset below: younger than version 1 of the format.
    cluster: Text | None = Field(default=None, exclude_if=lambda value: value is None)
    prompts_file: Text | None = None
    prompts_sha256: str | None = Field(default=None, validate_default=True)
    # Younger than version 1 of the format: left out where it says nothing, so that digests of older files stay what they were.
    dataset: DatasetChoice | None = Field(default=None, exclude_if=lambda value: value is None)
    synthetic: Synthetic | None = None
    prompts: Count | None = Field(default=None, validate_default=True)
    max_new_tokens: Count
    chat_template: Flag = False
    stop_strings: tuple[Text, ...] = ()

    @field_validator("tasks")
    @classmethod
    def _known_tasks(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if names is None:
            return None
        unknown = [name for name in names if name not in TASKS]
        if unknown:
            message = f"unknown task {unknown[0]!r}; allowed: {', '.join(TASKS)}"
            raise PydanticCustomError("unknown_task", "{message}", {"message": message})
        if not names or len(set(names)) < len(names):
            raise ValueError(f"got {list(names)}; name at least one task, each once: {', '.join(TASKS)}")
        return names

    @field_validator("prompts_file")
    @classmethod
    def _readable_prompts(cls, name: str | None, info: ValidationInfo) -> str | None:
        base = (info.context or {}).get("base")
        if name is None or base is None:
            return name
        file = (base / name).resolve()
        try:
            read_prompts(file, info.data.get("cluster"))
        except ScenarioError as error:
            raise ValueError(str(error)) from error
        return str(file)

    @field_validator("prompts_sha256")
    @classmethod
    def _pinned_prompts(cls, wanted: str | None, info: ValidationInfo) -> str | None:
        """Fill in the file's digest, so that a run is never continued with other prompts; a given one must agree."""
        file = info.data.get("prompts_file")
        if file is None or (info.context or {}).get("base") is None:
            return wanted
        found = digest(Path(file))
        if wanted not in {None, found}:
            raise ValueError(f"got {wanted}, but {file} has {found}; the prompts are not the ones meant, or remove the key")
        return found

    @field_validator("prompts")
    @classmethod
    def _enough_prompts(cls, wanted: int | None, info: ValidationInfo) -> int | None:
        """Count the file's prompts; runs after prompts_file because fields are checked in order."""
        file = info.data.get("prompts_file")
        if file is None or (info.context or {}).get("base") is None:
            return wanted
        found = len(read_prompts(Path(file), info.data.get("cluster")))
        if wanted is not None and wanted > found:
            raise ValueError(f"got {wanted}, but {file} has {found} prompts; ask for at most {found}")
        return wanted or found

    @model_validator(mode="after")
    def _one_source(self) -> Workload:
        given = [key for key in SOURCES if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"exactly one of {', '.join(SOURCES)} is needed, got {', '.join(given) or 'none'}")
        if self.cluster is not None and self.prompts_file is None and self.dataset is None:
            raise ValueError("cluster names a field of a prompts_file or a dataset, and there is neither; remove it")
        if self.prompts is None:
            raise ValueError("prompts is missing: say how many prompts (per task) to decode, at least 1")
        return self

    @property
    def task_names(self) -> tuple[str, ...]:
        """The built-in tasks, or one name that stands for the file, the dataset or the synthetic prompts."""
        if self.tasks is not None:
            return self.tasks
        path = self.prompts_file if self.dataset is None else self.dataset.path
        return ("synthetic",) if path is None else (re.sub(r"[^\w.-]", "_", Path(path).stem),)

    @property
    def prompt_count(self) -> int:
        """Prompts per task; known once the scenario is loaded."""
        assert self.prompts is not None  # _one_source
        return self.prompts
